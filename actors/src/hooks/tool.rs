use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;
use subtend_session::authority::{Access, Authority};
use subtend_session::ids::Text;
use subtend_supervision::Lease;
use subtend_tools::registry::{Classified, Registry};
use subtend_tools::tool::{Tool, ToolError, ToolInvocation, ToolOutput};

use super::{BeforeTool, Hooks, ToolAsked, ToolDone, catch_hook_panic};
use crate::calls::tool_call::{self, ToolOutcome};
use crate::spawn::background;

#[derive(Clone, Debug, Default)]
pub(crate) struct GrantedApprovals {
    /// The session's permanent approvals.
    pub(crate) always: BTreeSet<(Text, Access)>,
    pub(crate) once: Vec<Access>,
}

impl GrantedApprovals {
    /// Checks a call of `tool`: an `Ask` needs an approval, and an approval does not lift a deny.
    pub(crate) fn check(
        &self,
        tools: &Registry,
        tool: &dyn Tool,
        args: &Value,
        authority: &Authority,
    ) -> Result<(), ToolError> {
        let name = &tool.spec().name;
        let granted =
            |access: &Access| background::is_granted(&self.always, name, access) || self.once.contains(access);
        tools.check(tool, args, authority, &granted)
    }
}

pub(crate) struct Hooked {
    pub(crate) hooks: Arc<dyn Hooks>,
    pub(crate) tools: Registry,
    pub(crate) tool: Arc<dyn Tool>,
    pub(crate) tool_call: ToolAsked,
    pub(crate) only: Option<Vec<Text>>,
    pub(crate) approvals: GrantedApprovals,
    pub(crate) lease: Lease,
}

impl Hooked {
    /// Runs the call. A cancel drops a running hook: the call then does not start, or its result is withheld.
    pub(crate) async fn run(mut self, mut call: ToolInvocation) -> ToolOutcome {
        let stop = call.cancel.clone();
        let before = tokio::select! {
            biased;
            () = stop.cancelled() => return ToolOutcome::NotStarted,
            before = catch_hook_panic(|| self.hooks.before_tool(self.tool_call.clone())) => before,
        };
        match before {
            Ok(BeforeTool::Proceed) => {}
            Ok(BeforeTool::ProceedWith(args)) => match self.replace(args, &call.authority) {
                Ok(args) => call.args = args,
                Err(error) => return ToolOutcome::Error(error),
            },
            Ok(BeforeTool::Deny(why)) => {
                let error = format!("denied: the host does not allow this call of {}: {why}", self.tool_call.tool);
                return ToolOutcome::Error(ToolError::denied(error));
            }
            Err(panic) => {
                tracing::error!(session = %self.tool_call.session, %panic, "a hook panicked; the call is denied");
                let error = format!("denied: a hook of the host failed before this call of {}", self.tool_call.tool);
                return ToolOutcome::Error(ToolError::denied(error));
            }
        }
        if !self.lease.is_valid() {
            // The hook ran until the store's lease ended: the runtime stops.
            std::future::pending::<()>().await;
        }
        let outcome = tool_call::run(&self.tool, call).await;
        let shown = match &outcome {
            ToolOutcome::Output(output) => (false, Arc::clone(&output.content)),
            ToolOutcome::Error(error) => (true, error.message.as_str().into()),
            ToolOutcome::Panic(_) | ToolOutcome::NotStarted => return outcome,
        };
        let done = ToolDone { asked: self.tool_call, error: shown.0, text: shown.1 };
        let after = tokio::select! {
            biased;
            after = catch_hook_panic(|| self.hooks.after_tool(done)) => after,
            () = stop.cancelled() => Err("it was stopped before it returned".into()),
        };
        match after {
            Ok(None) => outcome,
            Ok(Some(text)) => with_text(outcome, text),
            Err(failed) => {
                tracing::error!(%failed, "a hook failed; the result is withheld");
                with_text(outcome, "the call has ended, but its result is withheld: a hook of the host failed".into())
            }
        }
    }

    /// Returns the hook's arguments if the call may run with them.
    fn replace(&mut self, args: Value, authority: &Authority) -> Result<Value, ToolError> {
        let (name, text) = (&self.tool_call.tool, args.to_string());
        match self.tools.classify(name, &text, authority, self.only.as_deref(), true, &|_| false) {
            Classified::Ready { args, .. } => {
                self.approvals.check(&self.tools, &*self.tool, &args, authority)?;
                self.tool_call.args = args.clone();
                Ok(args)
            }
            Classified::Invalid { message, .. } => {
                Err(ToolError::failed(format!("a hook of the host returned invalid arguments: {message}")))
            }
        }
    }
}

/// Replaces the text of `outcome`; the session bounds it.
fn with_text(outcome: ToolOutcome, text: Text) -> ToolOutcome {
    match outcome {
        ToolOutcome::Output(_) => ToolOutcome::Output(ToolOutput { content: text, truncated_from: None }),
        ToolOutcome::Error(error) => ToolOutcome::Error(ToolError { message: text.to_string(), ..error }),
        ToolOutcome::Panic(_) | ToolOutcome::NotStarted => outcome,
    }
}
