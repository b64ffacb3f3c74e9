//! The main job, end to end, through the real command: what it answers is true of the workspace, what it did is in the journal,
//! and bad input ends with its true cause.

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
