//! The state that all nodes of a simulation share: the database, time, random numbers, and the answers to clients.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use subtend_invariants::observed::KeyedCommand;
use subtend_session::ids::SessionId;
use subtend_tools::tool::ToolKey;
use tokio::time::Instant;

use super::database::{Database, LeaseId};
use super::{NodesPlan, NodesReport};
use crate::lease::LeaseBug;
use crate::rng::SeededRng;

pub(super) const SHARDS: usize = 2;

/// Maximum time for which one node runs alone.
pub(super) const SLICE: Duration = Duration::from_millis(100);

/// Rate of a node's clock, in thousandths of the database's.
pub(super) type Rate = u64;

pub(super) const TRUE_RATE: Rate = 1_000;

/// A command with an idempotency key, which can be sent to any node that has the shard.
#[derive(Clone, Debug)]
pub(super) struct Command {
    pub(super) shard: usize,
    pub(super) session: SessionId,
    pub(super) text: String,
}

#[derive(Debug, Default)]
pub(super) struct ClientState {
    /// Sessions that accepted an input, with their shards.
    pub(super) sessions: Vec<(usize, SessionId)>,
    /// Commands without a reply.
    pub(super) pending: Vec<Command>,
    pub(super) answered: Vec<KeyedCommand>,
    pub(super) sent: u64,
}

/// The period of simulated time in which one node runs.
#[derive(Clone, Copy, Debug)]
struct Slice {
    starts: Duration,
    /// The node's time at the start of the slice; `None` while no node runs.
    began: Option<Instant>,
    rate: Rate,
}

pub(super) struct NodesWorld {
    pub(super) plan: NodesPlan,
    pub(super) rng: SeededRng,
    calm: AtomicBool,
    database: Mutex<Database>,
    slice: Mutex<Slice>,
    clients: Mutex<ClientState>,
    report: Mutex<NodesReport>,
    effects: Mutex<BTreeSet<ToolKey>>,
    starts: Mutex<u64>,
    /// Nodes that are paused at the end of their slice.
    stopping: Mutex<BTreeSet<usize>>,
}

impl NodesWorld {
    pub(super) fn new(plan: NodesPlan) -> Arc<Self> {
        Arc::new(Self {
            plan,
            rng: SeededRng::new(plan.seed),
            calm: AtomicBool::default(),
            database: Mutex::new(Database::new(SHARDS, plan.bug)),
            slice: Mutex::new(Slice { starts: Duration::ZERO, began: None, rate: TRUE_RATE }),
            clients: Mutex::default(),
            report: Mutex::default(),
            effects: Mutex::default(),
            starts: Mutex::default(),
            stopping: Mutex::default(),
        })
    }

    pub(super) fn has_bug(&self, bug: LeaseBug) -> bool {
        self.plan.bug == Some(bug)
    }

    /// Begins a slice of a node at simulated time `starts`. Called inside the node's runtime.
    pub(super) fn begin_slice(&self, starts: Duration, rate: Rate) {
        *lock(&self.slice) = Slice { starts, began: Some(Instant::now()), rate };
    }

    /// Ends the slice of a node. Simulated time does not advance until the next slice.
    pub(super) fn end_slice(&self, ends: Duration) {
        *lock(&self.slice) = Slice { starts: ends, began: None, rate: TRUE_RATE };
    }

    /// Returns the simulated time, which is the time of the database.
    pub(super) fn now(&self) -> Duration {
        let slice = *lock(&self.slice);
        let local = slice.began.map_or(Duration::ZERO, |began| began.elapsed());
        let passed = u64::try_from(local.as_micros()).unwrap_or(u64::MAX).saturating_mul(TRUE_RATE) / slice.rate.max(1);
        slice.starts.saturating_add(Duration::from_micros(passed))
    }

    /// Returns the database, whose clock never goes back, although nodes run the same slice one after the other.
    pub(super) fn database(&self) -> MutexGuard<'_, Database> {
        let now = self.now();
        let mut database = lock(&self.database);
        database.now = database.now.max(now);
        database
    }

    pub(super) fn clients(&self) -> MutexGuard<'_, ClientState> {
        lock(&self.clients)
    }

    pub(super) fn report(&self) -> MutexGuard<'_, NodesReport> {
        lock(&self.report)
    }

    /// Returns whether faults and new commands have stopped.
    pub(super) fn is_calm(&self) -> bool {
        self.calm.load(Ordering::Relaxed)
    }

    pub(super) fn calm_down(&self) {
        self.calm.store(true, Ordering::Relaxed);
    }

    /// Draws whether a fault occurs now, with a probability of 1 in `of`.
    pub(super) fn draw_fault(&self, of: u64) -> bool {
        self.rng.one_in(of) && !self.is_calm()
    }

    /// Pauses a node at the end of its slice.
    pub(super) fn stop_soon(&self, node: usize) {
        lock(&self.stopping).insert(node);
    }

    pub(super) fn must_stop(&self, node: usize) -> bool {
        lock(&self.stopping).remove(&node) || self.draw_fault(400)
    }

    /// Returns the next number for a start of a runtime. It seeds the ids of that runtime.
    pub(super) fn next_start(&self) -> u64 {
        let mut starts = lock(&self.starts);
        *starts = starts.saturating_add(1);
        *starts
    }

    /// Records a violation if a call starts without its shard's lease, or is not the first with its `once_key`.
    pub(super) fn judge_call(&self, shard: usize, lease: LeaseId, what: &str, once_key: Option<ToolKey>) {
        let mut database = self.database();
        database.judge_effect(shard, lease, what);
        self.trace(|| format!("shard {shard}, lease {lease}: {what}"));
        if let Some(key) = once_key
            && !lock(&self.effects).insert(key)
        {
            database.wrong(format!("{what} of shard {shard} was repeated: {key:?}"));
        }
        drop(database);
        self.report().effects += 1;
    }

    pub(super) fn trace(&self, what: impl FnOnce() -> String) {
        if self.plan.trace {
            eprintln!("{:9} {}", self.now().as_millis(), what());
        }
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
