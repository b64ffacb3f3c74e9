//! The state of the runtime (running, stopping, stopped) and its live tasks.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use subtend_journal::{Journal, ReadError};
use subtend_session::ids::SessionId;
use subtend_session::state::State;
use subtend_supervision::{Gate, Lease};
use subtend_tools::processes::Processes;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::values::error::{Stopped, WaitError};

/// The life of one runtime, from its start to the end of its last task.
pub(crate) struct Lifecycle {
    /// Set when no new work is accepted.
    pub(crate) gate: Gate,
    /// Fires when the grace of a shutdown ends.
    pub(crate) halt: CancellationToken,
    /// While it runs, effects may start: the store may belong to another process afterwards.
    pub(crate) lease: Lease,
    /// Live tasks of turns, tools and services (E-5).
    pub(crate) tasks: TaskTracker,
    /// Completions that arrived too late: counted, not recorded.
    pub(crate) stale: AtomicU64,
    /// Background processes; they stop with the runtime.
    pub(crate) processes: Processes,
    stopping: AtomicBool,
    /// Set by an orderly shutdown, and not by a drop.
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

    /// Returns whether the runtime is going down: nothing new starts.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Returns whether a model or tool call may start now.
    pub(crate) fn may_start(&self) -> bool {
        !self.is_stopping() && self.lease.runs()
    }

    /// Returns whether it stops by a shutdown: a dropped runtime counts as a crash.
    pub(crate) fn stops_in_order(&self) -> bool {
        self.in_order.load(Ordering::Acquire)
    }

    /// Accepts no new work and starts nothing from here on.
    pub(crate) fn stop(&self, in_order: bool) {
        self.gate.close();
        self.stopping.store(true, Ordering::Release);
        self.in_order.fetch_or(in_order, Ordering::AcqRel);
        self.processes.stop();
    }

    /// Waits for the end of all tasks and processes, which were stopped.
    pub(crate) async fn ended(&self) {
        self.tasks.wait().await;
        self.processes.ended().await;
    }

    /// Returns why the runtime does not answer.
    pub(crate) fn stopped(&self) -> Stopped {
        if let Some(poison) = self.journal.poisoned() {
            return Stopped::Poisoned(poison.to_string());
        }
        if self.gate.is_closed() { Stopped::Shutdown } else { Stopped::Gone }
    }

    /// Returns why `session` does not answer: the error of an unreadable session (J-8), else that of the runtime.
    pub(crate) fn stopped_at(&self, session: SessionId) -> Stopped {
        let stopped = self.stopped();
        if stopped != Stopped::Gone {
            return stopped;
        }
        match self.journal.records(session) {
            Err(error @ ReadError::Engine(_)) => Stopped::StoreUnread(error.to_string()),
            Err(error) => Stopped::Unreadable(error.to_string()),
            Ok(stored) => {
                let folded = State::fold(session, stored.iter().map(|stored| &stored.record));
                folded.map_or_else(|error| Stopped::Unreadable(error.to_string()), |_| Stopped::Gone)
            }
        }
    }

    /// Returns the error of a waiting caller when the journal cannot be read: the reason of a stop, if it stopped meanwhile.
    pub(crate) fn unread(&self, error: &ReadError) -> WaitError {
        match error {
            ReadError::Closed => WaitError::Stopped(self.stopped()),
            ReadError::NoSuchSession(_)
            | ReadError::Damaged { .. }
            | ReadError::Newer { .. }
            | ReadError::Engine(_) => WaitError::Refused(error.to_string()),
        }
    }

    /// Keeps the task that waits for the journal to fail.
    pub(crate) fn watch_with(&self, task: AbortHandle) {
        *self.watch.lock().unwrap_or_else(PoisonError::into_inner) = Some(task);
    }

    /// Ends that task, which holds the journal and its store's lock.
    pub(crate) fn stop_watching(&self) {
        if let Some(task) = self.watch.lock().unwrap_or_else(PoisonError::into_inner).take() {
            task.abort();
        }
    }
}
