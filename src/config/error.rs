use std::fmt;

use super::key::Key;
use super::origin::Origin;

/// The error for an invalid configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A file is not valid YAML.
    #[error("{origin} is not valid YAML: {why}")]
    Yaml {
        /// The file.
        origin: Origin,
        /// The message of the parser, on one line.
        why: String,
    },
    /// A key has an invalid value.
    #[error("{origin}: {bad}")]
    Value {
        /// The source of the value.
        origin: Origin,
        /// The key, its value, and the allowed values.
        bad: BadValue,
    },
    /// Values that conflict with each other.
    #[error("{origin}: {why}")]
    Conflict {
        /// The source of the value that conflicts.
        origin: Origin,
        /// The reason, and a remedy.
        why: String,
    },
}

/// A key with an invalid value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadValue {
    /// The path of the key; empty for the whole file.
    pub key: Key,
    /// Its value, truncated for display.
    pub value: String,
    /// The allowed values.
    pub allowed: String,
}

impl fmt::Display for BadValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.key.is_whole() {
            return write!(f, "it holds {}, and must hold {}", self.value, self.allowed);
        }
        write!(f, "`{}` is {}, and must be {}", self.key, self.value, self.allowed)
    }
}

impl std::error::Error for BadValue {}
