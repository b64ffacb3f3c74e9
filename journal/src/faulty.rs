//! Engine with injected faults, for tests and drills.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use subtend_session::ids::{Hash, Lsn, Seq, SessionId, Text};
use subtend_session::index::{Head, Inflight, Row};

use crate::engine::{Engine, Go, Group, Result, StoredFrame};
use crate::error::EngineError;

/// Engine wrapper that injects faults.
pub struct Faulty {
    inner: Box<dyn Engine>,
    faults: Faults,
}

/// Handle that injects faults; clones share the engine. Writes count from 1.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    plan: Arc<(Mutex<FaultPlan>, Condvar)>,
}

#[derive(Debug, Default)]
struct FaultPlan {
    writes: u64,
    fail_write: Option<u64>,
    fail_sync: Option<u64>,
    tear: Option<u64>,
    fill: Option<u64>,
    delay: Duration,
    held: bool,
    before: Before,
    hidden: bool,
}

/// Observer of failures.
#[derive(Clone, Default)]
struct Before(Option<Arc<dyn Fn() + Send + Sync>>);

impl std::fmt::Debug for Before {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "set" } else { "unset" })
    }
}

impl Faults {
    /// Fails the `n`-th write and applies none of it.
    pub fn fail_write(&self, n: u64) {
        self.plan().fail_write = Some(n);
    }

    /// Applies the `n`-th write and reports a failed sync.
    pub fn fail_sync(&self, n: u64) {
        self.plan().fail_sync = Some(n);
    }

    /// Drops writes from the `n`-th on and reports success, like a lying disk.
    pub fn tear(&self, n: u64) {
        self.plan().tear = Some(n);
    }

    /// Fails writes from the `n`-th on because the disk is full.
    pub fn fill(&self, n: u64) {
        self.plan().fill = Some(n);
    }

    /// Calls `notify` at each injected failure, before anything of that write is applied.
    pub fn on_failure(&self, notify: impl Fn() + Send + Sync + 'static) {
        self.plan().before = Before(Some(Arc::new(notify)));
    }

    /// Reports failures as successes: the bug that checks must find.
    pub fn hide_failures(&self) {
        self.plan().hidden = true;
    }

    /// Delays every write.
    pub fn delay(&self, delay: Duration) {
        self.plan().delay = delay;
    }

    /// Blocks writes until the guard is dropped.
    pub fn hold(&self) -> Held {
        self.plan().held = true;
        Held(self.clone())
    }

    /// Returns the number of writes, failed ones included.
    pub fn writes(&self) -> u64 {
        self.plan().writes
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
        let (fail_write, fail_sync, tear, before, hidden) = {
            let plan = self.plan();
            let (fail_write, fail_sync) = (plan.fail_write == Some(n), plan.fail_sync == Some(n));
            (fail_write, fail_sync, plan.tear.is_some_and(|from| n >= from), plan.before.clone(), plan.hidden)
        };
        if let Some(notify) = before.0.filter(|_| fail_write || fail_sync) {
            notify();
        }
        if fail_write {
            return if hidden { Ok(()) } else { Err(EngineError::Injected("a write fails")) };
        }
        if tear {
            return Ok(());
        }
        inner.write(group)?;
        if fail_sync && !hidden {
            return Err(EngineError::Injected("a sync fails"));
        }
        Ok(())
    }
}

/// Guard that blocks writes. A failing test drops it too, so that a journal can be closed.
#[derive(Debug)]
#[must_use = "dropping it lets writes continue"]
pub struct Held(Faults);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.plan().held = false;
        self.0.plan.1.notify_all();
    }
}

impl Faulty {
    /// Wraps `inner`.
    pub fn new(inner: Box<dyn Engine>) -> (Self, Faults) {
        let faults = Faults::default();
        (Self { inner, faults: faults.clone() }, faults)
    }
}

impl Engine for Faulty {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn durability(&self) -> &'static str {
        "as ordered: this store fails on purpose"
    }

    fn write(&self, group: Group) -> Result<()> {
        self.faults.write(&*self.inner, group)
    }

    fn wants_bytes(&self) -> bool {
        self.inner.wants_bytes()
    }

    fn max_body(&self) -> u64 {
        self.inner.max_body()
    }

    fn syncs(&self) -> u64 {
        self.inner.syncs()
    }

    fn last_lsn(&self) -> Result<Lsn> {
        self.inner.last_lsn()
    }

    fn frame(&self, lsn: Lsn) -> Result<Option<StoredFrame>> {
        self.inner.frame(lsn)
    }

    fn frames(&self, from: Lsn, visit: &mut dyn FnMut(Lsn, StoredFrame) -> Go) -> Result<()> {
        self.inner.frames(from, visit)
    }

    fn places(&self, session: SessionId) -> Result<Vec<(Seq, Lsn)>> {
        self.inner.places(session)
    }

    fn places_from(&self, session: SessionId, from: Seq, most: usize) -> Result<Vec<(Seq, Lsn)>> {
        self.inner.places_from(session, from, most)
    }

    fn last_place(&self, session: SessionId) -> Result<Option<(Seq, Lsn)>> {
        self.inner.last_place(session)
    }

    fn all_places(&self, visit: &mut dyn FnMut(SessionId, Seq, Lsn) -> Go) -> Result<()> {
        self.inner.all_places(visit)
    }

    fn head(&self, session: SessionId) -> Result<Option<Head>> {
        self.inner.head(session)
    }

    fn heads(&self, visit: &mut dyn FnMut(SessionId, Result<Head>) -> Go) -> Result<()> {
        self.inner.heads(visit)
    }

    fn inflight(&self, session: SessionId) -> Result<Option<Inflight>> {
        self.inner.inflight(session)
    }

    fn inflights(&self, visit: &mut dyn FnMut(SessionId, Result<Inflight>) -> Go) -> Result<()> {
        self.inner.inflights(visit)
    }

    fn kids(&self, parent: SessionId) -> Result<Vec<SessionId>> {
        self.inner.kids(parent)
    }

    fn all_kids(&self, visit: &mut dyn FnMut(SessionId, SessionId) -> Go) -> Result<()> {
        self.inner.all_kids(visit)
    }

    fn outbox(&self, to: Option<SessionId>, visit: &mut dyn FnMut(Result<(Row, Lsn)>) -> Go) -> Result<()> {
        self.inner.outbox(to, visit)
    }

    fn def(&self, hash: Hash) -> Result<Option<Text>> {
        self.inner.def(hash)
    }

    fn defs(&self, visit: &mut dyn FnMut(Hash, Result<Text>) -> Go) -> Result<()> {
        self.inner.defs(visit)
    }
}
