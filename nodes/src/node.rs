//! Runs a node: its lease, and the opening and closing of its shards.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use subtend_host::auth::NodeKey;
use subtend_host::{Host, ReadPermits};
use subtend_journal::postgres::ShardAddress;
use subtend_journal::postgres::nodes::{Members, NodeError, NodeLease, Registry};
use subtend_supervision::Lease;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::clock::{DatabaseClock, since_boot};
use crate::plan::plan;
use crate::slots;

use seen_lsns::SeenLsns;
use state::{HeldShard, NodeState, ShardPhase, end_now};

pub use opening::{NotOpened, OpenShard};
pub use options::{LeaseTimes, NodeOptions};
pub(crate) use state::ShardHost;

mod leaving;
mod opening;
mod options;
mod seen_lsns;
mod state;

/// One lease of the node. When it ends, the node starts another one.
#[derive(Clone)]
struct LeaseTerm {
    lease: NodeLease,
    /// The right to start calls, which ends before the lease does.
    work: Lease,
    /// Task that renews the lease independently of the node's other work.
    _renewal: Arc<AbortOnDrop>,
}

struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct NodeShared {
    target: ShardAddress,
    options: NodeOptions,
    opener: Arc<dyn OpenShard>,
    /// Used only for the lease, so that requests do not delay renewals.
    leases: Registry,
    registry: Registry,
    key: NodeKey,
    clock: DatabaseClock,
    /// Permits for merged lists.
    reads: ReadPermits,
    state: Mutex<NodeState>,
    members: watch::Sender<Arc<Members>>,
    /// Number of live nodes.
    live: AtomicUsize,
    /// Fires when the node starts to shut down.
    ends: CancellationToken,
    /// Fires when the node has left.
    left: CancellationToken,
    tasks: TaskTracker,
}

/// A node of a database. Cheap to clone.
#[derive(Clone)]
pub struct Node {
    inner: Arc<NodeShared>,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("name", &self.inner.options.name).finish_non_exhaustive()
    }
}

impl Node {
    /// Connects to the database that `target` names, creates its shards if they are missing, and begins the node's lease. Waits until the
    /// lease of an earlier process with that name has ended.
    /// # Errors
    /// [`NodeError::Store`], and [`NodeError::NameTaken`] if that process is alive.
    pub async fn join(
        target: &ShardAddress,
        options: NodeOptions,
        opener: Arc<dyn OpenShard>,
    ) -> Result<Self, NodeError> {
        let leases = Registry::connect(target).await?;
        let registry = Registry::connect(target).await?;
        registry.create_shared(options.shards, None).await?;
        for label in &options.labels {
            registry.create_shared(options.shards, Some(label)).await?;
        }
        let (secret, clock) = (registry.secret().await?, DatabaseClock::default());
        clock.set(registry.members().await?.time_ms);
        let shared = clock.clone();
        let key = NodeKey::new(&secret, &*options.name, Arc::new(move || shared.now_ms()));
        let inner = NodeShared {
            target: target.clone(),
            options,
            opener,
            leases,
            registry,
            key,
            clock,
            reads: ReadPermits::default(),
            state: Mutex::default(),
            members: watch::channel(Arc::default()).0,
            live: AtomicUsize::new(1),
            ends: CancellationToken::new(),
            left: CancellationToken::new(),
            tasks: TaskTracker::new(),
        };
        let node = Self { inner: Arc::new(inner) };
        node.begin().await?;
        Ok(node)
    }

    /// Returns the key with the node's name and the secret shared by the nodes of the database.
    pub fn key(&self) -> &NodeKey {
        &self.inner.key
    }

    pub(crate) fn name(&self) -> &str {
        &self.inner.options.name
    }

    pub(crate) fn times(&self) -> LeaseTimes {
        self.inner.options.times
    }

    pub(crate) fn registry(&self) -> &Registry {
        &self.inner.registry
    }

    pub(crate) fn reads(&self) -> &ReadPermits {
        &self.inner.reads
    }

    /// Returns the nodes and shards as last read.
    pub fn members(&self) -> Arc<Members> {
        Arc::clone(&self.inner.members.borrow())
    }

    /// Returns the nodes and shards as last read, without the leases that have ended since.
    pub(crate) fn live_members(&self) -> Members {
        let members = self.members();
        members.after(self.inner.clock.now_ms().saturating_sub(members.time_ms))
    }

    /// Returns a receiver that is notified when nodes or shards change.
    pub(crate) fn changes(&self) -> watch::Receiver<Arc<Members>> {
        self.inner.members.subscribe()
    }

    /// Resolves when the node with `lease` no longer owns `shard`, according to the last rows that this node read.
    pub(crate) fn wait_until_lost(&self, shard: &str, lease: &NodeLease) -> impl Future<Output = ()> + Send + use<> {
        let (mut changes, shard, lease) = (self.changes(), shard.to_owned(), lease.clone());
        async move {
            let lost = |members: &Arc<Members>| members.owner(&shard).is_none_or(|owner| owner.lease != lease);
            if changes.wait_for(lost).await.is_err() {
                // This node has ended, so its clients are gone.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Returns whether the node has a running lease.
    pub fn is_live(&self) -> bool {
        self.state().term.as_ref().is_some_and(|term| term.work.is_valid())
    }

    /// Fires when the node starts to shut down, so that clients move to another node.
    pub fn ends(&self) -> &CancellationToken {
        &self.inner.ends
    }

    /// Fires when the node has left and no longer answers clients.
    pub fn left(&self) -> &CancellationToken {
        &self.inner.left
    }

    /// Returns the host of a shard that is open here; `None` after the lease: another node may have newer records.
    pub(crate) fn host(&self, shard: &str) -> Option<ShardHost> {
        self.is_live().then(|| self.state().shards.get(shard).and_then(HeldShard::open).cloned()).flatten()
    }

    /// Returns the shards that are open here.
    pub fn open(&self) -> Vec<String> {
        self.state().open().into_iter().collect()
    }

    /// Returns the shards that are open, or are being opened or closed.
    fn busy_shards(&self) -> BTreeSet<String> {
        self.state().shards.keys().cloned().collect()
    }

    fn state(&self) -> MutexGuard<'_, NodeState> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs until `stop` resolves: renews the lease, claims shards and hands them over. Joins again if the lease was
    /// lost. At the end, drains and closes the shards and ends the lease.
    /// # Errors
    /// If the schema is newer, or a shard without another owner cannot be opened. Other nodes then take over.
    pub async fn run(&self, stop: impl Future<Output = ()>) -> Result<(), String> {
        tokio::pin!(stop);
        loop {
            let term = self.state().term.clone();
            match term {
                Some(term) => {
                    let followed = tokio::select! {
                        () = &mut stop => break,
                        () = term.work.ended() => Ok(()),
                        failed = self.follow(&term) => failed,
                    };
                    self.fence();
                    if followed.is_err() {
                        // Ends the lease, so that other nodes can take the shards at once.
                        drop(self.inner.leases.leave(&term.lease).await);
                        self.inner.left.cancel();
                        return followed;
                    }
                }
                None => {
                    tokio::select! {
                        () = &mut stop => break,
                        begun = self.begin() => match begun {
                            Ok(()) => {}
                            Err(error @ NodeError::Store(_)) => {
                                self.inner.left.cancel();
                                return Err(error.to_string());
                            }
                            Err(error) => {
                                tracing::warn!(%error, "the node has no lease and retries");
                                sleep(self.times().tick()).await;
                            }
                        },
                    }
                }
            }
        }
        self.leave().await;
        self.inner.left.cancel();
        Ok(())
    }

    async fn begin(&self) -> Result<(), NodeError> {
        let NodeOptions { name, address, version, labels, times, .. } = &self.inner.options;
        let give_up = Instant::now() + times.lease + times.heartbeat;
        let mut waits = false;
        let (lease, work) = loop {
            let work = Lease::new(times.work, since_boot);
            let sent = work.now();
            match self.inner.leases.join(name, address, version, labels, times.lease).await {
                Ok(lease) if work.renew(sent) => break (lease, work),
                // The answer arrived too late.
                Ok(lease) => drop(self.inner.leases.leave(&lease).await),
                Err(NodeError::NameTaken { left_ms, .. }) if Instant::now() < give_up => {
                    if !std::mem::replace(&mut waits, true) {
                        tracing::warn!(name, left_ms, "an earlier lease of this node runs; waiting until it ends");
                    }
                    sleep(times.tick()).await;
                }
                Err(error) => return Err(error),
            }
        };
        let (node, leased, working) = (self.clone(), lease.clone(), work.clone());
        let renewal = tokio::spawn(async move {
            node.renew(&leased, &working).await;
            working.end();
        });
        let renewal = Arc::new(AbortOnDrop(renewal.abort_handle()));
        // Members are read before the node answers clients. Otherwise existing shards would seem to be missing.
        let members = match self.inner.registry.members().await {
            Ok(members) => members,
            Err(error) => {
                // Ends the lease: otherwise the next attempt would wait until it expires.
                drop(self.inner.leases.leave(&lease).await);
                return Err(error);
            }
        };
        self.inner.members.send_replace(Arc::new(members));
        self.state().begin(LeaseTerm { lease, work, _renewal: renewal });
        Ok(())
    }

    /// Renews a lease. Returns when the lease or its work has ended: a renewal after that would only delay others.
    async fn renew(&self, lease: &NodeLease, work: &Lease) {
        let times = self.times();
        let mut pause = times.heartbeat;
        loop {
            tokio::select! {
                () = work.ended() => return,
                () = sleep(pause) => {}
            }
            let sent = work.now();
            pause = match self.inner.leases.renew(lease, times.lease).await {
                Ok(()) if work.renew(sent) => times.heartbeat,
                Ok(()) | Err(NodeError::Ended) => return,
                Err(error) => {
                    tracing::warn!(%error, "the lease was not renewed; the node retries");
                    times.tick()
                }
            };
        }
    }

    /// Reads nodes and shards in a loop, and follows the plan for them. Returns only an error that the node cannot recover from.
    async fn follow(&self, term: &LeaseTerm) -> Result<(), String> {
        let mut seen = SeenLsns::default();
        loop {
            self.forget_failed();
            if let Some(why) = self.state().failed_claim_error() {
                return Err(why);
            }
            // Collected before the rows: a shard that closes in between may have a newer watermark than its row.
            let mut taken = self.busy_shards();
            match self.inner.registry.members().await {
                Ok(members) => {
                    let alive = members.nodes.iter().filter(|node| node.alive).count();
                    self.inner.opener.set_live_nodes(u32::try_from(alive).unwrap_or(u32::MAX).max(1));
                    self.inner.live.store(alive.max(1), Ordering::Relaxed);
                    self.divide_slots();
                    self.inner.clock.set(members.time_ms);
                    let members = Arc::new(members);
                    self.inner.members.send_replace(Arc::clone(&members));
                    // Busy shards are collected again before any claim, because an open shard writes its own watermark.
                    taken.append(&mut self.busy_shards());
                    let changed = seen.changed(&members, &taken, self.times().heartbeat);
                    seen.record(self.inner.opener.remember(changed).await);
                    self.act(term, &members, &taken).await;
                }
                Err(error @ NodeError::Store(_)) => return Err(error.to_string()),
                Err(error) => tracing::warn!(%error, "cannot read the nodes of the database"),
            }
            sleep(self.times().tick()).await;
        }
    }

    /// Divides this node's part of the slots among its shards.
    fn divide_slots(&self) {
        let share = self.inner.options.slots.div_ceil(self.inner.live.load(Ordering::Relaxed));
        let open: Vec<Host> =
            self.state().shards.values().filter_map(HeldShard::open).map(|open| open.host.clone()).collect();
        let demands: Vec<_> = open.iter().map(|host| host.runtime().slot_demand()).collect();
        let [owned, interactive] = [0, 1].map(|pool| {
            let of_pool: Vec<_> = demands.iter().filter_map(|demand| demand.get(pool).copied()).collect();
            slots::divide(share, &of_pool)
        });
        for ((host, owned), interactive) in open.iter().zip(owned).zip(interactive) {
            host.runtime().bound_slots([owned, interactive]);
        }
    }

    async fn act(&self, term: &LeaseTerm, members: &Members, taken: &BTreeSet<String>) {
        let plan = plan(members, &term.lease, taken);
        let closing = self.state().shards.values().any(|slot| matches!(slot.phase, ShardPhase::Closing));
        for shard in plan.claim {
            self.claim(shard, term);
        }
        if !closing && let Some(shard) = self.least_busy(plan.hand_over).await {
            self.hand_over(shard);
        }
    }

    fn claim(&self, shard: String, term: &LeaseTerm) {
        {
            let mut state = self.state();
            if !state.is_due(&shard) {
                return;
            }
            state.shards.insert(shard.clone(), HeldShard { lease: term.lease.clone(), phase: ShardPhase::Opening });
        }
        let (node, term) = (self.clone(), term.clone());
        self.inner.tasks.spawn(async move {
            let address = node.inner.target.with_shard(&shard, &term.lease);
            let opened = node.inner.opener.open(address, term.work.clone()).await;
            if let Some(host) = node.serve_opened(&shard, &term, opened) {
                node.close(&shard, &term.lease, host).await;
            }
        });
    }

    /// Serves an opened shard. Returns its host if it must be closed: the lease has ended or the node shuts down.
    fn serve_opened(&self, shard: &str, term: &LeaseTerm, opened: Result<Host, NotOpened>) -> Option<Host> {
        let mut state = self.state();
        match opened {
            Ok(host) if state.is_current(term) && !self.inner.ends.is_cancelled() => {
                let router = host.router();
                let phase = ShardPhase::Open(ShardHost { host, router });
                state.clear_failure(shard);
                state.shards.insert(shard.to_owned(), HeldShard { lease: term.lease.clone(), phase });
                drop(state);
                self.divide_slots();
                tracing::info!(shard, "the shard is open");
                // Wakes requests that wait for the shard before the members are read again.
                self.inner.members.send_modify(|_| ());
                None
            }
            Ok(host) => Some(host),
            Err(NotOpened::Held(why)) => {
                state.remove(shard, &term.lease);
                tracing::info!(shard, why, "the shard cannot be claimed now; the node retries");
                None
            }
            Err(NotOpened::Refused(why)) => {
                state.remove(shard, &term.lease);
                tracing::error!(shard, why, "the shard is refused; the node ends");
                state.refused.get_or_insert(format!("{shard} is refused: {why}"));
                None
            }
            Err(NotOpened::Failed(why)) => {
                state.remove(shard, &term.lease);
                tracing::warn!(shard, why, "the shard was not opened; the node retries");
                state.record_failure(shard, why, self.times().tick());
                None
            }
        }
    }

    fn hand_over(&self, shard: String) {
        let (ShardHost { host, .. }, lease) = {
            let mut state = self.state();
            let Some(slot) = state.shards.get_mut(&shard) else { return };
            let Some(open) = slot.open().cloned() else { return };
            slot.phase = ShardPhase::Closing;
            (open, slot.lease.clone())
        };
        tracing::info!(shard, "the shard is handed over");
        let node = self.clone();
        self.inner.tasks.spawn(async move {
            node.close(&shard, &lease, host).await;
        });
    }

    /// Shuts a host down, which frees its shard.
    async fn close(&self, shard: &str, lease: &NodeLease, host: Host) {
        if host.shutdown(self.inner.options.grace).await.is_none() {
            tracing::warn!(shard, "a request still uses the shard after its close; the node releases its claim");
            if let Err(error) = self.inner.registry.give_up(shard, lease).await {
                tracing::warn!(shard, %error, "the shard becomes free when the lease of this node ends");
            }
        }
        self.state().remove(shard, lease);
    }

    /// Drops hosts whose journal failed. Their shards are claimed again by this or another node.
    fn forget_failed(&self) {
        let mut state = self.state();
        let poisoned =
            |slot: &HeldShard| slot.open().is_some_and(|open| open.host.runtime().journal().poisoned().is_some());
        let failed: Vec<String> =
            state.shards.iter().filter(|(_, slot)| poisoned(slot)).map(|(shard, _)| shard.clone()).collect();
        let dropped: Vec<HeldShard> = failed.iter().filter_map(|shard| state.shards.remove(shard)).collect();
        drop(state);
        for (shard, slot) in failed.iter().zip(dropped) {
            tracing::error!(shard, "the journal of the shard failed; the shard is claimed again");
            end_now(slot);
        }
    }

    /// Drops all shards without writing, since others may own them.
    fn fence(&self) {
        let (term, shards) = {
            let mut state = self.state();
            (state.term.take(), std::mem::take(&mut state.shards))
        };
        if let Some(LeaseTerm { lease, work, .. }) = term {
            work.end();
            tokio::spawn(self.clone().leave_lost(lease, work));
        }
        tracing::error!(
            shards = shards.len(),
            "the lease of this node has ended; its shards are dropped, and it joins again"
        );
        shards.into_values().for_each(end_now);
        self.inner.members.send_modify(|_| ());
    }
}
