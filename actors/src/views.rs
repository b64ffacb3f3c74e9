//! Read-only views over the journal.

pub mod audit;
pub(crate) mod branches;
pub mod checkpoints;
pub mod find;
pub mod history;
pub(crate) mod queue;
pub mod stats;
pub mod tasks;
pub mod transcript;
pub mod tree;
pub mod usage;
pub mod worked;
