//! The main job through the real command: answers are true, the journal is complete, bad input ends with its cause.

pub(crate) mod checker;
pub(crate) mod planted;
pub(crate) mod read;
pub(crate) mod record;
pub(crate) mod truth;

mod answers;
mod bad_model;
mod bad_place;
mod doctored;
mod silence;
mod trees;
