//! Compaction of a session's history, by request.

use subtend_session::command::Command;
use subtend_session::outcome::Initiator;

use super::{ControlError, SessionHandle};
use crate::services::running::ServiceKind;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactedHistory {
    /// Number of hidden messages.
    pub messages: u64,
    /// Estimated input tokens of the next model call, before and after.
    pub before: u64,
    pub after: u64,
}

impl SessionHandle {
    /// Lets the agent `compaction` summarise the old part of the conversation, and hides that part from model calls. A run in flight continues
    /// meanwhile: the summary applies from its next model call on.
    ///
    /// The journal keeps every message, and [`SessionHandle::undo_compaction`] shows them again. The newest messages, inputs without an answer, open
    /// calls, and ends of tasks (up to an eighth of the tokens) stay verbatim.
    /// # Errors
    /// [`ControlError::Refused`] if no old message can be hidden yet, the agent produced no summary, or the summary is not shorter;
    /// [`ControlError::Working`] while another compaction runs.
    /// # Cancel safety
    /// Dropping the future does not stop the compaction: it is recorded when its summary arrives.
    pub async fn compact(&self) -> Result<CompactedHistory, ControlError> {
        let refused = |why: &str| ControlError::Refused(format!("cannot compact the session: {why}"));
        let Some(guard) = self.sessions.services.begin(self.id, ServiceKind::Compaction) else {
            return Err(refused("a compaction is running: wait for it"));
        };
        let session = self.clone();
        let task = self.sessions.life.tasks.spawn(async move { session.compact_by_service(&guard).await });
        match task.await {
            Ok(Ok(done)) => {
                let (before, after) = done.tokens;
                Ok(CompactedHistory { messages: done.hidden() as u64, before, after })
            }
            Ok(Err(error)) => Err(refused(&error.to_string())),
            Err(_) => Err(ControlError::Stopped(self.sessions.life.stopped())),
        }
    }

    /// Undoes the last compaction: model calls see the messages again that it hid. An earlier compaction applies again,
    /// if there is one.
    /// # Errors
    /// [`ControlError::Working`] while a run is in flight; [`ControlError::Refused`] if nothing is compacted.
    /// # Cancel safety
    /// If the future is dropped, the compaction may or may not have been undone.
    pub async fn undo_compaction(&self) -> Result<(), ControlError> {
        self.order(Command::UndoCompaction { by: Initiator::Person }).await.map(drop)
    }
}
