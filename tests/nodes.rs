//! Nodes of one database: real processes, a real database server, and faults of the network between them.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test that cannot continue fails, and processes run by real time"
)]

#[path = "nodes/absent.rs"]
mod absent;
#[path = "nodes/client.rs"]
mod client;
#[path = "nodes/cluster.rs"]
mod cluster;
#[path = "nodes/command.rs"]
mod command;
#[path = "nodes/drill.rs"]
mod drill;
#[path = "nodes/events.rs"]
mod events;
#[path = "nodes/history.rs"]
mod history;
#[path = "nodes/page.rs"]
mod page;
#[path = "nodes/proxy.rs"]
mod proxy;
#[path = "nodes/routing.rs"]
mod routing;
#[path = "nodes/runbook.rs"]
mod runbook;
#[path = "../journal/tests/journal/postgres/server.rs"]
#[expect(dead_code, reason = "tests of the journal need all of it")]
mod server;
#[path = "nodes/takeover.rs"]
mod takeover;
