//! Shared values that do not depend on other parts of this crate.

pub(crate) mod address;
pub(crate) mod alternatives;
pub(crate) mod answering;
pub(crate) mod at_boot;
pub(crate) mod control;
pub(crate) mod ended;
pub(crate) mod environment_key;
pub(crate) mod error;
pub mod options;
pub(crate) mod owned_runs;
pub(crate) mod paging;
pub(crate) mod panic;
pub(crate) mod queue_entry;
