//! Delivery: inboxes, waits for runs, and causes of cancellations.

pub(crate) mod cancel_causes;
pub(crate) mod commands;
pub(crate) mod directory;
pub(crate) mod inbox;
pub(crate) mod live_processes;
pub(crate) mod runs;
pub(crate) mod sender;
pub(crate) mod ticket;
pub(crate) mod waiters;
