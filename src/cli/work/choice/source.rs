//! The source of the choice of a model, and the models that files of a workspace may choose.

use std::fmt;

use serde_json::Value;
use subtend::config::{DefaultModel, Key, Loaded, Origin};
use subtend_agents::manifest::Manifest;

use super::super::super::fail::Fail;
use super::super::super::paint::on_one_line;
use super::{MODEL, ModelSetup};

/// Prefix of the provider that needs no key. Its use must be enabled explicitly.
const KEYLESS: &str = "ollama/";

/// The enabled providers. The user must enable the one without a key; a key or a base URL enables the others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Enabled {
    keyless: bool,
}

impl Enabled {
    /// Checks `words` of the command line and the session, base URLs, the user's own file and the environment.
    pub(super) fn detect<'a>(loaded: &Loaded, mut words: impl Iterator<Item = &'a str>, served: bool) -> Self {
        let host = std::env::var_os("OLLAMA_HOST").is_some_and(|host| !host.is_empty());
        let own = |origin: &Origin| matches!(origin, Origin::User(_) | Origin::Variable(_));
        let names =
            loaded.values.iter().filter(|setting| own(&setting.origin)).flat_map(|setting| texts(&setting.value));
        Self { keyless: host || served || words.any(is_keyless) || names.into_iter().any(is_keyless) }
    }

    /// Refuses the recorded model of an imported session if its provider is not enabled: no person of this machine chose it.
    pub(super) fn check_imported(self, model: &str) -> Result<(), Fail> {
        match self.disabled_error(model.strip_prefix("pool:").unwrap_or(model)) {
            Some(why) => Err(Fail::Usage(format!("the session was imported, and its own model cannot answer: {why}"))),
            None => Ok(()),
        }
    }

    /// Returns an error for a model of a provider that is not enabled.
    pub(super) fn disabled_error(self, word: &str) -> Option<String> {
        let refused = !self.keyless && is_keyless(word);
        refused.then(|| {
            let word = word.trim();
            format!(
                "`{word}` belongs to a provider that is not enabled: set `OLLAMA_HOST`, or name the model in your own file \
                 (`subtend config set --user llm.model {word}`) or with --model"
            )
        })
    }
}

fn is_keyless(text: &str) -> bool {
    text.split(',').any(|word| word.trim().starts_with(KEYLESS))
}

fn texts(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => vec![text],
        Value::Array(items) => items.iter().filter_map(Value::as_str).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => Vec::new(),
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ModelOrigin {
    Option,
    Variable,
    Session,
    Agent(String),
    Config(Key, Origin),
    /// No choice: the built-in model answers.
    Default,
}

impl ModelOrigin {
    pub(super) fn by_config(loaded: &Loaded) -> Self {
        let name = match loaded.default_model() {
            DefaultModel::Unset => return Self::Default,
            DefaultModel::Model(_) => "model",
            DefaultModel::Pool(_) => "default_pool",
        };
        let key = Key::from(["llm", name]);
        let origin = loaded.origin(&key);
        Self::Config(key, origin)
    }

    pub(super) fn by_agent(manifest: &Manifest) -> Self {
        let path = manifest.source.path().map(|path| path.display().to_string());
        Self::Agent(path.unwrap_or_else(|| format!("agent `{}`", manifest.name)))
    }
}

impl ModelSetup {
    /// Describes the model that answers in the command's session or a new one of `agent`, and the source of the choice.
    pub(crate) fn line(&self, agent: Option<&Manifest>) -> String {
        match self.model_and_choice(agent) {
            (_, ModelOrigin::Default) => {
                "no model was named: the built-in rule-based model `offline` answers; name another with --model"
                    .to_owned()
            }
            (model, chosen) => {
                let at = self.server(&model).map_or_else(String::new, |server| format!(" at {}", on_one_line(server)));
                format!("model: {}{at} ({})", on_one_line(&model), on_one_line(&chosen.to_string()))
            }
        }
    }
}

impl ModelSetup {
    /// Returns the server of the first of these models, if it is not the provider's own.
    fn server(&self, model: &str) -> Option<&str> {
        let first = model.strip_prefix("pool:").unwrap_or(model).split(',').next()?;
        self.servers.for_model(first).filter(|_| first.contains('/'))
    }
}

impl fmt::Display for ModelOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Option => f.write_str("--model"),
            Self::Variable => write!(f, "${MODEL}"),
            Self::Session => f.write_str("the session's own"),
            Self::Agent(file) => f.write_str(file),
            Self::Config(key, origin) => write!(f, "`{key}` in {origin}"),
            Self::Default => f.write_str("built in"),
        }
    }
}
