//! Agents: manifests, built-in agents, loading of agent files, profiles, and the assembly of prompts.

#![allow(missing_docs, reason = "a comment that only repeats a name is deleted")]

mod builtin;
pub mod catalog;
pub mod dialect;
mod files;
mod foreign;
pub mod form;
mod front;
pub mod instructions;
pub mod lint;
pub mod manifest;
mod markup;
pub mod name;
mod permissions;
pub mod product;
pub mod profile;
pub mod prompt;
pub mod schema;
mod size;
pub mod skill;
pub mod slash;
pub mod template;
pub mod yaml;
