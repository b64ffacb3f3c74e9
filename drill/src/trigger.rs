//! The moment at which the process dies: counted by the process itself, so that it comes at the same place on every machine.

use std::sync::atomic::{AtomicU64, Ordering};

use subtend_journal::Journal;
use subtend_session::ids::Lsn;

use super::line::Line;
use super::plan::Strike;

/// Counts what happens up to the moment.
#[derive(Debug)]
pub(crate) struct Trigger {
    strike: Option<Strike>,
    seen: AtomicU64,
    ended: AtomicU64,
    marked: AtomicU64,
    compacting: AtomicU64,
}

impl Trigger {
    /// Waits for `strike`; for nothing, where there is none.
    pub(crate) fn new(strike: Option<Strike>) -> Self {
        Self {
            strike,
            seen: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            marked: AtomicU64::new(0),
            compacting: AtomicU64::new(0),
        }
    }

    /// A record was shown.
    pub(crate) fn seen(&self) {
        if let Some(Strike::Seen(at)) = self.strike
            && reached(&self.seen, at)
        {
            Line::Strike.say();
        }
    }

    /// An owned run has ended.
    pub(crate) fn ended(&self) {
        if let Some(Strike::Ended(at)) = self.strike
            && reached(&self.ended, at)
        {
            Line::Strike.say();
        }
    }

    /// A tool had its effect, and has not told of it: the process dies here and now.
    pub(crate) fn marked(&self) {
        if let Some(Strike::Marked(at)) = self.strike
            && reached(&self.marked, at)
        {
            die();
        }
    }

    /// Whether the process is to die in a compaction.
    pub(crate) fn compacts(&self) -> bool {
        matches!(self.strike, Some(Strike::Compaction(_)))
    }

    /// A compaction has come to its next step.
    pub(crate) fn compacting(&self) {
        if let Some(Strike::Compaction(at)) = self.strike
            && reached(&self.compacting, at)
        {
            die();
        }
    }

    /// The compaction is done: a moment in it that has not come does not come any more, and the process dies now.
    pub(crate) fn compacted(&self) {
        if self.compacts() {
            die();
        }
    }

    /// Recovery is about to begin: the process dies when enough of it is durable, by a thread that nothing of the recovery waits
    /// for.
    pub(crate) fn recovers(&self, journal: &Journal) {
        let Some(Strike::Recovery(after)) = self.strike else { return };
        let (journal, until) = (journal.clone(), Lsn(journal.durable().0.saturating_add(after)));
        let watch = std::thread::Builder::new().name("drill-strike".into()).spawn(move || {
            let Ok(tokio) = tokio::runtime::Builder::new_current_thread().build() else { die() };
            // A journal that failed meanwhile is told by the recovery itself.
            if tokio.block_on(journal.wait(until)).is_ok() {
                die();
            }
        });
        if watch.is_err() {
            die();
        }
    }

    /// Recovery is done: a moment in it that has not come does not come any more, and the process dies now.
    pub(crate) fn recovered(&self) {
        if let Some(Strike::Recovery(_)) = self.strike {
            die();
        }
    }
}

fn reached(count: &AtomicU64, at: u64) -> bool {
    count.fetch_add(1, Ordering::Relaxed).saturating_add(1) == at.max(1)
}

/// Kills this process as nothing in it can notice.
#[cfg(unix)]
pub(crate) fn die() -> ! {
    // It is always allowed to do that; and the signal may take a moment to arrive.
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    loop {
        std::thread::park();
    }
}

#[cfg(not(unix))]
pub(crate) fn die() -> ! {
    std::process::abort()
}
