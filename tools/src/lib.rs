//! Tools of subtend: what a model may call, what each call may do, and how its result is bounded.
//!
//! A [`tool::Tool`] takes one call and gives one bounded result. The [`registry::Registry`] holds tools by name, offers
//! those that an authority may allow, and checks each call again when it runs. The workspace tools reach files only
//! through the directory handle of a [`workspace::Workspace`].

#![allow(missing_docs, reason = "a comment that only repeats a name is deleted")]

pub mod background;
pub mod checkpoint;
pub mod closure;
pub mod commands;
pub mod dialect;
pub mod display;
pub mod guard;
#[cfg(any(feature = "mcp", feature = "web"))]
pub mod http;
#[cfg(feature = "mcp")]
pub mod mcp;
pub mod memory_budget;
pub mod memory_threads;
pub mod message;
pub mod option;
pub mod plan_exit;
pub mod policy;
pub mod processes;
pub mod registry;
pub mod sandbox;
pub mod secrets;
pub mod skills;
#[cfg(any(feature = "mcp", feature = "web"))]
pub mod threads;
pub mod tool;
pub mod typed;
mod untrusted;
#[cfg(feature = "web")]
pub mod web;
pub mod workspace;
pub mod worktree;

pub use subtend_session::escape;

mod arguments;
mod bounded;
mod builtin;
mod near;
mod path;
mod private;
mod redacted;
mod removal;
mod result;
mod schema;
mod temporary;
mod tool_key;
