//! Inputs and the queue.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::agent_override::AgentOverride;
use crate::ids::{CallId, InputId, RunNo, SessionId, Text};
use crate::place::Owner;

/// An accepted input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputAccepted {
    /// Its id: the receipt.
    pub id: InputId,
    /// The sender's own key: a second input with the same key is the same input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Text>,
    /// Who sent it.
    pub from: From,
    /// When it may be taken.
    pub lane: Lane,
    /// The text.
    pub text: Text,
    /// An agent that answers from here on (G12): only a person or the host sets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_override: Option<Arc<AgentOverride>>,
    /// Turn allowance of the run that this input opens or resumes; the session's own if absent (B6).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turns: Option<u32>,
    /// What the sender attached; JSON text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Text>,
    /// JSON schema that the answer is to keep, as JSON text: a request to the model, checked by whoever asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<Text>,
    /// The tools that the session is offered from here on, if other ones than before: only a call that lets it go on says so (M5).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<Text>>,
    /// The owner of a run that this input opens.
    pub as_owner: Owner,
}

/// Who sent an input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum From {
    /// A person.
    Person,
    /// The host.
    Host,
    /// A model's call.
    Model {
        /// The caller's session.
        session: SessionId,
        /// Its run.
        run: RunNo,
        /// The call.
        call: CallId,
    },
    /// The result of an agent outside this store.
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

/// A change of the queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueChange {
    /// Single inputs were removed.
    Removed(Vec<InputId>),
    /// All of it was cleared.
    Cleared,
}
