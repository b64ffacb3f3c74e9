//! Effects: what a decision asks the hub to do, as data.

use crate::command::{Continue, Deadline};
use crate::ids::{AttemptNo, CallId, InputId, RunKey, RunNo, Seq, SessionId, Short, TurnNo};
use crate::outcome::{By, Outcome, OutcomeKind};
use crate::record::{Notice, Record};

/// One thing to do, performed in the order of the decision and never before the records that intend it are in the log.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Ask the ledger for a slot; it answers with `Admitted`.
    RequestSlot {
        /// The run.
        run: RunNo,
        /// Whether the run worked before: re-admission goes before new starts.
        again: bool,
    },
    /// Give the run's slot, or its place in the queue for one, back.
    ReleaseSlot {
        /// The run.
        run: RunNo,
    },
    /// Call the model with the transcript as it stands.
    CallModel {
        /// The turn.
        turn: TurnNo,
        /// The attempt.
        attempt: AttemptNo,
        /// Wait this long before it.
        after_ms: u64,
    },
    /// Run a local tool.
    RunTool {
        /// The call.
        call: CallId,
    },
    /// Stop one local tool whose time is over: its call is closed already, so what it still answers is stale.
    StopTool {
        /// The call.
        call: CallId,
    },
    /// Find out about child calls (registry, ledger, ids) and answer with `Spawn`, in chunks.
    Admit {
        /// The turn.
        turn: TurnNo,
        /// Their places in the answer.
        calls: Vec<u32>,
    },
    /// Start the actor of a child that is born in this decision.
    StartChild {
        /// The child.
        child: SessionId,
    },
    /// Deliver an outbox row to the owner of a run that ended.
    DeliverCompletion {
        /// The owner's session.
        to: SessionId,
        /// The notice.
        notice: Box<Notice>,
    },
    /// Drop the model stream and stop the local tools of the run. Each still answers with its completion command.
    CancelLocal,
    /// Fire the run's token for all that it owns, at once, and tell the owned sessions.
    CancelOwned {
        /// The run that closes.
        run: RunNo,
        /// Its outcome.
        outcome: OutcomeKind,
        /// Whether inputs that wait in the owned sessions stay where they are.
        queue_stands: bool,
    },
    /// Cancel one owned run: tell its session, and fire its token for all below it.
    CancelChild {
        /// The run that owns it.
        run: RunNo,
        /// The session of the owned run.
        child: SessionId,
        /// Its key.
        key: CallId,
        /// The cause that it names.
        by: By,
    },
    /// Deliver a `continue` row.
    AskToContinue {
        /// The child.
        child: SessionId,
        /// What it is asked.
        ask: Box<Continue>,
    },
    /// Ask for a person's word; without anyone who could give it, answer `AskAnswered` at once.
    AskPerson {
        /// The call.
        call: CallId,
    },
    /// Arm a deadline.
    Arm {
        /// Which.
        deadline: Deadline,
        /// After how long.
        after_ms: u64,
    },
    /// Forget a deadline.
    Disarm {
        /// Which.
        deadline: Deadline,
    },
    /// Tell those who wait for the run.
    Ended {
        /// The run.
        run: RunNo,
        /// Its outcome.
        outcome: Outcome,
    },
    /// Nothing is to be done for this session until something arrives: it may be passivated.
    Unload,
}

/// What was decided: records to append, children to be born in the same batch, and what to do.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// Records of this session, already applied to the state.
    pub records: Vec<Record>,
    /// Births in the same batch.
    pub births: Vec<Birth>,
    /// What to do.
    pub effects: Vec<Effect>,
    /// What to answer to who gave the command.
    pub reply: Reply,
}

/// The first records of a session that does not exist yet.
#[derive(Clone, Debug, PartialEq)]
pub struct Birth {
    /// The session.
    pub session: SessionId,
    /// Its records, from sequence number 1.
    pub records: Vec<Record>,
}

/// What a command answers to who gave it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Reply {
    /// Nothing to say.
    #[default]
    None,
    /// An input is accepted.
    Accepted {
        /// Its receipt.
        input: InputId,
        /// Whether it had been accepted before, by its key.
        again: bool,
    },
    /// A control was done, for this run.
    Done(RunNo),
    /// A branch is born.
    Branched {
        /// It.
        child: SessionId,
        /// Its short name.
        short: Short,
    },
    /// This alternative of the answer is seen.
    Switched {
        /// The answer.
        of: Seq,
        /// Which alternative; 0 is the original.
        to: u32,
    },
    /// The run has ended, or its outcome is fixed.
    AlreadyEnded(RunKey, Outcome),
    /// There is no such run, call or input.
    NotFound,
}

/// Why a command was not decided: the state is as it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// A completion whose address is no longer awaited: counted, not recorded.
    #[error("stale: {0} is not awaited any more")]
    Stale(&'static str),
    /// A bound is reached; try again later.
    #[error("busy: {what} holds {limit}, its limit")]
    Busy {
        /// What is full.
        what: &'static str,
        /// The bound.
        limit: u64,
    },
    /// The session works: what is asked for needs a quiet one.
    #[error("busy: {command} needs a quiet session, and {why}")]
    Working {
        /// The command.
        command: &'static str,
        /// Why it is not.
        why: &'static str,
    },
    /// Inputs wait in the session's queue: what is asked for needs an empty one.
    #[error("busy: inputs wait in its queue ({inputs}): let it take them, or clear them")]
    Waiting {
        /// How many.
        inputs: usize,
    },
    /// The session is deleted.
    #[error("the session is deleted")]
    Deleted,
    /// The message, answer or run that the command names does not exist in the session.
    #[error("{0}")]
    NotFound(String),
    /// The input itself cannot be accepted.
    #[error("bad input: {0}")]
    BadInput(String),
    /// The command's verb is not there yet.
    #[error("{0} is not available yet")]
    NotYet(&'static str),
    /// The command does not fit the session's state, and nothing is awaited: a bug of the caller.
    #[error("{command} does not fit: {why}")]
    Misplaced {
        /// The command.
        command: &'static str,
        /// Why.
        why: &'static str,
    },
}
