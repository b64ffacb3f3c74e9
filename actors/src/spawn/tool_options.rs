//! Tool options: set by people, checked when the runtime starts, and completed with defaults.
//!
//! The default of a model option is the session's initial model. It is in the journal, so the value is the same in every activation and after every
//! restart, even if another agent answers.

use std::sync::Arc;

use serde_json::{Map, Value};
use subtend_agents::dialect::MinionOptions;
use subtend_session::ids::Text;
use subtend_session::state::State;
use subtend_tools::dialect::minion;
use subtend_tools::option::{self, BadOption, ToolOption, ToolOptions};
use subtend_tools::registry::Registry;
use subtend_tools::tool::Tool;

use crate::spawn::agents::Agents;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadToolOptions {
    /// The tool is unknown, or has no options.
    #[error("the tool `{tool}` has no options; tools with options: {known}")]
    NoSuchTool {
        tool: Text,
        /// The tools that have options, as one text.
        known: String,
    },
    #[error("the options of the tool `{tool}` cannot be used: {why}")]
    Bad { tool: Text, why: BadOption },
}

pub(crate) fn check(tools: &Registry, given: &ToolOptions, of_minion: &MinionOptions) -> Result<(), BadToolOptions> {
    for (name, values) in given {
        let Some(tool) = tools.get(name).filter(|tool| !tool.options().is_empty()) else {
            let has = |name: &&Text| tools.get(name).is_some_and(|tool| !tool.options().is_empty());
            let known: Vec<&str> = tools.names().filter(has).map(|name| &**name).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            return Err(BadToolOptions::NoSuchTool { tool: Arc::clone(name), known });
        };
        let bad = |why| BadToolOptions::Bad { tool: Arc::clone(name), why };
        option::check_given(tool.options(), values).map_err(bad)?;
    }
    let bad = |why| BadToolOptions::Bad { tool: minion::NAME.into(), why };
    option::check_given(&minion::options(), &option_values(of_minion)).map_err(bad)
}

/// Returns the option values for minions. Missing values get defaults, as for other tools.
fn option_values(of_minion: &MinionOptions) -> Map<String, Value> {
    let values = serde_json::to_value(of_minion).ok();
    let Some(Value::Object(mut values)) = values else { return Map::new() };
    values.retain(|_, value| !value.is_null());
    values
}

impl Agents {
    pub(crate) fn options_of(&self, state: &State, tool: &dyn Tool) -> Arc<Map<String, Value>> {
        let options = tool.options();
        if options.is_empty() {
            return Arc::clone(&self.no_options);
        }
        let given = self.tool_options.get(&tool.spec().name).cloned().unwrap_or_default();
        fill(state, options, given)
    }

    /// Returns the configured system prompt for minions of `state`'s session, if any, and their model.
    pub(crate) fn minions(&self, state: &State) -> (Option<Text>, Text) {
        let values = fill(state, &minion::options(), option_values(&self.dialects.minion));
        let text = |id: &str| values.get(id).and_then(Value::as_str).filter(|text| !text.trim().is_empty());
        let model = text("model").map_or_else(|| Arc::clone(&state.created.model), Text::from);
        (text("systemPrompt").map(Text::from), model)
    }
}

fn fill(state: &State, options: &[ToolOption], mut given: Map<String, Value>) -> Arc<Map<String, Value>> {
    option::fill(options, &mut given, Some(&*state.created.model));
    Arc::new(given)
}
