//! Slash commands of files: `/name` and what follows it, as a prompt.

use subtend_agents::slash::{SlashCommands, Typed};

use super::super::fail::Fail;
use super::super::paint::{clip, harmless};
use super::super::trust::Trust;
use super::super::{guidance, workspace};
use super::{Screen, WorkArgs, prompt};

impl WorkArgs {
    /// Returns the slash commands of the workspace, as far as it is trusted, and those of the person.
    pub(crate) fn slash_commands(&self) -> Result<SlashCommands, Fail> {
        let workspace = workspace::open(&self.workspace)?;
        let trust = if self.trust { Trust::Used } else { Trust::silent(&workspace)? };
        Ok(guidance::commands(&workspace, trust))
    }

    /// Returns the prompt for a text that may name a slash command.
    pub(crate) fn prompt(&self, text: &str, screen: &mut Screen) -> Result<String, Fail> {
        if !text.starts_with('/') {
            return Ok(text.to_owned());
        }
        let commands = self.slash_commands()?;
        match commands.read(text) {
            Typed::Unknown(name) => Err(Fail::Usage(unknown(name))),
            Typed::Text => Ok(text.to_owned()),
            Typed::Command(..) => expanded(&commands, text, screen).unwrap_or_else(|| Ok(text.to_owned())),
        }
    }
}

/// Returns the prompt of the command that a text names, if it names one, and reports what has no effect.
pub(crate) fn expanded(commands: &SlashCommands, text: &str, screen: &mut Screen) -> Option<Result<String, Fail>> {
    let Typed::Command(command, arguments) = commands.read(text) else { return None };
    let expanded = command.expand(arguments);
    for note in &expanded.notes {
        screen.note(&format!("/{}: {}", command.name, harmless(note)));
    }
    Some(prompt::checked(expanded.text))
}

/// Says that no command has a name, and what to do.
pub(crate) fn unknown(name: &str) -> String {
    let name = clip(name, 40);
    format!("unknown command /{name}: `subtend agents commands` lists all; begin with a blank to send it as text")
}
