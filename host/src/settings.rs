//! Options of tools, which the embedder stores and the page shows and changes.

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
    /// The key of the option.
    pub key: String,
    /// The tool that the option belongs to.
    pub tool: String,
    /// The name shown to people.
    pub label: String,
    /// A longer description; may be empty.
    pub subtitle: String,
    /// The type of its value.
    pub kind: SettingKind,
    /// The value as text; empty if none is set.
    pub value: String,
    /// The place where the value was set, as people name it: a file or a command-line option.
    pub origin: String,
}

/// Storage of the options of tools. The methods may read and write files.
pub trait Settings: fmt::Debug + Send + Sync {
    /// Lists the options of all tools.
    ///
    /// # Errors
    /// The reason why the options cannot be read.
    fn list(&self) -> Result<Vec<ToolSetting>, String>;

    /// Sets the option `key`.
    ///
    /// # Errors
    /// The reason why the value is refused or cannot be stored.
    fn set(&self, key: &str, value: &str) -> Result<(), String>;
}
