//! State shared by the handles and the writer thread.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};

use subtend_session::ids::{Lsn, SessionId};
use tokio::sync::{Notify, watch};

use crate::bodies::Bodies;
use crate::codec::{self, EncodeError};
use crate::engine::{Engine, Group, GroupFrame, Payload};
use crate::error::{AppendError, EngineError, Poisoned, ReadError};
use crate::fault_points::FaultPoints;
use crate::fence::Fences;
use crate::frame::{Appended, Batch, Frame};
use crate::lock::Lock;
use crate::panics::catch_panics;
use crate::queue::{Queued, ROW_BYTES};
use crate::waiters::Waiters;

#[derive(Clone, Debug)]
pub(crate) struct StoreFacts {
    pub(crate) name: &'static str,
    pub(crate) durability: Cow<'static, str>,
    pub(crate) path: Option<PathBuf>,
    /// True if frames are encoded; otherwise they are stored as records.
    pub(crate) wants_bytes: bool,
    /// True if the caller of `append` writes; otherwise a thread or the stepper does.
    pub(crate) at_once: bool,
    pub(crate) max_body: u64,
    pub(crate) queue_bytes: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Core {
    pub(crate) fences: Fences,
    pub(crate) queue: Vec<Queued>,
    /// Bytes in the queue and in the current write.
    pub(crate) queued_bytes: u64,
    pub(crate) closing: bool,
    /// True if the writer sleeps and needs a notification.
    pub(crate) idle: bool,
}

pub(crate) struct Shared {
    pub(crate) facts: StoreFacts,
    pub(crate) core: Mutex<Core>,
    pub(crate) work: Condvar,
    /// Wakes the owner of the stepper.
    pub(crate) work_added: Notify,
    pub(crate) waiters: Waiters,
    pub(crate) appended: AtomicU64,
    pub(crate) batches: AtomicU64,
    /// Microseconds that the engine took for commits.
    pub(crate) commit_us: AtomicU64,
    pub(crate) pressure: watch::Sender<bool>,
    pub(crate) closed: watch::Sender<bool>,
    pub(crate) faults: FaultPoints,
    pub(crate) bodies: Bodies,
    pub(crate) no_bodies: Bodies,
    engine: RwLock<Option<Arc<dyn Engine>>>,
    lock: Mutex<Option<Lock>>,
}

impl Shared {
    pub(crate) fn new(
        engine: Arc<dyn Engine>,
        queue_bytes: u64,
        path: Option<PathBuf>,
        lock: Option<Lock>,
        last: Lsn,
    ) -> Self {
        let facts = StoreFacts {
            name: engine.name(),
            durability: engine.durability(),
            path,
            wants_bytes: engine.wants_bytes(),
            at_once: !engine.wants_bytes(),
            max_body: engine.max_body(),
            queue_bytes,
        };
        let faults = FaultPoints::read();
        let core = Core { fences: Fences::new(faults.no_epoch), ..Core::default() };
        Self {
            facts,
            core: Mutex::new(core),
            work: Condvar::new(),
            work_added: Notify::new(),
            waiters: Waiters::new(last),
            appended: AtomicU64::new(last.0),
            batches: AtomicU64::new(0),
            commit_us: AtomicU64::new(0),
            pressure: watch::Sender::new(false),
            closed: watch::Sender::new(false),
            faults,
            bodies: Bodies::default(),
            no_bodies: Bodies::left_out(),
            engine: RwLock::new(Some(engine)),
            lock: Mutex::new(lock),
        }
    }

    /// Creates the state for a stepper, whose owner writes.
    pub(crate) fn for_stepper(engine: Arc<dyn Engine>, queue_bytes: u64, last: Lsn) -> Self {
        let mut shared = Self::new(engine, queue_bytes, None, None, last);
        shared.facts.at_once = false;
        shared
    }

    pub(crate) fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn last_appended(&self) -> Lsn {
        Lsn(self.appended.load(Ordering::Acquire))
    }

    pub(crate) fn engine(&self) -> Result<Arc<dyn Engine>, ReadError> {
        self.engine.read().unwrap_or_else(PoisonError::into_inner).clone().ok_or(ReadError::Closed)
    }

    /// Releases the engine, then the lock file, then wakes waiters.
    pub(crate) fn release(&self) {
        let engine = self.engine.write().unwrap_or_else(PoisonError::into_inner).take();
        // A panic while closing does not affect acknowledged data.
        if let Err(error) = catch_panics("close", move || {
            drop(engine);
            Ok(())
        }) {
            tracing::error!(%error, "the store did not close");
        }
        self.lock.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.closed.send_replace(true);
    }

    pub(crate) fn append(&self, batch: Batch) -> Result<Appended, AppendError> {
        let mut bytes = 0_u64;
        let mut frames = Vec::with_capacity(batch.frames.len());
        for frame in batch.frames {
            frames.push(self.to_group_frame(frame, &mut bytes)?);
        }
        self.enqueue(frames, bytes, |core, frames, first| core.fences.admit(frames, first))
    }

    /// Appends frames of an import without a fence. These sessions have no rows, so they cannot be active. A frame
    /// without records, except the last one, may have the LSN of an earlier frame whose rows it adds.
    pub(crate) fn append_imported(
        &self,
        imported: impl Iterator<Item = (Option<Lsn>, Frame)>,
    ) -> Result<Appended, AppendError> {
        let mut bytes = 0_u64;
        let mut frames = Vec::with_capacity(imported.size_hint().0);
        for (lsn, frame) in imported {
            let placed = self.to_group_frame(frame, &mut bytes)?;
            frames.push(GroupFrame { lsn: lsn.unwrap_or_default(), ..placed });
        }
        self.enqueue(frames, bytes, |_, frames, first| {
            let fresh = frames.iter_mut().filter(|frame| frame.lsn == Lsn(0));
            fresh.zip(first.0..).for_each(|(frame, lsn)| frame.lsn = Lsn(lsn));
            Ok(())
        })
    }

    /// Assigns LSNs with `admit` and queues the frames.
    fn enqueue(
        &self,
        mut frames: Vec<GroupFrame>,
        bytes: u64,
        admit: impl FnOnce(&mut Core, &mut [GroupFrame], Lsn) -> Result<(), AppendError>,
    ) -> Result<Appended, AppendError> {
        let mut core = self.core();
        if let Some(poisoned) = self.waiters.poisoned() {
            return Err(poisoned.clone().into());
        }
        if core.closing {
            return Err(AppendError::Closed);
        }
        let before = self.last_appended();
        let first = before.next();
        if frames.is_empty() {
            return Ok(Appended { first, last: before });
        }
        let queued = core.queued_bytes.saturating_add(bytes);
        // A batch larger than the queue is accepted if the queue is empty.
        if queued > self.facts.queue_bytes && core.queued_bytes > 0 {
            return Err(AppendError::Full { queued, limit: self.facts.queue_bytes });
        }
        admit(&mut core, &mut frames, first)?;
        let last = frames.last().map_or(before, |frame| frame.lsn);
        self.appended.store(last.0, Ordering::Release);
        self.batches.fetch_add(1, Ordering::Relaxed);
        if self.facts.at_once {
            // Writes under the lock, so that the engine receives frames in LSN order.
            self.write_now(frames, last)?;
            core.fences.release_durable(last);
            return Ok(Appended { first, last });
        }
        core.queued_bytes = queued;
        core.queue.push(Queued { frames, bytes });
        let idle = core.idle;
        drop(core);
        self.work_added.notify_one();
        if idle {
            self.work.notify_one();
        }
        if queued > self.facts.queue_bytes / 4 {
            self.update_pressure();
        }
        Ok(Appended { first, last })
    }

    /// Updates the pressure flag under the core lock, so that an outdated value cannot remain.
    pub(crate) fn update_pressure(&self) {
        let core = self.core();
        let now = core.queued_bytes > self.facts.queue_bytes / 4 && self.waiters.poisoned().is_none() && !core.closing;
        self.pressure.send_if_modified(|was| std::mem::replace(was, now) != now);
    }

    fn write_now(&self, frames: Vec<GroupFrame>, last: Lsn) -> Result<(), AppendError> {
        let engine = self.engine.read().unwrap_or_else(PoisonError::into_inner);
        let Some(engine) = engine.as_deref() else { return Err(AppendError::Closed) };
        match catch_panics("write", || engine.write(Group { frames })) {
            Ok(()) => {
                self.waiters.publish(last);
                Ok(())
            }
            Err(error) => Err(self.poison(error).into()),
        }
    }

    pub(crate) fn poison(&self, error: EngineError) -> Poisoned {
        tracing::error!(%error, "the journal is poisoned: reopen the store to continue");
        let poisoned = Poisoned(Arc::new(error));
        self.waiters.poison(poisoned.clone());
        poisoned
    }

    fn to_group_frame(&self, mut frame: Frame, bytes: &mut u64) -> Result<GroupFrame, AppendError> {
        self.faults.apply(&mut frame.changes);
        let session = frame.session;
        let count =
            u32::try_from(frame.records.len()).map_err(|_| too_large(session, u64::MAX, self.facts.max_body))?;
        let payload = if frame.records.is_empty() {
            Payload::Nothing
        } else if self.facts.wants_bytes {
            let encoded = codec::encode(&frame).map_err(|error| encode_error(session, &error, self.facts.max_body))?;
            let size = encoded.len() as u64;
            if size > self.facts.max_body {
                return Err(too_large(session, size, self.facts.max_body));
            }
            *bytes = bytes.saturating_add(size);
            Payload::Bytes(encoded)
        } else {
            Payload::Records(frame.records)
        };
        *bytes = bytes.saturating_add(ROW_BYTES);
        let Frame { first_seq, epoch, at_ms, changes, .. } = frame;
        Ok(GroupFrame { lsn: Lsn(0), session, first_seq, count, epoch, at_ms, payload, changes })
    }

    /// Requests the writer or the stepper to drain the queue and end.
    pub(crate) fn begin_close(&self) {
        let first = !std::mem::replace(&mut self.core().closing, true);
        self.update_pressure();
        if !self.facts.at_once {
            self.work.notify_one();
            self.work_added.notify_one();
        } else if first {
            self.release();
        }
    }
}

fn too_large(session: SessionId, bytes: u64, limit: u64) -> AppendError {
    AppendError::TooLarge { session, bytes, limit }
}

fn encode_error(session: SessionId, error: &EncodeError, limit: u64) -> AppendError {
    match error {
        EncodeError::TooLong(bytes) => too_large(session, *bytes as u64, limit),
        EncodeError::Json(error) => AppendError::Encode { session, why: error.to_string().into() },
    }
}
