use std::collections::BTreeSet;

use super::When;
use subtend_session::ids::{InputId, RunKey, SessionId, Text};
use subtend_session::outcome::{Budget, Initiator, Outcome, TimeLimit};

/// All external causes of ends. A cause that is missing here did not occur.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Causes {
    /// Cancels by people and the host, of a run or its tree. Includes each run that was notified.
    pub cancels: Vec<(RunKey, Initiator)>,
    /// Cancelled trees, by root: they end detached runs too.
    pub trees: BTreeSet<SessionId>,
    /// Interrupts by people and the host.
    pub interrupts: Vec<(RunKey, Initiator)>,
    pub passed: Vec<(RunKey, TimeLimit)>,
    pub refused: Vec<(RunKey, Budget)>,
    /// Starts of the host with runs in flight.
    pub boots: u32,
    pub given_up: BTreeSet<SessionId>,
    /// Sessions with a panic in turn task, model or tool.
    pub panicked: BTreeSet<SessionId>,
}

/// The reply to a control, or to a wait for an end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedAnswer {
    pub run: RunKey,
    pub given: ReplySubject,
    pub at: When,
    pub answer: ControlAnswer,
}

/// The subject of a reply: a control, a wait or a late result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplySubject {
    Cancel(Initiator),
    Interrupt(Initiator),
    /// A wait, event or notice of an end.
    End,
    /// A late result: an answer, a tool result, a slot, a deadline.
    Late,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlAnswer {
    Done,
    /// The run has ended or will end with this outcome.
    Ended(Outcome),
    NotFound,
    /// The result is no longer awaited. Holds the number of records that were written despite that.
    Stale(u32),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedControl {
    pub session: SessionId,
    pub given: When,
    pub handled: When,
    /// Number of other handlers that the actor started before this control, without one that was already active.
    pub waited_for: u32,
}

/// A queue at an insertion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedQueue {
    pub session: SessionId,
    /// The queue's name, such as `inbox` or `queue`.
    pub queue: Text,
    pub at: When,
    pub len: u64,
    pub bound: u64,
    pub answer: QueueAnswer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueAnswer {
    /// The item was accepted, with a receipt if it is an input.
    Taken(Option<InputId>),
    Busy,
    /// The sender failed because the queue was full.
    Failed,
    Stopped,
}

/// Live descendants in the listing of a root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    pub root: SessionId,
    pub listed: BTreeSet<SessionId>,
    /// The sessions that a control by id reached from the root, if a control was sent.
    pub reached: Option<BTreeSet<SessionId>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shutdown {
    /// When the shutdown was requested. Nothing new is accepted from then on.
    pub asked: When,
    /// When the shutdown returned. Nothing is alive from then on.
    pub returned: Option<When>,
    /// Milliseconds for running work to stop before it is killed.
    pub grace_ms: u64,
}
