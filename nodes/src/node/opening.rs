//! How an embedder opens the shards of a node.

use futures_util::future::BoxFuture;
use subtend_host::Host;
use subtend_journal::postgres::ShardAddress;
use subtend_supervision::Lease;

/// Why a shard was not opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotOpened {
    /// Another process has it: it is tried again.
    Held(String),
    /// After some attempts the node ends, so that another one tries.
    Failed(String),
}

/// Opens a shard and starts its runtime, as an embedder composes it.
pub trait OpenShard: Send + Sync + 'static {
    /// Opens the shard. The runtime is built with `lease` ([`subtend_actors::Builder::lease`](../subtend_actors/struct.Builder.html)).
    fn open(&self, shard: ShardAddress, lease: Lease) -> BoxFuture<'static, Result<Host, NotOpened>>;

    /// Says how many nodes are alive: each takes that part of what all of them may do together, such as the rates of a provider.
    fn shared_by(&self, nodes: u32);
}
