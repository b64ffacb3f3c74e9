//! The queue: accepted inputs that no run has taken yet.

use subtend_session::command::Command;
use subtend_session::effect::Reply;
use subtend_session::ids::InputId;
use subtend_session::outcome::Initiator;
use subtend_session::record::{QueueChange, Record};
use tokio::sync::oneshot;

use super::{ControlError, MAX_RETRIES, QueueEntry, SessionHandle};
use crate::delivery::inbox::InboxItem;
use crate::views;

impl SessionHandle {
    /// Returns the queue in processing order, each entry with the boundary that takes it. Steering messages enter at a turn boundary.
    /// Other messages enter at rest points or open the next runs, and pending completions are listed among them. Inputs that opened the run in
    /// flight are not queued.
    /// # Errors
    /// [`ControlError::Stopped`].
    pub async fn queue(&self) -> Result<Vec<QueueEntry>, ControlError> {
        let mut retries = 0;
        let listed = loop {
            let (sender, receiver) = oneshot::channel();
            self.sessions.cells.deliver(self.id, InboxItem::Queue(sender));
            match receiver.await {
                Ok(listed) => break listed,
                // The actor panicked before it answered.
                Err(_) if retries < MAX_RETRIES && !self.sessions.life.is_stopping() => retries += 1,
                Err(_) => return Err(ControlError::Stopped(self.sessions.life.stopped_at(self.id))),
            }
        };
        self.settled(listed.lsn).await?;
        let mut entries = listed.entries;
        views::queue::set_completion_times(&self.sessions.log.journal, self.id, &mut entries);
        Ok(entries)
    }

    /// Removes an input from the queue; returns false if it is not queued.
    /// # Cancel safety
    /// If the future is dropped, the input may or may not have been removed; a repetition returns false if it was
    /// removed.
    pub async fn queue_remove(&self, input: InputId) -> Result<bool, ControlError> {
        let change = QueueChange::Removed(vec![input]);
        let command = Command::ChangeQueue { change, by: Initiator::Person };
        let (answer, resent) = self.reply_or_resend(command).await.map_err(ControlError::Stopped)?;
        let (reply, _) = answer.map_err(|rejection| ControlError::of(&rejection))?;
        // The reply may be lost although the removal took effect.
        Ok(matches!(reply, Reply::Done(_)) || (resent && self.was_removed(input).await))
    }

    async fn was_removed(&self, input: InputId) -> bool {
        let stored = self.stored().await.unwrap_or_default();
        stored.iter().any(|stored| {
            let Record::QueueChanged { change: QueueChange::Removed(ids), .. } = &stored.record else { return false };
            ids.contains(&input)
        })
    }

    /// Removes all inputs from the queue and returns their number. Pending completions remain.
    /// # Cancel safety
    /// If the future is dropped, the queue may or may not have been cleared.
    pub async fn queue_clear(&self) -> Result<u32, ControlError> {
        let mut retries = 0;
        loop {
            let (sender, receiver) = oneshot::channel();
            let (reply, answer) = oneshot::channel();
            self.sessions.cells.deliver(self.id, InboxItem::ClearQueue(sender, reply));
            match answer.await {
                Ok(Ok(_)) => return Ok(receiver.await.unwrap_or(0)),
                Ok(Err(rejection)) => return Err(ControlError::of(&rejection)),
                Err(_) if retries < MAX_RETRIES && !self.sessions.life.is_stopping() => retries += 1,
                Err(_) => return Err(ControlError::Stopped(self.sessions.life.stopped_at(self.id))),
            }
        }
    }
}
