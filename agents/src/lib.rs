//! Agents: manifests, the ones that are built in, the loader of a workspace's own, profiles, and how prompts are put together.

mod builtin;
pub mod catalog;
pub mod dialect;
pub mod form;
mod front;
pub mod lint;
pub mod manifest;
pub mod name;
mod permissions;
pub mod profile;
pub mod prompt;
pub mod schema;
pub mod template;
