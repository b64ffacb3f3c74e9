//! Where the inputs and commands of each session wait, who waits for its runs, and why runs are cancelled.

pub(crate) mod cancel_causes;
pub(crate) mod commands;
pub(crate) mod directory;
pub(crate) mod inbox;
pub(crate) mod runs;
pub(crate) mod ticket;
pub(crate) mod waiters;
