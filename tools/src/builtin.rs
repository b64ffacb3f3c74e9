//! The tools over a workspace: list, read, search, write, edit, shell.

mod edit;
mod list;
mod open;
mod read;
mod search;
mod shell;
mod write;

mod environment;
mod file_tool;
mod filter;
mod glob;
mod ignores;
mod level;
mod process;
mod replace;
mod room;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::commands::Commands;
use crate::guard::Guard;
use crate::tool::Tool;

use file_tool::FileTool;

pub(crate) fn tools(guard: Option<Guard>, commands: Commands) -> Vec<Arc<dyn Tool>> {
    vec![
        Arc::new(FileTool::<list::List>::new()),
        Arc::new(FileTool::<read::Read>::new()),
        Arc::new(FileTool::<search::Search>::new()),
        Arc::new(FileTool::<write::Write>::new()),
        Arc::new(FileTool::<edit::Edit>::new()),
        Arc::new(shell::Shell::new(guard, commands)),
    ]
}
