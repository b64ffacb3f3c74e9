//! Why a configuration is not taken.

use std::fmt;

use super::key::Key;
use super::origin::Origin;

/// Why a configuration is not taken.
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
    /// A key holds what it cannot.
    #[error("{origin}: {bad}")]
    Value {
        /// The source of the value.
        origin: Origin,
        /// Which key, what it holds, and what is allowed.
        bad: BadValue,
    },
    /// Values that conflict with each other.
    #[error("{origin}: {why}")]
    Together {
        /// The source of the value that conflicts.
        origin: Origin,
        /// The reason, and what to do.
        why: String,
    },
}

/// A key that holds what it cannot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadValue {
    /// The key.
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
