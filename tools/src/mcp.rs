//! A client of MCP servers: their tools as tools of sessions.
//!
//! Servers are named in `.mcp.json` and by a person ([`ServerList`]). The [`Servers`] of an environment start at their first use, as
//! processes in a guard or over HTTP, and are shared by all sessions there. A server that ended is a tool error; the next call starts
//! it again, within a budget. What a server says of its tools is data: bounded, printable, and compared with what it said before.

mod answering;
mod client;
mod config;
mod connection;
mod described;
mod extras;
mod http;
mod known;
mod names;
mod process;
mod question;
mod result;
mod server;
mod servers;
mod tool;

pub use config::{FILE, MAX_FILE_BYTES, Origin, Reached, ServerConfig, ServerList};
pub use connection::Ground;
pub use known::KnownTools;
pub use server::{ServerReport, ToolReport};
pub use servers::Servers;
