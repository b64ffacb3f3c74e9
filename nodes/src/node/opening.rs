//! The interface through which an embedder opens the shards of a node.

use futures_util::future::BoxFuture;
use subtend_host::Host;
use subtend_journal::postgres::ShardAddress;
use subtend_supervision::Lease;

/// The reason why a shard was not opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotOpened {
    /// Another process owns it, or the database does not answer. The node retries.
    Held(String),
    /// The opening failed. After some attempts the node ends, so that another one can try.
    Failed(String),
    /// This node cannot open it, such as a shard of which it saw more than the database has. The node ends at once.
    Refused(String),
}

/// Opens shards and starts their runtimes.
pub trait OpenShard: Send + Sync + 'static {
    /// Opens the shard. The runtime is built with `lease` ([`subtend_actors::Builder::lease`](../subtend_actors/struct.Builder.html)).
    fn open(&self, shard: ShardAddress, lease: Lease) -> BoxFuture<'static, Result<Host, NotOpened>>;

    /// Stores the last LSNs of shards that other nodes own, and returns the stored ones. When this node opens such a
    /// shard later, it refuses a database that was restored to an earlier state.
    fn remember(&self, shards: Vec<(String, u64)>) -> BoxFuture<'static, Vec<(String, u64)>>;

    /// Sets the number of live nodes, which divide common limits such as the rates of a provider.
    fn set_live_nodes(&self, nodes: u32);
}
