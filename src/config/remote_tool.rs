//! Configuration of remote tools, whose calls workers answer.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use subtend_session::ids::Text;

/// A tool whose calls workers answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RemoteToolConfig {
    /// Description for models: purpose, and when to use the tool.
    pub description: Text,
    /// JSON Schema of its arguments. Default: any object.
    pub input: Map<String, Value>,
    /// Action for permission rules, as `tool:NAME`; several tools may share one. Default: the name of the tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<Text>,
    /// True if a call may be repeated after its worker was lost. If false, the effects of such a call are unknown.
    pub idempotent: bool,
    /// Time in ms without a renewal after which a worker counts as lost.
    #[schemars(range(min = 1_000, max = 600_000))]
    pub lease_ms: u64,
    /// Time limit of a call in ms, including the wait for a worker; `limits.tool_ms` applies too.
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
