//! Errors of handles.

use subtend_session::effect::Rejection;
use subtend_session::ids::{RunNo, SessionId};

/// Why an input was not accepted. Nothing of it is kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The inbox or the queue is full: retry later.
    #[error("the session is busy: {what} holds {limit}, its limit; try again when it has taken some")]
    Busy {
        /// What is full.
        what: &'static str,
        limit: u64,
    },
    /// The input is invalid.
    #[error("{0}")]
    BadInput(String),
    /// The runtime is shutting down or its store failed.
    #[error("{0}")]
    Stopped(Stopped),
    /// The session is missing or deleted, or a value is unknown.
    #[error("{0}")]
    Refused(String),
}

/// Why a wait or a control failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WaitError {
    /// The runtime is shutting down or its store failed; the run is in the journal.
    #[error("{0}")]
    Stopped(Stopped),
    #[error("session {session} has no run {run}")]
    NoSuchRun { session: SessionId, run: RunNo },
    /// The session refused the command.
    #[error("{0}")]
    Refused(String),
}

/// Why a control was not carried out. Nothing changes unless the message says so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// The runtime is shutting down or its store failed.
    #[error("{0}")]
    Stopped(Stopped),
    /// A run is in flight, and the control needs an idle session.
    #[error("the session is running: {0}")]
    Working(String),
    /// Inputs are queued, and the control needs an empty queue.
    #[error("the session has {0} queued inputs: wait until it takes them, or clear the queue")]
    Waiting(usize),
    /// The session, message, answer, run or call is unknown; the message names it, and the valid ones.
    #[error("{0}")]
    NotFound(String),
    #[error("the session is deleted")]
    Deleted,
    /// It is not possible; the message says why.
    #[error("{0}")]
    Refused(String),
}

impl ControlError {
    /// Converts a rejected control for the caller.
    pub(crate) fn of(rejection: &Rejection) -> Self {
        match rejection {
            Rejection::Working { command, why } => Self::Working(format!("{command} needs a quiet session, and {why}")),
            Rejection::Waiting { inputs } => Self::Waiting(*inputs),
            Rejection::Deleted => Self::Deleted,
            Rejection::NotFound(what) => Self::NotFound(what.clone()),
            Rejection::Stale(_)
            | Rejection::Busy { .. }
            | Rejection::BadInput(_)
            | Rejection::NotYet(_)
            | Rejection::Misplaced { .. } => Self::Refused(rejection.to_string()),
        }
    }
}

impl From<WaitError> for ControlError {
    fn from(error: WaitError) -> Self {
        match error {
            WaitError::Stopped(stopped) => Self::Stopped(stopped),
            WaitError::NoSuchRun { .. } => Self::NotFound(error.to_string()),
            WaitError::Refused(why) => Self::Refused(why),
        }
    }
}

/// Why the runtime does not answer any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stopped {
    #[error("the runtime is shut down; what was in flight is in the journal")]
    Shutdown,
    /// The journal failed: nothing is acknowledged until the store is opened again.
    #[error("the journal failed ({0}); open the store again to recover")]
    Poisoned(String),
    /// The session's actor ended before it answered; what it acknowledged is kept.
    #[error("the session went away before it answered; what it had acknowledged is in the journal")]
    Gone,
    /// The session cannot be read: its journal is damaged, or of a newer version. It stays as it is, and other sessions work.
    #[error("the session is left alone, since it cannot be read: {0}; `verify` tells what else is wrong")]
    Unreadable(String),
}
