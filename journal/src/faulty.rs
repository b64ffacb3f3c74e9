//! An engine that fails when it is told to; for tests and drills of whatever stands on a journal.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use subtend_session::ids::{Hash, Lsn, Seq, SessionId, Text};
use subtend_session::index::{Head, Inflight, Row};

use crate::engine::{Engine, Go, Group, Kept, Result};
use crate::error::EngineError;

/// Any engine, behind faults.
pub struct Faulty {
    inner: Box<dyn Engine>,
    faults: Faults,
}

/// The handle by which faults are ordered; clones order for the same engine. Writes are counted from 1.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    plan: Arc<(Mutex<Plan>, Condvar)>,
}

#[derive(Debug, Default)]
struct Plan {
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

/// Who is told of a failure.
#[derive(Clone, Default)]
struct Before(Option<Arc<dyn Fn() + Send + Sync>>);

impl std::fmt::Debug for Before {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "told" } else { "not told" })
    }
}

impl Faults {
    /// The `n`-th write fails, and nothing of it is applied.
    pub fn fail_write(&self, n: u64) {
        self.plan().fail_write = Some(n);
    }

    /// The sync of the `n`-th write fails: it reports an error although all of it is applied.
    pub fn fail_sync(&self, n: u64) {
        self.plan().fail_sync = Some(n);
    }

    /// From the `n`-th on, writes report success and nothing of them is applied: the tail is lost, as on a disk that lies.
    pub fn tear(&self, n: u64) {
        self.plan().tear = Some(n);
    }

    /// From the `n`-th on, writes fail for want of room, and nothing of them is applied.
    pub fn fill(&self, n: u64) {
        self.plan().fill = Some(n);
    }

    /// Tells of each failure that was ordered, before anything of that write is applied.
    pub fn on_failure(&self, told: impl Fn() + Send + Sync + 'static) {
        self.plan().before = Before(Some(Arc::new(told)));
    }

    /// Failures are reported as successes: the bug that whoever checks them must notice.
    pub fn hide_failures(&self) {
        self.plan().hidden = true;
    }

    /// Every write takes this much longer.
    pub fn delay(&self, delay: Duration) {
        self.plan().delay = delay;
    }

    /// Writes stand still until the guard is dropped.
    pub fn hold(&self) -> Held {
        self.plan().held = true;
        Held(self.clone())
    }

    /// Writes so far, failed ones included.
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

    fn plan(&self) -> MutexGuard<'_, Plan> {
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
        if let Some(told) = before.0.filter(|_| fail_write || fail_sync) {
            told();
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

/// Keeps writes standing; dropped, also by a test that fails, it lets them go on, so that a journal can be closed.
#[derive(Debug)]
#[must_use = "dropping it lets writes go on"]
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

    fn frame(&self, lsn: Lsn) -> Result<Option<Kept>> {
        self.inner.frame(lsn)
    }

    fn frames(&self, from: Lsn, visit: &mut dyn FnMut(Lsn, Kept) -> Go) -> Result<()> {
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
