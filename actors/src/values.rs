//! Shared values, which depend on no other part of this crate.

pub(crate) mod address;
pub(crate) mod answering;
pub(crate) mod at_boot;
pub(crate) mod control;
pub(crate) mod ended;
pub(crate) mod environment_key;
pub(crate) mod error;
pub mod options;
pub(crate) mod panic;
pub(crate) mod queue_entry;
