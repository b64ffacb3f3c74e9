//! What an earlier process left in flight, until a session of this one has taken it up.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use subtend_session::ids::SessionId;
use subtend_session::state::State;

use crate::recovery::unreadable::Unreadable;
use crate::values::at_boot::{AtBoot, Lost};
use crate::values::options::RecoveryScope;

/// Runs that an earlier process left. It holds sessions that are not in memory; a mark goes with the first activation.
pub(crate) struct Takeover {
    scope: RecoveryScope,
    /// Sessions that cannot be read any more.
    pub(crate) unreadable: Unreadable,
    marks: Mutex<Marks>,
}

#[derive(Default)]
struct Marks {
    /// What becomes of each run: the next activation ends one that is lost before all else, and leaves one that stays as it is
    /// until something concerns it.
    runs: HashMap<SessionId, AtBoot>,
    /// The sessions that the start takes up, where these are not all or none.
    takes: HashSet<SessionId>,
    /// Inputs that stay in their queues behind runs that the start ended.
    queues: HashMap<SessionId, usize>,
}

impl Takeover {
    pub(crate) fn new(scope: RecoveryScope) -> Self {
        Self { scope, unreadable: Unreadable::default(), marks: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Marks> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the start leaves alone what waits in `state`'s session.
    pub(crate) fn leaves(&self, state: &State) -> bool {
        match self.scope {
            RecoveryScope::All => false,
            RecoveryScope::Session(_) => !self.lock().takes.contains(&state.id),
            RecoveryScope::Nothing => true,
        }
    }

    /// Returns the one session whose tree the start takes up, where it is one.
    pub(crate) fn only(&self) -> Option<SessionId> {
        if let RecoveryScope::Session(session) = self.scope { Some(session) } else { None }
    }

    /// Sets the sessions that hang together with that one.
    pub(crate) fn takes(&self, sessions: HashSet<SessionId>) {
        self.lock().takes = sessions;
    }

    /// Marks what becomes of runs.
    pub(crate) fn mark(&self, runs: impl IntoIterator<Item = (SessionId, AtBoot)>) {
        self.lock().runs.extend(runs);
    }

    /// Returns whether the start has yet to reach `session`, or leaves it as it is.
    pub(crate) fn awaits(&self, session: SessionId) -> bool {
        self.lock().runs.contains_key(&session)
    }

    /// Returns whether the run in flight of `session` stays as an earlier process left it, and nothing here has woken it.
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

    /// Notes inputs that stay in the queue of `session`.
    pub(crate) fn keeps_queue(&self, session: SessionId, inputs: usize) {
        self.lock().queues.insert(session, inputs);
    }

    /// Takes the number of all inputs that were noted.
    pub(crate) fn kept_inputs(&self) -> usize {
        std::mem::take(&mut self.lock().queues).into_values().sum()
    }
}
