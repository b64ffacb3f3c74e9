//! Calls of `shell` that start a background process, and calls of `process`, which controls it.

use serde_json::Value;
use subtend_session::dialect::Dialect;
use subtend_session::ids::Text;
use subtend_session::place::Mode;

use crate::builtin::{background, shell};
use crate::dialect::{StartRequest, first_line};
use crate::tool::ToolError;

/// Name of both the agent and the model of sessions that hold a background process. An agent file cannot have this name.
pub const AGENT: &str = "shell.background";

pub const SHELL: &str = shell::NAME;

/// The tool that controls a started process.
pub const PROCESS: &str = background::NAME;

/// The start of the last line of a result while the process runs.
pub const RUNNING: &str = background::RUNNING;

/// Returns the command that a call of [`SHELL`] starts in the background, or `None` for a foreground command. The arguments must be
/// schema-valid.
///
/// # Errors
/// Returns an error for the model if the call cannot start the command.
pub fn command(args: &Value) -> Result<Option<String>, ToolError> {
    shell::background_command(args)
}

pub fn start(agent: Text, command: &str) -> StartRequest {
    let label = first_line(command);
    StartRequest { label, ..StartRequest::plain(Dialect::Task, agent, command.into(), Mode::Background) }
}

/// Returns the id of the process that a call of [`PROCESS`] stops; `None` for other actions.
pub fn stopped_process(args: &str) -> Option<String> {
    background::stopped_process(args)
}

pub fn process_name(args: &Value) -> Option<&str> {
    args.get("session_id").and_then(Value::as_str)
}
