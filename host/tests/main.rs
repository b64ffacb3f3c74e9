//! Tests the host through its API and page.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    unreachable_pub,
    reason = "a test fails by panicking"
)]

mod access;
mod agents;
mod conversation;
mod events;
mod heads;
mod hostile;
mod imports;
mod keys;
mod metrics;
mod openapi;
mod page;
mod refusals;
mod restores;
mod scopes;
mod sockets;
mod support;
mod tasks;
mod transcripts;
mod workers;
mod worktrees;
