//! Compactions: old history is summarised and hidden, never deleted.

use serde::{Deserialize, Serialize};

use crate::ids::{AttemptNo, SessionId, Text, TurnNo};
use crate::outcome::Initiator;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum CompactionCause {
    /// The next model call would fill more of the context window than the limit allows.
    Share,
    /// The provider reported that the request exceeds the model's context.
    Overflow,
    /// A person or the host requested it.
    Asked,
}

impl CompactionCause {
    /// Returns the cause as the end of a sentence.
    pub fn phrase(self) -> &'static str {
        match self {
            Self::Share => "since the context was nearly full",
            Self::Overflow => "since the provider reported an overflow",
            Self::Asked => "on request",
        }
    }
}

/// Old history that one message replaces. Its records remain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compacted {
    /// The model call that waited for the compaction, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<(TurnNo, AttemptNo)>,
    pub cause: CompactionCause,
    pub by: Initiator,
    /// The position in the transcript from which messages remain visible.
    pub upto: u64,
    /// Earlier positions whose messages remain visible, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub verbatim: Vec<u64>,
    /// The message that replaces the others, with the summary and the live children.
    pub text: Text,
    /// The service session that wrote the summary.
    pub of: SessionId,
    /// Estimated input tokens of the next model call, before and after.
    pub before: u64,
    pub after: u64,
}

impl Compacted {
    /// Returns the number of hidden messages. The text that replaces them states this number.
    pub fn hidden(&self) -> u64 {
        self.upto.saturating_sub(self.verbatim.len() as u64)
    }
}

/// A compaction that failed. The model is called without it, or the run fails.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompactionFailed {
    pub turn: TurnNo,
    pub attempt: AttemptNo,
    pub cause: CompactionCause,
    pub why: CompactionFailure,
    /// A description of the failure, bounded.
    #[serde(default)]
    pub message: Text,
    /// The service session, if it was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<SessionId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum CompactionFailure {
    /// The compaction agent did not complete.
    Agent,
    Empty,
    /// The history with the summary would still be too large.
    TooLarge,
}
