//! Runs of an earlier process, until a session of this one has recovered them.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use subtend_session::ids::SessionId;
use subtend_session::state::State;

use crate::recovery::unreadable::Unreadable;
use crate::values::at_boot::{AtBoot, Lost};
use crate::values::options::RecoveryScope;

/// Runs of an earlier process, by session. A mark goes with the first activation.
pub(crate) struct Takeover {
    scope: RecoveryScope,
    pub(crate) unreadable: Unreadable,
    marks: Mutex<Marks>,
}

#[derive(Default)]
struct Marks {
    /// How each run is handled: the next activation ends a lost one first, and leaves a dormant one until an input concerns it.
    runs: HashMap<SessionId, AtBoot>,
    /// The sessions that the start recovers, unless it is all or none.
    takes: HashSet<SessionId>,
    /// Queued inputs behind runs that the start ended.
    queues: HashMap<SessionId, usize>,
}

impl Takeover {
    pub(crate) fn new(scope: RecoveryScope) -> Self {
        Self { scope, unreadable: Unreadable::default(), marks: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Marks> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the start leaves the queue of `state`'s session alone.
    pub(crate) fn leaves(&self, state: &State) -> bool {
        match self.scope {
            RecoveryScope::All => false,
            RecoveryScope::Session(_) => !self.lock().takes.contains(&state.id),
            RecoveryScope::Nothing => true,
        }
    }

    /// Returns the one session whose tree the start recovers, if it is one.
    pub(crate) fn only(&self) -> Option<SessionId> {
        if let RecoveryScope::Session(session) = self.scope { Some(session) } else { None }
    }

    /// Sets the sessions of that tree.
    pub(crate) fn takes(&self, sessions: HashSet<SessionId>) {
        self.lock().takes = sessions;
    }

    /// Marks how runs are handled.
    pub(crate) fn mark(&self, runs: impl IntoIterator<Item = (SessionId, AtBoot)>) {
        self.lock().runs.extend(runs);
    }

    /// Returns whether the start has not reached `session`, or leaves it dormant.
    pub(crate) fn awaits(&self, session: SessionId) -> bool {
        self.lock().runs.contains_key(&session)
    }

    /// Returns whether the run in flight of `session` is dormant.
    pub(crate) fn stays(&self, session: SessionId) -> bool {
        self.lock().runs.get(&session) == Some(&AtBoot::Stays)
    }

    /// Removes the mark of `session`; returns how its run is lost, if it is.
    pub(crate) fn reached(&self, session: SessionId) -> Option<Lost> {
        match self.lock().runs.remove(&session) {
            Some(AtBoot::Lost(lost)) => Some(lost),
            Some(AtBoot::GoesOn | AtBoot::Stays) | None => None,
        }
    }

    /// Counts inputs that stay in the queue of `session`.
    pub(crate) fn keeps_queue(&self, session: SessionId, inputs: usize) {
        self.lock().queues.insert(session, inputs);
    }

    /// Takes the count of all such inputs.
    pub(crate) fn kept_inputs(&self) -> usize {
        std::mem::take(&mut self.lock().queues).into_values().sum()
    }
}
