//! Slash commands of sessions, which the embedder finds in their workspaces.

use std::fmt;
use std::sync::Arc;

use subtend_agents::slash::{SlashCommands, Typed};
use subtend_session::ids::{Seq, SessionId};
use subtend_session::record::Record;

use crate::host::Host;
use crate::problem::Problem;

/// Finds slash commands. The method may read files.
pub trait CommandFiles: fmt::Debug + Send + Sync {
    /// Returns the commands of the workspace at an absolute path. Those of a workspace that the user does not trust are left out.
    ///
    /// # Errors
    /// The reason why the workspace cannot be used.
    fn of(&self, workspace: &str) -> Result<SlashCommands, String>;
}

/// Returns the prompt of the slash command of `workspace` that `text` names. A text that does not begin with `/` is returned unchanged.
///
/// # Errors
/// [`Problem`] `unknown_command` with similar names, `workspace_unusable`, or `invalid_input` if the prompt is longer than one input.
pub(crate) async fn expanded(host: &Host, workspace: String, text: String) -> Result<String, Problem> {
    let Some(files) = host.options().commands.as_ref().filter(|_| text.starts_with('/')).map(Arc::clone) else {
        return Ok(text);
    };
    let found = host.reads().of_session(async { files.of(&workspace) }).await?;
    let commands = found.map_err(|why| Problem::invalid("workspace_unusable", why))?;
    match commands.read(&text) {
        Typed::Command(command, arguments) => match command.expand(arguments) {
            Ok(expanded) => Ok(expanded.text),
            Err(error) => Err(Problem::invalid("invalid_input", error.to_string())),
        },
        Typed::Unknown(name) => {
            let suggestion = commands.suggestion(name);
            let name: String = name.chars().take(40).collect();
            let why = format!("unknown command /{name}: {suggestion}leave `expand` out to send it as text");
            Err(Problem::invalid("unknown_command", why))
        }
        Typed::Text => Ok(text),
    }
}

/// Returns the workspace of a session.
///
/// # Errors
/// If its first record cannot be read.
pub(crate) fn workspace_of(host: &Host, session: SessionId) -> Result<String, Problem> {
    let first = host.runtime().journal().records_from(session, Seq(1), 1)?;
    let workspace = first.into_iter().find_map(|stored| {
        let Record::SessionCreated(created) = stored.record else { return None };
        Some(created.workspace.to_string())
    });
    workspace.ok_or_else(|| Problem::no_session(&session.to_string()))
}
