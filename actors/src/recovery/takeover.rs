//! Runs of an earlier process that no session of this process has recovered yet.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use subtend_session::ids::SessionId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::recovery::rows::RowReader;
use crate::recovery::unreadable::Unreadable;
use crate::values::at_boot::{AtBoot, Lost};

/// Encoded bytes of a session with its bodies, from which on a sweep counts it as large. Others are read where they are
/// activated, since most take less time to read than a change of threads.
pub(crate) const LARGE: u64 = 32 << 10;
/// Encoded bytes of large sessions that a sweep has in memory together. Their states may have ten times as many.
pub(crate) const ROOM: u64 = 8 << 20;
/// Bytes of one permit.
const UNIT: u64 = 1 << 10;

/// Runs of an earlier process, by session. The first activation of a session removes its mark.
pub(crate) struct Takeover {
    /// True if the start resumes such runs.
    pub(crate) resumes: bool,
    pub(crate) unreadable: Unreadable,
    marks: Mutex<Marks>,
    /// Shared by all activations of a sweep, since one frame may have rows to thousands of sessions.
    swept_rows: Mutex<Option<RowReader>>,
    room: Arc<Semaphore>,
}

/// The share of a large session in the memory of a sweep.
#[derive(Debug)]
pub(crate) struct Room(#[expect(dead_code, reason = "held until it is dropped")] OwnedSemaphorePermit);

/// Guard of a visit of a sweep. Dropping it ends the visit.
#[must_use = "dropping it ends the visit"]
pub(super) struct Visit {
    takeover: Arc<Takeover>,
    session: SessionId,
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.takeover.lock().visits.remove(&self.session);
    }
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
    /// The sessions that a sweep activates now.
    visits: HashSet<SessionId>,
}

impl Takeover {
    pub(crate) fn new(resumes: bool) -> Self {
        let units = usize::try_from(ROOM / UNIT).unwrap_or(Semaphore::MAX_PERMITS);
        Self {
            resumes,
            unreadable: Unreadable::default(),
            marks: Mutex::default(),
            swept_rows: Mutex::default(),
            room: Arc::new(Semaphore::new(units)),
        }
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

    pub(super) fn visit(self: &Arc<Self>, session: SessionId) -> Visit {
        self.lock().visits.insert(session);
        Visit { takeover: Arc::clone(self), session }
    }

    /// Returns whether a sweep activates the session now.
    pub(crate) fn visits(&self, session: SessionId) -> bool {
        self.lock().visits.contains(&session)
    }

    /// Waits until a large session of `bytes` fits into the memory of the sweep. Its activation returns the room when it
    /// leaves memory, or sleeps after the visit. It must not wait for another session meanwhile, which may wait for room.
    pub(crate) async fn room(&self, bytes: u64) -> Option<Room> {
        let units = u32::try_from(bytes.min(ROOM).div_ceil(UNIT)).unwrap_or(u32::MAX);
        // The semaphore is never closed.
        Arc::clone(&self.room).acquire_many_owned(units).await.ok().map(Room)
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
