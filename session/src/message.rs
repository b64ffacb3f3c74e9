//! Messages of the transcript.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::{CallId, Seq, Text};
use crate::record::ToolCall;
use crate::values::json_bytes;

/// One message of a transcript, created by the fold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    User {
        seq: Seq,
        text: Text,
    },
    Assistant {
        seq: Seq,
        text: Option<Text>,
        /// Reasoning that the provider requires to be sent back.
        reasoning: Option<Text>,
        /// The requested calls: [`CallId::ix`] is the position in this list.
        calls: Arc<[ToolCall]>,
    },
    /// The result of one call. The results follow in the order of the calls, when all calls of the answer are closed.
    Result {
        call: CallId,
        error: bool,
        content: Text,
    },
    /// A message that reports the ends of owned runs to the model.
    Notice {
        seq: Seq,
        text: Text,
    },
    /// A prompt that subtend adds: a continuation, a nudge or a summary.
    Prompt {
        text: Text,
    },
}

impl Message {
    /// Returns the sequence number of the message's record, if it has a record of its own.
    pub fn record(&self) -> Option<Seq> {
        match self {
            Self::User { seq, .. } | Self::Assistant { seq, .. } | Self::Notice { seq, .. } => Some(*seq),
            Self::Result { .. } | Self::Prompt { .. } => None,
        }
    }

    pub fn bytes(&self) -> u64 {
        self.sum(|text| text.len() as u64)
    }

    /// Returns the number of bytes that the message's texts and calls take in JSON, the format of requests and journals.
    pub fn json_bytes(&self) -> u64 {
        self.sum(json_bytes)
    }

    fn sum(&self, size: fn(&str) -> u64) -> u64 {
        match self {
            Self::User { text, .. } | Self::Notice { text, .. } | Self::Prompt { text } => size(text),
            Self::Result { content, .. } => size(content),
            Self::Assistant { text, reasoning, calls, .. } => {
                let texts = [text, reasoning].into_iter().flatten();
                let calls = calls.iter().flat_map(|tool_call| [&tool_call.tool, &tool_call.args]);
                texts.chain(calls).map(|text| size(text)).fold(0, u64::saturating_add)
            }
        }
    }
}

/// The messages of a session. The turn task drops its clone before it reports, so that the next push does not copy.
pub type Transcript = Arc<Vec<Message>>;

/// A tool as offered to a model. Its name matches `[a-zA-Z0-9_-]{1,64}`.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolSpec {
    pub name: Text,
    /// The purpose of the tool, and when to use it.
    pub description: Text,
    /// JSON schema of its arguments, always an object schema.
    pub schema: Arc<serde_json::Value>,
}
