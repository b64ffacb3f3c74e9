//! Whether the runtime takes new work and starts anything, and the tasks that a shutdown waits for.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use subtend_journal::{Journal, ReadError};
use subtend_session::ids::SessionId;
use subtend_session::state::State;
use subtend_supervision::Gate;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::values::error::{Stopped, WaitError};

/// The life of one runtime, from its start to the end of its last task.
pub(crate) struct Life {
    /// Closed: no new work is taken.
    pub(crate) gate: Gate,
    /// Fires when the grace of a shutdown is over: ends what waits one out.
    pub(crate) halt: CancellationToken,
    /// Tasks of turns, tools and services that are alive (E-5).
    pub(crate) tasks: TaskTracker,
    /// Completions that came too late: counted, not recorded.
    pub(crate) stale: AtomicU64,
    stopping: AtomicBool,
    /// It stops in order: a runtime that is dropped stops too.
    in_order: AtomicBool,
    /// The task that waits for the journal to fail.
    watch: Mutex<Option<AbortHandle>>,
    journal: Journal,
}

impl Life {
    pub(crate) fn new(journal: Journal, halt: CancellationToken) -> Self {
        Self {
            gate: Gate::new(),
            halt,
            tasks: TaskTracker::new(),
            stale: AtomicU64::new(0),
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

    /// Returns whether it goes down by a shutdown: a host that dropped it died.
    pub(crate) fn stops_in_order(&self) -> bool {
        self.in_order.load(Ordering::Acquire)
    }

    /// Takes no new work and starts nothing from here on.
    pub(crate) fn stop(&self, in_order: bool) {
        self.gate.close();
        self.stopping.store(true, Ordering::Release);
        self.in_order.fetch_or(in_order, Ordering::AcqRel);
    }

    /// Returns why nothing answers any more.
    pub(crate) fn stopped(&self) -> Stopped {
        if let Some(poison) = self.journal.poisoned() {
            return Stopped::Poisoned(poison.to_string());
        }
        if self.gate.is_closed() { Stopped::Shutdown } else { Stopped::Gone }
    }

    /// Returns why `session` does not answer: one that cannot be read is left alone, and the caller receives the reason (J-8).
    pub(crate) fn stopped_at(&self, session: SessionId) -> Stopped {
        let stopped = self.stopped();
        if stopped != Stopped::Gone {
            return stopped;
        }
        let read = self.journal.records(session).map_err(|error| error.to_string());
        let folded = read.and_then(|stored| {
            let folded = State::fold(session, stored.iter().map(|stored| &stored.record));
            folded.map(drop).map_err(|error| error.to_string())
        });
        folded.map_or_else(Stopped::Unreadable, |()| Stopped::Gone)
    }

    /// Returns what a waiting caller receives where the journal cannot be read: of one that was closed meanwhile, why it was.
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

    /// Ends that task: it holds the journal, and with it the store's lock.
    pub(crate) fn stop_watching(&self) {
        if let Some(task) = self.watch.lock().unwrap_or_else(PoisonError::into_inner).take() {
            task.abort();
        }
    }
}
