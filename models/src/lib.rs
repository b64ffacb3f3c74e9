//! Models: the trait that the hub calls, the models that need no network, and those of providers.
//!
//! [`scripted`] plays a file of answers, latencies and faults; [`offline`] is a rule-based stand-in that really works on a
//! workspace through its tools; [`closure`] makes a model of a function; `provider` (with the feature `providers`) calls language
//! models over HTTP. [`spec`] chooses one by a word such as `offline`.

pub mod closure;
pub mod estimate;
pub mod model;
pub mod models;
mod notice;
pub mod offline;
#[cfg(feature = "providers")]
pub mod provider;
pub mod scripted;
pub mod spec;
pub mod throttle;
pub mod windows;
