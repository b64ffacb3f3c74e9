//! The handle of a journal: appends, waits for durability, and activates sessions.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use subtend_session::ids::{Epoch, Lsn, Seq, SessionId};
use subtend_session::index::{Head, Inflight};

use crate::bodies::Bodies;
use crate::engine::{Engine, IndexedFrame, Range, bytes_of};
use crate::error::{AppendError, OpenError, Poisoned, ReadError};
use crate::fence::Known;
use crate::frame::{Appended, Batch, Stored};
use crate::lock::Lock;
use crate::shared::Shared;
use crate::watermark::Watermark;
use crate::{codec, read, writer};

mod reads;

pub use reads::StartRows;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Opens a store even if its acknowledged tail is missing, and continues without it.
    pub accept_loss: bool,
    /// Size of the page cache in bytes, for engines that have one.
    pub cache_bytes: usize,
    /// Maximum queued bytes before appends are refused. Above a quarter of it, [`Journal::pressure`] is true.
    pub queue_bytes: u64,
    /// Directory in which this machine records acknowledgements of a store in a database, so that an older copy of it is refused.
    pub node_dir: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self { accept_loss: false, cache_bytes: 32 << 20, queue_bytes: 128 << 20, node_dir: None }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Activation {
    /// Its epoch. Older activations are fenced from now on.
    pub epoch: Epoch,
    pub next_seq: Seq,
    /// The session's durable head.
    pub head: Option<Head>,
    /// The session's durable in-flight row; `None` without a run in flight.
    pub inflight: Option<Inflight>,
}

/// Description of a store for an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreInfo {
    pub engine: &'static str,
    /// Its path; `None` in memory.
    pub path: Option<PathBuf>,
    /// The failures that an acknowledged batch survives.
    pub durability: Cow<'static, str>,
    /// The version of the frames that this build writes.
    pub format: u32,
    /// Number of durable commits since the opening; 0 once closed.
    pub syncs: u64,
    /// Number of batches appended since the opening.
    pub batches: u64,
    /// Total duration of durable commits since the opening, in microseconds.
    pub commit_us: u64,
}

/// Handle of a journal; clones share it. Dropping the last one drains the queue and joins the writer thread like [`Journal::close`], but
/// blocks.
#[derive(Clone)]
pub struct Journal {
    owner: Arc<Owner>,
    leaves_out_bodies: bool,
}

struct Owner {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.begin_close();
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the writer thread panicked");
        }
    }
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal").field("info", &self.info()).field("durable", &self.durable()).finish_non_exhaustive()
    }
}

impl Journal {
    /// Opens a journal on an engine without other writers. For a store in a directory or a database see `open_store`.
    /// # Errors
    /// When the engine cannot report the end of its log, or the writer thread cannot start.
    pub fn open(engine: Box<dyn Engine>, options: Options) -> Result<Self, OpenError> {
        // The other options concern the watermark, which only `open_store` keeps, and the engine, which is open.
        let Options { accept_loss: _, cache_bytes: _, queue_bytes, node_dir: _ } = options;
        Self::start(engine.into(), queue_bytes, None, None, None)
    }

    pub(crate) fn start(
        engine: Arc<dyn Engine>,
        queue_bytes: u64,
        path: Option<PathBuf>,
        lock: Option<Lock>,
        watermark: Option<Watermark>,
    ) -> Result<Self, OpenError> {
        let last = engine.last_lsn()?;
        let threaded = engine.wants_bytes();
        let shared = Arc::new(Shared::new(Arc::clone(&engine), queue_bytes, path, lock, last));
        let thread =
            if threaded { Some(writer::start(&shared, engine, watermark).map_err(OpenError::Thread)?) } else { None };
        Ok(Self::of(shared, thread))
    }

    pub(crate) fn of(shared: Arc<Shared>, thread: Option<JoinHandle<()>>) -> Self {
        Self { owner: Arc::new(Owner { shared, thread: Mutex::new(thread) }), leaves_out_bodies: false }
    }

    /// Returns a handle whose reads leave out the bodies of new sessions (prompts, ceilings, limits). For readers of many
    /// sessions that need none: a body may be large, and those of many sessions do not fit in the cache.
    #[must_use]
    pub fn without_bodies(&self) -> Self {
        Self { leaves_out_bodies: true, ..self.clone() }
    }

    fn bodies(&self) -> &Bodies {
        if self.leaves_out_bodies { &self.shared().no_bodies } else { &self.shared().bodies }
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.owner.shared
    }

    /// Appends a batch atomically, without waiting for a disk.
    ///
    /// Each frame must belong to the session's current activation and start with the next record. A frame with record 1 of an inactive
    /// session creates it, and makes its epoch the current activation.
    /// # Errors
    /// [`AppendError`]. The batch is not appended, except possibly after [`AppendError::Poisoned`] of an engine that writes directly.
    /// # Durability
    /// None yet: wait for [`Appended::last`] before any effect outside the process.
    pub fn append(&self, batch: Batch) -> Result<Appended, AppendError> {
        self.shared().append(batch)
    }

    /// Returns the LSN of the last appended frame, or 0 before the first.
    pub fn last_appended(&self) -> Lsn {
        self.shared().last_appended()
    }

    pub fn durable(&self) -> Lsn {
        self.shared().waiters.durable()
    }

    /// Returns whether everything up to `lsn` is durable. Costs one atomic load.
    pub fn is_durable(&self, lsn: Lsn) -> bool {
        lsn <= self.durable()
    }

    /// Waits until everything up to `lsn` is durable. Allocates only if it must wait.
    /// # Errors
    /// [`Poisoned`] if that can no longer be known.
    /// # Cancel safety
    /// Safe.
    pub async fn wait(&self, lsn: Lsn) -> Result<(), Poisoned> {
        self.shared().waiters.wait(lsn).await
    }

    /// Waits until everything appended so far is durable. Call it before a read that must see all frames.
    /// # Errors
    /// [`Poisoned`] if that can no longer be known.
    /// # Cancel safety
    /// Safe.
    pub async fn settled(&self) -> Result<(), Poisoned> {
        self.wait(self.last_appended()).await?;
        if self.shared().faults.ack_before_commit {
            // The seeded bug affects only acknowledgements: the process must still read its own writes.
            tokio::time::sleep(std::time::Duration::from_millis(60)).await;
        }
        Ok(())
    }

    /// Returns the failure that poisoned the journal, if any.
    pub fn poisoned(&self) -> Option<Poisoned> {
        self.shared().waiters.poisoned().cloned()
    }

    /// Resolves when the journal is poisoned. Cancel safe.
    pub async fn on_poison(&self) -> Poisoned {
        loop {
            // No frame has this LSN, so only poison ends the wait.
            if let Err(poisoned) = self.shared().waiters.wait(Lsn(u64::MAX)).await {
                return poisoned;
            }
        }
    }

    /// Returns whether the queue is so long that callers should wait with [`Journal::wait_for_room`].
    pub fn pressure(&self) -> bool {
        *self.shared().pressure.borrow()
    }

    /// Waits until there is no pressure. Returns at once if the journal is poisoned or closed. Cancel safe.
    pub async fn wait_for_room(&self) {
        // An error is impossible, because the sender lives as long as the journal.
        let _ = self.shared().pressure.subscribe().wait_for(|pressure| !pressure).await;
    }

    /// Takes the session's next epoch, which fences older activations in this process.
    ///
    /// The epoch becomes durable with the activation's first frame that has records, a head or an in-flight row. The returned rows are the
    /// durable ones, so call [`Journal::settled`] first for a session that this process may have activated before. May block on the engine.
    /// # Errors
    /// [`ReadError::NoSuchSession`] for a session without records, and other read errors.
    pub fn activate(&self, session: SessionId) -> Result<Activation, ReadError> {
        Ok(self.activate_whole(session, read::END)?.0)
    }

    /// Activates a session and reads its records, in one round trip to the engine.
    /// # Errors
    /// As [`Journal::activate`] and [`Journal::records`].
    pub fn activate_with_records(&self, session: SessionId) -> Result<(Activation, Vec<Stored>), ReadError> {
        let (activation, frames) = self.activate_whole(session, Seq(1))?;
        let shared = self.shared();
        let records = read::read_all(&*shared.engine()?, &shared.bodies, session, activation.head.as_ref(), frames)?;
        Ok((activation, records))
    }

    /// Activates a session and reads its records as [`Journal::activate_with_records`] does, if its frames, and those of its
    /// bodies that nothing else has read, have fewer than `max_bytes` together. Otherwise returns `None`, and the session is
    /// not active. Takes no more round trips for a small session.
    /// # Errors
    /// As [`Journal::activate_with_records`].
    pub fn activate_small(
        &self,
        session: SessionId,
        max_bytes: u64,
    ) -> Result<Option<(Activation, Vec<Stored>)>, ReadError> {
        let Some((activation, frames)) = self.activate_from(session, Seq(1), max_bytes)? else { return Ok(None) };
        let shared = self.shared();
        let (engine, bytes) = (shared.engine()?, bytes_of(&frames));
        let first = frames.first().map_or(Lsn(0), |(_, lsn, _)| *lsn);
        let mut records = read::read_all(&*engine, &shared.no_bodies, session, activation.head.as_ref(), frames)?;
        let most = max_bytes.saturating_sub(bytes);
        if read::fill_small(&*engine, &shared.bodies, (session, first), &mut records, most)? {
            return Ok(Some((activation, records)));
        }
        self.deactivate(session, activation.epoch);
        Ok(None)
    }

    /// Activates a session, and returns its frames from the one with record `from`.
    fn activate_whole(&self, session: SessionId, from: Seq) -> Result<(Activation, Vec<IndexedFrame>), ReadError> {
        // No session has as many bytes.
        self.activate_from(session, from, u64::MAX)?.ok_or(ReadError::NoSuchSession(session))
    }

    /// Activates a session as [`Journal::activate_whole`] does, if these frames have fewer than `max_bytes`.
    fn activate_from(
        &self,
        session: SessionId,
        from: Seq,
        max_bytes: u64,
    ) -> Result<Option<(Activation, Vec<IndexedFrame>)>, ReadError> {
        let shared = self.shared();
        let engine = shared.engine()?;
        loop {
            // Fences before the read, so that an older activation cannot append in between.
            let (known, removals) = {
                let mut core = shared.core();
                (core.fences.activate(session), core.fences.removals())
            };
            let Range { head, inflight, frames } = engine.range(session, from, read::END, max_bytes)?;
            if bytes_of(&frames) >= max_bytes {
                // Maybe not all frames, so they do not tell the next record.
                if let Some(Known { epoch, .. }) = known {
                    self.deactivate(session, epoch);
                }
                return Ok(None);
            }
            let (head, inflight) = (read::row(session, head)?, read::row(session, inflight)?);
            let known = match known {
                Some(known) => Some(known),
                None => {
                    let last = read::read_last(session, head.as_ref(), inflight.as_ref(), &frames)?;
                    shared.core().fences.activate_read(session, last, removals)
                }
            };
            if let Some(Known { epoch, next_seq }) = known {
                return Ok(Some((Activation { epoch, next_seq, head, inflight }, frames)));
            }
        }
    }

    /// Ends an activation. Its queued frames are still written. Does nothing for an old epoch.
    pub fn deactivate(&self, session: SessionId, epoch: Epoch) {
        let shared = self.shared();
        let mut core = shared.core();
        // Read under the lock: the writer publishes before it releases fences, so a later commit releases a fence that is kept here.
        let durable = shared.waiters.durable();
        core.fences.deactivate(session, epoch, durable);
    }

    pub fn info(&self) -> StoreInfo {
        let shared = self.shared();
        let about = &shared.facts;
        StoreInfo {
            engine: about.name,
            path: about.path.clone(),
            durability: about.durability.clone(),
            format: u32::from(codec::VERSION),
            syncs: shared.engine().map_or(0, |engine| engine.syncs()),
            batches: shared.batches.load(Ordering::Relaxed),
            commit_us: shared.commit_us.load(Ordering::Relaxed),
        }
    }

    /// Closes the journal for all handles: refuses appends, drains and syncs the queue, ends the writer thread, and releases the store.
    /// # Errors
    /// [`Poisoned`] if a frame is not known to be durable. The journal is closed nevertheless.
    /// # Cancel safety
    /// Once polled, closing continues without the caller.
    /// # Durability
    /// Everything appended is durable when this returns without an error.
    pub async fn close(self) -> Result<(), Poisoned> {
        let shared = self.shared();
        shared.begin_close();
        // The sender lives as long as the journal.
        let _ = shared.closed.subscribe().wait_for(|closed| *closed).await;
        self.settled().await
    }
}
