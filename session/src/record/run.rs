//! Waits and ends of runs.

use serde::{Deserialize, Serialize};

use crate::ids::{CallId, Hash, RunNo, Seq, Text};
use crate::outcome::{By, Outcome};
use crate::usage::Usage;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Park {
    /// Only child, await or approval calls of the turn are open.
    MidTurn,
    /// No call is open; owned runs are in flight.
    AtRest,
    Ask,
    /// A slot; the turn is due.
    Slot,
    /// A provider's usage or rate limit, until this wall-clock time in milliseconds. The turn's model call is repeated
    /// then.
    Limit {
        until: i64,
    },
}

/// Why a run is held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hold {
    /// Interrupted: resumes with the next input.
    Interrupted { by: By },
    /// The turn allowance is spent: owned runs finish, then it ends.
    OutOfTurns,
    /// The outcome is fixed; the end follows after local work and owned runs.
    Closing {
        outcome: Outcome,
        /// Whether queued inputs stay queued after the end rather than open the next run.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        queue_stands: bool,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunEnded {
    pub run: RunNo,
    pub outcome: Outcome,
    /// The record that holds the result: the last answer, or the `return` call's answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Seq>,
    /// The `return` call that gave the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub returned: Option<CallId>,
    /// The text for the owner, truncated to its bound: the answer of a completed run, the last text of one out of
    /// turns, else the partial output. All text if the caller's dialect joins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<Text>,
    pub len: u64,
    pub hash: Hash,
    pub turns: u32,
    pub usage_self: Usage,
    /// The usage of the owned runs and of all below them.
    pub usage_owned: Usage,
    pub worked_ms: u64,
    /// Whether queued inputs stay queued rather than open the next run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub queue_stands: bool,
    /// Why the actor was given up, if the outcome was fixed before that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gave_up: Option<Text>,
}
