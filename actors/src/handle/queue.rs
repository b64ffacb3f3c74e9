//! The queue: inputs that are accepted and that no run took yet.

use subtend_session::command::Command;
use subtend_session::effect::Reply;
use subtend_session::ids::{InputId, Seq, Text};
use subtend_session::outcome::By;
use subtend_session::record::{From, InputAccepted, Lane, QueueChange, Record};
use subtend_session::state::State;
use tokio::sync::oneshot;

use super::{ControlError, PROBES, SessionHandle};
use crate::lane::Item;

/// An input that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueEntry {
    /// Its id: that of its receipt.
    pub id: InputId,
    /// Who it is from.
    pub kind: QueueKind,
    /// Its text.
    pub text: Text,
    /// What its sender attached; JSON text.
    pub metadata: Option<Text>,
    /// When it may be taken.
    pub lane: Lane,
    /// Its record.
    pub at: Seq,
}

/// Who a waiting input is from. A person's go first; in each kind the oldest does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QueueKind {
    /// A person.
    User,
    /// The host.
    System,
    /// An agent outside this store.
    AgentResult,
}

impl QueueEntry {
    /// The entry of an accepted input.
    pub(crate) fn of(input: &InputAccepted, at: Seq) -> Self {
        let kind = match input.from {
            From::Person => QueueKind::User,
            From::Host | From::Model { .. } => QueueKind::System,
            From::AgentResult => QueueKind::AgentResult,
        };
        let (text, metadata) = (input.text.clone(), input.metadata.clone());
        Self { id: input.id, kind, text, metadata, lane: input.lane, at }
    }

    /// What waits in a session, in the order in which it is taken (B11): what steers, then a person's, then all else.
    pub(crate) fn all(state: &State) -> Vec<Self> {
        let mut all: Vec<Self> = state.queue.iter().map(|queued| Self::of(&queued.input, queued.seq)).collect();
        all.sort_by_key(|entry| (entry.lane == Lane::Send, entry.kind != QueueKind::User, entry.at));
        all
    }
}

impl SessionHandle {
    /// The inputs that wait, in the order in which they will be taken: what steers at the next turn boundary, the others at
    /// rest points. An input that a run in flight was opened with waits no more.
    ///
    /// # Errors
    /// [`ControlError::Stopped`].
    ///
    /// # Cancel safety
    /// Safe: dropping the future changes nothing.
    ///
    /// # Durability
    /// What is listed is durable.
    pub async fn queue(&self) -> Result<Vec<QueueEntry>, ControlError> {
        let mut lost = 0;
        let listed = loop {
            let (tell, told) = oneshot::channel();
            self.hub.deliver(self.id, Item::Queue(tell));
            match told.await {
                Ok(listed) => break listed,
                // A panic of the session's actor took it.
                Err(_) if lost < PROBES && !self.hub.is_stopping() => lost += 1,
                Err(_) => return Err(ControlError::Stopped(self.hub.stopped_at(self.id))),
            }
        };
        self.settled(listed.lsn).await?;
        Ok(listed.entries)
    }

    /// Takes an input out of the queue; false where it does not wait: it was taken, removed before, or never there.
    ///
    /// # Errors
    /// [`ControlError`].
    ///
    /// # Cancel safety
    /// Dropping the future leaves open whether it is removed; it can be asked again, and is then false if it was.
    ///
    /// # Durability
    /// The removal is durable when it is returned.
    pub async fn queue_remove(&self, input: InputId) -> Result<bool, ControlError> {
        let change = QueueChange::Removed(vec![input]);
        let command = Command::ChangeQueue { change, by: By::Person };
        let (answer, again) = self.answer_or_again(command).await.map_err(ControlError::Stopped)?;
        let (reply, _) = answer.map_err(|rejection| ControlError::of(&rejection))?;
        // Its answer may have been lost, and not what it did.
        Ok(matches!(reply, Reply::Done(_)) || (again && self.was_removed(input)))
    }

    fn was_removed(&self, input: InputId) -> bool {
        let stored = self.hub.journal.records(self.id).unwrap_or_default();
        stored.iter().any(|stored| {
            let Record::QueueChanged { change: QueueChange::Removed(ids), .. } = &stored.record else { return false };
            ids.contains(&input)
        })
    }

    /// Takes all inputs out of the queue, and tells how many there were. What children have to tell stays.
    ///
    /// # Errors
    /// [`ControlError`].
    ///
    /// # Cancel safety
    /// Dropping the future leaves open whether it is cleared.
    ///
    /// # Durability
    /// As [`SessionHandle::queue_remove`].
    pub async fn queue_clear(&self) -> Result<u32, ControlError> {
        let mut lost = 0;
        loop {
            let (tell, told) = oneshot::channel();
            let (reply, answer) = oneshot::channel();
            self.hub.deliver(self.id, Item::ClearQueue(tell, reply));
            match answer.await {
                Ok(Ok(_)) => return Ok(told.await.unwrap_or(0)),
                Ok(Err(rejection)) => return Err(ControlError::of(&rejection)),
                Err(_) if lost < PROBES && !self.hub.is_stopping() => lost += 1,
                Err(_) => return Err(ControlError::Stopped(self.hub.stopped_at(self.id))),
            }
        }
    }
}
