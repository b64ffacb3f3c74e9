//! Compaction of a session's history, by request.

use subtend_session::command::Command;
use subtend_session::outcome::By;

use super::{ControlError, SessionHandle};
use crate::services::running::For;

/// The size of a compaction: hidden messages, and tokens before and after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactedHistory {
    /// The hidden messages, as many from the first.
    pub messages: u64,
    /// Estimated input tokens of the next model call, before and after.
    pub before: u64,
    pub after: u64,
}

impl SessionHandle {
    /// Has the agent `compaction` summarise the old part of the conversation, which model calls then no longer see. A run in flight continues
    /// meanwhile: the summary applies from its next model call on.
    ///
    /// The journal keeps every message, and [`SessionHandle::undo_compaction`] shows them again. Word for word stay the newest messages, inputs
    /// without an answer, open calls, and ends of tasks as far as an eighth of the tokens holds them.
    /// # Errors
    /// [`ControlError::Refused`] if no old message can be hidden yet, the agent gave no summary, or the summary is not shorter;
    /// [`ControlError::Working`] while another compaction runs.
    /// # Cancel safety
    /// Dropping the future stops nothing: the compaction is recorded when its summary arrives.
    pub async fn compact(&self) -> Result<CompactedHistory, ControlError> {
        let refused = |why: &str| ControlError::Refused(format!("the session is not compacted: {why}"));
        let Some(shift) = self.sessions.services.shift(self.id, For::Compaction) else {
            return Err(refused("a compaction is running: wait for it"));
        };
        let session = self.clone();
        let task = self.sessions.life.tasks.spawn(async move { session.condense(&shift).await });
        match task.await {
            Ok(Ok(done)) => {
                let (before, after) = done.tokens;
                Ok(CompactedHistory { messages: done.upto as u64, before, after })
            }
            Ok(Err(error)) => Err(refused(&error.to_string())),
            Err(_) => Err(ControlError::Stopped(self.sessions.life.stopped())),
        }
    }

    /// Shows model calls the messages again that the last compaction hid. An earlier compaction then applies again, if there is one.
    /// # Errors
    /// [`ControlError::Working`] while a run is in flight; [`ControlError::Refused`] if nothing is compacted.
    /// # Cancel safety
    /// Dropping the future leaves open whether it is undone.
    pub async fn undo_compaction(&self) -> Result<(), ControlError> {
        self.order(Command::UndoCompaction { by: By::Person }).await.map(drop)
    }
}
