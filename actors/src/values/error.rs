use subtend_session::effect::Rejection;
use subtend_session::ids::{RunNo, SessionId};

/// The reason why an input was not accepted. The input is not kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    #[error("the session is busy: {what} is full, the limit is {limit}. Try again when it has room")]
    Busy { what: &'static str, limit: u64 },
    #[error("{0}")]
    BadInput(String),
    /// The runtime is shutting down or its store failed.
    #[error("{0}")]
    Stopped(Stopped),
    /// The session is missing or deleted, or a value is unknown.
    #[error("{0}")]
    Refused(String),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WaitError {
    /// The runtime is shutting down or its store failed; the run is in the journal.
    #[error("{0}")]
    Stopped(Stopped),
    #[error("session {session} has no run {run}")]
    NoSuchRun { session: SessionId, run: RunNo },
    #[error("{0}")]
    Refused(String),
}

/// The reason why a control failed. Nothing has changed unless the message says otherwise.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// The runtime is shutting down or its store failed.
    #[error("{0}")]
    Stopped(Stopped),
    /// A run is in flight, and the control needs an idle session.
    #[error("{0}")]
    Working(String),
    /// Inputs are queued, and the control needs an empty queue.
    #[error("queued inputs: {0}. Continue the session so that it takes them, or clear its queue")]
    Waiting(usize),
    /// The session, message, answer, run or call is unknown; the error text names it, and the valid ones.
    #[error("{0}")]
    NotFound(String),
    #[error("the session is deleted")]
    Deleted,
    /// The control is not possible; the message says why.
    #[error("{0}")]
    Refused(String),
}

impl ControlError {
    /// Converts a rejected control for the caller.
    pub(crate) fn of(rejection: &Rejection) -> Self {
        match rejection {
            Rejection::Working { command, why } => Self::Working(format!("cannot {command}: {why}")),
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

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stopped {
    #[error("the runtime is shut down; runs in flight are in the journal")]
    Shutdown,
    #[error("the journal failed: {0}. Open the store again to recover")]
    Poisoned(String),
    #[error("the session stopped before it answered; acknowledged changes are in the journal")]
    Gone,
    /// The session cannot be read: its journal is damaged, or of a newer version. It remains as it is, and other sessions are not affected.
    #[error("the session cannot be read, and nothing was changed: {0}; `subtend verify` reports what else is wrong")]
    Unreadable(String),
    /// The store cannot be read for now, for example because a database restarts.
    #[error("the store cannot be read now: {0}. Try again")]
    StoreUnread(String),
}
