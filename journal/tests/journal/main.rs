//! Tests of the journal: one suite for every engine, crashes, damage, and opening. Those that need a server are target `postgres`.

#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test code, also in helpers")]

/// Whether tests may start a server.
const SERVER: bool = false;

/// Leaves out what needs a server.
macro_rules! with_server {
    ($($item:item)*) => {};
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
#[cfg(unix)]
mod given;
mod importing;
mod kinds;
mod medium;
mod metadata;
mod opening;
mod poison;
mod power;
mod reading;
mod refusals;
mod remote;
mod rolled_back;
mod scene;
#[expect(dead_code, reason = "only tests with a server need all of it")]
#[path = "postgres/server.rs"]
mod server;
mod verifying;
