//! Tools made of a closure: the short way for an embedder's own.

use std::future::Future;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::Value;
use subtend_session::authority::Access;
use subtend_session::call::ToolEffect;
use subtend_session::message::ToolSpec;

use crate::tool::{Tool, ToolCall, ToolError, ToolOutput};

/// Makes a tool of `run`.
///
/// Its calls need `tool:<name>` on every resource, and count as leaving the process; [`FnTool`] changes both.
pub fn fn_tool<F, R>(spec: ToolSpec, effect: ToolEffect, run: F) -> Arc<dyn Tool>
where
    F: Fn(ToolCall) -> R + Send + Sync + 'static,
    R: Future<Output = Result<ToolOutput, ToolError>> + Send + 'static,
{
    Arc::new(FnTool::new(spec, effect, run))
}

type Run = dyn Fn(ToolCall) -> BoxFuture<'static, Result<ToolOutput, ToolError>> + Send + Sync;
type AccessOf = dyn Fn(Option<&Value>) -> Vec<Access> + Send + Sync;

/// A tool whose work is a closure.
pub struct FnTool {
    spec: ToolSpec,
    effect: ToolEffect,
    leaves_process: bool,
    access: Box<AccessOf>,
    run: Box<Run>,
}

impl FnTool {
    /// A tool that leaves the process and needs `tool:<name>`.
    pub fn new<F, R>(spec: ToolSpec, effect: ToolEffect, run: F) -> Self
    where
        F: Fn(ToolCall) -> R + Send + Sync + 'static,
        R: Future<Output = Result<ToolOutput, ToolError>> + Send + 'static,
    {
        let own = Access { action: format!("tool:{}", spec.name).into(), resource: "*".into() };
        Self {
            spec,
            effect,
            leaves_process: true,
            access: Box::new(move |_| vec![own.clone()]),
            run: Box::new(move |call| run(call).boxed()),
        }
    }

    /// Says that calls stay in the process: a read-only one then does not wait for the journal.
    #[must_use]
    pub fn in_process(mut self) -> Self {
        self.leaves_process = false;
        self
    }

    /// Says what a call is about to do; see [`Tool::access`]. An empty list is allowed by every authority.
    #[must_use]
    pub fn access(mut self, access: impl Fn(Option<&Value>) -> Vec<Access> + Send + Sync + 'static) -> Self {
        self.access = Box::new(access);
        self
    }
}

impl Tool for FnTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn effect(&self) -> ToolEffect {
        self.effect
    }

    fn leaves_process(&self) -> bool {
        self.leaves_process
    }

    fn access(&self, args: Option<&Value>) -> Vec<Access> {
        (self.access)(args)
    }

    fn run(&self, call: ToolCall) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
        (self.run)(call)
    }
}
