//! The `spawn_task` dialect: background tasks by type, with `check_task` and `cancel_task`.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use subtend_session::dialect::Dialect;
use subtend_session::ids::Text;
use subtend_session::message::ToolSpec;
use subtend_session::place::Mode;

use super::{Offered, Request, StartRequest, check_prompt, label, list_agents, metadata};
use crate::result::ToolError;

pub const NAME: &str = "spawn_task";

const ABOUT: &str = "\
Start a background task and continue with your own work. It returns a task id at once; fetch the result with check_task when you \
need it.

When: a question about the codebase that needs much reading; documentation or facts that have to be looked up; a plan for a \
change of several steps. Start several at once where the questions are independent.
When not: what you can settle with one or two calls of your own tools, what you know already, and changes to files, unless a \
type below says that it makes them.

The task runs in a session of its own and knows nothing of this conversation: its prompt must stand alone. Give the paths, names \
and facts that you have, and say what the answer should contain.
Good: \"Read src/cache/ and say which functions write to disk, with file and line, and in which order they do it on shutdown.\"
Bad: \"Why is it slow?\"

Workflow: start one or more tasks; continue with what does not need them; check_task with wait when you need a result; answer with \
what they found, checked. cancel_task ends one that you no longer need.

Types:";

/// Returns the tool. `types` are the names and descriptions of the available task types.
pub fn spec(types: &[(Text, Text)]) -> ToolSpec {
    let names: Vec<&str> = types.iter().map(|(name, _)| &**name).collect();
    let schema = json!({
        "type": "object",
        "properties": {
            "type": {"type": "string", "enum": names, "description": "Which kind of task."},
            "prompt": {"type": "string", "minLength": 1, "description": "All that the task needs to know: it sees nothing else."},
            "description": {"type": "string", "description": "A few words that name the task in listings."},
            "metadata": {"type": "object", "description": "Labels to keep with the task. They change nothing about the work."},
        },
        "required": ["type", "prompt", "description"],
        "additionalProperties": false,
    });
    ToolSpec {
        name: NAME.into(),
        description: format!("{ABOUT}{}", list_agents(types)).into(),
        schema: Arc::new(schema),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SpawnTaskArguments {
    r#type: String,
    prompt: String,
    description: String,
    metadata: Option<Map<String, Value>>,
}

/// Parses the arguments of a call.
///
/// # Errors
/// If the arguments are invalid, the type is unknown, or the prompt is empty or too long.
pub fn parse(args: &str, offered: &Offered) -> Result<Request, ToolError> {
    let arguments: SpawnTaskArguments = super::arguments(NAME, args, "type, prompt, description and metadata")?;
    let agent = offered.find_agent(NAME, arguments.r#type.trim())?;
    check_prompt("prompt", "agent", &arguments.prompt)?;
    let label = label(&arguments.description);
    Ok(Request::Start(Box::new(StartRequest {
        title: label.clone(),
        label,
        metadata: metadata(arguments.metadata)?,
        ..StartRequest::plain(Dialect::SpawnTask, agent, arguments.prompt.into(), Mode::Background)
    })))
}
