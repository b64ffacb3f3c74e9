//! Runs of an earlier process that no session of this process has recovered yet.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use subtend_session::ids::SessionId;

use crate::recovery::rows::RowReader;
use crate::recovery::unreadable::Unreadable;
use crate::values::at_boot::{AtBoot, Lost};

/// Runs of an earlier process, by session. The first activation of a session removes its mark.
pub(crate) struct Takeover {
    /// True if the start resumes such runs.
    pub(crate) resumes: bool,
    pub(crate) unreadable: Unreadable,
    marks: Mutex<Marks>,
    /// Shared by all activations of a sweep, since one frame may have rows to thousands of sessions.
    swept_rows: Mutex<Option<RowReader>>,
}

/// Guard of a sweep. Dropping it frees what the sweep has read.
#[must_use = "dropping it ends the sweep"]
pub(super) struct RowSweep<'a>(&'a Takeover);

impl Drop for RowSweep<'_> {
    fn drop(&mut self) {
        *self.0.swept_rows() = None;
    }
}

#[derive(Default)]
struct Marks {
    /// How each run is handled: the next activation ends a lost run first, and leaves a dormant one until an input concerns it.
    runs: HashMap<SessionId, AtBoot>,
    /// Number of queued inputs behind runs that the start ended.
    queues: HashMap<SessionId, usize>,
}

impl Takeover {
    pub(crate) fn new(resumes: bool) -> Self {
        Self { resumes, unreadable: Unreadable::default(), marks: Mutex::default(), swept_rows: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Marks> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn swept_rows(&self) -> MutexGuard<'_, Option<RowReader>> {
        self.swept_rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn sweep_rows(&self) -> RowSweep<'_> {
        *self.swept_rows() = Some(RowReader::default());
        RowSweep(self)
    }

    /// Reads rows with the reader of the sweep. Outside of one, with a new reader.
    pub(crate) fn read_rows<T>(&self, read: impl FnOnce(&mut RowReader) -> T) -> T {
        let mut swept = self.swept_rows();
        if let Some(reader) = &mut *swept {
            return read(reader);
        }
        drop(swept);
        read(&mut RowReader::default())
    }

    pub(crate) fn mark(&self, runs: impl IntoIterator<Item = (SessionId, AtBoot)>) {
        self.lock().runs.extend(runs);
    }

    /// Returns whether the start has not reached `session`, or leaves its run dormant.
    pub(crate) fn awaits(&self, session: SessionId) -> bool {
        self.lock().runs.contains_key(&session)
    }

    pub(crate) fn is_dormant(&self, session: SessionId) -> bool {
        self.lock().runs.get(&session) == Some(&AtBoot::Dormant)
    }

    /// Returns whether the start takes over the session.
    pub(crate) fn has_mark(&self, session: SessionId) -> bool {
        self.lock().runs.contains_key(&session)
    }

    /// Removes the mark of `session`; returns the mark of its run if it is lost.
    pub(crate) fn take_mark(&self, session: SessionId) -> Option<Lost> {
        match self.lock().runs.remove(&session) {
            Some(AtBoot::Lost(lost)) => Some(lost),
            Some(AtBoot::Resumes | AtBoot::Dormant) | None => None,
        }
    }

    pub(crate) fn keeps_queue(&self, session: SessionId, inputs: usize) {
        self.lock().queues.insert(session, inputs);
    }

    pub(crate) fn kept_inputs(&self) -> usize {
        std::mem::take(&mut self.lock().queues).into_values().sum()
    }
}
