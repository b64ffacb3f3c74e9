//! The display of tools and calls for people: names, icons and summaries.

use serde::Serialize;
use subtend_session::ids::Text;

/// The display of a tool; empty fields have defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Display {
    pub name: Text,
    /// A short description.
    pub subtitle: Text,
    pub icon: Text,
    /// The icon of a result; that of the call if empty.
    pub icon_output: Text,
}

impl Display {
    pub fn named(name: impl Into<Text>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// Sets a short description.
    #[must_use]
    pub fn subtitle(mut self, subtitle: impl Into<Text>) -> Self {
        self.subtitle = subtitle.into();
        self
    }

    #[must_use]
    pub fn icons(mut self, call: impl Into<Text>, result: impl Into<Text>) -> Self {
        (self.icon, self.icon_output) = (call.into(), result.into());
        self
    }
}

/// A call as people see it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ShownCall {
    /// The tool; for `use_tool` the one that it calls.
    pub tool: Text,
    pub display: Display,
    /// The arguments, in the tool's own wording.
    pub input: Option<Text>,
    /// The result, in the tool's own wording.
    pub output: Option<Text>,
}
