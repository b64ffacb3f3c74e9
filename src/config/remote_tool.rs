//! Tools whose calls workers answer.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use subtend_session::ids::Text;

/// A tool whose calls workers answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RemoteToolConfig {
    /// For models: what the tool does, when to use it and when not.
    pub description: Text,
    /// The JSON Schema of its arguments. Left out: any object.
    pub input: Map<String, Value>,
    /// The action that rules name, as `tool:NAME`; several tools may share one. Left out: with the name of the tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<Text>,
    /// Whether a call may be repeated after its worker was lost. If not, its effects are unknown then.
    pub idempotent: bool,
    /// How long a worker may be silent before it counts as lost, in milliseconds.
    #[schemars(range(min = 1_000, max = 600_000))]
    pub lease_ms: u64,
    /// Time for a call with its wait for a worker, in milliseconds; `limits.tool_ms` applies too.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1_000))]
    pub deadline_ms: Option<u64>,
}

impl Default for RemoteToolConfig {
    fn default() -> Self {
        let input = Map::from_iter([("type".to_owned(), "object".into())]);
        Self { description: "".into(), input, action: None, idempotent: false, lease_ms: 30_000, deadline_ms: None }
    }
}
