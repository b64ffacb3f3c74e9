//! Models: the trait that the hub calls, and the models that need no network.
//!
//! [`scripted`] plays a file of answers, latencies and faults; [`offline`] is a rule-based stand-in that really works on a
//! workspace through its tools; [`closure`] makes a model of a function. [`spec`] chooses one by a word such as `offline`.

pub mod closure;
pub mod model;
mod notice;
pub mod offline;
pub mod scripted;
pub mod spec;
