//! Turns and their calls.

use serde::{Deserialize, Serialize};

use crate::call::CallEnd;
use crate::ids::{AttemptNo, CallId, InputId, RunNo, Text, TurnNo};
use crate::outcome::ModelFail;
use crate::usage::Usage;

/// What is put to the model besides the transcript.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Prompt {
    /// Nothing.
    Plain,
    /// The last answer was cut off: go on.
    Continuation,
    /// The last answer was empty: answer.
    Nudge,
}

/// Why an answer stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// The model was done.
    End,
    /// It asks for calls.
    Calls,
    /// The output cap or the context was reached.
    Length,
    /// It refused.
    Refused,
    /// Anything else the provider says.
    Other,
}

/// Tokens set aside for one attempt of a model call, by estimate; settled by what the answer says that it took.
///
/// Money is reserved for them by the price of the model that is called. One that was never settled counts in full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reserved {
    /// Tokens of the request.
    pub input: u64,
    /// Tokens of the answer, at most.
    pub output: u64,
}

/// An attempt that came to nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptDiscarded {
    /// The turn.
    pub turn: TurnNo,
    /// The attempt.
    pub attempt: AttemptNo,
    /// What went wrong.
    pub error: ModelFail,
    /// The provider's own words, bounded and free of secrets.
    #[serde(default)]
    pub message: Text,
    /// The model that was called, where the session's name for it stands for several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Text>,
    /// How long until the next attempt, in milliseconds, a little jitter aside; absent where none follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again_ms: Option<u64>,
    /// What it cost all the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnAnswered {
    /// The run.
    pub run: RunNo,
    /// The turn.
    pub turn: TurnNo,
    /// The attempt that answered.
    pub attempt: AttemptNo,
    /// The text, if there is any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<Text>,
    /// Reasoning that the provider wants back, if there is any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<Text>,
    /// The calls that it asks for, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<ToolCall>,
    /// Why it stopped.
    pub stop: Stop,
    /// The model that answered: of a pool by its name there, else by the provider's own name for it, where it told one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Text>,
    /// What it cost.
    pub usage: Usage,
    /// The inputs that the answer answers: all that were taken since the last final answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<InputId>,
    /// Working time of the run so far.
    pub worked_ms: u64,
}

/// One call that an answer asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The provider's id of the call, kept for the provider only.
    pub provider_id: Text,
    /// The tool's name.
    pub tool: Text,
    /// The arguments: JSON text as the model wrote it, whether it parses or not.
    pub args: Text,
}

impl ToolCall {
    /// Returns the bytes of all that the model wrote of the call.
    pub fn text_bytes(&self) -> usize {
        self.provider_id.len().saturating_add(self.tool.len()).saturating_add(self.args.len())
    }
}

/// The end of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallFinished {
    /// The call.
    pub call: CallId,
    /// How it ended.
    pub end: CallEnd,
    /// What the model sees.
    pub content: Text,
    /// Bytes before the result was cut to its bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub truncated_from: Option<u64>,
    /// Working time of the call.
    #[serde(default)]
    pub worked_ms: u64,
}

/// A person's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AskVerdict {
    /// This once.
    Allow,
    /// No.
    Deny,
    /// From now on, in this session only.
    Always,
}

/// Who answered an ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AskBy {
    /// A person.
    Person,
    /// Its deadline passed: a deny.
    Deadline,
    /// No approver is attached: a deny.
    NoApprover,
    /// The call was closed before anyone answered: a deny.
    Closed,
}
