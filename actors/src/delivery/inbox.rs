//! A session's inbox: queued items, control before data, with one coalesced wake.
//!
//! Items cannot overtake in ractor's mailbox, so they are queued here and the mailbox carries wakes only: a cancel waits for one handler at
//! most, however much data is queued (B-2).

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ractor::ActorRef;
use subtend_session::command::Command;
use subtend_session::effect::{Rejection, Reply};
use subtend_session::ids::{InputId, Lsn, RunNo};
use subtend_supervision::slots::Slot;
use tokio::sync::oneshot;

use crate::calls::files::HasRead;
use crate::calls::in_flight::{ModelDue, ParsedCalls};
use crate::delivery::commands::handling;
use crate::delivery::ticket::Ticket;
use crate::values::at_boot::Lost;
use crate::values::ended::Ended;
use crate::values::queue_entry::QueueEntry;

/// The answer to a command, with the run in flight, or the last one, at its decision.
pub(crate) type CommandReply = Result<(Reply, RunNo), Rejection>;

/// Receives the answer when the records of the decision are durable.
pub(crate) type ReplyTo = oneshot::Sender<CommandReply>;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Wake {
    Look,
}

pub(crate) enum InboxItem {
    /// A command, and the receiver of its answer.
    Command(Command, Option<ReplyTo>),
    /// An answer of the model with its calls, parsed.
    Parsed(Box<(Command, ParsedCalls)>),
    Granted(Ticket, Slot),
    /// Idle for a while: the session may be passivated.
    Idle,
    /// Answers when everything before it is decided, with the LSN to wait for.
    Probe(oneshot::Sender<Probed>),
    Queue(oneshot::Sender<Listed>),
    /// Clears the queue, and returns the number of its inputs first.
    ClearQueue(oneshot::Sender<u32>, ReplyTo),
    HasRead(Box<HasRead>),
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
            | Self::HasRead(_)
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
    /// The number of the run in flight and the last ended run.
    pub(crate) in_flight: Option<RunNo>,
    pub(crate) last: Option<Ended>,
}

/// The inbox of one session. It outlives activations: the next one takes what is left.
#[derive(Default)]
pub(crate) struct Inbox {
    inner: Mutex<InboxState>,
}

#[derive(Default)]
struct InboxState {
    control: VecDeque<InboxItem>,
    data: VecDeque<InboxItem>,
    /// Inputs among `data`, which are bounded.
    inputs: usize,
    /// Set while a wake is on its way or the actor takes items.
    awake: bool,
    actor: Option<ActorRef<Wake>>,
    /// The depth of the session, as its last actor knew: a shutdown ends owned runs before their owners.
    depth: u32,
    /// The command being decided, kept outside of the actor so that it is known after a panic (V-3).
    in_hand: Option<&'static str>,
    killer: Option<&'static str>,
    /// The run was in flight when the host died. Kept here, as are the next fields: a panic before its end is logged must not turn a lost run
    /// into a resumed one.
    lost: Option<Lost>,
    /// Whether the run is to be given up, with the name of the command.
    exhausted: Option<Option<&'static str>>,
    /// The slot of the run in flight: a run that continues after a panic still holds it (T-3).
    slot: Option<Slot>,
    /// Whether the last activation crashed: the effects of its appended batch may be missing.
    crashed: bool,
}

/// The inbox is full, with this many inputs.
#[derive(Debug)]
pub(crate) struct Full(pub(crate) usize);

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, InboxState> {
        // A panic under the lock leaves whole items: each push and pop is one step.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues `item` and wakes the actor if it sleeps.
    pub(crate) fn push(&self, item: InboxItem) {
        let mut inner = self.lock();
        if item.is_control() {
            inner.control.push_back(item);
        } else {
            inner.data.push_back(item);
        }
        Self::wake(&mut inner);
    }

    /// Queues an input, unless the inbox is full. Returns the earlier length.
    pub(crate) fn push_input(&self, item: InboxItem, bound: usize) -> Result<usize, Full> {
        let mut inner = self.lock();
        if inner.inputs >= bound {
            return Err(Full(inner.inputs));
        }
        let before = inner.inputs;
        inner.inputs = inner.inputs.saturating_add(1);
        inner.data.push_back(item);
        Self::wake(&mut inner);
        Ok(before)
    }

    fn wake(inner: &mut InboxState) {
        if inner.awake {
            return;
        }
        if let Some(actor) = &inner.actor {
            // A cast fails only to a dead actor, whose restart checks the inbox first.
            inner.awake = actor.cast(Wake::Look).is_ok();
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

    /// Releases the callers that wait for the decision of what precedes them.
    pub(crate) fn drop_probes(&self) {
        self.lock().data.retain(|item| !matches!(item, InboxItem::Probe(_)));
    }

    pub(crate) fn is_empty(&self) -> bool {
        let inner = self.lock();
        inner.control.is_empty() && inner.data.is_empty()
    }

    pub(crate) fn take_in_hand(&self, command: &'static str) {
        self.lock().in_hand = Some(command);
    }

    /// Clears the command in hand: the commands are decided and committed without a panic.
    pub(crate) fn put_down(&self) {
        let mut inner = self.lock();
        inner.in_hand = None;
        inner.killer = None;
    }

    /// Records a crash; returns the command in hand, and whether the same one crashed the previous activation.
    pub(crate) fn died(&self) -> (Option<&'static str>, bool) {
        let mut inner = self.lock();
        inner.crashed = true;
        let killer = inner.in_hand.take();
        let again = killer.is_some() && killer == inner.killer;
        inner.killer = killer;
        (killer, again)
    }

    /// Makes the next activation give the run up. Returns whether the last one had to do so already: then its command stays.
    pub(crate) fn exhaust(&self, command: Option<&'static str>) -> bool {
        let mut inner = self.lock();
        let again = inner.exhausted.is_some();
        inner.exhausted.get_or_insert(command);
        again
    }

    /// Returns whether the run is to be given up, and on which command.
    pub(crate) fn exhausted(&self) -> Option<Option<&'static str>> {
        self.lock().exhausted
    }

    /// Marks the run as in flight when the host died.
    pub(crate) fn lose(&self, lost: Lost) {
        self.lock().lost = Some(lost);
    }

    /// Returns whether the run was in flight when the host died, and how it is lost.
    pub(crate) fn lost(&self) -> Option<Lost> {
        self.lock().lost
    }

    /// Clears the marks: the run's end is in the log, or there is no run.
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
        // Dropped outside of the lock: the next grant may lock it again.
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
    use subtend_session::outcome::By;
    use subtend_session::place::Owner;
    use subtend_session::record::{From, InputAccepted, Lane};

    use super::{Full, Inbox, InboxItem};

    fn input(n: u128) -> InboxItem {
        let input = InputAccepted {
            id: InputId(uuid::Uuid::from_u128(n)),
            key: None,
            from: From::Person,
            lane: Lane::Send,
            text: "hi".into(),
            agent_override: None,
            turns: None,
            metadata: None,
            format: None,
            tools: None,
            as_owner: Owner::Person,
        };
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
                | InboxItem::HasRead(_)
                | InboxItem::ModelDue(_) => "other",
            })
            .collect()
    }

    #[test]
    fn a_cancel_is_taken_first_however_full_the_data_lane_is() {
        let inbox = Inbox::default();
        for n in 0..1_000 {
            inbox.push(input(n));
        }
        inbox.push(InboxItem::Command(Command::Cancel { run: None, by: By::Person, queue_stands: false }, None));
        let mut taken = VecDeque::new();
        inbox.drain(2, &mut taken);
        assert_eq!(names(&taken), ["cancel", "submit"]);
    }

    #[test]
    fn inbox_is_bounded_and_has_room_after_an_input_is_taken() {
        let inbox = Inbox::default();
        assert!(inbox.push_input(input(1), 2).is_ok());
        assert!(inbox.push_input(input(2), 2).is_ok());
        assert!(matches!(inbox.push_input(input(3), 2), Err(Full(2))));
        let mut taken = VecDeque::new();
        inbox.drain(1, &mut taken);
        assert!(inbox.push_input(input(4), 2).is_ok());
    }
}
