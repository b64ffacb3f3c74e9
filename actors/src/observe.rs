pub mod activity;
pub(crate) mod append_notices;
pub(crate) mod counters;
pub mod event;
pub(crate) mod following;
pub(crate) mod polling;
pub(crate) mod publisher;
pub(crate) mod streams;
