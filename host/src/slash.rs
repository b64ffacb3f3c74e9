//! Slash commands of sessions: those of their directories, as the embedder finds them.

use std::fmt;
use std::sync::Arc;

use subtend_agents::slash::{SlashCommands, Typed};
use subtend_session::ids::{Seq, SessionId};
use subtend_session::record::Record;

use crate::host::Host;
use crate::problem::Problem;

/// Where slash commands are found. The method may read files.
pub trait CommandFiles: fmt::Debug + Send + Sync {
    /// Returns the commands of a workspace, which is named by its absolute path, as far as the person trusts it.
    ///
    /// # Errors
    /// Why the workspace cannot be used.
    fn of(&self, workspace: &str) -> Result<SlashCommands, String>;
}

/// Returns the prompt of the slash command that `text` names, among those of `workspace`; another text as it is.
///
/// # Errors
/// [`Problem`] `unknown_command` with the near names, or `workspace_unusable`.
pub(crate) async fn expanded(host: &Host, workspace: String, text: String) -> Result<String, Problem> {
    let Some(files) = host.options().commands.as_ref().filter(|_| text.starts_with('/')).map(Arc::clone) else {
        return Ok(text);
    };
    let found = tokio::task::spawn_blocking(move || files.of(&workspace)).await;
    let commands = found
        .map_err(|error| Problem::internal("internal", error.to_string()))?
        .map_err(|why| Problem::invalid("workspace_unusable", why))?;
    match commands.read(&text) {
        Typed::Command(command, arguments) => Ok(command.expand(arguments).text),
        Typed::Unknown(name) => {
            let suggestion = commands.suggestion(name);
            let name: String = name.chars().take(40).collect();
            let why = format!("unknown command /{name}: {suggestion}leave `expand` out to send it as text");
            Err(Problem::invalid("unknown_command", why))
        }
        Typed::Text => Ok(text),
    }
}

/// Returns the directory of a session.
///
/// # Errors
/// When its first record cannot be read.
pub(crate) fn workspace_of(host: &Host, session: SessionId) -> Result<String, Problem> {
    let first = host.runtime().journal().records_from(session, Seq(1), 1)?;
    let birth = first.into_iter().find_map(|stored| {
        let Record::SessionCreated(created) = stored.record else { return None };
        Some(created.workspace.to_string())
    });
    birth.ok_or_else(|| Problem::no_session(&session.to_string()))
}
