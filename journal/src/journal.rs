//! The handle: append, wait, activate.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use subtend_session::ids::{Epoch, Lsn, Seq, SessionId};
use subtend_session::index::{Head, Inflight};

use crate::engine::Engine;
use crate::error::{AppendError, OpenError, Poisoned, ReadError};
use crate::fence::Known;
use crate::frame::{Appended, Batch};
use crate::lock::Lock;
use crate::shared::Shared;
use crate::watermark::Watermark;
use crate::{codec, read, writer};

mod reads;

/// How a store is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Open a store whose acknowledged tail is missing, and go on without it.
    pub accept_loss: bool,
    /// Bytes of page cache, for engines that have one.
    pub cache_bytes: usize,
    /// Bytes that may wait for the disk before appends are refused; from a quarter of it on there is pressure.
    pub queue_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { accept_loss: false, cache_bytes: 128 << 20, queue_bytes: 256 << 20 }
    }
}

/// A new activation of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Activation {
    /// Its epoch: older activations are fenced from here on (J-6).
    pub epoch: Epoch,
    /// The record that comes next.
    pub next_seq: Seq,
    /// The session's head, as far as it is durable.
    pub head: Option<Head>,
    /// The session's row of the boot scan, as far as it is durable.
    pub inflight: Option<Inflight>,
}

/// What a store is, for an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// The engine's name.
    pub engine: &'static str,
    /// Where the store is; absent for one in memory.
    pub path: Option<PathBuf>,
    /// What an acknowledged batch survives, in words.
    pub durability: &'static str,
    /// The version of frames that is written.
    pub format: u32,
    /// Commits to stable media since the opening, however many syncs the store makes of one; 0 once closed.
    pub syncs: u64,
    /// How many batches were appended since the opening.
    pub batches: u64,
}

/// A journal; clones are handles of the same one.
///
/// Dropping the last handle drains what is appended and joins the writer thread, as [`Journal::close`] does, but blocks.
#[derive(Clone)]
pub struct Journal {
    owner: Arc<Owner>,
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
    /// Opens a journal on an engine. Nobody else may write to that engine; for a store in a directory see `open_store`.
    ///
    /// # Errors
    /// When the engine cannot say where its log ends, or the writer thread cannot start.
    pub fn open(engine: Box<dyn Engine>, options: Options) -> Result<Self, OpenError> {
        // Only a directory has a watermark whose loss could be accepted, and the engine is built by its own options.
        let Options { accept_loss: _, cache_bytes: _, queue_bytes } = options;
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
        Self { owner: Arc::new(Owner { shared, thread: Mutex::new(thread) }) }
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.owner.shared
    }

    /// Appends a batch: all of it or nothing (J-3). Never waits for a disk.
    ///
    /// Each frame must be of the session's present activation and start with the record that comes next. A frame that starts with
    /// record 1 of a session without an activation is its birth, and makes the frame's epoch the present activation.
    ///
    /// # Errors
    /// [`AppendError`]; then nothing is appended and no place is given away, except that [`AppendError::Poisoned`] of an engine
    /// that writes at once may come after it.
    ///
    /// # Durability
    /// None yet: wait for [`Appended::last`] before anything leaves the process. In memory the batch is as durable as it gets.
    pub fn append(&self, batch: Batch) -> Result<Appended, AppendError> {
        self.shared().append(batch)
    }

    /// LSN of the last appended frame; 0 before the first.
    pub fn appended(&self) -> Lsn {
        self.shared().appended()
    }

    /// LSN up to which everything is durable.
    pub fn durable(&self) -> Lsn {
        self.shared().waiters.durable()
    }

    /// Whether everything up to `lsn` is durable: one atomic load.
    pub fn is_durable(&self, lsn: Lsn) -> bool {
        lsn <= self.durable()
    }

    /// Waits until everything up to `lsn` is durable. Does not allocate where it is already.
    ///
    /// # Errors
    /// [`Poisoned`] where it will never be known.
    ///
    /// # Cancel safety
    /// Safe: dropping the wait changes nothing.
    pub async fn wait(&self, lsn: Lsn) -> Result<(), Poisoned> {
        self.shared().waiters.wait(lsn).await
    }

    /// Waits until everything appended so far is durable. Reads see only that, so call it before one that must see all.
    ///
    /// # Errors
    /// [`Poisoned`] where it will never be known.
    ///
    /// # Cancel safety
    /// Safe: dropping the wait changes nothing.
    pub async fn settled(&self) -> Result<(), Poisoned> {
        self.wait(self.appended()).await?;
        if self.shared().faults.ack_before_commit {
            // The sabotage is of acknowledgements alone: reads of the process itself still find what it wrote.
            tokio::time::sleep(std::time::Duration::from_millis(60)).await;
        }
        Ok(())
    }

    /// Why nothing is acknowledged any more, if so (J-9).
    pub fn poisoned(&self) -> Option<Poisoned> {
        self.shared().waiters.poisoned().cloned()
    }

    /// Resolves when the journal is poisoned; never, if it is not.
    ///
    /// # Cancel safety
    /// Safe: dropping the wait changes nothing.
    pub async fn on_poison(&self) -> Poisoned {
        loop {
            // No frame has this LSN, so only poison ends the wait.
            if let Err(poisoned) = self.shared().waiters.wait(Lsn(u64::MAX)).await {
                return poisoned;
            }
        }
    }

    /// Whether so much waits for the disk that callers who can wait should ([`Journal::room`]).
    pub fn pressure(&self) -> bool {
        *self.shared().pressure.borrow()
    }

    /// Resolves when there is no pressure; at once when the journal is poisoned or closed.
    ///
    /// # Cancel safety
    /// Safe: dropping the wait changes nothing.
    pub async fn room(&self) {
        // The sender lives as long as the journal, so the only answer is that there is room.
        let _ = self.shared().pressure.subscribe().wait_for(|pressure| !pressure).await;
    }

    /// Takes the session's next epoch: older activations are fenced at once, in this process.
    ///
    /// The epoch becomes durable with the activation's first frame that has records, a head or an in-flight row. The rows in the
    /// answer are as durable; where the session may have been active before in this process, call [`Journal::settled`] first.
    /// Reads the engine for a session that is not remembered, and for the rows: call it where blocking is allowed.
    ///
    /// # Errors
    /// [`ReadError::NoSuchSession`] for a session without records; whatever reading it gives.
    pub fn activate(&self, session: SessionId) -> Result<Activation, ReadError> {
        let shared = self.shared();
        let engine = shared.engine()?;
        let known = loop {
            let removals = {
                let mut core = shared.core();
                if let Some(known) = core.fences.activate(session) {
                    break known;
                }
                core.fences.removals()
            };
            let last = read::last_known(&*engine, session)?;
            if let Some(known) = shared.core().fences.activate_read(session, last, removals) {
                break known;
            }
        };
        let Known { epoch, next_seq } = known;
        let head = read::head_of(&*engine, session)?;
        let inflight = read::inflight_of(&*engine, session)?;
        Ok(Activation { epoch, next_seq, head, inflight })
    }

    /// Ends an activation: it may not append any more. What it appended stays on its way to the disk.
    ///
    /// Does nothing for an epoch that is not the present one.
    pub fn deactivate(&self, session: SessionId, epoch: Epoch) {
        let shared = self.shared();
        let mut core = shared.core();
        // Read under the lock: the writer publishes before it settles the fences, so a fence that is set aside here for a later
        // commit is seen by that commit.
        let durable = shared.waiters.durable();
        core.fences.deactivate(session, epoch, durable);
    }

    /// What the store is.
    pub fn info(&self) -> Info {
        let shared = self.shared();
        let about = &shared.about;
        Info {
            engine: about.name,
            path: about.path.clone(),
            durability: about.durability,
            format: u32::from(codec::VERSION),
            syncs: shared.engine().map_or(0, |engine| engine.syncs()),
            batches: shared.batches.load(Ordering::Relaxed),
        }
    }

    /// Closes the journal for all handles: refuses appends, drains, syncs, ends the writer thread, lets the store go.
    ///
    /// # Errors
    /// [`Poisoned`] where something appended is not known to be durable; the journal is closed all the same.
    ///
    /// # Cancel safety
    /// Once polled, the closing goes on without the caller.
    ///
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
