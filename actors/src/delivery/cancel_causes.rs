//! Causes of cancellations: the decisions of the owners of runs, attached to the tokens of the runs.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use foldhash::fast::FixedState;
use subtend_session::ids::{CallId, RunKey, SessionId};
use subtend_session::outcome::{Initiator, OutcomeKind};

/// The reason why the token of a run fired.
#[derive(Debug, Default)]
pub(crate) struct CancelCause {
    /// The outcome of the closing run, which is the true cause for all runs it owns.
    pub(crate) closes: Option<OutcomeKind>,
    /// True if the whole tree is cancelled: queued inputs below the run remain queued.
    pub(crate) keeps_queues: bool,
    /// The call by which the owner cancels this run alone, by an interrupt or a call of its model, and on whose behalf. It is kept per run: the
    /// owner's other runs continue, and a cancel of an ancestor may still end them.
    pub(crate) alone: Option<(CallId, Initiator)>,
}

/// Runs that a continue opened, by owner and call: the owner does not know the run's number.
#[derive(Default)]
pub(crate) struct Continued(Mutex<HashMap<(SessionId, CallId), RunKey, FixedState>>);

impl Continued {
    fn lock(&self) -> MutexGuard<'_, HashMap<(SessionId, CallId), RunKey, FixedState>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the run that a call of `owner` opened in an ended session.
    pub(crate) fn insert(&self, owner: SessionId, call: CallId, run: RunKey) {
        self.lock().insert((owner, call), run);
    }

    pub(crate) fn get(&self, owner: SessionId, call: CallId) -> Option<RunKey> {
        self.lock().get(&(owner, call)).copied()
    }

    pub(crate) fn remove(&self, run: RunKey) {
        let mut continued = self.lock();
        if !continued.is_empty() {
            continued.retain(|_, other| *other != run);
        }
    }
}
