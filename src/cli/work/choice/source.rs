//! Where a model was chosen, and which models files of a workspace may choose.

use std::fmt;

use serde_json::Value;
use subtend::config::{DefaultModel, Key, Loaded, Origin};
use subtend_agents::manifest::Manifest;

use super::super::super::paint::harmless;
use super::{MODEL, ModelSetup};

/// The provider that needs no key: nothing else says that the person uses it.
const KEYLESS: &str = "ollama/";

/// Whether the user enabled the provider without a key. All others are enabled by a key or a base URL.
#[derive(Clone, Copy, Debug)]
pub(super) struct Enabled {
    keyless: bool,
}

impl Enabled {
    /// Reads it from `words` of the command line and of the session, base URLs, the person's own file and the environment.
    pub(super) fn of<'a>(loaded: &Loaded, mut words: impl Iterator<Item = &'a str>, served: bool) -> Self {
        let host = std::env::var_os("OLLAMA_HOST").is_some_and(|host| !host.is_empty());
        let own = |origin: &Origin| matches!(origin, Origin::User(_) | Origin::Variable(_));
        let names =
            loaded.values.iter().filter(|setting| own(&setting.origin)).flat_map(|setting| texts(&setting.value));
        Self { keyless: host || served || words.any(is_keyless) || names.into_iter().any(is_keyless) }
    }

    /// Returns why a model that a file of the workspace names is not used, if it is not.
    pub(super) fn refused(self, word: &str) -> Option<String> {
        let refused = !self.keyless && is_keyless(word);
        refused.then(|| {
            let word = word.trim();
            format!(
                "`{word}` is of a provider that you have not enabled: set `OLLAMA_HOST`, or name the model in your own file \
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
pub(crate) enum Chosen {
    Option,
    Variable,
    Session,
    Agent(String),
    Config(Key, Origin),
    /// By nothing: the built-in model answers.
    Nowhere,
}

impl Chosen {
    pub(super) fn by_config(loaded: &Loaded) -> Self {
        let name = match loaded.default_model() {
            DefaultModel::Unsaid => return Self::Nowhere,
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
    /// Says which model answers in a new session of `agent`, or in the one that the command is about, and who chose it.
    pub(crate) fn line(&self, agent: Option<&Manifest>) -> String {
        match self.model_and_choice(agent) {
            (_, Chosen::Nowhere) => {
                "no model was named: the built-in rule-based model `offline` answers; name another with --model"
                    .to_owned()
            }
            (model, chosen) => {
                let at = self.server(&model).map_or_else(String::new, |server| format!(" at {}", harmless(server)));
                format!("model: {}{at} ({})", harmless(&model), harmless(&chosen.to_string()))
            }
        }
    }
}

impl ModelSetup {
    /// Returns the server that the first of these models is called at, where it is not the provider's own.
    fn server(&self, model: &str) -> Option<&str> {
        let first = model.strip_prefix("pool:").unwrap_or(model).split(',').next()?;
        self.servers.of(first).filter(|_| first.contains('/'))
    }
}

impl fmt::Display for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Option => f.write_str("--model"),
            Self::Variable => write!(f, "${MODEL}"),
            Self::Session => f.write_str("the session's own"),
            Self::Agent(file) => f.write_str(file),
            Self::Config(key, origin) => write!(f, "`{key}` in {origin}"),
            Self::Nowhere => f.write_str("built in"),
        }
    }
}
