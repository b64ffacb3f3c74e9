//! The decision core of subtend: the state of a session and its transitions.
//!
//! `decide` maps a state and a command to records and effects; `apply` folds records into state. Clock readings, ids
//! and grants are values in the command: this crate has no I/O, clock or randomness.

#![allow(missing_docs, reason = "a comment that only repeats a name is deleted")]

mod agent_override;
pub mod authority;
pub mod call;
pub mod command;
pub mod compaction;
pub mod context;
pub mod creation;
pub mod decide;
pub mod dialect;
pub mod effect;
pub mod escape;
pub mod ids;
pub mod index;
pub mod limits;
pub mod message;
pub mod names;
pub mod near;
pub mod outcome;
pub mod owners;
mod phase;
pub mod place;
pub mod record;
pub mod render;
pub mod settings;
pub mod state;
pub mod title;
pub mod unseen;
pub mod usage;
pub mod values;
