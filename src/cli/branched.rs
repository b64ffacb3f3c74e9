//! What JSON tells of a branch: the same object in `tree` and in `show`.

use serde::Serialize;
use serde_json::Value;
use subtend_actors::BranchInfo;
use subtend_actors::past::Past;
use subtend_session::ids::{CallId, MsgRef, SessionId, Text};
use subtend_session::index::Head;
use subtend_session::place::{BranchKind, Place};

use super::tasks;

/// A branch (B1), with the messages and the call of its parent that it hangs on (G4, K8).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Branch {
    r#type: BranchKind,
    inherit_context: bool,
    parent_message: MsgRef,
    assistant_message: Option<MsgRef>,
    call: Option<CallId>,
    pub(crate) task: Option<Text>,
    state: Option<&'static str>,
    iterations: u32,
    /// Milliseconds since 1970, as all times.
    created: i64,
    updated: i64,
    metadata: Value,
}

/// Returns whether the session is a branch that starts afresh and that no call made.
pub(crate) fn is_fresh(place: &Place) -> bool {
    matches!(place, Place::Child { kind: BranchKind::Subagent, call: None, .. })
}

impl Branch {
    /// Session `id` as a branch, if it is one; `task` is what the call that started it told it to do.
    pub(crate) fn of(id: SessionId, head: &Head, past: &Past, task: Option<&Text>) -> Option<Self> {
        let info = BranchInfo::of(id, head, past, task)?;
        Some(Self {
            state: info.state(),
            r#type: info.kind,
            inherit_context: info.inherits_context,
            parent_message: info.parent_message,
            assistant_message: info.assistant_message,
            call: info.call,
            task: info.task,
            iterations: info.iterations,
            created: info.created_ms,
            updated: info.updated_ms,
            metadata: tasks::object(info.metadata.as_ref()),
        })
    }
}
