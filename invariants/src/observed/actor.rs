use std::collections::BTreeSet;

use super::When;
use subtend_session::ids::{Epoch, RunNo, Seq, SessionId, Text};

/// The reason why a session was activated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ActivationCause {
    Creation,
    /// A message arrived while the session was not in memory.
    Message,
    Restart,
    Boot,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activated {
    pub session: SessionId,
    pub epoch: Epoch,
    pub at: When,
    pub why: ActivationCause,
    /// The last record that the activation folded.
    pub last: Seq,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Death {
    pub session: SessionId,
    pub at: When,
    /// The sequence number and name of the command that was being handled.
    pub command: Option<(u64, Text)>,
    /// Other sessions that lost their activation at that moment without being unloaded or asked to stop.
    pub took: BTreeSet<SessionId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestartBudget {
    /// Restarts of one session per window.
    pub max: u32,
    /// The window, milliseconds.
    pub within_ms: u64,
    /// Restarts of all sessions of one supervisor per window, if limited.
    pub storm: Option<(u32, u64)>,
}

/// A supervisor's decision about a death.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restart {
    pub session: SessionId,
    pub at: When,
    /// The supervisor, which limits the restarts of all its sessions.
    pub supervisor: u32,
    /// True if the actor is restarted; otherwise the supervisor gave it up.
    pub admitted: bool,
    /// The run in flight when the actor was given up.
    pub run: Option<RunNo>,
}

/// An actor that was stopped or killed, or had already ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stop {
    pub session: SessionId,
    pub at: When,
    /// True if the actor was killed rather than asked to stop.
    pub killed: bool,
    pub run: Option<RunNo>,
}
