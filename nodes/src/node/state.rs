//! State of a node's shards: open, being opened or closed, or failed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use axum::Router;
use subtend_host::Host;
use subtend_journal::postgres::nodes::NodeLease;
use subtend_session::state::Phase;
use tokio::time::Instant;

use super::LeaseTerm;

/// Number of attempts to open a shard, over about two minutes, before the node ends and leaves the shard to others.
const MAX_ATTEMPTS: u32 = 7;

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

struct OpenFailure {
    /// Number of consecutive failures.
    count: u32,
    due: Instant,
    why: String,
}

#[derive(Default)]
pub(super) struct NodeState {
    pub(super) term: Option<LeaseTerm>,
    pub(super) shards: BTreeMap<String, HeldShard>,
    failures: BTreeMap<String, OpenFailure>,
    /// The shard that this node cannot open, with the reason.
    pub(super) refused: Option<String>,
}

impl NodeState {
    pub(super) fn open(&self) -> BTreeSet<String> {
        self.shards.iter().filter(|(_, held)| held.open().is_some()).map(|(shard, _)| shard.clone()).collect()
    }

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

    /// Returns whether `term` is the current lease, and work may start under it.
    pub(super) fn is_current(&self, term: &LeaseTerm) -> bool {
        self.term.as_ref().is_some_and(|now| now.lease == term.lease) && term.work.is_valid()
    }

    /// Begins a lease. Failed shards are retried at once.
    pub(super) fn begin(&mut self, term: LeaseTerm) {
        self.term = Some(term);
        self.failures.clear();
    }

    /// Returns an error if this node cannot open a shard, or failed in all attempts. Another node should then try.
    pub(super) fn failed_claim_error(&self) -> Option<String> {
        let failed = self.failures.iter().find(|(_, failure)| failure.count >= MAX_ATTEMPTS);
        let failed = failed
            .map(|(shard, failure)| format!("{shard} was not opened after {MAX_ATTEMPTS} attempts: {}", failure.why));
        self.refused.clone().or(failed)
    }

    /// Removes a shard, unless it was claimed again under another lease.
    pub(super) fn remove(&mut self, shard: &str, lease: &NodeLease) {
        if self.shards.get(shard).is_some_and(|held| held.lease == *lease) {
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
pub(super) fn end_now(held: HeldShard) {
    if let ShardPhase::Open(open) = held.phase {
        open.host.ends().cancel();
        tokio::task::spawn_blocking(move || drop(open));
    }
}

/// Returns whether a run continues by itself. A held run waits for an input.
pub(super) fn is_busy(phase: Phase) -> bool {
    match phase {
        Phase::HeldInterrupted | Phase::HeldOutOfTurns | Phase::Quiet => false,
        Phase::Queued | Phase::Working | Phase::WaitingMidTurn | Phase::WaitingAtRest | Phase::Closing => true,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use subtend_supervision::Lease;

    use super::super::AbortOnDrop;
    use super::*;

    const TICK: Duration = Duration::from_secs(1);

    fn held(lease: &str, phase: ShardPhase) -> HeldShard {
        HeldShard { lease: NodeLease::with_id(lease), phase }
    }

    fn term(lease: &str, work: Lease) -> LeaseTerm {
        let renewal = Arc::new(AbortOnDrop(tokio::spawn(async {}).abort_handle()));
        LeaseTerm { lease: NodeLease::with_id(lease), work, _renewal: renewal }
    }

    #[tokio::test(start_paused = true)]
    async fn d2_failed_shard_is_due_after_a_longer_delay_each_time() {
        let mut state = NodeState::default();
        for seconds in [2, 4, 8, 16, 32, 64, 64] {
            assert!(state.is_due("s1"));
            state.record_failure("s1", "no disk".to_owned(), TICK);
            tokio::time::advance(Duration::from_secs(seconds) - Duration::from_millis(1)).await;
            assert_eq!((state.is_due("s1"), state.is_due("s2")), (false, true), "before {seconds} s");
            tokio::time::advance(Duration::from_millis(1)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn d2_shard_that_failed_seven_times_is_an_error() {
        let mut state = NodeState::default();
        for attempt in 1..=7 {
            state.record_failure("s1", format!("no disk, {attempt}"), TICK);
            state.record_failure("s2", "no disk".to_owned(), TICK);
            state.clear_failure("s2");
            let error = (attempt == 7).then(|| "s1 was not opened after 7 attempts: no disk, 7".to_owned());
            assert_eq!(state.failed_claim_error(), error, "attempt {attempt}");
        }
        state.begin(term("a", Lease::default()));
        assert_eq!((state.failed_claim_error(), state.is_due("s1")), (None, true), "another lease");
        state.refused = Some("s1 is refused: it is behind".to_owned());
        assert_eq!(state.failed_claim_error(), state.refused, "the first attempt is enough");
    }

    #[test]
    fn d2_shard_of_a_later_lease_is_not_removed() {
        let mut state = NodeState::default();
        state.shards.insert("s1".to_owned(), held("b", ShardPhase::Opening));
        state.remove("s1", &NodeLease::with_id("a"));
        assert!(state.shards.contains_key("s1") && !state.is_due("s1"));
        state.remove("s1", &NodeLease::with_id("b"));
        assert!(!state.shards.contains_key("s1") && state.is_due("s1"));
    }

    #[test]
    fn d2_shard_that_opens_or_closes_is_not_open() {
        let mut state = NodeState::default();
        state.shards.insert("s1".to_owned(), held("a", ShardPhase::Opening));
        state.shards.insert("s2".to_owned(), held("a", ShardPhase::Closing));
        assert_eq!(state.open(), BTreeSet::new());
    }

    /// Only a shard opened under the current lease is served.
    #[tokio::test(start_paused = true)]
    async fn d2_lease_is_current_until_its_work_ends() {
        let (mut state, work) = (NodeState::default(), Lease::default());
        let first = term("a", work.clone());
        assert!(!state.is_current(&first), "the lease has not begun");
        state.begin(first.clone());
        assert!(state.is_current(&first) && !state.is_current(&term("b", work)));
        let start = Instant::now();
        let limited = term("c", Lease::new(TICK, move || start.elapsed()));
        assert!(limited.work.renew(limited.work.now()));
        state.begin(limited.clone());
        assert_eq!((state.is_current(&first), state.is_current(&limited)), (false, true));
        tokio::time::advance(TICK).await;
        assert!(!state.is_current(&limited));
    }

    #[test]
    fn d7_runs_that_wait_for_an_input_are_not_busy() {
        let phases = [
            Phase::Queued,
            Phase::Working,
            Phase::WaitingMidTurn,
            Phase::WaitingAtRest,
            Phase::HeldInterrupted,
            Phase::HeldOutOfTurns,
            Phase::Closing,
            Phase::Quiet,
        ];
        assert_eq!(phases.map(is_busy), [true, true, true, true, false, false, true, false]);
    }
}
