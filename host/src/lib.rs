//! The host of subtend: one process that owns a store, and the HTTP API that every client of it speaks.
//!
//! A [`Host`] holds a runtime for as long as it serves. Clients attach and leave as they like: a client that leaves stops
//! nothing. The command speaks the same API over a Unix socket that a browser speaks over TCP.
//!
//! | part | what |
//! |---|---|
//! | [`api`] | the resources below `/v1`, and the OpenAPI document of them |
//! | [`auth`] | who may send a request: tokens with scopes, login links, the Host and Origin headers |
//! | [`flaw`] | bugs that drills and the simulator must notice |
//! | [`follow`] | the events of a tree, by LSN: each durable event once and in order |
//! | [`Local`] | requests of the process that hosts, without a socket |
//! | [`listen`] | accepting connections on TCP and on a Unix socket, within bounds |
//! | `page` | the HTML page below `/`: views rendered from the runtime, followed over server-sent events |
//! | [`problem`] | refusals: RFC 9457 with a stable code |
//! | [`slash`] | slash commands of sessions, as an embedder finds them |
//! | [`socket_path`] | connecting to a socket whose path is longer than its address may be |
//! | [`workers`] | remote tools, whose calls other processes answer under a lease |
//! | [`settings`] | options of tools, as an embedder keeps them for the page |

pub mod api;
pub mod auth;
pub mod flaw;
pub mod follow;
mod host;
pub mod listen;
mod local;
mod metrics;
mod page;
pub mod problem;
pub mod settings;
pub mod slash;
#[cfg(unix)]
pub mod socket_path;
mod trace;
pub mod workers;

pub use axum::body::Body;
pub use axum::http::Request;
pub use host::{Host, HostOptions};
pub use local::Local;
