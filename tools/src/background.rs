//! Calls of `shell` that start a background process, and calls of `process` about one.

use serde_json::Value;
use subtend_session::dialect::Dialect;
use subtend_session::ids::Text;
use subtend_session::place::Mode;

use crate::builtin::{background, shell};
use crate::dialect::{StartRequest, first_line};
use crate::tool::ToolError;

/// The agent and the model of the sessions of processes. No agent file can have this name.
pub const AGENT: &str = "shell.background";

/// The tool that starts processes.
pub const SHELL: &str = shell::NAME;

/// The tool for a process that was started.
pub const PROCESS: &str = background::NAME;

/// The start of the last line of a result while the process runs.
pub const RUNNING: &str = background::RUNNING;

/// Returns the command that a call of [`SHELL`] starts in the background; `None` for a command that is waited for. The arguments fit
/// the schema.
///
/// # Errors
/// An error for the model, if such a call would start nothing.
pub fn command(args: &Value) -> Result<Option<String>, ToolError> {
    shell::in_background(args)
}

/// Returns the request for a child of `agent` that runs `command`.
pub fn start(agent: Text, command: &str) -> StartRequest {
    let label = first_line(command);
    StartRequest { label, ..StartRequest::plain(Dialect::Task, agent, command.into(), Mode::Background) }
}

/// Returns the process that a call of [`PROCESS`] stops, as the model named it; `None` for its other calls.
pub fn stops(args: &str) -> Option<String> {
    background::stops(args)
}

/// Returns the process that a call of [`PROCESS`] names.
pub fn named(args: &Value) -> Option<&str> {
    args.get("session_id").and_then(Value::as_str)
}
