//! The host of subtend: the process that owns a store, and its HTTP API.
//!
//! A [`Host`] holds a runtime while it serves. Clients may connect and disconnect at any time; runs continue without
//! them. The command uses the API over a Unix socket, browsers use it over TCP.
//!
//! | part | content |
//! |---|---|
//! | [`api`] | the resources below `/v1`, and their OpenAPI document |
//! | [`auth`] | authentication: tokens with scopes, login links, the Host and Origin headers |
//! | [`iso_time`] | times of tasks as text |
//! | [`host_bug`] | injectable bugs that drills and the simulator must detect |
//! | [`follow`] | the events of a tree, by LSN: each durable event once, in order |
//! | [`Local`] | requests of the hosting process itself, without a socket |
//! | [`listen`] | accepting connections on TCP and on a Unix socket, within bounds |
//! | `page` | the HTML page below `/`: views rendered from the runtime, followed over server-sent events |
//! | [`problem`] | errors: RFC 9457 problems with a stable code |
//! | [`slash`] | slash commands of sessions, supplied by the embedder |
//! | [`socket_path`] | sockets whose path is longer than the address limit |
//! | [`workers`] | remote tools: other processes lease and answer their calls |
//! | [`settings`] | tool options for the page, stored by the embedder |

pub mod api;
pub mod auth;
pub mod cause;
mod command_locks;
pub mod follow;
mod host;
pub mod host_bug;
mod imports;
pub mod iso_time;
mod json;
pub mod listen;
mod local;
mod metrics;
mod page;
pub mod problem;
mod reads;
pub mod settings;
mod shared_by_key;
pub mod slash;
#[cfg(unix)]
pub mod socket_path;
mod trace;
pub mod warnings;
pub mod workers;

pub use axum::body::Body;
pub use axum::http::Request;
pub use host::{Host, HostOptions};
pub use imports::open_regular;
pub use json::Json;
pub use local::Local;
pub use page::shards::{PageList, PartUpdate, ShardedPage};
pub use reads::ReadPermits;
pub use shared_by_key::SharedByKey;
