//! Target `postgres`: the tests of the journal, and those that start a PostgreSQL server.

#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test code, also in helpers")]

/// Whether tests may start a server.
const SERVER: bool = true;

/// Keeps what needs a server.
macro_rules! with_server {
    ($($item:item)*) => { $($item)* };
}

mod blobs;
mod compacted;
mod conformance;
mod crash;
mod damage;
mod described;
mod engines;
mod erasing;
mod exporting;
mod files;
mod fixtures;
mod importing;
mod kinds;
mod medium;
mod metadata;
mod opening;
mod poison;
mod postgres;
mod power;
mod reading;
mod refusals;
mod remote;
mod rolled_back;
mod scene;
#[path = "postgres/server.rs"]
mod server;
mod verifying;
