//! The `subagent` dialect: background work in a branch. The caller is notified when the work ends, and can continue the branch.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::json;
use subtend_session::dialect::Dialect;
use subtend_session::ids::Text;
use subtend_session::message::ToolSpec;
use subtend_session::place::Mode;

use super::{
    ContinueRequest, Offered, Request, Source, StartRequest, check_count, check_prompt, label, list_agents,
    optional_text,
};
use crate::result::ToolError;

pub const NAME: &str = "subagent";

/// The default number of iterations of one run.
pub const ITERATIONS: u32 = 10;

/// The message to a branch that continues without a new task.
pub const CONTINUE_PROMPT: &str = "Continue your previous work.";

const ABOUT: &str = "\
Start a subagent that works on a task in the background, in a branch of this conversation with a context of its own. The call \
returns at once; the result comes to you by itself when it is complete, so continue or end your turn.

Use it for research that needs several searches, for analysis that reads many files, and for parts that can run at the same \
time. Do not use it for a single query. It sees none of this conversation: give it the whole task, and use contextFiles and \
context for what it should know from the start. It has the tools that you have, but cannot start subagents.
Good: \"Compare how src/a and src/b parse dates, and list the inputs on which they differ, with file and line.\"
Bad: \"continue with that\"

A subagent that stopped at its maximum of iterations, or that you want to ask more, continues with continueBranchId.";

/// Returns the tool. `agents` are the names and descriptions of the agents that a call can name.
pub fn spec(agents: &[(Text, Text)]) -> ToolSpec {
    let mut description = ABOUT.to_owned();
    if !agents.is_empty() {
        description.push_str("\n\nAgents that can be named:");
        description.push_str(&list_agents(agents));
    }
    let schema = json!({
        "type": "object",
        "properties": {
            "task": {"type": "string", "description": "What it is to accomplish. Needed unless continueBranchId is given."},
            "agent": {"type": "string", "description": "The agent to work as. Default: your own."},
            "tools": {
                "type": "object",
                "additionalProperties": {"type": "array", "items": {"type": "string"}},
                "description": "Tools whose schemas it gets from the start, by agent: {\"agent\": [\"tool\"]}. It may also use its other tools.",
            },
            "contextFiles": {"type": "array", "items": {"type": "string"}, "description": "Files whose content it gets from the start."},
            "context": {"type": "string", "description": "Additional context that it gets from the start."},
            "maxIterations": {"type": "integer", "minimum": 1, "description": format!("It pauses after this many iterations. Default: the number that its agent sets, else {ITERATIONS}. Its agent or a configured limit can lower it.")},
            "maxTokens": {"type": "integer", "minimum": 1, "description": "Maximum output tokens of each answer. Your own maximum still applies."},
            "continueBranchId": {"type": "string", "description": "The branch of an ended subagent of yours to continue."},
        },
        "additionalProperties": false,
    });
    ToolSpec { name: NAME.into(), description: description.into(), schema: Arc::new(schema) }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SubagentArguments {
    task: Option<String>,
    agent: Option<String>,
    tools: Option<BTreeMap<String, Vec<String>>>,
    #[serde(rename = "contextFiles", alias = "context_files")]
    files: Option<Vec<String>>,
    context: Option<String>,
    #[serde(rename = "maxIterations", alias = "max_iterations")]
    iterations: Option<u32>,
    #[serde(rename = "maxTokens", alias = "max_tokens")]
    tokens: Option<u64>,
    #[serde(rename = "continueBranchId", alias = "continue_branch_id")]
    branch: Option<String>,
}

/// Returns the error for a session that cannot start subagents: one of an external caller, or a subagent.
pub(super) fn refusal(offered: &Offered) -> Option<ToolError> {
    if offered.source == Source::Mcp {
        return Some(refusal_error(
            "MCP_NOT_SUPPORTED",
            "Subagents can be started in an internal chat only, not by an MCP client.",
        ));
    }
    if offered.nested && !offered.has(Dialect::Subagent) {
        let message = "A subagent cannot start subagents: say in your answer what else should be examined.";
        return Some(refusal_error("NESTED_SUBAGENT_NOT_ALLOWED", message));
    }
    None
}

fn refusal_error(code: &str, message: &str) -> ToolError {
    ToolError::refused(Dialect::Subagent.refused(code, message).to_string())
}

/// Parses the arguments of a call.
///
/// # Errors
/// Returns an error in the format of a result if the arguments are invalid, the task is empty, or the agent is unknown.
pub fn parse(args: &str, offered: &Offered) -> Result<Request, ToolError> {
    read(args, offered).map_err(|error| {
        let message = Dialect::Subagent.refused("INVALID_ARGUMENTS", &error.message).to_string();
        ToolError { message, ..error }
    })
}

fn read(args: &str, offered: &Offered) -> Result<Request, ToolError> {
    let takes = "task, agent, tools, contextFiles, context, maxIterations, maxTokens and continueBranchId";
    let arguments: SubagentArguments = super::arguments(NAME, args, takes)?;
    if arguments.iterations == Some(0) {
        return Err(ToolError::bad_args("maxIterations is 0: give 1 or more"));
    }
    let cap = |tokens| NonZeroU64::new(tokens).ok_or_else(|| ToolError::bad_args("maxTokens is 0: give 1 or more"));
    let output_tokens = arguments.tokens.map(cap).transpose()?;
    let task = arguments.task.unwrap_or_default();
    let agent = arguments.agent.as_deref().map(str::trim).filter(|agent| !agent.is_empty());
    if let Some(branch) = arguments.branch.as_deref().map(str::trim).filter(|branch| !branch.is_empty()) {
        if output_tokens.is_some() {
            let why = "maxTokens is set when a subagent starts: leave it out with continueBranchId";
            return Err(ToolError::bad_args(why));
        }
        let prompt = if task.trim().is_empty() { CONTINUE_PROMPT.into() } else { task.into() };
        return Ok(Request::Continue(ContinueRequest {
            dialect: Dialect::Subagent,
            task: branch.into(),
            agent: agent.map(Text::from),
            prompt,
            mode: Mode::Background,
            turns: arguments.iterations,
            tools: None,
        }));
    }
    check_prompt("task", "subagent", &task)?;
    let agent = agent.map_or_else(|| Ok(Arc::clone(&offered.own)), |agent| offered.find_agent(NAME, agent))?;
    check_count("contextFiles", arguments.files.as_ref().map_or(0, Vec::len))?;
    check_count("tools", arguments.tools.iter().flat_map(BTreeMap::values).map(Vec::len).sum())?;
    let texts = |names: Vec<String>| names.into_iter().map(Text::from).collect::<Vec<_>>();
    let prefetch =
        arguments.tools.unwrap_or_default().into_iter().map(|(agent, slugs)| (Text::from(agent), texts(slugs)));
    Ok(Request::Start(Box::new(StartRequest {
        label: label(&task),
        turns: arguments.iterations,
        output_tokens,
        context: optional_text("context", arguments.context)?,
        files: texts(arguments.files.unwrap_or_default()),
        prefetch: prefetch.collect(),
        ..StartRequest::plain(Dialect::Subagent, agent, task.into(), Mode::Background)
    })))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output_tokens_of(args: &serde_json::Value) -> Result<Option<u64>, String> {
        let offered = Offered { dialects: vec![Dialect::Subagent], own: "general".into(), ..Offered::default() };
        match parse(&args.to_string(), &offered) {
            Ok(Request::Start(start)) => Ok(start.output_tokens.map(NonZeroU64::get)),
            Ok(Request::Continue(_)) => Ok(None),
            Err(error) => {
                let report: serde_json::Value = serde_json::from_str(&error.message).expect("an object");
                Err(report["message"].as_str().expect("a text").to_owned())
            }
        }
    }

    #[test]
    fn b18_max_tokens_of_a_subagent_is_parsed() {
        assert_eq!(output_tokens_of(&json!({"task": "a", "maxTokens": 500})), Ok(Some(500)));
        assert_eq!(output_tokens_of(&json!({"task": "a", "max_tokens": 5.0})), Ok(Some(5)));
        assert_eq!(output_tokens_of(&json!({"task": "a"})), Ok(None));
        assert_eq!(
            output_tokens_of(&json!({"task": "a", "maxTokens": 0})),
            Err("maxTokens is 0: give 1 or more".into())
        );
        let why = "maxTokens is set when a subagent starts: leave it out with continueBranchId";
        assert_eq!(output_tokens_of(&json!({"continueBranchId": "a1b2c3", "maxTokens": 5})), Err(why.into()));
    }
}
