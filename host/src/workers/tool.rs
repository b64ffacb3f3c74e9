//! The declaration of a remote tool, and the tool made from it for the runtime.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::Value;
use subtend_session::authority::Access;
use subtend_session::call::ToolEffect;
use subtend_session::ids::Text;
use subtend_session::message::ToolSpec;
use subtend_tools::tool::{Tool, ToolError, ToolInvocation, ToolOutput};

use super::Workers;

/// The allowed durations of leases.
pub const LEASES: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(600);

/// A tool whose calls workers answer. The host declares it; workers refer to it by name.
#[derive(Clone, Debug, PartialEq)]
pub struct RemoteTool {
    /// The name, description and schema for models.
    pub spec: ToolSpec,
    /// The action that permission rules name: `tool:NAME`. Several tools may share an action.
    pub action: Text,
    /// True if another worker may repeat the call of a lost worker.
    pub idempotent: bool,
    /// Time without a renewal after which a worker counts as lost.
    pub lease: Duration,
    /// Time limit of a call, from its start to its end. The session's `tool_ms` applies too.
    pub deadline: Option<Duration>,
}

/// The error of a remote tool that cannot be declared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the remote tool `{name}` cannot be declared: {why}")]
pub struct BadRemoteTool {
    /// The name of the tool.
    pub name: Text,
    /// The reason, and what to do.
    pub why: String,
}

impl RemoteTool {
    pub(super) fn check(self) -> Result<Self, BadRemoteTool> {
        let bad = |why: &str| Err(BadRemoteTool { name: Arc::clone(&self.spec.name), why: why.to_owned() });
        let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        let name = self.action.strip_prefix("tool:").filter(|name| !name.is_empty() && name.chars().all(word));
        if name.is_none() {
            return bad(
                "its action is not `tool:NAME` with a name of a-z A-Z 0-9 _ -; other actions belong to built-in tools",
            );
        }
        if self.spec.description.trim().is_empty() {
            return bad("it has no description, so a model cannot know when to use it: add one");
        }
        if !LEASES.contains(&self.lease) {
            return bad("its lease is not 1,000 to 600,000 milliseconds");
        }
        if self.deadline.is_some_and(|deadline| deadline < *LEASES.start()) {
            return bad("its deadline is less than 1,000 milliseconds");
        }
        Ok(self)
    }
}

/// A remote tool, as the runtime calls it.
pub(super) struct WorkerTool {
    tool: Arc<RemoteTool>,
    workers: Workers,
}

impl WorkerTool {
    pub(super) fn new(tool: Arc<RemoteTool>, workers: &Workers) -> Self {
        Self { tool, workers: workers.clone() }
    }
}

impl Tool for WorkerTool {
    fn spec(&self) -> &ToolSpec {
        &self.tool.spec
    }

    fn effect(&self) -> ToolEffect {
        if self.tool.idempotent { ToolEffect::Idempotent } else { ToolEffect::SideEffect }
    }

    fn access(&self, _: Option<&Value>) -> Vec<Access> {
        vec![Access { action: Arc::clone(&self.tool.action), resource: "*".into() }]
    }

    fn run(&self, call: ToolInvocation) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
        self.workers.clone().run_call(Arc::clone(&self.tool), call).boxed()
    }
}
