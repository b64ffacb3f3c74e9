//! Templates: named parameters of minions (children of the tool `minion`), from a configuration.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use subtend_session::ids::Text;

use crate::front::{TOOL_NAMES, is_tool_name};
use crate::name;
use crate::profile::none_if_empty;

/// Parameters of a minion. Absent parameters come from the call and from the options of `minion`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MinionTemplate {
    /// Its purpose, for models.
    pub description: Text,
    /// The minion's message. `{message}` inserts the message of the call; without that placeholder it is appended. Any other `{name}`
    /// inserts a value of the call.
    #[serde(deserialize_with = "none_if_empty")]
    pub message: Option<Text>,
    /// The minion's system prompt, with the same placeholders. It replaces the system prompt of the options.
    #[serde(deserialize_with = "none_if_empty")]
    pub system_prompt: Option<Text>,
    /// The minion's model. It replaces the model of the options.
    #[serde(deserialize_with = "none_if_empty")]
    pub model: Option<Text>,
    /// The tools of a minion whose call does not list tools; an empty list means no tools.
    pub enabled_tools: Option<Vec<Text>>,
    /// True if the minion may use the web; a call may override it.
    pub enable_web: Option<bool>,
    /// True if later runs do not see the messages of a run that did not complete. It replaces the option of the same
    /// name.
    pub rollback_on_error: Option<bool>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the template `{template}` cannot be used: {why}")]
pub struct BadTemplate {
    pub template: Text,
    pub why: String,
}

/// Checks the names of templates and of their tools. Returns [`BadTemplate`] for the first unusable template.
pub fn check(templates: &BTreeMap<Text, MinionTemplate>) -> Result<(), BadTemplate> {
    for (named, template) in templates {
        let bad = |why: String| Err(BadTemplate { template: Arc::clone(named), why });
        if name::check(named).is_err() {
            let why = "a name has 1 to 64 of a-z, 0-9, `-` and `_`, and begins with a letter or a digit";
            return bad(why.to_owned());
        }
        let mut tools = template.enabled_tools.iter().flatten();
        if let Some(tool) = tools.find(|tool| !is_tool_name(tool)) {
            return bad(format!("its `enabledTools` name {tool:?}, which is not a valid name of a tool: {TOOL_NAMES}"));
        }
    }
    Ok(())
}
