//! Inputs and the queue.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::agent_override::AgentOverride;
use crate::ids::{CallId, InputId, RunNo, SessionId, Text};
use crate::place::Owner;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputAccepted {
    /// The id: the receipt.
    pub id: InputId,
    /// The sender's idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Text>,
    pub from: From,
    pub lane: Lane,
    pub text: Text,
    /// An agent that answers from here on: only a person or the host sets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_override: Option<Arc<AgentOverride>>,
    /// Turn allowance of the run that this input opens or resumes; the session's own if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turns: Option<u32>,
    /// The sender's metadata; JSON text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Text>,
    /// JSON schema for the answer, as JSON text: requested from the model, checked by the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<Text>,
    /// The tools offered from here on, if a continuing call changes them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<Text>>,
    /// The owner of a run that this input opens.
    pub as_owner: Owner,
}

impl InputAccepted {
    /// Returns whether another running session of the tree sent it: it enters the run in flight only, and is dropped
    /// with it (X16).
    pub fn is_from_relative(&self) -> bool {
        self.lane == Lane::Steer && matches!(self.from, From::Model { .. })
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
    /// The result of an agent outside of this store.
    AgentResult,
}

/// When an input may be taken.
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
