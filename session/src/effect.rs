//! Effects of a decision, performed by the runtime.

use crate::command::{Continue, Deadline};
use crate::ids::{AttemptNo, CallId, InputId, RunKey, RunNo, Seq, SessionId, Short, TurnNo};
use crate::outcome::{Initiator, Outcome, OutcomeKind};
use crate::record::{Notice, Record};

/// One effect. The runtime performs the effects in order, after it has appended the records of the decision.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Request a slot. The command `Admitted` reports that it was granted.
    RequestSlot {
        run: RunNo,
        /// True if the run had a slot before: it goes before runs that have not started.
        resumed: bool,
    },
    /// Release the run's slot, or its queued request.
    ReleaseSlot {
        run: RunNo,
    },
    CallModel {
        turn: TurnNo,
        attempt: AttemptNo,
        after_ms: u64,
    },
    /// Ask the compaction agent to summarise old history. The attempt waits for
    /// [`Command::Compact`](crate::command::Command::Compact).
    Compact {
        turn: TurnNo,
        attempt: AttemptNo,
    },
    RunTool {
        call: CallId,
    },
    /// Stop a local tool that timed out: its call is closed, so a late answer is stale.
    StopTool {
        call: CallId,
    },
    /// Resolve child calls (registry, ledger, ids) and answer with `Spawn`, in chunks.
    Admit {
        turn: TurnNo,
        calls: Vec<u32>,
    },
    StartChild {
        child: SessionId,
    },
    /// Deliver an outbox row to the owner of an ended run.
    DeliverCompletion {
        to: SessionId,
        notice: Box<Notice>,
    },
    /// Drop the model stream and stop the run's local tools. Each tool still answers with its completion command.
    CancelLocal,
    /// Fire the cancellation token of everything that the run owns, and notify the owned sessions.
    CancelOwned {
        run: RunNo,
        outcome: OutcomeKind,
        /// True if queued inputs of the owned sessions stay queued.
        keeps_queue: bool,
    },
    /// Cancel one owned run: notify its session, and fire the cancellation token of the run and everything that it owns.
    CancelChild {
        run: RunNo,
        child: SessionId,
        key: CallId,
        by: Initiator,
    },
    /// Deliver a `continue` row.
    AskToContinue {
        child: SessionId,
        ask: Box<Continue>,
    },
    AskPerson {
        call: CallId,
    },
    Arm {
        deadline: Deadline,
        after_ms: u64,
    },
    Disarm {
        deadline: Deadline,
    },
    /// Notify the run's waiters.
    Ended {
        run: RunNo,
        outcome: Outcome,
    },
    /// Nothing is left to do until a command arrives: the session may be unloaded.
    Unload,
}

/// A decision: records to append, new sessions in the same batch, and effects.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// Records of this session, already applied to the state.
    pub records: Vec<Record>,
    pub new_sessions: Vec<NewSession>,
    pub effects: Vec<Effect>,
    pub reply: Reply,
}

/// The first records of a new session.
#[derive(Clone, Debug, PartialEq)]
pub struct NewSession {
    pub session: SessionId,
    /// The records of the session, from sequence number 1.
    pub records: Vec<Record>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Reply {
    #[default]
    None,
    Accepted {
        input: InputId,
        duplicate: bool,
    },
    /// The command was applied to this run.
    Done(RunNo),
    Branched {
        child: SessionId,
        short: Short,
    },
    Switched {
        of: Seq,
        to: u32,
    },
    /// The run has ended, or its outcome is fixed.
    AlreadyEnded(RunKey, Outcome),
    /// The run, call or input does not exist.
    NotFound,
}

/// The reason why a command was not decided. The state is unchanged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    #[error("stale: {0} is not pending")]
    Stale(&'static str),
    #[error("busy: {what} has reached its limit of {limit}")]
    Busy { what: &'static str, limit: u64 },
    /// A run is active, and the command needs a quiet session.
    #[error("cannot {command}: {why}")]
    Working { command: &'static str, why: &'static str },
    #[error("busy: inputs are queued ({inputs}): wait until they are processed, or clear the queue")]
    Waiting { inputs: usize },
    #[error("the session is deleted")]
    Deleted,
    /// The message, answer or run that the command names does not exist.
    #[error("{0}")]
    NotFound(String),
    #[error("{0}")]
    BadInput(String),
    #[error("{0} is not available yet")]
    NotYet(&'static str),
    #[error("{command} does not fit: {why}")]
    Misplaced { command: &'static str, why: &'static str },
}
