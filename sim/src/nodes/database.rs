//! The database of the nodes: leases, claims and fenced writes, equivalent to the statements of the PostgreSQL engine.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

use subtend_journal::engine::{Engine as _, Group, GroupFrame, Payload};
use subtend_journal::memory::Memory;
use subtend_session::ids::{Lsn, SessionId};
use subtend_session::state::State;

use crate::lease::LeaseBug;

/// The id of one lease of a node. Ids are not reused.
pub(super) type LeaseId = u64;

/// Time after a renewal, by the clock of the database, in which no other node may claim the node's shards.
pub(super) const LEASE: Duration = Duration::from_secs(15);

#[derive(Debug)]
struct SimNode {
    lease: LeaseId,
    expires: Duration,
}

/// The claim of a process on a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ShardClaim {
    pub(super) owner: u64,
    pub(super) epoch: u64,
    pub(super) last: Lsn,
}

#[derive(Debug, Default)]
pub(super) struct SimShard {
    pub(super) memory: Memory,
    pub(super) lease: Option<LeaseId>,
    owner: u64,
    epoch: u64,
    states: BTreeMap<SessionId, State>,
}

/// A commit that may still arrive after its sender has abandoned the connection.
struct LateCommit {
    shard: usize,
    claim: ShardClaim,
    group: Group,
}

pub(super) struct Database {
    pub(super) now: Duration,
    pub(super) shards: Vec<SimShard>,
    bug: Option<LeaseBug>,
    nodes: BTreeMap<usize, SimNode>,
    late: Vec<LateCommit>,
    next_id: u64,
    /// Number of refused commits of former owners.
    pub(super) fenced: u64,
    /// Number of claims of shards that belonged to another lease.
    pub(super) takeovers: u64,
    pub(super) violation: Option<String>,
}

impl Database {
    pub(super) fn new(shards: usize, bug: Option<LeaseBug>) -> Self {
        Self {
            now: Duration::ZERO,
            shards: (0..shards).map(|_| SimShard::default()).collect(),
            bug,
            nodes: BTreeMap::new(),
            late: Vec::new(),
            next_id: 0,
            fenced: 0,
            takeovers: 0,
            violation: None,
        }
    }

    fn has_bug(&self, bug: LeaseBug) -> bool {
        self.bug == Some(bug)
    }

    fn new_id(&mut self) -> u64 {
        self.next_id = self.next_id.saturating_add(1);
        self.next_id
    }

    /// Records the first violation.
    pub(super) fn wrong(&mut self, what: String) {
        let at = self.now;
        self.violation.get_or_insert_with(|| format!("at {at:?}: {what}"));
    }

    pub(super) fn is_alive(&self, lease: LeaseId) -> bool {
        self.nodes.values().any(|node| node.lease == lease && node.expires > self.now)
    }

    /// Begins a lease, unless the lease of an earlier process of the node is still valid.
    pub(super) fn join(&mut self, node: usize, expires: Duration) -> Option<LeaseId> {
        if self.nodes.get(&node).is_some_and(|row| row.expires > self.now) {
            return None;
        }
        let lease = self.new_id();
        self.nodes.insert(node, SimNode { lease, expires });
        Some(lease)
    }

    /// Renews a lease. Returns false if it has ended.
    pub(super) fn renew(&mut self, lease: LeaseId, expires: Duration) -> bool {
        let now = self.now;
        let row = self.nodes.values_mut().find(|row| row.lease == lease && row.expires > now);
        row.map(|row| row.expires = expires).is_some()
    }

    pub(super) fn leave(&mut self, lease: LeaseId) {
        self.nodes.retain(|_, row| row.lease != lease);
    }

    /// Returns the shards that the node with `lease` may claim, except those in `open`.
    pub(super) fn claimable(&self, lease: LeaseId, open: &[usize]) -> Vec<usize> {
        let free = |(at, row): &(usize, &SimShard)| !open.contains(at) && self.is_free(row, lease);
        self.shards.iter().enumerate().filter(free).map(|(at, _)| at).collect()
    }

    fn is_free(&self, row: &SimShard, lease: LeaseId) -> bool {
        match row.lease {
            Some(own) if own == lease => !self.has_bug(LeaseBug::OwnClaimForgotten),
            Some(other) => self.has_bug(LeaseBug::TakenBeforeExpiry) || !self.is_alive(other),
            None => true,
        }
    }

    pub(super) fn claim(&mut self, shard: usize, lease: LeaseId) -> Option<ShardClaim> {
        let free = self.is_alive(lease) && self.shards.get(shard).is_some_and(|row| self.is_free(row, lease));
        let owner = self.new_id();
        let row = self.shards.get_mut(shard).filter(|_| free)?;
        self.takeovers = self.takeovers.saturating_add(u64::from(row.lease.is_some_and(|before| before != lease)));
        (row.lease, row.owner, row.epoch) = (Some(lease), owner, row.epoch.saturating_add(1));
        let last = row.memory.last_lsn().unwrap_or_default();
        Some(ShardClaim { owner, epoch: row.epoch, last })
    }

    /// Claims the next epoch for the owner of the current epoch. Returns the claim with the end of the log.
    pub(super) fn reclaim(&mut self, shard: usize, owner: u64) -> Option<ShardClaim> {
        let row = self.shards.get_mut(shard).filter(|row| row.owner == owner)?;
        row.epoch = row.epoch.saturating_add(1);
        Some(ShardClaim { owner, epoch: row.epoch, last: row.memory.last_lsn().unwrap_or_default() })
    }

    /// Releases a shard so that other nodes may claim it.
    pub(super) fn release(&mut self, shard: usize, owner: u64) {
        if let Some(row) = self.shards.get_mut(shard).filter(|row| row.owner == owner) {
            row.lease = None;
        }
    }

    /// Writes a group under a claim. Returns false if the claim is fenced.
    pub(super) fn commit(&mut self, shard: usize, claim: ShardClaim, group: Group) -> bool {
        let (no_fence, no_lsn) = (self.has_bug(LeaseBug::NoFence), self.has_bug(LeaseBug::FenceWithoutLsn));
        let Some(row) = self.shards.get_mut(shard) else { return false };
        let last = row.memory.last_lsn().unwrap_or_default();
        let valid = row.epoch == claim.epoch && (no_lsn || last == claim.last);
        if !valid && !no_fence {
            self.fenced = self.fenced.saturating_add(1);
            return false;
        }
        let kept =
            row.check_group(last, &group).and_then(|()| row.memory.write(group).map_err(|error| error.to_string()));
        if let Err(why) = kept {
            self.wrong(format!("the log of shard {shard} is damaged: {why}"));
        }
        true
    }

    pub(super) fn delay(&mut self, shard: usize, claim: ShardClaim, group: Group) {
        self.late.push(LateCommit { shard, claim, group });
    }

    pub(super) fn deliver_late(&mut self) {
        if !self.late.is_empty() {
            let LateCommit { shard, claim, group } = self.late.remove(0);
            self.commit(shard, claim, group);
        }
    }

    /// Judges an effect that begins under `lease`. The lease must be valid and own the shard.
    pub(super) fn judge_effect(&mut self, shard: usize, lease: LeaseId, what: &str) {
        let owner = self.shards.get(shard).and_then(|row| row.lease);
        if owner != Some(lease) || !self.is_alive(lease) {
            self.wrong(format!("{what} of shard {shard} began under lease {lease}; the owner is lease {owner:?}"));
        }
    }
}

impl SimShard {
    /// Checks a group: its LSNs have no gap, and the sequence numbers of each session continue without a gap.
    fn check_group(&mut self, last: Lsn, group: &Group) -> Result<(), String> {
        let mut next = last.0;
        for frame in &group.frames {
            next = next.saturating_add(1);
            if frame.lsn.0 != next {
                return Err(format!("LSN {} follows LSN {}", frame.lsn, next.saturating_sub(1)));
            }
            self.check_frame(frame)?;
        }
        Ok(())
    }

    fn check_frame(&mut self, frame: &GroupFrame) -> Result<(), String> {
        let Payload::Records(records) = &frame.payload else { return Ok(()) };
        match self.states.entry(frame.session) {
            Entry::Occupied(state) => {
                let state = state.into_mut();
                records.iter().try_for_each(|record| state.follow(record)).map_err(|error| error.to_string())
            }
            Entry::Vacant(new) => {
                new.insert(State::fold(frame.session, records).map_err(|error| error.to_string())?);
                Ok(())
            }
        }
    }

    /// Returns whether no shard has a run in flight or an outbox row.
    pub(super) fn is_quiet(&self) -> bool {
        let (mut inflight, mut owed) = (0_u32, 0_u32);
        let scanned = self.memory.inflights(&mut |_, _| {
            inflight = inflight.saturating_add(1);
            std::ops::ControlFlow::Continue(())
        });
        let listed = self.memory.outbox(None, &mut |_| {
            owed = owed.saturating_add(1);
            std::ops::ControlFlow::Continue(())
        });
        (inflight, owed) == (0, 0) && scanned.is_ok() && listed.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn database() -> (Database, LeaseId, LeaseId) {
        let mut database = Database::new(1, None);
        let (one, two) = (database.join(0, LEASE), database.join(1, LEASE));
        (database, one.expect("a lease"), two.expect("a lease"))
    }

    #[test]
    fn shard_of_a_live_lease_is_not_claimed_by_another() {
        let (mut database, one, two) = database();
        assert!(database.claim(0, one).is_some());
        assert_eq!((database.claim(0, two), database.claimable(two, &[])), (None, vec![]));
        database.now = LEASE;
        assert!(database.join(1, LEASE * 2).is_some_and(|two| database.claim(0, two).is_some()));
        assert_eq!((database.takeovers, database.renew(one, LEASE * 2)), (1, false));
    }

    #[test]
    fn commit_under_a_former_claim_is_refused() {
        let (mut database, one, _) = database();
        let first = database.claim(0, one).expect("a claim");
        let second = database.reclaim(0, first.owner).expect("the owner claims again");
        let empty = || Group { frames: Vec::new() };
        assert_eq!((database.commit(0, first, empty()), database.commit(0, second, empty())), (false, true));
        assert_eq!((database.fenced, database.reclaim(0, 99)), (1, None));
    }

    #[test]
    fn node_has_one_lease_at_a_time() {
        let (mut database, one, _) = database();
        assert_eq!(database.join(0, LEASE), None);
        database.leave(one);
        assert!(database.join(0, LEASE).is_some_and(|again| again != one));
    }
}
