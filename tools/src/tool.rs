//! The tool trait: one call in, one bounded result out.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde_json::{Map, Value};
use subtend_session::authority::{Access, Authority};
use subtend_session::call::ToolEffect;
use subtend_session::ids::{CallId, RunNo, SessionId, Text};
use subtend_session::message::ToolSpec;
use tokio_util::sync::CancellationToken;

use crate::display::Display;
use crate::option::ToolOption;
use crate::workspace::Workspace;

pub use crate::result::{ToolError, ToolOutput};

/// Something a model may call.
///
/// # Cancel safety
/// The future of [`Tool::run`] may be dropped at any point, and is when the grace after a cancel has passed.
/// `call.cancel` fires first: a tool that started something outside the process must stop it then.
pub trait Tool: Send + Sync + 'static {
    /// What the model is told.
    fn spec(&self) -> &ToolSpec;

    /// What it does to the world.
    fn effect(&self) -> ToolEffect;

    /// Whether a call leaves the process; one with side effects always waits for its intent record (J-5).
    fn leaves_process(&self) -> bool {
        true
    }

    /// What a call with these (schema-valid) arguments is about to do: checked against the authority when it runs.
    /// With `None` for arguments not known yet: the least that any call needs, to decide whether the tool is offered
    /// (P-7).
    fn access(&self, args: Option<&Value>) -> Vec<Access>;

    /// What in `authority` rules this tool out, whatever the arguments: then it is neither offered nor run.
    fn ruled_out(&self, _authority: &Authority) -> Option<ToolError> {
        None
    }

    /// Options that a person sets (M3); their values come with each call.
    fn options(&self) -> &[ToolOption] {
        &[]
    }

    /// How it is shown to people.
    fn display(&self) -> Display {
        Display::default()
    }

    /// What a call with these arguments takes, in words for people; `None` for the arguments as they are.
    fn render_input(&self, _args: &Value) -> Option<Text> {
        None
    }

    /// What a result says, in words for people; `None` for the result as it is.
    fn render_output(&self, _result: &str) -> Option<Text> {
        None
    }

    /// Runs one call. The arguments fit the schema.
    fn run(&self, call: ToolInvocation) -> BoxFuture<'static, Result<ToolOutput, ToolError>>;
}

/// One call of a tool.
#[derive(Clone, Debug)]
pub struct ToolInvocation {
    /// Who calls, and the key under which an idempotent tool may be repeated.
    pub key: ToolKey,
    /// The arguments: valid against the tool's schema.
    pub args: Value,
    /// The values of its tool's options: all that it declares, filled in where nobody said anything.
    pub options: Arc<Map<String, Value>>,
    pub workspace: Arc<Workspace>,
    /// What the session may do: tools that touch several resources check each.
    pub authority: Arc<Authority>,
    /// Fires when the call should stop.
    pub cancel: CancellationToken,
    /// Bytes of the result at most; what is over is cut and said.
    pub max_bytes: u64,
    /// Takes progress for people.
    pub progress: Progress,
}

/// Names a call for ever: the same after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ToolKey {
    pub session: SessionId,
    pub run: RunNo,
    pub call: CallId,
}

/// Takes progress of one call. Cheap to clone.
#[derive(Clone)]
pub struct Progress(Option<Arc<dyn Fn(Text) + Send + Sync>>);

impl Progress {
    /// Nobody listens.
    pub fn none() -> Self {
        Self(None)
    }

    /// Calls `sink` for each report. It must not block.
    pub fn to(sink: impl Fn(Text) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(sink)))
    }

    /// Reports a line of progress.
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
