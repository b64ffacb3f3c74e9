//! Parses the choice of a model on a command line or in a configuration.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::model::Model;
use crate::offline::Offline;
#[cfg(feature = "providers")]
use crate::provider::{BadTarget, Provider, ProviderError, Target};
use crate::scripted::{ScriptError, Scripted};

const PROVIDERS: [&str; 5] = ["anthropic", "openai", "openai-responses", "gemini", "ollama"];

/// A choice of a model.
/// ```
/// use subtend_models::spec::ModelSpec;
/// assert_eq!(ModelSpec::parse("scripted:drill.json"), Ok(ModelSpec::Scripted("drill.json".into())));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelSpec {
    Offline,
    Scripted(PathBuf),
    #[cfg(feature = "providers")]
    Provider(Target),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadModel {
    #[error("unknown model `{spec}`: {hint}{CHOICES}")]
    Unknown {
        spec: String,
        /// A suggestion, as a sentence; may be empty.
        hint: String,
    },
    #[error("`scripted:` needs a file. Write `scripted:FILE`")]
    NoFile,
    #[error(
        "`{0}` is a provider's model, and this build has no providers: build with the feature `providers`, or use \
         `offline` or `scripted:FILE`"
    )]
    NoProviders(String),
    #[cfg(feature = "providers")]
    #[error(transparent)]
    Target(#[from] BadTarget),
    #[error("a base URL has no effect with `{0}`, which does not call a server")]
    NoServer(String),
}

#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error(transparent)]
    Script(#[from] ScriptError),
    #[cfg(feature = "providers")]
    #[error(transparent)]
    Provider(#[from] ProviderError),
}

#[cfg(feature = "providers")]
const CHOICES: &str = "use `offline` (rules, no network), `scripted:FILE` (answers from a file), or a provider's model: \
                     `anthropic/MODEL`, `openai/MODEL`, `openai-responses/MODEL`, `gemini/MODEL`, `ollama/MODEL`";
#[cfg(not(feature = "providers"))]
const CHOICES: &str = "use `offline` (rules, no network) or `scripted:FILE` (answers from a file); this build has no \
                     providers of language models";

impl ModelSpec {
    /// Parses `offline`, `scripted:FILE`, or a provider's model such as `anthropic/MODEL`. The error lists the valid choices.
    pub fn parse(spec: &str) -> Result<Self, BadModel> {
        let spec = spec.trim();
        let provider = spec.split_once('/').map_or(spec, |(provider, _)| provider);
        match (spec, spec.strip_prefix("scripted:")) {
            ("offline", _) => Ok(Self::Offline),
            ("scripted", _) | (_, Some("")) => Err(BadModel::NoFile),
            (_, Some(file)) => Ok(Self::Scripted(file.into())),
            (_, None) if PROVIDERS.contains(&provider) => Self::of_provider(spec),
            (_, None) => Err(BadModel::Unknown { spec: display_name(spec), hint: hint(spec) }),
        }
    }

    #[cfg(feature = "providers")]
    fn of_provider(spec: &str) -> Result<Self, BadModel> {
        Ok(Self::Provider(Target::parse(spec)?))
    }

    #[cfg(not(feature = "providers"))]
    fn of_provider(spec: &str) -> Result<Self, BadModel> {
        Err(BadModel::NoProviders(display_name(spec)))
    }

    /// Sets the server to call. Fails for an invalid address or a local model.
    #[cfg_attr(not(feature = "providers"), expect(unused_variables, reason = "without providers there is no server"))]
    pub fn with_base_url(self, base_url: &str) -> Result<Self, BadModel> {
        match self {
            Self::Offline | Self::Scripted(_) => Err(BadModel::NoServer(self.to_string())),
            #[cfg(feature = "providers")]
            Self::Provider(target) => Ok(Self::Provider(target.with_base_url(base_url)?)),
        }
    }

    /// Builds the model. Reads and checks a script, which gets the name `scripted:FILE`. Finds the key of a provider.
    /// # Errors
    /// If a script cannot be read or is invalid, or if the key of a provider is missing.
    pub fn build(&self) -> Result<Arc<dyn Model>, BuildError> {
        match self {
            Self::Offline => Ok(Arc::new(Offline::new())),
            Self::Scripted(file) => Ok(Arc::new(Scripted::from_file(file)?.with_name(self.to_string()))),
            #[cfg(feature = "providers")]
            Self::Provider(target) => Ok(Arc::new(Provider::new(target.clone())?)),
        }
    }
}

impl fmt::Display for ModelSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Offline => f.write_str("offline"),
            Self::Scripted(file) => write!(f, "scripted:{}", file.display()),
            #[cfg(feature = "providers")]
            Self::Provider(target) => fmt::Display::fmt(target, f),
        }
    }
}

fn display_name(spec: &str) -> String {
    spec.chars().filter(|c| !c.is_control()).take(80).collect()
}

/// Suggests a provider with a similar name, or the provider of a model given without one.
fn hint(spec: &str) -> String {
    let (first, rest) = spec.split_once('/').map_or((spec, None), |(first, rest)| (first, Some(rest)));
    let near = |spec: &str| {
        let ranked = PROVIDERS.iter().chain(&["offline"]).map(|name| (strsim::damerau_levenshtein(spec, name), *name));
        ranked.filter(|(distance, _)| *distance <= 2).min().map(|(_, name)| name)
    };
    let owner = [("claude", "anthropic"), ("gpt-", "openai"), ("gemini", "gemini")]
        .into_iter()
        .find(|(prefix, _)| rest.is_none() && spec.starts_with(prefix));
    match (near(&first.chars().take(40).collect::<String>()), rest, owner) {
        (Some("offline"), None, _) => "did you mean `offline`? ".into(),
        (Some(name), Some(rest), _) if name != "offline" => format!("did you mean `{name}/{}`? ", display_name(rest)),
        (Some(name), None, _) => format!("did you mean `{name}/MODEL`? "),
        (_, None, Some((_, owner))) => format!("did you mean `{owner}/{}`? ", display_name(spec)),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests;
