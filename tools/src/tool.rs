//! The tool trait. A tool takes one call and returns one bounded result.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde_json::{Map, Value};
use subtend_session::authority::{Access, Authority};
use subtend_session::call::ToolEffect;
use subtend_session::ids::Text;
use subtend_session::message::ToolSpec;
use tokio_util::sync::CancellationToken;

use crate::checkpoint::Checkpoints;
use crate::display::Display;
use crate::option::ToolOption;
use crate::processes::Processes;
use crate::workspace::Workspace;

pub use crate::result::{ToolError, ToolOutput};
pub use crate::tool_key::ToolKey;

/// A tool that a model can call.
///
/// # Cancel safety
/// The future of [`Tool::run`] may be dropped at any point. This happens at the end of the grace period after a cancel. `call.cancel` fires
/// earlier: then the tool must stop external work that it has started.
pub trait Tool: Send + Sync + 'static {
    /// Returns the name, description and schema for models.
    fn spec(&self) -> &ToolSpec;

    /// Returns the full name, for lists of tools. Models call a tool with a long name by a shorter name.
    fn full_name(&self) -> &str {
        &self.spec().name
    }

    fn effect(&self) -> ToolEffect;

    /// Returns whether a call leaves the process. A call with side effects always waits for its intent record.
    fn leaves_process(&self) -> bool {
        true
    }

    /// Returns the accesses of a call with these schema-valid arguments, which are checked when the call runs. Without arguments, returns the
    /// accesses that every call needs; they decide whether the tool is offered.
    fn access(&self, args: Option<&Value>) -> Vec<Access>;

    /// Returns an error if `authority` excludes this tool for all arguments. Then the tool is neither offered nor run.
    fn exclusion_error(&self, _authority: &Authority) -> Option<ToolError> {
        None
    }

    /// Returns the options that users can set. Their values are passed to each call.
    fn options(&self) -> &[ToolOption] {
        &[]
    }

    fn display(&self) -> Display {
        Display::default()
    }

    /// Returns a description of the arguments for users. `None` shows the arguments themselves.
    fn render_input(&self, _args: &Value) -> Option<Text> {
        None
    }

    /// Returns a description of the result for users. `None` shows the result itself.
    fn render_output(&self, _result: &str) -> Option<Text> {
        None
    }

    /// Runs one call with schema-valid arguments.
    fn run(&self, call: ToolInvocation) -> BoxFuture<'static, Result<ToolOutput, ToolError>>;
}

/// The input of a running tool.
#[derive(Clone, Debug)]
pub struct ToolInvocation {
    /// The identity of the call, which tools can use as idempotency key.
    pub key: ToolKey,
    /// The arguments, valid against the schema.
    pub args: Value,
    /// The values of all declared options, with defaults filled in.
    pub options: Arc<Map<String, Value>>,
    pub workspace: Arc<Workspace>,
    /// The authority of the session. A tool that finds further resources during a call must check each of them.
    pub authority: Arc<Authority>,
    /// Fires when the call should stop.
    pub cancel: CancellationToken,
    /// Maximum bytes of the result. The tool truncates longer results and marks the truncation.
    pub max_bytes: u64,
    pub progress: Progress,
    pub processes: Processes,
    /// Saves the contents of files that the call replaces. `None` if checkpoints are off.
    pub checkpoints: Option<Checkpoints>,
    /// Delivers messages to related sessions. `None` outside of a runtime.
    pub messenger: Option<Arc<dyn Messenger>>,
    /// The tools that new children of the session may have; `None` for all.
    pub child_tools: Option<Vec<Text>>,
    /// True if an approver allowed this call.
    pub approved: bool,
}

/// Delivers messages from a running session to its running parent, children and siblings.
pub trait Messenger: Send + Sync {
    /// Delivers `text` to the related session `to`: `parent`, a short id or a full id. Returns the text for the caller's model.
    ///
    /// # Errors
    /// If the session does not exist, is not running or has a full queue. Also if it is a child with more permissions or tools
    /// than `ceiling`, which has the caller's authority and [`ToolInvocation::child_tools`]. The message is then not delivered.
    ///
    /// # Durability
    /// The message is durable when this returns. A repeated call with the same key after a restart delivers no second message.
    fn deliver(
        self: Arc<Self>,
        from: ToolKey,
        ceiling: (Arc<Authority>, Option<Vec<Text>>),
        to: Text,
        text: Text,
    ) -> BoxFuture<'static, Result<Text, ToolError>>;
}

impl fmt::Debug for dyn Messenger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Messenger")
    }
}

/// Receives progress lines of one call. Cheap to clone.
#[derive(Clone)]
pub struct Progress(Option<Arc<dyn Fn(Text) + Send + Sync>>);

impl Progress {
    /// Creates a receiver that drops every line.
    pub fn none() -> Self {
        Self(None)
    }

    /// Creates a receiver that calls `sink` for each line. `sink` must not block.
    pub fn to(sink: impl Fn(Text) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(sink)))
    }

    pub fn send(&self, line: impl Into<Text>) {
        if let Some(sink) = &self.0 {
            sink(line.into());
        }
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Progress").field(&self.0.is_some()).finish()
    }
}
