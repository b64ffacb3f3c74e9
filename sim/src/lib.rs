//! The model checker and the simulator of subtend, for development only.

#![allow(missing_docs, reason = "a comment that only repeats a name is deleted")]

pub mod check;
pub mod clients;
pub mod coverage;
pub mod fault;
pub mod lease;
pub mod model;
pub mod nodes;
mod rng;
pub mod simulate;
pub mod size;
mod storage;
