//! Nodes of subtend: hosts that share the shards of one database.
//!
//! A [`Node`] has a lease in the database. It claims shards and opens a [`Host`](subtend_host::Host) on each. It
//! answers requests for every session of the database, or forwards them to the node that owns the shard.

#![cfg(feature = "postgres")]

mod clock;
mod forward;
pub mod gateway;
mod merge;
pub mod node;
pub mod plan;
mod slots;

pub use node::{LeaseTimes, Node, NodeOptions, NotOpened, OpenShard};
