use serde_json::Value;
use subtend_agents::yaml;

use super::error::ConfigError;
use super::key::Key;
use super::loaded::check::MAX_WARNINGS;
use super::near::hint;
use super::origin::{Origin, Warning};
use super::shape::Shape;
use super::variable;

/// The values of one file, or of the environment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Layer {
    pub(super) values: Vec<(Key, Value, Origin)>,
    pub(super) warnings: Vec<Warning>,
}

fn is_meant_as_permissions(key: &str) -> bool {
    key.split('.').any(|part| part.to_lowercase().starts_with("permission"))
}

impl Layer {
    /// Parses a file; an empty one is an empty layer.
    ///
    /// # Errors
    /// When it is not YAML, a key has an invalid value, or an unknown key seems to set permissions, which only agent files
    /// and options can. Any other unknown key is a warning.
    pub fn file(origin: Origin, text: &str) -> Result<Self, ConfigError> {
        let value = yaml::parse(text).map_err(|why| ConfigError::Yaml { origin: origin.clone(), why })?;
        let mut found = Shape::whole()
            .parse(&Key::whole(), value)
            .map_err(|bad| ConfigError::Value { origin: origin.clone(), bad })?;
        if let Some((key, _)) = found.unknown.iter().find(|(key, _)| is_meant_as_permissions(&key.to_string())) {
            let why = format!("`{key}` would have no effect: use `permissions` of an agent file, `--allow` or `--ask`");
            return Err(ConfigError::Conflict { origin, why });
        }
        let warning = |(key, near): (Key, Option<String>)| {
            let near = near.map_or_else(String::new, |name| format!("; did you mean `{name}`?"));
            Warning { origin: origin.clone(), message: format!("unknown key `{key}` has no effect{near}") }
        };
        found.unknown.sort_unstable();
        let more = found.unknown.len().saturating_sub(MAX_WARNINGS);
        let mut warnings: Vec<Warning> = found.unknown.into_iter().take(MAX_WARNINGS).map(warning).collect();
        if more > 0 {
            let message = format!("{more} more unknown keys have no effect");
            warnings.push(Warning { origin: origin.clone(), message });
        }
        let values = found.values.into_iter().map(|(key, value)| (key, value, origin.clone())).collect();
        Ok(Self { values, warnings })
    }

    /// Reads the variables `SUBTEND_*` among `all`; empty ones are ignored.
    ///
    /// # Errors
    /// When a variable has an invalid value. An unknown variable is a warning.
    pub fn variables<N: AsRef<str>, V: AsRef<str>>(all: impl IntoIterator<Item = (N, V)>) -> Result<Self, ConfigError> {
        let leaves = Shape::whole().leaves();
        let known: Vec<_> = leaves.into_iter().map(|(key, leaf)| (variable::name(&key), key, leaf)).collect();
        let mut layer = Self::default();
        for (name, text) in all {
            let (name, text) = (name.as_ref(), text.as_ref());
            if variable::is_foreign(name) || text.trim().is_empty() {
                continue;
            }
            let origin = Origin::Variable(name.to_owned());
            let Some((_, key, leaf)) = known.iter().find(|(of, ..)| of == name) else {
                let near = hint(name, known.iter().map(|(name, ..)| name.as_str()));
                let message = format!("unknown variable without effect{near}");
                layer.warnings.push(Warning { origin, message });
                continue;
            };
            let found = leaf
                .parse(key, variable::value(*leaf, text))
                .map_err(|bad| ConfigError::Value { origin: origin.clone(), bad })?;
            layer.values.extend(found.values.into_iter().map(|(key, value)| (key, value, origin.clone())));
        }
        Ok(layer)
    }
}
