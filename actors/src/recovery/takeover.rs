//! Runs of an earlier process, until a session of this one has recovered them.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use subtend_session::ids::SessionId;

use crate::recovery::unreadable::Unreadable;
use crate::values::at_boot::{AtBoot, Lost};

/// Runs of an earlier process, by session. A mark goes with the first activation.
pub(crate) struct Takeover {
    /// Whether the start resumes them.
    pub(crate) resumes: bool,
    pub(crate) unreadable: Unreadable,
    marks: Mutex<Marks>,
}

#[derive(Default)]
struct Marks {
    /// How each run is handled: the next activation ends a lost one first, and leaves a dormant one until an input concerns it.
    runs: HashMap<SessionId, AtBoot>,
    /// Queued inputs behind runs that the start ended.
    queues: HashMap<SessionId, usize>,
}

impl Takeover {
    pub(crate) fn new(resumes: bool) -> Self {
        Self { resumes, unreadable: Unreadable::default(), marks: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Marks> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn mark(&self, runs: impl IntoIterator<Item = (SessionId, AtBoot)>) {
        self.lock().runs.extend(runs);
    }

    /// Returns whether the start has not reached `session`, or leaves it dormant.
    pub(crate) fn awaits(&self, session: SessionId) -> bool {
        self.lock().runs.contains_key(&session)
    }

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

    pub(crate) fn keeps_queue(&self, session: SessionId, inputs: usize) {
        self.lock().queues.insert(session, inputs);
    }

    pub(crate) fn kept_inputs(&self) -> usize {
        std::mem::take(&mut self.lock().queues).into_values().sum()
    }
}
