use serde::{Deserialize, Serialize};

use crate::call::CallEnd;
use crate::ids::{AttemptNo, CallId, InputId, RunNo, Text, TurnNo};
use crate::outcome::ModelFail;
use crate::usage::{Usage, is_zero};

/// The prompt that subtend adds to the transcript.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Prompt {
    Plain,
    /// Asks the model to continue its truncated answer.
    Continuation,
    /// Asks the model for an answer after an empty one.
    Nudge,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    End,
    Calls,
    /// The output cap or the context was reached.
    Length,
    Refused,
    /// Any other reason of the provider.
    Other,
}

/// Estimated tokens of one model attempt, later replaced by the reported usage.
///
/// Their cost is reserved at the price of the called model. If no usage is reported, the whole reservation is charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reserved {
    pub input: u64,
    pub output: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptDiscarded {
    pub turn: TurnNo,
    pub attempt: AttemptNo,
    pub error: ModelFail,
    /// The provider's message, bounded and free of secrets.
    #[serde(default)]
    pub message: Text,
    /// The model that was called, if the session's model name represents several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Text>,
    /// Delay of the next attempt in milliseconds, without jitter; absent if none follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "again_ms")]
    pub retry_delay_ms: Option<u64>,
    /// If the run parks at a limit of a pool, the member whose reset it waits for. Absent in records of earlier builds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub awaits: Option<Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Milliseconds for which the call waited for a permit of its model.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub queued_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnAnswered {
    pub run: RunNo,
    pub turn: TurnNo,
    pub attempt: AttemptNo,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<Text>,
    /// Reasoning that the provider requires to be sent back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<Text>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<ToolCall>,
    pub stop: Stop,
    /// The model that answered: its name in a pool, else the provider's own name if reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Text>,
    pub usage: Usage,
    /// The inputs that a final answer answers: all inputs taken since the previous final answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<InputId>,
    /// Working time of the run so far.
    pub worked_ms: u64,
    /// Milliseconds for which the call waited for a permit of its model.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub queued_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The provider's id of the call, kept for the provider only.
    pub provider_id: Text,
    pub tool: Text,
    /// The arguments: JSON text as the model wrote it, valid or not.
    pub args: Text,
}

impl ToolCall {
    pub fn text_bytes(&self) -> usize {
        self.provider_id.len().saturating_add(self.tool.len()).saturating_add(self.args.len())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallFinished {
    pub call: CallId,
    pub end: CallEnd,
    pub content: Text,
    /// Bytes before the result was truncated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub truncated_from: Option<u64>,
    #[serde(default)]
    pub worked_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AskVerdict {
    Allow,
    Deny,
    /// Allow, now and from now on, in this session only.
    Always,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AnsweredBy {
    Person,
    /// The deadline passed, so the call is denied.
    Deadline,
    /// No approver is attached, so the call is denied.
    NoApprover,
    /// The call was closed before an answer arrived.
    Closed,
}
