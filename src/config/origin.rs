use std::fmt;
use std::path::PathBuf;

use serde::{Serialize, Serializer};
use subtend_session::escape::on_one_line;

/// The source of a value; a later variant overrides an earlier one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// No source: the default.
    Default,
    /// The user's own file.
    User(PathBuf),
    /// The file of the workspace.
    Project(PathBuf),
    /// An environment variable, by its name.
    Variable(String),
}

impl Origin {
    /// Returns its precedence; the higher one applies.
    pub fn rank(&self) -> u8 {
        match self {
            Self::Default => 0,
            Self::User(_) => 1,
            Self::Project(_) => 2,
            Self::Variable(_) => 3,
        }
    }

    /// Returns its kind as one word.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::User(_) => "user",
            Self::Project(_) => "project",
            Self::Variable(_) => "environment",
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            // A line break in a name could forge a message.
            Self::User(path) | Self::Project(path) => f.write_str(&on_one_line(&path.display().to_string())),
            Self::Variable(name) => write!(f, "${name}"),
        }
    }
}

impl Serialize for Origin {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap as _;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("kind", self.kind())?;
        match self {
            Self::Default => {}
            Self::User(path) | Self::Project(path) => map.serialize_entry("path", &path.display().to_string())?,
            Self::Variable(name) => map.serialize_entry("variable", name)?,
        }
        map.end()
    }
}

/// A setting that has no effect, or not the apparent one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Warning {
    /// Origin of the value.
    pub origin: Origin,
    /// The reason, and a remedy.
    pub message: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.origin, self.message)
    }
}
