//! A tool of a server, wrapped for sessions.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use subtend_session::authority::Access;
use subtend_session::call::ToolEffect;
use subtend_session::ids::SessionId;
use subtend_session::message::ToolSpec;

use super::argument_memory::QueuedArguments;
use super::names::{ANSWERS, ToolName};
use super::question;
use super::sanitized_tool::SanitizedTool;
use super::server::LiveServer;
use crate::redacted;
use crate::registry::{Registry, parts};
use crate::tool::{Progress, Tool, ToolError, ToolInvocation, ToolOutput};

pub(super) struct ServerTool {
    names: ToolName,
    spec: ToolSpec,
    server: Arc<LiveServer>,
    /// The session that can answer the server's questions with this tool.
    session: Option<SessionId>,
}

impl ServerTool {
    pub(super) fn new(described: SanitizedTool, (server, session): (&Arc<LiveServer>, Option<SessionId>)) -> Self {
        Self { names: described.names, spec: described.spec, server: Arc::clone(server), session }
    }

    /// Returns a tool that a server may have, before its tools are known. A call recorded by an earlier process may need such a tool.
    pub(super) fn unlisted(name: &str, (server, session): (&Arc<LiveServer>, Option<SessionId>)) -> Option<Self> {
        let (_, tool) = parts(name)?;
        let names = ToolName::of(&server.config.name, tool);
        let description = "A tool of a server that is not connected.".into();
        let spec = ToolSpec { name: names.name.clone(), description, schema: json!({"type": "object"}).into() };
        Some(Self { names, spec, server: Arc::clone(server), session })
    }

    /// Repeats the check of a call that was classified by a shortened name: rules for the full name may be stricter.
    fn check_listed(&self, unlisted: &ToolName, args: &Value, call: &ToolInvocation) -> Result<(), ToolError> {
        if self.names == *unlisted {
            return Ok(());
        }
        // The other accesses do not depend on the name, so they were already checked.
        let granted = |access: &Access| call.approved || access.action != self.names.action;
        Registry::default().check(self, args, &call.authority, &granted)
    }
}

impl Tool for ServerTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn full_name(&self) -> &str {
        &self.names.full
    }

    /// Ignores the server's hints about effects, because the server is not trusted.
    fn effect(&self) -> ToolEffect {
        ToolEffect::SideEffect
    }

    /// Adds a separate action for answers on behalf of the user, which rules for tools do not match.
    fn access(&self, args: Option<&Value>) -> Vec<Access> {
        let call = Access { action: self.names.action.clone(), resource: "*".into() };
        let Some(answers) = args.and_then(|args| args.get(ANSWERS)) else { return vec![call] };
        let questions = self.server.asked().of(self.session, &self.names.name);
        let resource = question::approval_text(&self.names.action, &questions, answers);
        // The answer comes first, so that the approval shows it if both accesses need one.
        vec![Access { action: format!("answer:{}", self.server.config.name).into(), resource: resource.into() }, call]
    }

    fn run(&self, mut call: ToolInvocation) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
        let (server, names) = (Arc::clone(&self.server), self.names.clone());
        let (own, progress, session) = (Arc::clone(&server), call.progress.clone(), self.session);
        call.progress = Progress::to(move |line| progress.send(own.secrets().redact(&line).replace('\n', " ")));
        let args = QueuedArguments::of(std::mem::take(&mut call.args));
        async move {
            let (args, _memory) = args.parse(&call.cancel).await?;
            let check = |listed: &SanitizedTool, args: &Value| {
                Self::new(listed.clone(), (&server, session)).check_listed(&names, args, &call)
            };
            let called = tokio::select! {
                biased;
                () = call.cancel.cancelled() => Err(ToolError::cancelled()),
                called = server.call((&names.name, session), (&call, args), &check) => called,
            };
            // The result may contain tokens of the login, even tokens that were renewed during the call.
            let secrets = server.secrets();
            called
                .map(|said| redacted::redact_output(&secrets, said))
                .map_err(|failed| redacted::error(&secrets, failed))
        }
        .boxed()
    }
}
