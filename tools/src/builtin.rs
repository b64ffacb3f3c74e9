//! The workspace tools: list, read, search, write, edit, shell, process.

pub(crate) mod background;
mod confined;
mod edit;
mod list;
mod open;
mod read;
mod search;
pub(crate) mod shell;
pub(crate) mod skill;
mod write;

mod entry_memory;
pub(crate) mod environment;
mod file_tool;
mod filter;
mod glob;
mod ignore_rules;
mod ignores;
mod level;
mod line_matcher;
mod process;
mod replace;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::commands::Commands;
use crate::guard::Guard;
use crate::tool::Tool;

use file_tool::FileTool;

pub(crate) fn tools(guard: Option<Guard>, commands: Commands) -> Vec<Arc<dyn Tool>> {
    let process = background::ProcessTool::new(guard.as_ref());
    vec![
        Arc::new(FileTool::<list::ListTool>::new()),
        Arc::new(FileTool::<read::ReadTool>::new()),
        Arc::new(FileTool::<search::SearchTool>::new()),
        Arc::new(FileTool::<write::WriteTool>::new()),
        Arc::new(FileTool::<edit::EditTool>::new()),
        Arc::new(shell::Shell::new(guard, commands)),
        Arc::new(process),
    ]
}
