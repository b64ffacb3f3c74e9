//! Slash commands of sessions, which the embedder finds in their workspaces.

use std::fmt;
use std::sync::Arc;

use subtend_agents::slash::{SlashCommands, Typed};
use subtend_session::ids::SessionId;
use subtend_session::record::Record;

use crate::host::Host;
use crate::problem::Problem;

/// Finds slash commands. The method may read files.
pub trait CommandFiles: fmt::Debug + Send + Sync {
    /// Returns the commands of the workspace at an absolute path. Leaves out a workspace's own commands if the user
    /// does not trust it.
    ///
    /// # Errors
    /// The reason why the workspace cannot be used.
    fn of(&self, workspace: &str) -> Result<SlashCommands, String>;
}

/// Expands `text` to the prompt of the slash command that it names in `workspace`. Returns a text that does not begin
/// with `/` unchanged.
///
/// # Errors
/// [`Problem`] `unknown_command` with similar names, `workspace_unusable`, or `invalid_input` if the prompt is longer than one input.
pub(crate) async fn expand(host: &Host, workspace: String, text: String) -> Result<String, Problem> {
    let Some(files) = host.options().commands.as_ref().filter(|_| text.starts_with('/')).map(Arc::clone) else {
        return Ok(text);
    };
    let found = host.reads().read_session(async { files.of(&workspace) }).await?;
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
    let Record::SessionCreated(created) = host.runtime().journal().first_record(session)?.record else {
        return Err(Problem::no_session(&session.to_string()));
    };
    Ok(created.workspace.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HostOptions;

    #[derive(Debug)]
    struct NoFiles;

    impl CommandFiles for NoFiles {
        fn of(&self, _: &str) -> Result<SlashCommands, String> {
            Ok(SlashCommands::default())
        }
    }

    /// A client makes the host read command files endlessly. The controls: a permit, and texts that cause no read.
    #[tokio::test]
    async fn reading_command_files_needs_a_permit() {
        let model = subtend_models::closure::fn_model("x", |_, _| std::future::pending());
        let runtime = subtend_actors::Runtime::builder().model(Arc::new(model)).start().await.expect("a runtime");
        let options = HostOptions { commands: Some(Arc::new(NoFiles)), ..HostOptions::default() };
        let host = Host::new(runtime, options);
        tokio::time::pause();
        let expand = async |text: &str| {
            let expanded = expand(&host, "/".to_owned(), text.to_owned()).await;
            expanded.map_err(|problem| problem.code)
        };
        let all = host.reads().hold_all_session_permits().await;
        assert_eq!(expand("/review").await, Err("busy"));
        assert_eq!(expand("review").await, Ok("review".to_owned()));
        drop(all);
        assert_eq!(expand("/review").await, Err("unknown_command"));
    }
}
