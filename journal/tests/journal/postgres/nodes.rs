//! Nodes of one database: only a node with a valid lease claims shards, and a node that lost its lease while paused writes nothing.

use std::time::Duration;

use crate::scene::*;
use subtend_journal::postgres::Postgres;
use subtend_journal::postgres::nodes::{NodeError, NodeLease, Placement, Registry};

use super::{create_session, journal};
use crate::server::{Server, target};

const LEASE: Duration = Duration::from_secs(15);

struct Nodes {
    server: Server,
    registry: Registry,
}

impl Nodes {
    async fn start() -> Self {
        let server = Server::start(&[]);
        let registry = Registry::connect(&server.target("")).await.unwrap();
        registry.create_shared(2, None).await.unwrap();
        Self { server, registry }
    }

    async fn join(&self, name: &str) -> NodeLease {
        self.registry.join(name, "10.0.0.1:7475", "1.0.0", &[], LEASE).await.unwrap()
    }

    /// Ends a lease in the database, as if its time had passed.
    fn expire(&self, lease: &NodeLease) {
        self.server.sql(&format!("UPDATE subtend.node SET expires = now() WHERE lease = '{}'", lease.id()));
    }

    fn open(&self, shard: &str, lease: &NodeLease) -> Result<Postgres, OpenError> {
        Postgres::open(&self.server.target("").with_shard(shard, lease))
    }

    fn epochs(&self) -> String {
        self.server.sql("SELECT string_agg(name || ' ' || epoch, ', ' ORDER BY id) FROM subtend.shard")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn d2_no_node_claims_the_shard_of_a_live_node() {
    let nodes = Nodes::start().await;
    let (a, b) = (nodes.join("a").await, nodes.join("b").await);
    let held = nodes.open("shard-1", &a).unwrap();
    assert!(matches!(nodes.open("shard-1", &b), Err(OpenError::ClaimedElsewhere { .. })));
    let other = Postgres::open(&nodes.server.target("shard=shard-1"));
    assert!(matches!(other, Err(OpenError::ClaimedElsewhere { .. })), "a process that is not a node claimed the shard");
    assert_eq!(nodes.epochs(), "shard-1 1, shard-2 0");
    let members = nodes.registry.members().await.unwrap();
    assert_eq!(members.owner("shard-1").map(|node| &*node.name), Some("a"));
    assert_eq!(members.owner("shard-2"), None);
    nodes.server.cut();
    let other = Postgres::open(&nodes.server.target("shard=shard-1"));
    assert!(matches!(other, Err(OpenError::ClaimedElsewhere { .. })), "the connection is lost, but the lease is valid");
    drop(held);
    nodes.registry.give_up("shard-1", &a).await.unwrap();
    assert_eq!(nodes.registry.members().await.unwrap().owner("shard-1"), None, "the shard was given up");
    nodes.open("shard-1", &b).unwrap();
}

/// The first owner keeps its connections: it is paused, or assumes that its lease is valid.
#[tokio::test(flavor = "multi_thread")]
async fn d2_shard_is_taken_over_when_its_lease_has_ended() {
    let nodes = Nodes::start().await;
    let (a, b) = (nodes.join("a").await, nodes.join("b").await);
    let old = journal(&nodes.server.target("").with_shard("shard-1", &a));
    create_session(&old, 1).await.unwrap();
    nodes.expire(&a);
    let new = journal(&nodes.server.target("").with_shard("shard-1", &b));
    create_session(&new, 2).await.unwrap();
    let refused = create_session(&old, 3).await.unwrap_err().to_string();
    assert!(refused.contains("was claimed by another process"), "{refused}");
    assert!(new.records(id(1)).is_ok() && new.records(id(3)).is_err());
    assert_eq!(problems(&new), Vec::<String>::new());
    assert!(matches!(nodes.registry.renew(&a, LEASE).await, Err(NodeError::Ended)));
    assert!(
        matches!(nodes.open("shard-2", &a), Err(OpenError::ClaimedElsewhere { .. })),
        "a node claimed a shard after its lease"
    );
    nodes.registry.renew(&b, LEASE).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn d2_name_of_a_live_node_is_refused() {
    let nodes = Nodes::start().await;
    let first = nodes.join("a").await;
    let second = nodes.registry.join("a", "10.0.0.2:1", "1.0.0", &[], LEASE).await.unwrap_err();
    let NodeError::NameTaken { address, left_ms, .. } = &second else { panic!("{second}") };
    assert_eq!(address, "10.0.0.1:7475");
    assert!((1..=15_000).contains(left_ms), "{left_ms}");
    nodes.expire(&first);
    assert_ne!(nodes.join("a").await, first);
    nodes.registry.leave(&first).await.unwrap();
    assert_eq!(nodes.registry.members().await.unwrap().nodes.len(), 1, "the end of a lease removed a later one");
}

#[tokio::test(flavor = "multi_thread")]
async fn d4_sessions_are_located_and_keys_are_placed_once() {
    let nodes = Nodes::start().await;
    let a = nodes.join("a").await;
    for (shard, n) in [("shard-1", 1), ("shard-2", 2)] {
        let journal = journal(&nodes.server.target("").with_shard(shard, &a));
        create_session(&journal, n).await.unwrap();
    }
    let registry = &nodes.registry;
    assert_eq!(registry.locate(id(1)).await.unwrap(), ["shard-1"]);
    assert_eq!(registry.locate(id(2)).await.unwrap(), ["shard-2"]);
    assert_eq!(registry.locate(id(3)).await.unwrap(), Vec::<String>::new());
    for shard in ["own", "shard-2"] {
        create_session(&journal(&nodes.server.target(&format!("shard={shard}"))), 1).await.unwrap();
    }
    assert_eq!(registry.locate(id(1)).await.unwrap(), ["shard-1", "shard-2"], "a session in two shards");
    let first = place(registry, "shard-2").await;
    assert_eq!((&*first.shard, first.is_new), ("shard-2", true));
    let second = place(registry, "shard-1").await;
    assert_eq!((&*second.shard, second.is_new), ("shard-2", false), "the first choice is kept");
}

async fn place(registry: &Registry, shard: &str) -> Placement {
    registry.place(b"key", shard).await.unwrap()
}

/// The second command of a key has a session when the first is refused. Control: one command's choice is removed.
#[tokio::test(flavor = "multi_thread")]
async fn d4_choice_used_by_another_command_is_not_removed() {
    let nodes = Nodes::start().await;
    let registry = &nodes.registry;
    let (refused, other) = (place(registry, "shard-1").await, place(registry, "shard-2").await);
    registry.remove_placement(b"key", &refused).await.unwrap();
    let again = place(registry, "shard-2").await;
    assert_eq!((&*other.shard, &*again.shard, again.is_new), ("shard-1", "shard-1", false));
    registry.remove_placement(b"key", &again).await.unwrap();
    let new = place(registry, "shard-2").await;
    assert_eq!((&*new.shard, new.is_new), ("shard-2", true), "control: an unused choice is removed");
}

/// A released claim writes nothing, and other nodes can claim the shard.
#[tokio::test(flavor = "multi_thread")]
async fn d2_released_shard_is_free_at_once() {
    let nodes = Nodes::start().await;
    let (a, b) = (nodes.join("a").await, nodes.join("b").await);
    let old = journal(&nodes.server.target("").with_shard("shard-1", &a));
    create_session(&old, 1).await.unwrap();
    nodes.registry.give_up("shard-1", &b).await.unwrap();
    create_session(&old, 2).await.unwrap();
    nodes.registry.give_up("shard-1", &a).await.unwrap();
    let new = journal(&nodes.server.target("").with_shard("shard-1", &b));
    create_session(&new, 3).await.unwrap();
    assert!(create_session(&old, 4).await.is_err());
    assert_eq!((new.heads().unwrap().len(), problems(&new)), (3, Vec::new()));
}

/// A crash of the server loses connections, but no leases or claims.
#[tokio::test(flavor = "multi_thread")]
async fn d2_lease_survives_a_restart_of_the_server() {
    let nodes = Nodes::start().await;
    let a = nodes.join("a").await;
    let journal = journal(&nodes.server.target("reply_timeout=20").with_shard("shard-1", &a));
    create_session(&journal, 1).await.unwrap();
    nodes.server.crash();
    let lost = nodes.registry.renew(&a, LEASE).await;
    assert!(matches!(lost, Err(NodeError::Unreachable(_))), "{lost:?}");
    nodes.server.up();
    nodes.registry.renew(&a, LEASE).await.unwrap();
    create_session(&journal, 2).await.unwrap();
    assert_eq!(problems(&journal), Vec::<String>::new());
}

/// A node that only retried would do so forever, because just a start creates the schema.
#[tokio::test(flavor = "multi_thread")]
async fn d2_dropped_schema_is_not_an_unreachable_database() {
    let nodes = Nodes::start().await;
    nodes.server.sql("DROP SCHEMA subtend CASCADE");
    // The open connection does not check the schema, but is given up after the failed statement.
    let failed = nodes.registry.members().await;
    assert!(matches!(failed, Err(NodeError::Unreachable(_))), "{failed:?}");
    let failed = nodes.registry.members().await;
    assert!(matches!(failed, Err(NodeError::Store(OpenError::Missing { .. }))), "{failed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn d1_shared_shards_are_created_once_per_label() {
    let nodes = Nodes::start().await;
    nodes.registry.create_shared(5, None).await.unwrap();
    nodes.registry.create_shared(1, Some("gpu")).await.unwrap();
    let shards = nodes.registry.members().await.unwrap().shards;
    let named: Vec<_> = shards.iter().map(|row| (&*row.name, row.label.as_deref())).collect();
    assert_eq!(named, [("shard-1", None), ("shard-2", None), ("gpu-shard-1", Some("gpu"))]);
    let unreachable = Registry::connect(&target("postgres://subtend@127.0.0.1:1/agents?connect_timeout=1")).await;
    assert!(matches!(unreachable, Err(NodeError::Store(OpenError::Unreachable { .. }))));
}
