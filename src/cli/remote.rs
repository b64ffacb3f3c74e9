use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use subtend::config::Config;
use subtend_host::workers::{RemoteTool, Workers};
use subtend_session::message::ToolSpec;

use super::fail::Fail;

/// Declares the remote tools of a configuration.
///
/// # Errors
/// [`Fail::Usage`] for a tool that cannot be declared.
pub(crate) fn workers(config: &Config) -> Result<Workers, Fail> {
    let tools = config.remote_tools.iter().map(|(name, tool)| RemoteTool {
        spec: ToolSpec {
            name: Arc::clone(name),
            description: Arc::clone(&tool.description),
            schema: Arc::new(Value::Object(tool.input.clone())),
        },
        action: tool.action.clone().unwrap_or_else(|| format!("tool:{name}").into()),
        idempotent: tool.idempotent,
        lease: Duration::from_millis(tool.lease_ms),
        deadline: tool.deadline_ms.map(Duration::from_millis),
    });
    Workers::new(tools).map_err(|error| Fail::Usage(format!("{error} (`remote_tools` of your configuration)")))
}

/// Returns whether a remote tool may need `action`.
pub(crate) fn may_be_needed(config: &Config, action: &str) -> bool {
    let action_of = |(name, action): (&Arc<str>, Option<&Arc<str>>)| {
        action.map_or_else(|| format!("tool:{name}"), ToString::to_string)
    };
    let mut actions = config.remote_tools.iter().map(|(name, tool)| action_of((name, tool.action.as_ref())));
    actions.any(|needed| needed == action || action.contains('*'))
}
