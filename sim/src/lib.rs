//! What subtend is tried with before it is trusted: a model of the whole that drives the real heart through every
//! interleaving.
//!
//! Development only: nothing here is shipped.

#![allow(missing_docs, reason = "a comment that only repeats a name is deleted")]

pub mod check;
pub mod coverage;
pub mod fault;
pub mod model;
pub mod simulate;
pub mod size;
