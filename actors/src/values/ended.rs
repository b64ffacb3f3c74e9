//! How a run ended.

use subtend_session::ids::{RunNo, Text};
use subtend_session::outcome::Outcome;
use subtend_session::usage::Usage;

/// How a run ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Ended {
    /// The run.
    pub run: RunNo,
    /// Its outcome.
    pub outcome: Outcome,
    /// The whole answer of a completed run; partial output of any other.
    pub text: Option<Text>,
    /// Answered turns.
    pub turns: u32,
    /// What it and all that it owned cost.
    pub usage: Usage,
}
