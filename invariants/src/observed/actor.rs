//! Actors: begun, died, begun again, stopped.

use std::collections::BTreeSet;

use super::When;
use subtend_session::ids::{Epoch, RunNo, Seq, SessionId, Text};

/// Why a session was activated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Why {
    /// It was born.
    Birth,
    /// Something arrived for it while it was not in memory.
    Message,
    /// Its actor had died.
    Restart,
    /// The host started.
    Boot,
}

/// One activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activated {
    pub session: SessionId,
    pub epoch: Epoch,
    pub at: When,
    pub why: Why,
    /// The last record that it was folded from.
    pub last: Seq,
}

/// One death of an actor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Death {
    pub session: SessionId,
    pub at: When,
    /// The command in hand: which one it was, and its name.
    pub command: Option<(u64, Text)>,
    /// Sessions that had an activation right before and have none right after, but for the dead one and those that were
    /// passivated or asked to stop.
    pub took: BTreeSet<SessionId>,
}

/// How often actors may be restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestartBudget {
    /// Restarts of one session in a window.
    pub max: u32,
    /// The window, milliseconds.
    pub within_ms: u64,
    /// Restarts of all sessions of one supervisor in its window, where there is such a limit.
    pub storm: Option<(u32, u64)>,
}

/// What a supervisor said to the death of an actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restart {
    pub session: SessionId,
    /// When it was decided.
    pub at: When,
    /// Its supervisor, for the storm limit.
    pub supervisor: u32,
    /// Whether it is restarted; else it was given up.
    pub admitted: bool,
    /// The run in flight when it was given up.
    pub run: Option<RunNo>,
}

/// One actor that was stopped, killed or found at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stop {
    pub session: SessionId,
    /// When it was gone.
    pub at: When,
    /// Whether it was killed rather than asked.
    pub killed: bool,
    /// The run that was in flight.
    pub run: Option<RunNo>,
}
