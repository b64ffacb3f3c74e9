pub mod activity;
pub mod event;
pub(crate) mod following;
pub(crate) mod nudges;
pub(crate) mod polling;
pub(crate) mod publisher;
pub(crate) mod streams;
