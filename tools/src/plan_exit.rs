//! The tool `plan_exit`, with which a planner proposes its plan. An approver decides. The call has no other effect.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::json;
use subtend_session::ids::Text;
use subtend_session::message::ToolSpec;

use crate::dialect::{self, check_prompt};
use crate::result::ToolError;

/// Name of the tool. The name is not reserved: a tool of the host with this name replaces it.
pub const NAME: &str = "plan_exit";

/// The agent that executes approved plans.
pub const EXECUTING_AGENT: &str = "build";

const ABOUT: &str = "\
Propose that your plan be carried out. A person reads it and decides; if they approve it, the session continues with the agent that \
makes changes, which has all of this conversation before it. If they do not, you continue planning.

Call it once, when the plan is complete: every step named with its files, and nothing left to ask. Do not call it to show progress, \
or to ask a question. Put the whole plan into the call: it is what the person is shown.";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanExitArguments {
    plan: String,
}

pub fn spec() -> ToolSpec {
    let schema = json!({
        "type": "object",
        "properties": {"plan": {"type": "string", "description": "The whole plan, as the person is to read it."}},
        "required": ["plan"],
        "additionalProperties": false,
    });
    ToolSpec { name: NAME.into(), description: ABOUT.into(), schema: Arc::new(schema) }
}

/// Parses the plan of a call.
///
/// # Errors
/// If the arguments are invalid, or the plan is empty or too long.
pub fn parse(args: &str) -> Result<Text, ToolError> {
    let arguments: PlanExitArguments = dialect::arguments(NAME, args, "plan")?;
    if arguments.plan.trim().is_empty() {
        return Err(ToolError::bad_args(
            "the plan is empty: the user approves or rejects it by its text, so include all of it",
        ));
    }
    check_prompt("plan", "person", &arguments.plan)?;
    Ok(arguments.plan.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plan_must_not_be_empty() {
        assert_eq!(parse(r#"{"plan":"1. a"}"#).map(|plan| plan.to_string()).ok().as_deref(), Some("1. a"));
        for bad in ["{}", r#"{"plan":" "}"#, r#"{"plan":"1","agent":"build"}"#, "plan"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
