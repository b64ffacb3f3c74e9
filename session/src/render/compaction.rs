//! The message in place of compacted history.

use std::fmt::Write as _;

use crate::dialect::Dialect;
use crate::ids::{SessionId, Text};
use crate::render::write_fenced;
use crate::state::{Child, State};

/// Returns the message that replaces `hidden` messages: their summary, and the children that have not ended.
pub(crate) fn summary_message(state: &State, summary: &Text, hidden: usize) -> Text {
    let mut out = format!(
        "The earlier part of this conversation, {hidden} messages, was compacted to save space. The text between the fences \
         is its summary; what follows this message is word for word.\n"
    );
    write_fenced(&mut out, summary, summary.len() as u64);
    let live: Vec<String> = state.children.iter().filter_map(|(id, child)| live(*id, child)).collect();
    if !live.is_empty() {
        out.push_str("\nTasks that you started and that had not ended when this was written:\n");
        for line in live {
            let _ = writeln!(out, "- {line}");
        }
    }
    out.into()
}

/// Returns the line of a child with a run in flight: its id in its dialect, its agent and its task.
fn live(id: SessionId, child: &Child) -> Option<String> {
    child.key?;
    let named = match child.dialect {
        Dialect::SpawnTask => id.to_string(),
        Dialect::Task if child.inspectable => id.to_string(),
        Dialect::Task | Dialect::Minion | Dialect::Subagent | Dialect::Spawn => child.short.to_string(),
    };
    let task = child.label.as_ref().map(|label| format!(": {label}")).unwrap_or_default();
    Some(format!("{named} ({}){task}", child.agent))
}
