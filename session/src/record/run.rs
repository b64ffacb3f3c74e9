use serde::{Deserialize, Serialize};

use crate::ids::{CallId, Hash, RunNo, Seq, Text};
use crate::outcome::{Initiator, Outcome};
use crate::usage::Usage;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Park {
    /// All open calls of the turn wait for children or approvals.
    MidTurn,
    /// No call is open; owned runs are in flight.
    AtRest,
    Ask,
    /// The run awaits a slot for its next turn.
    Slot,
    /// The run waits until a provider's usage or rate limit is reset, at this time in milliseconds since the epoch. Then
    /// the turn's model call is repeated.
    Limit {
        until: i64,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hold {
    /// The run was interrupted. It resumes with the next input.
    Interrupted { by: Initiator },
    /// The turn allowance is spent. The run ends after its owned runs.
    OutOfTurns,
    /// The outcome is fixed. The run ends after its local work and owned runs.
    Closing {
        outcome: Outcome,
        /// True if queued inputs stay queued after the end instead of opening the next run.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        #[serde(rename = "queue_stands")]
        keeps_queue: bool,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunEnded {
    pub run: RunNo,
    pub outcome: Outcome,
    /// The record with the result: the last answer, or the answer with the `return` call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Seq>,
    /// The `return` call that gave the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub returned: Option<CallId>,
    /// The text for the owner, truncated to its bound: the answer of a completed run, the last text of a run that is out
    /// of turns, else the partial output. All text joined if the caller's dialect requires that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<Text>,
    pub len: u64,
    pub hash: Hash,
    pub turns: u32,
    pub usage_self: Usage,
    /// The usage of the owned runs and of all runs that they owned.
    pub usage_owned: Usage,
    pub worked_ms: u64,
    /// True if queued inputs stay queued instead of opening the next run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[serde(rename = "queue_stands")]
    pub keeps_queue: bool,
    /// The reason why the runtime stopped restarting the actor, if the outcome was fixed before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gave_up: Option<Text>,
}
