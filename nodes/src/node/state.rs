//! State of a node's shards: open, being opened or closed, or failed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use axum::Router;
use subtend_host::Host;
use subtend_journal::postgres::nodes::NodeLease;
use subtend_session::index::Inflight;
use subtend_session::state::Phase;
use tokio::time::Instant;

use super::LeaseTerm;

/// Number of attempts to open a shard, over about two minutes, before the node ends and leaves the shard to others.
const MAX_ATTEMPTS: u32 = 7;

/// A host of one shard.
#[derive(Clone)]
pub(crate) struct ShardHost {
    pub(crate) host: Host,
    pub(crate) router: Router,
}

/// A shard of this node, and the lease under which it was claimed.
pub(super) struct HeldShard {
    pub(super) lease: NodeLease,
    pub(super) phase: ShardPhase,
}

pub(super) enum ShardPhase {
    Opening,
    Open(ShardHost),
    Closing,
}

/// Failed attempts to open a shard.
struct OpenFailure {
    /// Number of consecutive failures.
    count: u32,
    /// Time of the next attempt.
    due: Instant,
    why: String,
}

#[derive(Default)]
pub(super) struct NodeState {
    pub(super) term: Option<LeaseTerm>,
    pub(super) shards: BTreeMap<String, HeldShard>,
    failures: BTreeMap<String, OpenFailure>,
}

impl NodeState {
    pub(super) fn open(&self) -> BTreeSet<String> {
        self.shards.iter().filter(|(_, slot)| slot.open().is_some()).map(|(shard, _)| shard.clone()).collect()
    }

    /// Returns whether a shard may be opened now.
    pub(super) fn is_due(&self, shard: &str) -> bool {
        !self.shards.contains_key(shard) && self.failures.get(shard).is_none_or(|failure| Instant::now() >= failure.due)
    }

    /// Records that a shard was not opened. The delay doubles with each attempt.
    pub(super) fn record_failure(&mut self, shard: &str, why: String, tick: Duration) {
        let count = self.failures.get(shard).map_or(1, |failure| failure.count.saturating_add(1));
        let due = Instant::now() + tick * 2_u32.saturating_pow(count.min(6));
        self.failures.insert(shard.to_owned(), OpenFailure { count, due, why });
    }

    pub(super) fn clear_failure(&mut self, shard: &str) {
        self.failures.remove(shard);
    }

    /// Begins a lease. Failed shards are retried at once.
    pub(super) fn begin(&mut self, term: LeaseTerm) {
        self.term = Some(term);
        self.failures.clear();
    }

    /// Returns an error for a shard whose attempts all failed. Another node should try then.
    pub(super) fn failed_claim_error(&self) -> Option<String> {
        let refused = self.failures.iter().find(|(_, failure)| failure.count >= MAX_ATTEMPTS);
        refused.map(|(shard, failure)| format!("{shard} was not opened after {MAX_ATTEMPTS} attempts: {}", failure.why))
    }

    /// Removes a shard, unless it was claimed again under another lease.
    pub(super) fn remove(&mut self, shard: &str, lease: &NodeLease) {
        if self.shards.get(shard).is_some_and(|slot| slot.lease == *lease) {
            self.shards.remove(shard);
        }
    }
}

impl HeldShard {
    pub(super) fn open(&self) -> Option<&ShardHost> {
        match &self.phase {
            ShardPhase::Open(open) => Some(open),
            ShardPhase::Opening | ShardPhase::Closing => None,
        }
    }
}

/// Ends the event streams of a lost shard, and drops its host on another thread, because its journal may wait for a write.
pub(super) fn end_now(slot: HeldShard) {
    if let ShardPhase::Open(open) = slot.phase {
        open.host.ends().cancel();
        tokio::task::spawn_blocking(move || drop(open));
    }
}

/// Returns whether a run continues by itself. A held run waits for an input.
pub(super) fn is_busy(row: &Inflight) -> bool {
    match row.state {
        Phase::HeldInterrupted | Phase::HeldOutOfTurns | Phase::Quiet => false,
        Phase::Queued | Phase::Working | Phase::WaitingMidTurn | Phase::WaitingAtRest | Phase::Closing => true,
    }
}
