//! The main use of the command: answers are correct, the journal is complete, runs with bad input end with the cause.

pub(crate) mod checker;
pub(crate) mod planted;
pub(crate) mod read;
pub(crate) mod record;
pub(crate) mod truth;

mod answers;
mod bad_input;
mod bad_model;
mod doctored;
mod silence;
mod trees;
