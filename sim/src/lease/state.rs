//! The state of the nodes, the messages between them and the database, and the checked properties.

use super::database::{Database, LeaseMessage, LeaseRequest, MessageBody, NodeProcess};
use super::{LEASE, LeaseModel, LeaseSize};

/// A pending request of an owner, with its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Awaiting {
    None,
    Commit(u8),
    /// A commit whose reply is lost.
    Lost(u8),
    Reclaim(u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Ownership {
    None,
    Taking,
    Held {
        epoch: u8,
        last: u8,
        wait: Awaiting,
        /// True if the lease was checked for an effect that has not started.
        checked: bool,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ModelNode {
    pub(super) incarnation: u8,
    pub(super) up: bool,
    pub(super) paused: bool,
    /// Ticks of the node's clock since it sent its last successful renewal.
    pub(super) age: u8,
    /// Ticks since the node's clock last skipped one, counted up to 2. A clock skips at most one of three ticks.
    pub(super) steady: u8,
    pub(super) owns: Vec<Ownership>,
}

impl ModelNode {
    pub(super) fn is_working(&self) -> bool {
        self.up && !self.paused
    }

    pub(super) fn drop_all(&mut self) {
        self.owns.fill(Ownership::None);
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LeaseState {
    pub(super) database: Database,
    pub(super) nodes: Vec<ModelNode>,
    /// The messages in flight: a sorted multiset.
    pub(super) flight: Vec<LeaseMessage>,
    pub(super) left: LeaseSize,
    pub(super) issued: u8,
    /// Acknowledged groups: shard, LSN, group.
    pub(super) acked: Vec<(usize, u8, u8)>,
    /// For each shard, the consecutive ticks without an owner while some node runs. Reset when a process pauses.
    pub(super) unserved: Vec<u8>,
    pub(super) wrong: Option<&'static str>,
}

impl LeaseState {
    pub(super) fn new(size: LeaseSize) -> Self {
        let shards = usize::from(size.shards);
        let held = Ownership::Held { epoch: 1, last: 1, wait: Awaiting::None, checked: false };
        let node =
            |owns| ModelNode { incarnation: 1, up: true, paused: false, age: 0, steady: 2, owns: vec![owns; shards] };
        Self {
            database: Database::new(size.shards),
            nodes: vec![node(held), node(Ownership::None)],
            flight: Vec::new(),
            left: size,
            issued: 0,
            acked: Vec::new(),
            unserved: vec![0; shards],
            wrong: None,
        }
    }

    pub(super) fn me(&self, n: usize) -> NodeProcess {
        NodeProcess { node: n, no: self.nodes.get(n).map_or(0, |node| node.incarnation) }
    }

    pub(super) fn own(&mut self, n: usize, shard: usize) -> Option<&mut Ownership> {
        self.nodes.get_mut(n)?.owns.get_mut(shard)
    }

    pub(super) fn put(&mut self, message: LeaseMessage) {
        let at = self.flight.partition_point(|other| *other < message);
        self.flight.insert(at, message);
    }

    pub(super) fn remove(&mut self, message: LeaseMessage) {
        if let Ok(at) = self.flight.binary_search(&message) {
            self.flight.remove(at);
        }
    }

    pub(super) fn ask(&mut self, n: usize, shard: Option<usize>, request: LeaseRequest) {
        let of = self.me(n);
        self.put(LeaseMessage { of, shard, body: MessageBody::Request(request), late: false });
    }

    /// Makes a node stop waiting for these messages. Replies are dropped. Requests may still arrive later.
    pub(super) fn forget(&mut self, n: usize, which: impl Fn(&LeaseMessage) -> bool) {
        let mut kept: Vec<LeaseMessage> = Vec::with_capacity(self.flight.len());
        for message in &self.flight {
            match message.body {
                _ if message.of.node != n || message.late || !which(message) => kept.push(*message),
                MessageBody::Request(LeaseRequest::Renew { .. }) => {
                    kept.push(LeaseMessage {
                        late: true,
                        body: MessageBody::Request(LeaseRequest::Renew { age: 0 }),
                        ..*message
                    });
                }
                MessageBody::Request(_) => kept.push(LeaseMessage { late: true, ..*message }),
                MessageBody::Reply(_) => {}
            }
        }
        kept.sort_unstable();
        self.flight = kept;
    }

    /// Returns whether a running node owns the shard and has received the reply to its claim.
    pub(super) fn is_served(&self, shard: usize) -> bool {
        let owns = |node: &ModelNode| node.is_working() && matches!(node.owns.get(shard), Some(Ownership::Held { .. }));
        (0..).zip(&self.nodes).any(|(n, node)| owns(node) && self.database.holds(self.me(n), shard))
    }

    pub(super) fn acknowledged_are_stored(&self) -> bool {
        self.acked.iter().all(|(shard, lsn, group)| {
            let row = self.database.shards.get(*shard);
            row.is_some_and(|row| {
                row.last >= *lsn && row.log.iter().any(|stored| stored.lsn == *lsn && stored.group == *group)
            })
        })
    }

    pub(super) fn one_history(&self) -> bool {
        self.database.shards.iter().all(|row| {
            let contiguous = row.log.iter().zip(1..).all(|(stored, lsn)| stored.lsn == lsn);
            let mut groups: Vec<u8> = row.log.iter().map(|stored| stored.group).collect();
            groups.sort_unstable();
            groups.dedup();
            contiguous && groups.len() == row.log.len() && usize::from(row.last) == row.log.len()
        })
    }

    pub(super) fn one_writer_per_epoch(&self) -> bool {
        self.database.shards.iter().all(|row| {
            let mut pairs = row.log.iter().zip(row.log.iter().skip(1));
            row.log.iter().all(|stored| stored.held)
                && pairs.all(|(before, after)| before.epoch != after.epoch || before.by == after.by)
        })
    }

    pub(super) fn served_in_time(&self, model: &LeaseModel) -> bool {
        let lost = model.size.losses.saturating_sub(self.left.losses);
        self.unserved.iter().all(|ticks| *ticks <= LEASE.saturating_add(lost))
    }
}
