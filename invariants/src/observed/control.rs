//! Words from outside, and what was answered.

use std::collections::BTreeSet;

use super::When;
use subtend_session::ids::{InputId, RunKey, SessionId, Text};
use subtend_session::outcome::{Budget, By, Outcome, TimeLimit};

/// Everything that may end a run, as it was done from outside or befell the host.
///
/// A cause that is not here did not happen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Causes {
    /// Cancels by persons and the host, of a run or of its whole tree: every run that was told.
    pub cancels: Vec<(RunKey, By)>,
    /// Trees that were cancelled whole, by their root: ends detached runs too (T-6).
    pub trees: BTreeSet<SessionId>,
    /// Interrupts by persons and the host.
    pub interrupts: Vec<(RunKey, By)>,
    /// Deadlines that passed.
    pub passed: Vec<(RunKey, TimeLimit)>,
    /// Budgets that were refused for good.
    pub refused: Vec<(RunKey, Budget)>,
    /// Starts of the host on a store that had runs in flight.
    pub boots: u32,
    /// Sessions whose actor was given up.
    pub given_up: BTreeSet<SessionId>,
    /// Sessions in whose turn task, model or tool there was a panic.
    pub panicked: BTreeSet<SessionId>,
}

/// What a control, or a wait for an end, was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerSeen {
    /// The run that was meant.
    pub run: RunKey,
    pub given: Given,
    /// When it was answered.
    pub at: When,
    pub answer: Answer,
}

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Given {
    Cancel(By),
    Interrupt(By),
    /// To be told of the end: a wait, an event, a notice.
    End,
    /// A completion that came late: an answer, a tool's result, a slot, a deadline.
    Late,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Done,
    /// The run has ended so, or will.
    Ended(Outcome),
    /// There is no such run.
    NotFound,
    /// It is not awaited any more: counted, not recorded. The number of records that were written all the same.
    Stale(u32),
}

/// A control on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlSeen {
    pub session: SessionId,
    pub given: When,
    pub handled: When,
    /// How many times the actor began to handle what waits in its lanes, before the time in which it handled this. One
    /// that was at work already is not counted.
    pub waited_for: u32,
}

/// A queue, when something was put to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueSeen {
    /// The session that it belongs to.
    pub session: SessionId,
    /// Its name, such as `inbox` or `queue`.
    pub queue: Text,
    pub at: When,
    /// What it held before.
    pub len: u64,
    pub bound: u64,
    /// What who put it was answered.
    pub answer: QueueAnswer,
}

/// What somebody was answered who put something to a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueAnswer {
    /// It was taken; an input's receipt, where it is one.
    Taken(Option<InputId>),
    /// The queue is full.
    Busy,
    /// The sender failed for want of room.
    Failed,
    /// The runtime is shut down, and takes nothing.
    Stopped,
}

/// Live descendants, as the root's listing shows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    pub root: SessionId,
    pub listed: BTreeSet<SessionId>,
    /// What a control by its id reaches from the root; absent where that was not tried.
    pub reached: Option<BTreeSet<SessionId>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shutdown {
    /// When it was asked for: from there on nothing new is taken.
    pub asked: When,
    /// When it returned: from there on nothing of ours is alive.
    pub returned: Option<When>,
    /// How long what runs may take to stop, milliseconds, before it is killed.
    pub grace_ms: u64,
}
