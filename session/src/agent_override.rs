//! An agent that answers in a session in place of the session's own (G12).

use serde::{Deserialize, Serialize};

use crate::ids::{Hash, Text};

/// Another agent that answers in a session, resolved when the input that names it was accepted.
///
/// The session's ceiling stays: what the agent may do is the meet of both (P-4).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentOverride {
    /// The agent's name.
    pub agent: Text,
    /// Hash of its manifest.
    pub agent_hash: Hash,
    /// The model that it names, or the session's.
    pub model: Text,
    /// Its resolved system prompt (B17).
    pub system: Text,
}
