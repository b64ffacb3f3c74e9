//! A branch as JSON, the same object in a tree and in a transcript.

use serde::{Deserialize, Serialize};
use subtend_session::ids::{CallId, MsgRef, SessionId, Text};
use subtend_session::index::Head;
use subtend_session::place::BranchKind;
use subtend_session::values::JsonText;

use crate::views::branches::BranchInfo;
use crate::views::history::History;

/// A branch, with the messages and the call of its parent that it belongs to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Branch {
    pub r#type: BranchKind,
    /// True if its model sees the parent's messages before the branch.
    pub inherit_context: bool,
    pub parent_message: MsgRef,
    pub assistant_message: Option<MsgRef>,
    pub call: Option<CallId>,
    pub task: Option<Text>,
    /// The state, in the words of the `subagent` tool.
    pub state: Option<Text>,
    pub iterations: u32,
    /// Unix time in ms at which it was created.
    pub created: i64,
    pub updated: i64,
    /// Metadata that a client attached.
    pub metadata: JsonText,
}

impl Branch {
    /// Returns session `id` as a branch, or `None` for a root; `task` comes from the call that started it.
    pub fn of(id: SessionId, head: &Head, history: &History, task: Option<&Text>) -> Option<Self> {
        let info = BranchInfo::of(id, head, history, task)?;
        Some(Self {
            state: info.state().map(Text::from),
            r#type: info.kind,
            inherit_context: info.inherits_context,
            parent_message: info.parent_message,
            assistant_message: info.assistant_message,
            call: info.call,
            task: info.task,
            iterations: info.iterations,
            created: info.created_ms,
            updated: info.updated_ms,
            metadata: JsonText::of_metadata(info.metadata.as_ref()),
        })
    }
}
