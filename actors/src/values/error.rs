//! Why a handle has no answer.

use subtend_session::effect::Rejection;
use subtend_session::ids::{RunNo, SessionId};

/// Why an input was not accepted. Nothing of it is kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The inbox or the queue is full: try again later.
    #[error("the session is busy: {what} holds {limit}, its limit; try again when it has taken some")]
    Busy {
        /// What is full.
        what: &'static str,
        /// Its bound.
        limit: u64,
    },
    /// The input cannot be accepted as it is.
    #[error("{0}")]
    BadInput(String),
    /// The runtime is shutting down or its store failed.
    #[error("{0}")]
    Stopped(Stopped),
    /// The session's verb is not there.
    #[error("{0}")]
    Refused(String),
}

/// Why a wait or a control came to nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WaitError {
    /// The runtime is shutting down or its store failed; the run is in the journal.
    #[error("{0}")]
    Stopped(Stopped),
    /// There is no such run.
    #[error("session {session} has no run {run}")]
    NoSuchRun {
        /// The session.
        session: SessionId,
        /// The run.
        run: RunNo,
    },
    /// The session refused the command.
    #[error("{0}")]
    Refused(String),
}

/// Why a control was not done. Nothing is changed by it, but where its words say so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// The runtime is shutting down or its store failed.
    #[error("{0}")]
    Stopped(Stopped),
    /// The session works, and what is asked for needs a quiet one.
    #[error("the session is at work: {0}")]
    Working(String),
    /// Inputs wait in the session's queue, and what is asked for needs an empty one.
    #[error("inputs wait in the session's queue ({0}): let it take them, or clear the queue")]
    Waiting(usize),
    /// The session, message, answer, run or call does not exist: which one, and which exist.
    #[error("{0}")]
    NotFound(String),
    /// The session is deleted.
    #[error("the session is deleted")]
    Deleted,
    /// It cannot be done.
    #[error("{0}")]
    Refused(String),
}

impl ControlError {
    /// What a rejected control is to who gave it.
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
    /// It was shut down.
    #[error("the runtime is shut down; what was in flight is in the journal")]
    Shutdown,
    /// The journal failed: nothing is acknowledged until the store is opened again.
    #[error("the journal failed ({0}); open the store again to recover")]
    Poisoned(String),
    /// The session's actor went away before it answered; what it acknowledged is kept.
    #[error("the session went away before it answered; what it had acknowledged is in the journal")]
    Gone,
    /// The session cannot be read: its journal is damaged, or of a newer version. It stays as it is, and the others go on.
    #[error("the session is left alone, since it cannot be read: {0}; `verify` tells what else is wrong")]
    Unreadable(String),
}
