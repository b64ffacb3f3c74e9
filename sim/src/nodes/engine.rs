//! The engine of a claimed shard: commits and their replies may be lost, late or repeated.

use std::sync::{Arc, Mutex};

use subtend_journal::engine::{Group, Result};
use subtend_journal::error::EngineError;
use subtend_journal::memory::Memory;
use subtend_session::ids::Lsn;

use super::database::ShardClaim;
use super::world::{NodesWorld, lock};
use crate::lease::LeaseBug;
use crate::storage::Storage;

/// A claimed shard, written under the claim's epoch.
pub(super) struct ClaimedShard {
    world: Arc<NodesWorld>,
    shard: usize,
    memory: Memory,
    claim: Mutex<ShardClaim>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CommitFate {
    Answered,
    /// The commit is stored, and its reply is lost.
    ReplyLost,
    /// The commit never arrives.
    RequestLost,
    /// The commit arrives after its sender has given up, unless it was fenced meanwhile.
    Late,
    /// The network delivers the commit twice.
    Repeated,
}

impl ClaimedShard {
    pub(super) fn new(world: &Arc<NodesWorld>, shard: usize, claim: ShardClaim) -> Self {
        let memory = world.database().shards.get(shard).map(|row| row.memory.clone()).unwrap_or_default();
        Self { world: Arc::clone(world), shard, memory, claim: Mutex::new(claim) }
    }

    fn fenced(&self) -> EngineError {
        EngineError::Fenced { shard: self.shard.to_string() }
    }

    fn draw(&self) -> CommitFate {
        let world = &self.world;
        if !world.draw_fault(25) {
            return CommitFate::Answered;
        }
        let fates = [
            CommitFate::ReplyLost,
            CommitFate::ReplyLost,
            CommitFate::RequestLost,
            CommitFate::Late,
            CommitFate::Repeated,
        ];
        world.rng.pick(&fates).unwrap_or(CommitFate::Answered)
    }

    /// Sends a commit once. Returns `None` if no reply arrives, otherwise whether it was stored.
    fn attempt(&self, claim: ShardClaim, group: Group) -> Option<bool> {
        let (fate, mut database) = (self.draw(), self.world.database());
        match fate {
            CommitFate::Answered => return Some(database.commit(self.shard, claim, group)),
            CommitFate::Repeated => {
                database.delay(self.shard, claim, copy_group(&group));
                return Some(database.commit(self.shard, claim, group));
            }
            CommitFate::ReplyLost => _ = database.commit(self.shard, claim, group),
            CommitFate::Late => database.delay(self.shard, claim, group),
            CommitFate::RequestLost => {}
        }
        drop(database);
        self.world.report().lost_replies += 1;
        None
    }
}

fn copy_group(group: &Group) -> Group {
    Group { frames: group.frames.clone() }
}

impl Storage for ClaimedShard {
    fn memory(&self) -> Memory {
        self.memory.clone()
    }

    /// Stores a group like the PostgreSQL engine. If a commit gets no reply, claims the next epoch, which fences the commit.
    /// The end of the log then shows whether the commit was stored.
    fn store(&self, group: Group) -> Result<()> {
        let to = group.last().unwrap_or_default();
        let mut claim = lock(&self.claim);
        loop {
            let stored = self.attempt(*claim, copy_group(&group));
            if stored == Some(true) || (stored.is_none() && self.world.has_bug(LeaseBug::LostTakenAsStored)) {
                claim.last = to;
                return Ok(());
            }
            let before = claim.last;
            let reclaimed = match stored {
                Some(_) => None,
                None => self.world.database().reclaim(self.shard, claim.owner),
            };
            *claim = reclaimed.ok_or_else(|| self.fenced())?;
            if self.world.has_bug(LeaseBug::ResentUnread) {
                continue;
            }
            if claim.last == to && to > before {
                return Ok(());
            }
            if claim.last != before || to == Lsn::default() {
                return Err(self.fenced());
            }
        }
    }
}
