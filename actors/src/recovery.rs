//! Recovery at the start: runs in flight end, resume or remain queued, and outbox rows are delivered.

pub mod boot;
mod importing;
pub(crate) mod merges;
pub(crate) mod restores;
pub(crate) mod rows;
pub(crate) mod takeover;
pub(crate) mod unreadable;
