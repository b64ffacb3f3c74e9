//! The state of the runtime (running, stopping, stopped) and its live tasks.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use subtend_journal::{Journal, ReadError};
use subtend_session::ids::{Seq, SessionId};
use subtend_supervision::{Gate, Lease};
use subtend_tools::processes::Processes;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::values::error::{Stopped, WaitError};
use crate::values::paging;

/// The life of one runtime, from its start to the end of its last task.
pub(crate) struct Lifecycle {
    /// Set when no new work is accepted.
    pub(crate) gate: Gate,
    /// Fires when the grace of a shutdown ends.
    pub(crate) halt: CancellationToken,
    /// The store's lease. Effects may start while it is held; afterwards the store may belong to another process.
    pub(crate) lease: Lease,
    /// Live tasks of turns, tools and services.
    pub(crate) tasks: TaskTracker,
    /// Number of completions that arrived too late and were not recorded.
    pub(crate) stale: AtomicU64,
    /// Background processes; they stop with the runtime.
    pub(crate) processes: Processes,
    stopping: AtomicBool,
    /// Set by an orderly shutdown, but not by a drop of the runtime.
    in_order: AtomicBool,
    /// The task that waits for the journal to fail.
    watch: Mutex<Option<AbortHandle>>,
    journal: Journal,
}

impl Lifecycle {
    pub(crate) fn new(journal: Journal, halt: CancellationToken, lease: Lease) -> Self {
        Self {
            gate: Gate::new(),
            halt,
            lease,
            tasks: TaskTracker::new(),
            stale: AtomicU64::new(0),
            processes: Processes::default(),
            stopping: AtomicBool::new(false),
            in_order: AtomicBool::new(false),
            watch: Mutex::default(),
            journal,
        }
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    pub(crate) fn may_start(&self) -> bool {
        !self.is_stopping() && self.lease.is_valid()
    }

    /// Returns whether the runtime stops by a shutdown. A dropped runtime counts as a crash.
    pub(crate) fn stops_in_order(&self) -> bool {
        self.in_order.load(Ordering::Acquire)
    }

    /// Stops accepting and starting work: `in_order` for an orderly shutdown, otherwise for a drop of the runtime.
    pub(crate) fn stop(&self, in_order: bool) {
        self.gate.close();
        self.stopping.store(true, Ordering::Release);
        self.in_order.fetch_or(in_order, Ordering::AcqRel);
        self.processes.stop();
    }

    /// Waits until all stopped tasks and processes have ended.
    pub(crate) async fn ended(&self) {
        self.tasks.wait().await;
        self.processes.wait_until_ended().await;
    }

    /// Returns the reason why the runtime does not answer.
    pub(crate) fn stopped(&self) -> Stopped {
        if let Some(poison) = self.journal.poisoned() {
            return Stopped::Poisoned(poison.to_string());
        }
        if self.gate.is_closed() { Stopped::Shutdown } else { Stopped::Gone }
    }

    /// Returns the reason why `session` does not answer: the runtime's reason, or that the session is unreadable.
    pub(crate) fn stopped_at(&self, session: SessionId) -> Stopped {
        let stopped = self.stopped();
        if stopped != Stopped::Gone {
            return stopped;
        }
        match paging::fold_to(&self.journal, session, Seq(u64::MAX)) {
            Err(error @ ReadError::Engine(_)) => Stopped::StoreUnread(error.to_string()),
            Err(error) => Stopped::Unreadable(error.to_string()),
            Ok(folded) => folded.map_or_else(|error| Stopped::Unreadable(error.to_string()), |_| Stopped::Gone),
        }
    }

    /// Returns the error for a waiting caller if the journal cannot be read. If the runtime has stopped meanwhile, that is the reason.
    pub(crate) fn read_failed(&self, error: &ReadError) -> WaitError {
        match error {
            ReadError::Closed => WaitError::Stopped(self.stopped()),
            ReadError::NoSuchSession(_)
            | ReadError::Damaged { .. }
            | ReadError::Newer { .. }
            | ReadError::Engine(_) => WaitError::Refused(error.to_string()),
        }
    }

    pub(crate) fn watch_with(&self, task: AbortHandle) {
        *self.watch.lock().unwrap_or_else(PoisonError::into_inner) = Some(task);
    }

    /// Ends the task of [`Lifecycle::watch_with`], which holds the journal and its store's lock.
    pub(crate) fn stop_watching(&self) {
        if let Some(task) = self.watch.lock().unwrap_or_else(PoisonError::into_inner).take() {
            task.abort();
        }
    }
}
