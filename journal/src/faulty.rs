//! Engine with injected faults, for tests and drills.

use std::borrow::Cow;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use subtend_session::ids::{Hash, Lsn, Seq, SessionId, Text};
use subtend_session::index::{Head, Inflight, Row};

use crate::engine::{Engine, Group, Range, Result, ScanFlow, StoredFrame, bytes_of};
use crate::error::EngineError;

pub struct Faulty {
    inner: Box<dyn Engine>,
    faults: Faults,
}

/// Handle that injects faults. Clones share the engine. Writes are numbered from 1.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    plan: Arc<(Mutex<FaultPlan>, Condvar)>,
}

#[derive(Debug, Default)]
struct FaultPlan {
    writes: u64,
    ranges: u64,
    read_bytes: u64,
    readers: Vec<(u64, String)>,
    child_lists: u64,
    heads: u64,
    fail_write: Option<u64>,
    fail_sync: Option<u64>,
    drop_from: Option<u64>,
    fill: Option<u64>,
    delay: Duration,
    held: bool,
    before: Before,
    hidden: bool,
}

#[derive(Clone, Default)]
struct Before(Option<Arc<dyn Fn() + Send + Sync>>);

impl std::fmt::Debug for Before {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "set" } else { "unset" })
    }
}

impl Faults {
    /// Fails the `n`-th write without applying it.
    pub fn fail_write(&self, n: u64) {
        self.plan().fail_write = Some(n);
    }

    /// Applies the `n`-th write, but reports a failed sync.
    pub fn fail_sync(&self, n: u64) {
        self.plan().fail_sync = Some(n);
    }

    /// Drops writes from the `n`-th on and reports success, like a disk that ignores syncs.
    pub fn drop_writes(&self, n: u64) {
        self.plan().drop_from = Some(n);
    }

    /// Fails writes from the `n`-th on because the disk is full.
    pub fn fill(&self, n: u64) {
        self.plan().fill = Some(n);
    }

    /// Calls `notify` at each injected failure, before the write is applied.
    pub fn on_failure(&self, notify: impl Fn() + Send + Sync + 'static) {
        self.plan().before = Before(Some(Arc::new(notify)));
    }

    /// Reports failures as successes, as a seeded bug that checks must find.
    pub fn hide_failures(&self) {
        self.plan().hidden = true;
    }

    pub fn delay(&self, delay: Duration) {
        self.plan().delay = delay;
    }

    /// Blocks writes until the guard is dropped.
    pub fn hold_writes(&self) -> HeldWrites {
        self.plan().held = true;
        HeldWrites(self.clone())
    }

    /// Returns the number of writes, including failed ones.
    pub fn writes(&self) -> u64 {
        self.plan().writes
    }

    /// Returns how often frames of a session were read.
    pub fn ranges(&self) -> u64 {
        self.plan().ranges
    }

    /// Returns the bytes of the frames that were read, each as often as it was read.
    pub fn read_bytes(&self) -> u64 {
        self.plan().read_bytes
    }

    /// Returns the bytes of each read of frames of a session, and the name of its thread.
    pub fn readers(&self) -> Vec<(u64, String)> {
        self.plan().readers.clone()
    }

    /// Returns how often the children of a session were read.
    pub fn child_lists(&self) -> u64 {
        self.plan().child_lists
    }

    /// Returns how often the head of a session was read.
    pub fn heads(&self) -> u64 {
        self.plan().heads
    }

    /// Waits until `n` writes have begun.
    pub fn wait_for_writes(&self, n: u64) {
        let mut plan = self.plan();
        while plan.writes < n {
            plan = self.plan.1.wait(plan).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn plan(&self) -> MutexGuard<'_, FaultPlan> {
        self.plan.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, inner: &dyn Engine, group: Group) -> Result<()> {
        let (n, delay, full) = {
            let mut plan = self.plan();
            plan.writes = plan.writes.saturating_add(1);
            let n = plan.writes;
            self.plan.1.notify_all();
            while plan.held {
                plan = self.plan.1.wait(plan).unwrap_or_else(PoisonError::into_inner);
            }
            (n, plan.delay, plan.fill.is_some_and(|from| n >= from))
        };
        if !delay.is_zero() {
            std::thread::sleep(delay);
        }
        if full {
            return Err(EngineError::Io { what: "write", source: std::io::ErrorKind::StorageFull.into() });
        }
        let (fail_write, fail_sync, drop_from, before, hidden) = {
            let plan = self.plan();
            let (fail_write, fail_sync) = (plan.fail_write == Some(n), plan.fail_sync == Some(n));
            (fail_write, fail_sync, plan.drop_from.is_some_and(|from| n >= from), plan.before.clone(), plan.hidden)
        };
        if let Some(notify) = before.0.filter(|_| fail_write || fail_sync) {
            notify();
        }
        if fail_write {
            return if hidden { Ok(()) } else { Err(EngineError::Injected("a write fails")) };
        }
        if drop_from {
            return Ok(());
        }
        inner.write(group)?;
        if fail_sync && !hidden {
            return Err(EngineError::Injected("a sync fails"));
        }
        Ok(())
    }
}

/// Guard that blocks writes. A failing test also drops it, so that the journal can be closed.
#[derive(Debug)]
#[must_use = "dropping it lets writes continue"]
pub struct HeldWrites(Faults);

impl Drop for HeldWrites {
    fn drop(&mut self) {
        self.0.plan().held = false;
        self.0.plan.1.notify_all();
    }
}

impl Faulty {
    pub fn new(inner: Box<dyn Engine>) -> (Self, Faults) {
        let faults = Faults::default();
        (Self { inner, faults: faults.clone() }, faults)
    }
}

impl Engine for Faulty {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn durability(&self) -> Cow<'static, str> {
        "none: this store fails on purpose".into()
    }

    fn write(&self, group: Group) -> Result<()> {
        self.faults.write(&*self.inner, group)
    }

    fn range(&self, session: SessionId, from: Seq, until: Seq, max_bytes: u64) -> Result<Range> {
        let range = self.inner.range(session, from, until, max_bytes)?;
        let bytes = bytes_of(&range.frames);
        let mut plan = self.faults.plan();
        plan.ranges = plan.ranges.saturating_add(1);
        plan.read_bytes = plan.read_bytes.saturating_add(bytes);
        plan.readers.push((bytes, std::thread::current().name().unwrap_or_default().to_owned()));
        Ok(range)
    }

    fn frame(&self, lsn: Lsn) -> Result<Option<StoredFrame>> {
        self.frame_of(lsn, &mut |_, _| true)
    }

    fn frame_of(&self, lsn: Lsn, is_wanted: &mut dyn FnMut(SessionId, u64) -> bool) -> Result<Option<StoredFrame>> {
        let frame = self.inner.frame_of(lsn, is_wanted)?;
        let mut plan = self.faults.plan();
        plan.read_bytes = plan.read_bytes.saturating_add(frame.as_ref().map_or(0, StoredFrame::bytes));
        Ok(frame)
    }

    fn children(&self, parent: SessionId) -> Result<Vec<SessionId>> {
        let mut plan = self.faults.plan();
        plan.child_lists = plan.child_lists.saturating_add(1);
        drop(plan);
        self.inner.children(parent)
    }

    fn head(&self, session: SessionId) -> Result<Option<Head>> {
        let mut plan = self.faults.plan();
        plan.heads = plan.heads.saturating_add(1);
        drop(plan);
        self.inner.head(session)
    }

    crate::engine::delegate! { inner }
    crate::engine::delegate! { inner:
        max_body() -> u64;
        frames(from: Lsn, visit: &mut dyn FnMut(Lsn, StoredFrame) -> ScanFlow) -> Result<()>;
        def(hash: Hash) -> Result<Option<Text>>;
        defs(visit: &mut dyn FnMut(Hash, Result<Text>) -> ScanFlow) -> Result<()>;
    }
}
