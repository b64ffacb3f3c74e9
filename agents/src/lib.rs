//! Agents: manifests, the ones that are built in, and the loader of a workspace's own.

mod builtin;
pub mod catalog;
mod front;
pub mod manifest;
pub mod name;
mod permissions;
