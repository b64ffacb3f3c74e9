//! A client of MCP servers. It offers their tools to sessions.
//!
//! Servers are configured in `.mcp.json` and by the user ([`ServerList`]). The [`Servers`] of an environment start at their first use, as
//! guarded processes or over HTTP, and are shared by all its sessions. If a server has ended, a call fails. The next call restarts the
//! server, within a budget. Tool descriptions of a server are untrusted data: bounded, escaped, and compared with earlier descriptions.

mod argument_memory;
mod asked_questions;
mod checker;
mod client;
mod config;
mod connection;
mod extras;
mod handshake;
mod http;
mod kept_schemas;
mod known_tools;
mod list_changes;
mod logged_problems;
mod login;
mod message_pace;
mod names;
mod open_calls;
mod open_requests;
mod paging;
mod process;
mod question;
mod result;
mod sanitized_tool;
mod sent_requests;
mod server;
mod servers;
mod tool;

pub use config::{FILE, MAX_FILE_BYTES, Origin, ServerConfig, ServerList, ServerTransport};
pub use connection::ConnectionSettings;
pub use http::authorized::renewals_ended;
pub use known_tools::KnownTools;
pub use login::{
    Login, LoginError, LoginKey, LoginOptions, LoginReport, LoginStore, PendingLogin, RegisteredClient, UnprovenPage,
    login_address,
};
pub use server::{ServerReport, ToolReport};
pub use servers::Servers;
