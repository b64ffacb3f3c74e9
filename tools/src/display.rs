//! Names, icons and summaries of tools and calls, for users.

use serde::Serialize;
use subtend_session::ids::Text;

/// Display settings of a tool. Empty fields have defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Display {
    pub name: Text,
    pub subtitle: Text,
    pub icon: Text,
    /// The icon of a result. Defaults to the icon of the call.
    pub icon_output: Text,
}

impl Display {
    pub fn named(name: impl Into<Text>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

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

/// A call as it is shown to users.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RenderedCall {
    /// The name of the tool. For a call of `use_tool`, the tool that it calls.
    pub tool: Text,
    pub display: Display,
    /// The arguments, as the tool describes them.
    pub input: Option<Text>,
    /// The result, as the tool describes it.
    pub output: Option<Text>,
}
