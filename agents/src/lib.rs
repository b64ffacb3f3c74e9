//! Agents: manifests, built-in agents, the loader of agent files, profiles, and the assembly of prompts.

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
