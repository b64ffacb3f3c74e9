//! A session's inbox: queued items, control before data, with one coalesced wake.
//! Items cannot overtake each other in ractor's mailbox, so they are queued here, and the mailbox carries only wakes. A
//! cancel then waits for at most one handler, however much data is queued.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ractor::ActorRef;
use subtend_session::command::Command;
use subtend_session::effect::{Rejection, Reply};
use subtend_session::ids::{InputId, Lsn, RunNo, Text};
use subtend_supervision::slots::Slot;
use tokio::sync::oneshot;

use crate::calls::files::FilesRead;
use crate::calls::in_flight::{ModelDue, ParsedCalls};
use crate::delivery::commands::handling;
use crate::delivery::sender::SenderKey;
use crate::delivery::ticket::Ticket;
use crate::values::alternatives::Alternatives;
use crate::values::at_boot::Lost;
use crate::values::ended::Ended;
use crate::values::queue_entry::QueueEntry;

/// The reply to a command, with the run in flight at its decision, or the last one.
pub(crate) type CommandReply = Result<(Reply, RunNo), Rejection>;

/// Receives the reply once the records of the decision are durable.
pub(crate) type ReplyTo = oneshot::Sender<CommandReply>;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Wake {
    CheckInbox,
}

pub(crate) enum InboxItem {
    Command(Command, Option<ReplyTo>),
    Parsed(Box<(Command, ParsedCalls)>),
    Granted(Ticket, Slot),
    /// Fires after an idle time: the session may be passivated.
    Idle,
    /// Replies once everything before it is decided, with the LSN to wait for.
    Probe(oneshot::Sender<Probed>),
    Queue(oneshot::Sender<Listed>),
    /// Clears the queue, after reporting the number of its inputs.
    ClearQueue(oneshot::Sender<u32>, ReplyTo),
    FilesRead(Box<FilesRead>),
    ModelDue(ModelDue),
}

impl InboxItem {
    fn is_control(&self) -> bool {
        if let Self::Command(command, _) = self { handling(command).is_control } else { false }
    }

    pub(crate) fn concerns_the_run(&self) -> bool {
        match self {
            Self::Command(command, _) => handling(command).concerns_the_run,
            Self::Parsed(_) | Self::Granted(..) => true,
            Self::Idle
            | Self::Probe(_)
            | Self::Queue(_)
            | Self::ClearQueue(..)
            | Self::FilesRead(_)
            | Self::ModelDue(_) => false,
        }
    }

    pub(crate) fn input(&self) -> Option<InputId> {
        if let Self::Command(Command::Submit(input), _) = self { Some(input.id) } else { None }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Listed {
    pub(crate) lsn: Lsn,
    pub(crate) entries: Vec<QueueEntry>,
}

#[derive(Clone, Debug)]
pub(crate) struct Probed {
    pub(crate) lsn: Lsn,
    /// The run in flight, and the last ended run.
    pub(crate) in_flight: Option<RunNo>,
    pub(crate) last: Option<Ended>,
    pub(crate) metadata: Option<Text>,
    pub(crate) alternatives: Vec<Alternatives>,
}

/// The inbox of one session. It outlives activations: the next activation takes the remaining items.
#[derive(Default)]
pub(crate) struct Inbox {
    inner: Mutex<InboxState>,
    /// Number of accepted inputs that no run has taken, as the last activation reported it.
    queued: AtomicUsize,
}

#[derive(Default)]
struct InboxState {
    control: VecDeque<InboxItem>,
    data: VecDeque<InboxItem>,
    /// Number of inputs in `data`, which is bounded.
    inputs: usize,
    /// The sender of the last input.
    sender: SenderKey,
    /// True while a wake is on its way or the actor takes items.
    awake: bool,
    actor: Option<ActorRef<Wake>>,
    /// The depth of the session, as reported by its last actor. A shutdown ends owned runs before their owners.
    depth: u32,
    /// The command being decided. It is kept outside the actor, so that it is known after a panic.
    current: Option<&'static str>,
    killer: Option<&'static str>,
    /// A run that was in flight when the host died. Kept here: a panic before its recorded end must not resume it.
    lost: Option<Lost>,
    /// Set if the next activation must end the run, with the name of the command that crashes it.
    exhausted: Option<Option<&'static str>>,
    /// The slot of the run in flight: a run that continues after a panic still holds it.
    slot: Option<Slot>,
    /// True if the last activation crashed: effects of its last appended batch may be missing.
    crashed: bool,
}

/// The error of a full inbox, with its limit of inputs.
#[derive(Debug)]
pub(crate) struct Full(pub(crate) usize);

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, InboxState> {
        // A panic under the lock leaves complete items, since each push and pop is one step.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn report_queued(&self, inputs: usize) {
        self.queued.store(inputs, Ordering::Relaxed);
    }

    pub(crate) fn reported_queued(&self) -> usize {
        self.queued.load(Ordering::Relaxed)
    }

    /// Queues `item` and wakes the actor if it sleeps.
    pub(crate) fn push(&self, item: InboxItem) {
        let mut inner = self.lock();
        if item.is_control() {
            inner.control.push_back(item);
        } else {
            if inner.data.capacity() == 0 {
                // A waiting session rarely gets more than one item at a time.
                inner.data.reserve_exact(1);
            }
            inner.data.push_back(item);
        }
        Self::wake(&mut inner);
    }

    /// Queues an input, unless the inbox is full. Returns the earlier length.
    pub(crate) fn push_input(&self, item: InboxItem, bound: usize, sender: SenderKey) -> Result<usize, Full> {
        let mut inner = self.lock();
        if inner.inputs >= bound {
            return Err(Full(inner.inputs));
        }
        let before = inner.inputs;
        inner.inputs = inner.inputs.saturating_add(1);
        inner.sender = sender;
        inner.data.push_back(item);
        Self::wake(&mut inner);
        Ok(before)
    }

    /// Returns the sender of the last input. Inputs of several senders that arrive together may count as those of one.
    pub(crate) fn sender(&self) -> SenderKey {
        self.lock().sender
    }

    fn wake(inner: &mut InboxState) {
        if inner.awake {
            return;
        }
        if let Some(actor) = &inner.actor {
            // A cast fails only if the actor is dead, and its restart checks the inbox first.
            inner.awake = actor.cast(Wake::CheckInbox).is_ok();
        }
    }

    /// Binds the inbox to an actor that is about to take items.
    pub(crate) fn bind(&self, actor: ActorRef<Wake>, depth: u32) {
        let mut inner = self.lock();
        inner.depth = depth;
        inner.actor = Some(actor);
        inner.awake = true;
    }

    pub(crate) fn unbind(&self) {
        let mut inner = self.lock();
        inner.actor = None;
        inner.awake = false;
    }

    pub(crate) fn actor(&self) -> Option<ActorRef<Wake>> {
        self.lock().actor.clone()
    }

    pub(crate) fn at_depth(&self) -> Option<(u32, ActorRef<Wake>)> {
        let inner = self.lock();
        inner.actor.clone().map(|actor| (inner.depth, actor))
    }

    /// Takes up to `most` items, control first. Without items the actor counts as asleep.
    pub(crate) fn drain(&self, most: usize, into: &mut VecDeque<InboxItem>) {
        let mut inner = self.lock();
        if into.is_empty() && inner.control.is_empty() && inner.data.len() <= most {
            // If nothing is queued, the inbox takes the buffer back: an idle session keeps one.
            std::mem::swap(&mut inner.data, into);
            inner.inputs = 0;
        }
        while into.len() < most {
            let Some(item) = inner.control.pop_front() else { break };
            into.push_back(item);
        }
        while into.len() < most {
            let Some(item) = inner.data.pop_front() else { break };
            if matches!(item, InboxItem::Command(Command::Submit(_), _)) {
                inner.inputs = inner.inputs.saturating_sub(1);
            }
            into.push_back(item);
        }
        if into.is_empty() {
            inner.awake = false;
        }
    }

    /// Drops the probes, so that their callers stop waiting for items that are never handled.
    pub(crate) fn drop_probes(&self) {
        self.lock().data.retain(|item| !matches!(item, InboxItem::Probe(_)));
    }

    pub(crate) fn is_empty(&self) -> bool {
        let inner = self.lock();
        inner.control.is_empty() && inner.data.is_empty()
    }

    pub(crate) fn set_current(&self, command: &'static str) {
        self.lock().current = Some(command);
    }

    /// Clears the command being decided: all commands were decided and committed without a panic.
    pub(crate) fn clear_current(&self) {
        let mut inner = self.lock();
        inner.current = None;
        inner.killer = None;
    }

    /// Records a crash; returns the command being decided, and whether the same command crashed the previous activation.
    pub(crate) fn record_crash(&self) -> (Option<&'static str>, bool) {
        let mut inner = self.lock();
        inner.crashed = true;
        let killer = inner.current.take();
        let again = killer.is_some() && killer == inner.killer;
        inner.killer = killer;
        (killer, again)
    }

    /// Makes the next activation end the run. Returns whether the last one was to, whose recorded command remains.
    pub(crate) fn exhaust(&self, command: Option<&'static str>) -> bool {
        let mut inner = self.lock();
        let again = inner.exhausted.is_some();
        inner.exhausted.get_or_insert(command);
        again
    }

    /// Returns the command that crashes the run's activations, if the next activation must end the run.
    pub(crate) fn exhausted(&self) -> Option<Option<&'static str>> {
        self.lock().exhausted
    }

    /// Marks the run as in flight when the host died.
    pub(crate) fn mark_lost(&self, lost: Lost) {
        self.lock().lost = Some(lost);
    }

    pub(crate) fn lost(&self) -> Option<Lost> {
        self.lock().lost
    }

    /// Clears the marks: the run's end is in the log, or no run is in flight.
    pub(crate) fn settle(&self) {
        let mut inner = self.lock();
        inner.lost = None;
        inner.exhausted = None;
    }

    pub(crate) fn holds_slot(&self) -> bool {
        self.lock().slot.is_some()
    }

    pub(crate) fn hold_slot(&self, slot: Slot) {
        let before = self.lock().slot.replace(slot);
        // Dropped outside of the lock, because the drop may grant the slot to a run that takes this lock.
        drop(before);
    }

    pub(crate) fn release_slot(&self) {
        let slot = self.lock().slot.take();
        drop(slot);
    }

    pub(crate) fn take_crashed(&self) -> bool {
        std::mem::take(&mut self.lock().crashed)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use subtend_session::command::Command;
    use subtend_session::ids::InputId;
    use subtend_session::outcome::Initiator;
    use subtend_session::place::Owner;
    use subtend_session::record::{From, InputAccepted, Lane};

    use super::{Full, Inbox, InboxItem};
    use crate::delivery::sender::SenderKey;

    fn input(n: u128) -> InboxItem {
        let input =
            InputAccepted::new(InputId(uuid::Uuid::from_u128(n)), From::Person, Lane::Send, "hi", Owner::Person);
        InboxItem::Command(Command::Submit(Box::new(input)), None)
    }

    fn names(items: &VecDeque<InboxItem>) -> Vec<&'static str> {
        items
            .iter()
            .map(|item| match item {
                InboxItem::Command(command, _) => command.name(),
                InboxItem::Parsed(_)
                | InboxItem::Granted(..)
                | InboxItem::Idle
                | InboxItem::Probe(_)
                | InboxItem::Queue(_)
                | InboxItem::ClearQueue(..)
                | InboxItem::FilesRead(_)
                | InboxItem::ModelDue(_) => "other",
            })
            .collect()
    }

    #[test]
    fn cancel_is_taken_before_a_full_data_lane() {
        let inbox = Inbox::default();
        for n in 0..1_000 {
            inbox.push(input(n));
        }
        inbox.push(InboxItem::Command(Command::Cancel { run: None, by: Initiator::Person, keeps_queue: false }, None));
        let mut taken = VecDeque::new();
        inbox.drain(2, &mut taken);
        assert_eq!(names(&taken), ["cancel", "submit"]);
    }

    #[test]
    fn inbox_is_bounded_and_has_room_after_an_input_is_taken() {
        let inbox = Inbox::default();
        assert!(inbox.push_input(input(1), 2, SenderKey::UNKNOWN).is_ok());
        assert!(inbox.push_input(input(2), 2, SenderKey::UNKNOWN).is_ok());
        assert!(matches!(inbox.push_input(input(3), 2, SenderKey::UNKNOWN), Err(Full(2))));
        let mut taken = VecDeque::new();
        inbox.drain(1, &mut taken);
        assert!(inbox.push_input(input(4), 2, SenderKey::UNKNOWN).is_ok());
    }
}
