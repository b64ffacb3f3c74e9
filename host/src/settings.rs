//! Options of tools, as the embedder keeps them: the page shows and changes them by their type.

use std::fmt;

/// The type of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingKind {
    /// `true` or `false`.
    Boolean,
    /// A text of several lines.
    LongText,
    /// The name of a model.
    Model,
}

/// An option of a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolSetting {
    /// The key under which it is kept.
    pub key: String,
    /// The tool.
    pub tool: String,
    /// The name shown to people.
    pub label: String,
    /// More about it; may be empty.
    pub subtitle: String,
    /// Its type.
    pub kind: SettingKind,
    /// Its value as text; empty where none is set.
    pub value: String,
    /// Where it was set.
    pub origin: String,
}

/// Where options of tools are kept. The methods may read and write files.
pub trait Settings: fmt::Debug + Send + Sync {
    /// Lists the options of all tools.
    ///
    /// # Errors
    /// Why they cannot be read.
    fn list(&self) -> Result<Vec<ToolSetting>, String>;

    /// Sets one.
    ///
    /// # Errors
    /// Why the value is refused or cannot be kept.
    fn set(&self, key: &str, value: &str) -> Result<(), String>;
}
