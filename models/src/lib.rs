//! Models: the trait that the runtime calls, local models, and models of providers.
//!
//! * [`scripted`] plays a file of answers, latencies and faults.
//! * [`offline`] is a rule-based model that explores a workspace with its tools.
//! * [`closure`] makes a model from a function.
//! * `provider` (feature `providers`) calls language models over HTTP.
//! * [`spec`] parses the name of a model.

#![allow(missing_docs, reason = "a comment that only repeats a name is deleted")]

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
