//! Slash commands from files: expands `/name ARGUMENTS` to a prompt.

use std::path::{Path, PathBuf};

use subtend_agents::slash::{SlashCommands, Typed};
use subtend_host::slash::CommandFiles;

use super::super::fail::Fail;
use super::super::paint::{clip, on_one_line};
use super::super::trust::Trust;
use super::super::{guidance, workspace};
use super::{HereArgs, Screen, Work, WorkArgs, found_session, prompt};

impl WorkArgs {
    /// Returns the slash commands of the session's directory; for a new session or `here`, those of the command's.
    pub(crate) fn slash_commands(&self, work: &Work<'_>, here: HereArgs) -> Result<SlashCommands, Fail> {
        let workspace = workspace::open(self.directory())?;
        if let Some(session) = work.session.filter(|_| !here.here) {
            let creation = work.read(|journal| found_session::creation(journal, session))?;
            let home = Path::new(&*creation.workspace);
            if !found_session::is_same(home, workspace.path()) {
                // `--trust` and its variable apply only to the directory of this command.
                return of_directory(home);
            }
        }
        let trust = if self.trust { Trust::GIVEN } else { Trust::decide(&workspace)? };
        guidance::commands(&workspace, trust)
    }

    /// Returns the prompt for a text that may name a slash command of the session of `work`.
    pub(crate) fn prompt(&self, work: &mut Work<'_>, here: HereArgs, text: &str) -> Result<String, Fail> {
        if !text.starts_with('/') {
            return Ok(text.to_owned());
        }
        let commands = self.slash_commands(work, here)?;
        match commands.read(text) {
            Typed::Unknown(name) => Err(Fail::Usage(unknown_command_error(name, &commands))),
            Typed::Text => Ok(text.to_owned()),
            Typed::Command(..) => expand(&commands, text, work.screen).unwrap_or_else(|| Ok(text.to_owned())),
        }
    }
}

/// Returns the slash commands of another directory, depending on the recorded trust.
fn of_directory(path: &Path) -> Result<SlashCommands, Fail> {
    let workspace = workspace::open(path)?;
    let trust = Trust::by_record(&workspace)?;
    guidance::commands(&workspace, trust)
}

/// Slash commands for sessions of a host that was started in `home`.
#[derive(Debug)]
pub(crate) struct HostedCommands {
    pub(crate) home: PathBuf,
}

impl CommandFiles for HostedCommands {
    fn of(&self, workspace: &str) -> Result<SlashCommands, String> {
        let path = Path::new(workspace);
        let found = match found_session::is_same(path, &self.home) {
            true => workspace::open(path).and_then(|opened| {
                let trust = Trust::decide(&opened)?;
                guidance::commands(&opened, trust)
            }),
            false => of_directory(path),
        };
        found.map_err(|fail| fail.to_string())
    }
}

/// Expands a text that names a slash command to its prompt, and prints notes about parts without effect.
pub(crate) fn expand(commands: &SlashCommands, text: &str, screen: &mut Screen) -> Option<Result<String, Fail>> {
    let Typed::Command(command, arguments) = commands.read(text) else { return None };
    let expanded = match command.expand(arguments) {
        Ok(expanded) => expanded,
        Err(error) => return Some(Err(Fail::Usage(error.to_string()))),
    };
    for note in &expanded.notes {
        screen.note(&format!("/{}: {}", command.name, on_one_line(note)));
    }
    Some(prompt::check(expanded.text))
}

/// Returns the error for an unknown slash command.
pub(crate) fn unknown_command_error(name: &str, commands: &SlashCommands) -> String {
    let (suggestion, name) = (commands.suggestion(name), clip(name, 40));
    format!(
        "unknown command /{name}: {suggestion}`subtend agents commands` lists all; begin with a space to send it as text"
    )
}
