//! The life of a node: its lease, its shards, and its clients. Runtime, lease and journal are the real code.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use subtend_actors::Runtime;
use subtend_journal::Journal;
use subtend_journal::stepper::{Stepped, Stepper};
use subtend_supervision::Lease;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};

use super::database::{Database, LEASE, LeaseId};
use super::engine::ClaimedShard;
use super::fakes;
use super::world::{NodesWorld, SLICE, lock};
use crate::lease::LeaseBug;
use crate::storage::Simulated;

const HEARTBEAT: Duration = Duration::from_secs(5);
/// Time after the sending of a renewal, by the node's own clock, in which calls may start.
const WORK: Duration = Duration::from_secs(10);
const TICK: Duration = Duration::from_secs(1);
/// Maximum wait for an answer of the database.
const DATABASE_TIMEOUT: Duration = Duration::from_secs(3);
const GRACE: Duration = Duration::from_millis(500);

pub(super) struct OpenShard {
    pub(super) runtime: Runtime,
    owner: u64,
}

/// A node; clones share it.
#[derive(Clone)]
pub(super) struct Node {
    pub(super) world: Arc<NodesWorld>,
    number: usize,
    /// Time for which the process was paused, by its own clock.
    stopped: Arc<Mutex<Duration>>,
    shards: Arc<Mutex<BTreeMap<usize, OpenShard>>>,
    /// Seconds by which the machine's date is ahead of the database's, plus 60.
    date: u64,
}

/// A lease of the node, which a task renews.
struct NodeTerm {
    id: LeaseId,
    work: Lease,
    _renewal: AbortOnDrop,
}

struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Runs until the node leaves, and joins again after each lost lease.
pub(super) async fn live(node: Node) {
    loop {
        let term = node.join().await;
        let left = tokio::select! {
            biased;
            () = term.work.ended() => false,
            () = node.follow(&term) => true,
        };
        if left {
            return node.leave(term).await;
        }
        node.world.trace(|| format!("node {}: lease {} has ended", node.number, term.id));
        // Other nodes may own the shards by now, so the runtimes are dropped without a shutdown.
        lock(&node.shards).clear();
        let NodeTerm { id, work, .. } = term;
        tokio::spawn(node.clone().leave_lost(id, work));
    }
}

impl Node {
    pub(super) fn new(world: &Arc<NodesWorld>, number: usize, stopped: Arc<Mutex<Duration>>) -> Self {
        let date = world.rng.between(50, 70);
        Self { world: Arc::clone(world), number, stopped, shards: Arc::default(), date }
    }

    pub(super) fn open(&self) -> Vec<usize> {
        lock(&self.shards).keys().copied().collect()
    }

    /// Calls `with` on the runtime of a shard, if the shard is open on this node.
    pub(super) fn with_runtime<T>(&self, shard: usize, with: impl FnOnce(&Runtime) -> T) -> Option<T> {
        lock(&self.shards).get(&shard).map(|open| with(&open.runtime))
    }

    /// Sends a request to the database. Requests and replies take time, and each may be lost.
    async fn ask<T>(&self, operation: impl FnOnce(&mut Database) -> T) -> Option<T> {
        let asked = async {
            self.travel().await;
            let answer = operation(&mut self.world.database());
            if self.world.draw_fault(40) {
                // The process is paused before it reads the reply.
                self.world.stop_soon(self.number);
                sleep(SLICE).await;
            }
            self.travel().await;
            answer
        };
        timeout(DATABASE_TIMEOUT, asked).await.ok()
    }

    async fn travel(&self) {
        let most = if self.world.draw_fault(12) { 6_000 } else { 20 };
        sleep(self.world.rng.ms(0, most)).await;
    }

    /// Returns the expiry of a lease that is renewed now.
    fn expiry(&self, database: &Database) -> Duration {
        let now = if self.world.has_bug(LeaseBug::RenewedByLocalClock) {
            database.now.saturating_add(Duration::from_secs(self.date)).saturating_sub(Duration::from_secs(60))
        } else {
            database.now
        };
        now.saturating_add(LEASE)
    }

    fn lease(&self) -> Lease {
        let (begun, stopped) = (Instant::now(), Arc::clone(&self.stopped));
        let before = *lock(&stopped);
        let clock_stops = self.world.has_bug(LeaseBug::ClockStopsInPause);
        Lease::new(WORK, move || {
            let stopped = if clock_stops { lock(&stopped).saturating_sub(before) } else { Duration::ZERO };
            Duration::from_secs(1).saturating_add(begun.elapsed()).saturating_sub(stopped)
        })
    }

    /// Begins a lease, and starts the task that renews it.
    async fn join(&self) -> NodeTerm {
        loop {
            let work = self.lease();
            let sent = work.now();
            let joined = self.ask(|database| database.join(self.number, self.expiry(database))).await.flatten();
            let sent = self.lease_start(sent, &work);
            if let Some(id) = joined {
                if work.renew(sent) {
                    self.world.trace(|| format!("node {}: lease {id}", self.number));
                    let (node, working) = (self.clone(), work.clone());
                    let renewal = tokio::spawn(async move {
                        node.renew(id, &working).await;
                        working.end();
                    });
                    return NodeTerm { id, work, _renewal: AbortOnDrop(renewal.abort_handle()) };
                }
                self.ask(|database| database.leave(id)).await;
            }
            sleep(TICK).await;
        }
    }

    fn lease_start(&self, sent: Duration, work: &Lease) -> Duration {
        if self.world.has_bug(LeaseBug::CountedFromReply) { work.now() } else { sent }
    }

    /// Renews a lease; returns when the lease has ended.
    async fn renew(&self, id: LeaseId, work: &Lease) {
        let mut pause = HEARTBEAT;
        loop {
            sleep(pause).await;
            let sent = work.now();
            let renewed = self.ask(|database| database.renew(id, self.expiry(database))).await;
            let sent = self.lease_start(sent, work);
            pause = match renewed {
                Some(true) if work.renew(sent) => HEARTBEAT,
                Some(_) => return,
                None if self.world.has_bug(LeaseBug::LeftWhileWorking) => {
                    self.ask(|database| database.leave(id)).await;
                    HEARTBEAT
                }
                None => TICK,
            };
        }
    }

    /// Claims free shards and hands over others, until the node leaves.
    async fn follow(&self, term: &NodeTerm) {
        loop {
            self.forget_failed();
            let open = self.open();
            let claimable = self.ask(|database| database.claimable(term.id, &open)).await.unwrap_or_default();
            for shard in claimable {
                if self.world.rng.one_in(2) {
                    self.claim(shard, term).await;
                }
            }
            if self.world.draw_fault(30) {
                for shard in self.open().into_iter().take(1) {
                    self.hand_over(shard).await;
                }
            }
            if self.world.draw_fault(60) {
                return;
            }
            sleep(self.world.rng.ms(800, 1_200)).await;
        }
    }

    async fn claim(&self, shard: usize, term: &NodeTerm) {
        let Some(Some(claim)) = self.ask(|database| database.claim(shard, term.id)).await else { return };
        if self.world.draw_fault(6) {
            self.world.trace(|| format!("node {}: the reply to its claim of shard {shard} is lost", self.number));
            return;
        }
        let engine = Simulated(ClaimedShard::new(&self.world, shard, claim));
        let (journal, stepper) = match Journal::open_stepped(Box::new(engine), subtend_journal::Options::default()) {
            Ok(opened) => opened,
            Err(error) => return self.world.database().wrong(format!("shard {shard} cannot be opened: {error}")),
        };
        tokio::spawn(write(Arc::clone(&self.world), stepper));
        let lease = if self.world.has_bug(LeaseBug::EffectAfterExpiry) { Lease::default() } else { term.work.clone() };
        let builder = fakes::builder(&self.world, (shard, term.id), journal.clone());
        match builder.lease(lease).start().await {
            Ok(runtime) => {
                self.world.trace(|| format!("node {}: shard {shard} is open under lease {}", self.number, term.id));
                lock(&self.shards).insert(shard, OpenShard { runtime, owner: claim.owner });
            }
            // Expected if the claim or the lease was lost meanwhile.
            Err(error) if journal.poisoned().is_some() || !term.work.is_valid() => {
                self.world.trace(|| format!("shard {shard} was not opened: {error}"));
            }
            Err(error) => self.world.database().wrong(format!("the runtime of shard {shard} cannot start: {error}")),
        }
    }

    /// Drops runtimes whose journal failed. This node or another one claims the shard again.
    fn forget_failed(&self) {
        let dropped: Vec<_> =
            lock(&self.shards).extract_if(.., |_, open| open.runtime.journal().poisoned().is_some()).collect();
        dropped
            .iter()
            .for_each(|(shard, _)| self.world.trace(|| format!("node {}: shard {shard} failed", self.number)));
    }

    async fn hand_over(&self, shard: usize) {
        let Some(OpenShard { runtime, owner }) = lock(&self.shards).remove(&shard) else { return };
        self.world.trace(|| format!("node {}: shard {shard} is handed over", self.number));
        runtime.shutdown(GRACE).await;
        self.ask(|database| database.release(shard, owner)).await;
    }

    /// Hands all shards over, and ends the lease.
    async fn leave(&self, term: NodeTerm) {
        let leaving = async {
            for shard in self.open() {
                self.hand_over(shard).await;
            }
        };
        tokio::select! {
            biased;
            () = term.work.ended() => return lock(&self.shards).clear(),
            () = leaving => {}
        }
        term.work.end();
        self.ask(|database| database.leave(term.id)).await;
    }

    /// Ends a lost lease in the database after its work has stopped.
    async fn leave_lost(self, id: LeaseId, work: Lease) {
        sleep(HEARTBEAT).await;
        work.released().await;
        self.ask(|database| database.leave(id)).await;
    }
}

/// Writes the commits of a journal, with delays.
async fn write(world: Arc<NodesWorld>, mut stepper: Stepper) {
    loop {
        stepper.wait_for_work().await;
        let most = if world.draw_fault(40) { 2_500 } else { 15 };
        sleep(world.rng.ms(0, most)).await;
        let most = usize::try_from(world.rng.between(1, 6)).unwrap_or(1);
        if stepper.step(most) == Stepped::Closed {
            return;
        }
    }
}
