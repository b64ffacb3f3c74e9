use serde::{Deserialize, Serialize};

use crate::ids::{Hash, Text};

/// The agent that an input selects, resolved at acceptance. The authority is the meet with the session's ceiling.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentOverride {
    pub agent: Text,
    pub agent_hash: Hash,
    /// The manifest's model; the session's if the manifest names none.
    pub model: Text,
    pub system: Text,
    /// Turn allowance of the runs in which this agent answers; the session's if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turns: Option<u32>,
}
