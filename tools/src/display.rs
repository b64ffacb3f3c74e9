//! What people see of tools and their calls (M13): names, signs, and what a call takes and gives in a few words.

use serde::Serialize;
use subtend_session::ids::Text;

/// What people see of a tool. What is left empty is shown as it would be without.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Display {
    /// Its name for people.
    pub name: Text,
    /// What it does, in a few words.
    pub subtitle: Text,
    /// The sign of a call.
    pub icon: Text,
    /// The sign of a result; that of the call if empty.
    pub icon_output: Text,
}

impl Display {
    /// A name and nothing else.
    pub fn named(name: impl Into<Text>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// With a few words on what it does.
    #[must_use]
    pub fn subtitle(mut self, subtitle: impl Into<Text>) -> Self {
        self.subtitle = subtitle.into();
        self
    }

    /// With a sign for calls, and one for results.
    #[must_use]
    pub fn icons(mut self, call: impl Into<Text>, result: impl Into<Text>) -> Self {
        (self.icon, self.icon_output) = (call.into(), result.into());
        self
    }
}

/// A call as people see it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Shown {
    /// The tool: of a call through `use_tool` the one that is used.
    pub tool: Text,
    pub display: Display,
    /// What the call takes, where the tool says it in words of its own.
    pub input: Option<Text>,
    /// What it gave, likewise.
    pub output: Option<Text>,
}
