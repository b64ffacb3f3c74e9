//! Nodes of subtend: hosts that share the shards of one database.
//!
//! A [`Node`] has a lease in the database. It claims shards and opens a [`Host`](subtend_host::Host) on each. It
//! answers requests for every session of the database, or forwards them to the node that owns the shard.
//!
//! | module | content |
//! |---|---|
//! | [`plan`] | decides which shards a node claims and hands over, as a pure function of the rows |
//! | [`node`] | runs a node: its lease, and the opening and closing of its shards |
//! | [`gateway`] | routes requests to the shards and nodes that answer them |
//! | `forward` | sends requests to other nodes |
//! | `merge` | merges lists, events and metrics of several shards |
//! | `slots` | divides the slots of a node among its shards |

#![cfg(feature = "postgres")]

mod clock;
mod forward;
pub mod gateway;
mod merge;
pub mod node;
pub mod plan;
mod slots;

pub use node::{LeaseTimes, Node, NodeOptions, NotOpened, OpenShard};
