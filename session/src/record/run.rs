//! What runs wait for, and how they end.

use serde::{Deserialize, Serialize};

use crate::ids::{CallId, Hash, RunNo, Seq, Text};
use crate::outcome::{By, Outcome};
use crate::usage::Usage;

/// What a run waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Park {
    /// Only child, await or ask calls of the turn are open.
    MidTurn,
    /// No call is open; owned runs are in flight.
    AtRest,
    /// A person's word.
    Ask,
    /// A slot; the turn is due.
    Slot,
}

/// Why a run is held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hold {
    /// Interrupted: goes on with the next input.
    Interrupted {
        /// On whose word.
        by: By,
    },
    /// The turn allowance is spent: owned runs finish, then it ends.
    OutOfTurns,
    /// The outcome is fixed; the end follows when local work and owned runs have ended.
    Closing {
        /// The outcome.
        outcome: Outcome,
        /// Whether inputs that wait stay where they are after the end, rather than open the next run (rule 9).
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        queue_stands: bool,
    },
}

/// The end of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunEnded {
    /// The run.
    pub run: RunNo,
    /// Its outcome.
    pub outcome: Outcome,
    /// The record that holds the result: the last answer, or the `return` call's answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Seq>,
    /// Whether the result was given by `return`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub returned: Option<CallId>,
    /// The text that the owner gets, cut to its bound: the answer of a completed run, the last text of one that is out of turns,
    /// the partial output of any other. Where the caller's dialect joins, all text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<Text>,
    /// Bytes of the whole text.
    pub len: u64,
    /// Hash of the whole text.
    pub hash: Hash,
    /// Answered turns.
    pub turns: u32,
    /// What the run itself cost.
    pub usage_self: Usage,
    /// What the runs that it owned cost, theirs included.
    pub usage_owned: Usage,
    /// Working time.
    pub worked_ms: u64,
    /// Whether inputs that wait stay where they are, rather than open the next run (rule 9).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub queue_stands: bool,
    /// Why the actor was given up, when the outcome was fixed before that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gave_up: Option<Text>,
}
