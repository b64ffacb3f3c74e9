//! Dialects: families of tools that a model sees over the same few commands.

pub mod manage;
pub mod outcome;
pub mod task;
