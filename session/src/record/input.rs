use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::agent_override::AgentOverride;
use crate::ids::{CallId, InputId, RunNo, SessionId, Text};
use crate::place::Owner;
use crate::values::json_bytes;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputAccepted {
    /// The id, which is the sender's receipt.
    pub id: InputId,
    /// The sender's idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Text>,
    pub from: From,
    pub lane: Lane,
    pub text: Text,
    /// The agent that answers from now on. Only a person or the host sets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_override: Option<Arc<AgentOverride>>,
    /// Turn allowance of the run that this input opens or resumes; the session's own if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turns: Option<u32>,
    /// The sender's metadata as JSON text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Text>,
    /// JSON schema of the answer, as JSON text. The model is asked for such an answer, and the caller checks it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<Text>,
    /// The tools offered from now on, if a continuing call changes them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<Text>>,
    /// The owner of a run that this input opens.
    pub as_owner: Owner,
}

impl InputAccepted {
    /// Returns the bytes that its texts take in JSON, as records and responses do.
    pub(crate) fn bytes(&self) -> u64 {
        let of = |text: &Option<Text>| text.as_ref().map_or(0, |text| json_bytes(text));
        let system = self.agent_override.as_ref().map_or(0, |agent| json_bytes(&agent.system));
        let texts = [of(&self.metadata), of(&self.format), system];
        texts.into_iter().fold(json_bytes(&self.text), u64::saturating_add)
    }

    /// Creates an input without options.
    pub fn new(id: InputId, from: From, lane: Lane, text: impl Into<Text>, as_owner: Owner) -> Self {
        Self {
            id,
            key: None,
            from,
            lane,
            text: text.into(),
            agent_override: None,
            turns: None,
            metadata: None,
            format: None,
            tools: None,
            as_owner,
        }
    }

    /// Returns the turn allowance that the input sets: its own, or the allowance of the agent that it selects.
    pub fn allowance(&self) -> Option<u32> {
        self.turns.or_else(|| self.agent_override.as_ref().and_then(|agent| agent.turns))
    }

    /// Returns whether an agent sent the input: a message of a running relative, or a continuation.
    pub(crate) fn is_from_agent(&self) -> bool {
        matches!(self.from, From::Model { .. })
    }

    /// Returns whether a running relative sent the input: it is only for the run in flight, and is dropped at its end.
    pub fn is_from_relative(&self) -> bool {
        self.lane == Lane::Steer && self.is_from_agent()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum From {
    Person,
    Host,
    Model {
        session: SessionId,
        run: RunNo,
        call: CallId,
    },
    /// The result of an agent outside this store.
    AgentResult,
}

/// The point at which an input may be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lane {
    /// At the next rest point.
    Send,
    /// At the next turn boundary.
    Steer,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueChange {
    Removed(Vec<InputId>),
    Cleared,
}
