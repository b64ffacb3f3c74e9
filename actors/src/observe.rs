pub mod activity;
pub(crate) mod append_notices;
pub mod event;
pub(crate) mod following;
pub(crate) mod polling;
pub(crate) mod publisher;
pub(crate) mod streams;
