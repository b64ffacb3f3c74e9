//! The end of a run.

use subtend_session::ids::{RunNo, Text};
use subtend_session::outcome::Outcome;
use subtend_session::usage::Usage;

#[derive(Clone, Debug, PartialEq)]
pub struct Ended {
    pub run: RunNo,
    pub outcome: Outcome,
    /// The whole answer of a completed run; partial output of any other.
    pub text: Option<Text>,
    /// Answered turns.
    pub turns: u32,
    /// The cost of the run and of all that it owned.
    pub usage: Usage,
}
