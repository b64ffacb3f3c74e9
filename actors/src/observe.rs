//! What subscribers see: durable records in order, and deltas and progress as they come.

pub mod activity;
pub mod event;
pub(crate) mod following;
pub(crate) mod nudges;
pub(crate) mod polling;
pub(crate) mod publisher;
pub(crate) mod streams;
