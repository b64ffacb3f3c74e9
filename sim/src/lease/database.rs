//! The database: leases that expire by its own clock, claims of shards, and commits. Each request is one atomic statement.

use super::{LEASE, LeaseBug};

/// A process of a node. Each process of the node has its own incarnation number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeProcess {
    pub node: usize,
    pub no: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LeaseRequest {
    /// Renews the lease. `age` is the number of ticks of the sender's clock since it sent the request.
    Renew {
        age: u8,
    },
    Take,
    /// Increments the shard's last LSN.
    Commit {
        epoch: u8,
        last: u8,
        group: u8,
    },
    Reclaim,
    Leave,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LeaseReply {
    Renewed { age: u8 },
    Expelled,
    Claimed { epoch: u8, last: u8 },
    Committed,
    Refused,
    Left,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MessageBody {
    Request(LeaseRequest),
    Reply(LeaseReply),
}

/// A message between a process and the database, with any delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseMessage {
    pub of: NodeProcess,
    /// Shard of the message; `None` for the lease of the node.
    pub shard: Option<usize>,
    pub body: MessageBody,
    /// True if the sender stopped waiting, so that the reply is dropped.
    pub late: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct NodeRow {
    incarnation: u8,
    /// Ticks until the lease expires.
    left: u8,
    /// True if this incarnation left or a shard was taken from it. It therefore cannot renew its lease.
    ended: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct StoredGroup {
    pub(super) lsn: u8,
    pub(super) group: u8,
    pub(super) epoch: u8,
    pub(super) by: NodeProcess,
    /// True if the writer had the shard.
    pub(super) held: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ShardRow {
    pub(super) epoch: u8,
    pub(super) last: u8,
    pub(super) holder: Option<NodeProcess>,
    /// Groups in the order of their commits. The unique index on LSNs is not modelled.
    pub(super) log: Vec<StoredGroup>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Database {
    nodes: Vec<NodeRow>,
    pub(super) shards: Vec<ShardRow>,
}

impl Database {
    /// Returns a database of two nodes. The first owns every shard, and each shard has one group.
    pub(super) fn new(shards: u8) -> Self {
        let nodes = vec![NodeRow { incarnation: 1, left: LEASE, ended: false }; 2];
        let by = NodeProcess { node: 0, no: 1 };
        let log = vec![StoredGroup { lsn: 1, group: 0, epoch: 1, by, held: true }];
        let shard = ShardRow { epoch: 1, last: 1, holder: Some(by), log };
        Self { nodes, shards: vec![shard; usize::from(shards)] }
    }

    pub(super) fn tick(&mut self) {
        self.nodes.iter_mut().for_each(|row| row.left = row.left.saturating_sub(1));
    }

    /// Registers a new incarnation of a node, in place of the former one.
    pub(super) fn join(&mut self, me: NodeProcess) {
        if let Some(row) = self.nodes.get_mut(me.node) {
            *row = NodeRow { incarnation: me.no, left: LEASE, ended: false };
        }
    }

    pub(super) fn is_alive(&self, of: NodeProcess) -> bool {
        self.nodes.get(of.node).is_some_and(|row| row.incarnation == of.no && row.left > 0 && !row.ended)
    }

    pub(super) fn holds(&self, me: NodeProcess, shard: usize) -> bool {
        self.shards.get(shard).is_some_and(|row| row.holder == Some(me))
    }

    /// Returns whether a late message can still change something. A message of an old epoch or incarnation cannot.
    pub(super) fn may_change(&self, message: &LeaseMessage) -> bool {
        match (message.body, message.shard.and_then(|shard| self.shards.get(shard))) {
            (MessageBody::Request(LeaseRequest::Commit { epoch, .. }), Some(row)) => epoch == row.epoch,
            _ => self.nodes.get(message.of.node).is_some_and(|row| row.incarnation == message.of.no && !row.ended),
        }
    }

    /// Returns whether `me` may take the shard: also its own again, because the reply to its first claim may be lost.
    pub(super) fn grants(&self, me: NodeProcess, shard: usize, bug: Option<LeaseBug>) -> bool {
        let Some(row) = self.shards.get(shard) else { return false };
        let free = match row.holder {
            None => true,
            Some(holder) if holder == me => bug != Some(LeaseBug::OwnClaimForgotten),
            Some(holder) => !self.is_alive(holder) || bug == Some(LeaseBug::TakenBeforeExpiry),
        };
        free && self.is_alive(me)
    }

    pub(super) fn answer(
        &mut self,
        from: NodeProcess,
        shard: usize,
        request: LeaseRequest,
        bug: Option<LeaseBug>,
    ) -> Option<LeaseReply> {
        let granted = self.grants(from, shard, bug);
        let row = self.shards.get_mut(shard)?;
        let reply = match request {
            LeaseRequest::Renew { age } => {
                let node = self.nodes.get_mut(from.node)?;
                let ended = node.ended && bug != Some(LeaseBug::RenewedAfterTakeover);
                if node.incarnation != from.no || ended {
                    return Some(LeaseReply::Expelled);
                }
                // The sender's clock may be two ticks behind.
                node.left = if bug == Some(LeaseBug::RenewedByLocalClock) { LEASE.saturating_sub(2) } else { LEASE };
                node.ended = false;
                LeaseReply::Renewed { age }
            }
            LeaseRequest::Take if granted => {
                let former = row.holder.replace(from).filter(|former| *former != from);
                row.epoch = row.epoch.saturating_add(1);
                if let Some(former) = former {
                    let node = self.nodes.get_mut(former.node)?;
                    node.ended = node.ended || node.incarnation == former.no;
                }
                LeaseReply::Claimed { epoch: row.epoch, last: row.last }
            }
            LeaseRequest::Commit { epoch, last, group } => {
                let epoch_fits =
                    epoch == row.epoch || matches!(bug, Some(LeaseBug::NoFence | LeaseBug::FenceWithoutEpoch));
                let last_fits = last == row.last || matches!(bug, Some(LeaseBug::NoFence | LeaseBug::FenceWithoutLsn));
                if !epoch_fits || !last_fits {
                    return Some(LeaseReply::Refused);
                }
                row.last = last.saturating_add(1);
                let held = row.holder == Some(from);
                row.log.push(StoredGroup { lsn: row.last, group, epoch: row.epoch, by: from, held });
                LeaseReply::Committed
            }
            LeaseRequest::Reclaim if row.holder == Some(from) || bug == Some(LeaseBug::ReclaimedByAnyone) => {
                row.epoch = row.epoch.saturating_add(1);
                LeaseReply::Claimed { epoch: row.epoch, last: row.last }
            }
            LeaseRequest::Leave => {
                let node = self.nodes.get_mut(from.node)?;
                node.ended = node.ended || node.incarnation == from.no || bug == Some(LeaseBug::LeftByName);
                LeaseReply::Left
            }
            LeaseRequest::Take | LeaseRequest::Reclaim => LeaseReply::Refused,
        };
        Some(reply)
    }
}
