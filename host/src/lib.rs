//! The host of subtend: one process that owns a store, and the HTTP API that every client of it speaks.
//!
//! A [`Host`] holds a runtime for as long as it serves. Clients attach and leave as they like: a client that leaves stops
//! nothing. The command speaks the same API over a Unix socket that a browser speaks over TCP.
//!
//! | part | what |
//! |---|---|
//! | [`api`] | the resources below `/v1`, and the OpenAPI document of them |
//! | [`auth`] | who may send a request: tokens with scopes, login links, the Host and Origin headers |
//! | [`follow`] | the events of a tree, by LSN: each durable event once and in order |
//! | [`listen`] | accepting connections on TCP and on a Unix socket, within bounds |
//! | `page` | the HTML page below `/`: views rendered from the runtime, followed over server-sent events |
//! | [`problem`] | refusals: RFC 9457 with a stable code |
//! | [`settings`] | options of tools, as an embedder keeps them for the page |

pub mod api;
pub mod auth;
pub mod follow;
mod host;
pub mod listen;
mod metrics;
mod page;
pub mod problem;
pub mod settings;

pub use host::{Host, HostOptions};
