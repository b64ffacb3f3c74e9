//! Messages: the transcript as the model sees it. A message is its record.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::{CallId, Seq, Text};
use crate::record::ToolCall;

/// One message of a transcript, made by the fold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// An input.
    User {
        /// The record that took it.
        seq: Seq,
        /// The text.
        text: Text,
    },
    /// An answer.
    Assistant {
        /// The record.
        seq: Seq,
        /// The text, if there is any.
        text: Option<Text>,
        /// Reasoning that the provider wants back.
        reasoning: Option<Text>,
        /// The calls that it asks for: `ix` is the place in this list.
        calls: Arc<[ToolCall]>,
    },
    /// The result of one call, in call order, after all calls of the answer are closed.
    Result {
        /// The call.
        call: CallId,
        /// Whether the call failed.
        error: bool,
        /// The text.
        content: Text,
    },
    /// A synthetic completion: ends of owned runs, rendered. Sent to a provider in the form that it accepts (K7).
    Notice {
        /// The record.
        seq: Seq,
        /// The rendered text.
        text: Text,
    },
    /// A word of ours to the model: continuation or nudge.
    Prompt {
        /// The text.
        text: Text,
    },
}

impl Message {
    /// Bytes of its texts, and of the calls that it asks for.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::User { text, .. } | Self::Notice { text, .. } | Self::Prompt { text } => text.len() as u64,
            Self::Result { content, .. } => content.len() as u64,
            Self::Assistant { text, reasoning, calls, .. } => {
                let texts = [text, reasoning].into_iter().flatten().map(|text| text.len() as u64);
                let calls = calls.iter().map(|asked| (asked.tool.len() as u64).saturating_add(asked.args.len() as u64));
                texts.chain(calls).fold(0, u64::saturating_add)
            }
        }
    }
}

/// The messages of a session, shared with the turn task without copying: it drops its clone before it reports, so that
/// the next message is pushed in place.
pub type Transcript = Arc<Vec<Message>>;

/// A tool as it is offered to a model.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolSpec {
    /// Its name: `[a-zA-Z0-9_-]{1,64}`.
    pub name: Text,
    /// What it does, when to use it and when not.
    pub description: Text,
    /// JSON schema of its arguments: always an object schema.
    pub schema: Arc<serde_json::Value>,
}
