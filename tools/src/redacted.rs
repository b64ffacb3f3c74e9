//! Redaction of secret values in tool results.

use std::borrow::Cow;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::Value;
use subtend_session::authority::{Access, Authority};
use subtend_session::call::ToolEffect;
use subtend_session::ids::Text;
use subtend_session::message::ToolSpec;

use crate::display::Display;
use crate::option::ToolOption;
use crate::secrets::Secrets;
use crate::tool::{Progress, Tool, ToolError, ToolInvocation, ToolOutput};

/// Wraps `tool` so that secrets are redacted in its results, errors and progress.
pub(crate) fn wrap(secrets: &Secrets, tool: Arc<dyn Tool>) -> Arc<dyn Tool> {
    if secrets.is_empty() { tool } else { Arc::new(Redacted { tool, secrets: secrets.clone() }) }
}

pub(crate) fn redact_output(secrets: &Secrets, output: ToolOutput) -> ToolOutput {
    match secrets.redact(&output.content) {
        Cow::Borrowed(_) => output,
        Cow::Owned(content) => ToolOutput { content: content.into(), ..output },
    }
}

pub(crate) fn error(secrets: &Secrets, error: ToolError) -> ToolError {
    let message = secrets.redact(&error.message).into_owned();
    ToolError { message, ..error }
}

struct Redacted {
    tool: Arc<dyn Tool>,
    secrets: Secrets,
}

impl Tool for Redacted {
    fn spec(&self) -> &ToolSpec {
        self.tool.spec()
    }

    fn full_name(&self) -> &str {
        self.tool.full_name()
    }

    fn effect(&self) -> ToolEffect {
        self.tool.effect()
    }

    fn leaves_process(&self) -> bool {
        self.tool.leaves_process()
    }

    fn access(&self, args: Option<&Value>) -> Vec<Access> {
        self.tool.access(args)
    }

    fn exclusion_error(&self, authority: &Authority) -> Option<ToolError> {
        self.tool.exclusion_error(authority)
    }

    fn options(&self) -> &[ToolOption] {
        self.tool.options()
    }

    fn display(&self) -> Display {
        self.tool.display()
    }

    fn render_input(&self, args: &Value) -> Option<Text> {
        self.tool.render_input(args)
    }

    fn render_output(&self, result: &str) -> Option<Text> {
        self.tool.render_output(result)
    }

    fn run(&self, mut call: ToolInvocation) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
        let (secrets, progress) = (self.secrets.clone(), call.progress.clone());
        call.progress = Progress::to(move |line| progress.send(secrets.redact(&line).into_owned()));
        call.processes = call.processes.with_secrets(&self.secrets);
        let secrets = self.secrets.clone();
        let running = self.tool.run(call);
        async move {
            running.await.map(|outcome| redact_output(&secrets, outcome)).map_err(|failed| error(&secrets, failed))
        }
        .boxed()
    }
}
