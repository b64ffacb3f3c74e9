//! Kills the process, or asks the drill to, at a planned step that it counts itself: the same step on every machine.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use subtend_journal::Journal;
use subtend_session::ids::Lsn;

use super::line::Line;
use super::plan::KillPoint;

#[derive(Debug)]
pub(crate) struct Trigger {
    kill_point: Option<KillPoint>,
    seen: AtomicU64,
    ended: AtomicU64,
    marked: AtomicU64,
    compacting: AtomicU64,
    deleting: AtomicU64,
}

impl Trigger {
    /// Returns the trigger of `kill_point`. Without a kill point it never fires.
    pub(crate) fn new(kill_point: Option<KillPoint>) -> Self {
        Self {
            kill_point,
            seen: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            marked: AtomicU64::new(0),
            compacting: AtomicU64::new(0),
            deleting: AtomicU64::new(0),
        }
    }

    pub(crate) fn on_seen(&self) {
        if let Some(KillPoint::Seen(at)) = self.kill_point
            && reached(&self.seen, at)
        {
            Line::KillPoint.print();
        }
    }

    pub(crate) fn on_ended(&self) {
        if let Some(KillPoint::Ended(at)) = self.kill_point
            && reached(&self.ended, at)
        {
            Line::KillPoint.print();
        }
    }

    /// Counts a tool's effect before its result is reported, and kills the process at the planned effect.
    pub(crate) fn on_tool_effect(&self) {
        if let Some(KillPoint::Marked(at)) = self.kill_point
            && reached(&self.marked, at)
        {
            die();
        }
    }

    pub(crate) fn dies_in_deletion(&self) -> bool {
        matches!(self.kill_point, Some(KillPoint::Deletion(_)))
    }

    /// Counts the start of a deletion, or the durable deletion of one session. Asks for the kill at the planned step.
    pub(crate) fn on_deletion_step(&self) {
        if let Some(KillPoint::Deletion(at)) = self.kill_point
            && reached(&self.deleting, at)
        {
            Line::KillPoint.print();
        }
    }

    pub(crate) fn dies_in_compaction(&self) -> bool {
        matches!(self.kill_point, Some(KillPoint::Compaction(_)))
    }

    pub(crate) fn on_compaction_step(&self) {
        if let Some(KillPoint::Compaction(at)) = self.kill_point
            && reached(&self.compacting, at)
        {
            die();
        }
    }

    /// Kills the process during a compaction of an engine that reports no progress: a step is one millisecond.
    pub(crate) fn kill_after_time(&self) {
        let Some(KillPoint::Compaction(at)) = self.kill_point else { return };
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(at));
            die()
        });
    }

    /// Kills the process if the compaction ended before the planned step.
    pub(crate) fn on_compacted(&self) {
        if self.dies_in_compaction() {
            die();
        }
    }

    /// Starts a thread that kills the process when the planned number of frames is durable. Recovery continues.
    pub(crate) fn watch_recovery(&self, journal: &Journal) {
        let Some(KillPoint::Recovery(after)) = self.kill_point else { return };
        let (journal, until) = (journal.clone(), Lsn(journal.durable().0.saturating_add(after)));
        let watch = std::thread::Builder::new().name("drill-kill".into()).spawn(move || {
            let Ok(tokio) = tokio::runtime::Builder::new_current_thread().build() else { die() };
            // Recovery itself reports a failed journal.
            if tokio.block_on(journal.wait(until)).is_ok() {
                die();
            }
        });
        if watch.is_err() {
            die();
        }
    }

    /// Kills the process if recovery ended before the planned step.
    pub(crate) fn on_recovered(&self) {
        if let Some(KillPoint::Recovery(_)) = self.kill_point {
            die();
        }
    }
}

fn reached(count: &AtomicU64, at: u64) -> bool {
    count.fetch_add(1, Ordering::Relaxed).saturating_add(1) == at.max(1)
}

/// Kills this process with SIGKILL.
#[cfg(unix)]
pub(crate) fn die() -> ! {
    // A process may always signal itself. The signal may take a moment to arrive.
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    loop {
        std::thread::park();
    }
}

#[cfg(not(unix))]
pub(crate) fn die() -> ! {
    std::process::abort()
}
