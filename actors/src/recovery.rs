//! The start: what was in flight ends, continues or waits, and what the outbox owes is delivered.

pub mod boot;
mod importing;
pub(crate) mod restores;
pub(crate) mod rows;
pub(crate) mod takeover;
pub(crate) mod unreadable;
