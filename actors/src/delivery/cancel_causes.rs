//! Causes of cancellations: the decisions of the owners of runs, attached to the tokens of the runs.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use foldhash::fast::FixedState;
use subtend_session::ids::{CallId, RunKey, SessionId};
use subtend_session::outcome::{Initiator, OutcomeKind};

/// The reason why the token of a run fired.
#[derive(Debug, Default)]
pub(crate) struct CancelCause {
    /// The outcome of the closing run. It is the cause for all runs that the closing run owns.
    pub(crate) closes: Option<OutcomeKind>,
    /// True if the whole tree is cancelled: queued inputs below the run remain queued.
    pub(crate) keeps_queues: bool,
    /// Set if the owner cancels this run alone: the call that owns the run, and the initiator. Other runs of the owner
    /// continue, and a cancel of an ancestor may still end this one.
    pub(crate) alone: Option<(CallId, Initiator)>,
}

/// Runs opened by calls that continue a task, by owner and call. The owner does not know the numbers of these runs.
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
