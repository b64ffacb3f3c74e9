//! Nodes of subtend: hosts that share the shards of one database.
//!
//! A [`Node`] has a lease in the database. While it runs, the node claims shards, opens a [`Host`](subtend_host::Host) on each, and answers
//! requests for every session of the database: here, or by forwarding them to the node that has the shard.
//!
//! | part | what |
//! |---|---|
//! | [`plan`] | which shards a node claims and hands over: a pure function of the rows |
//! | [`node`] | the life of a node: its lease, its shards, their order of opening and closing |
//! | [`gateway`] | requests: which shard they concern, and who answers |
//! | `forward` | requests to another node |
//! | `merge` | lists, events and figures of several shards as one |

#![cfg(feature = "postgres")]

mod clock;
mod forward;
pub mod gateway;
mod merge;
pub mod node;
pub mod plan;

pub use node::{Node, NodeOptions, NotOpened, OpenShard, Times};
