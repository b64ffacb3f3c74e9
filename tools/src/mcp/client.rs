//! This side of a connection: what a server may ask, and where its notifications go.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use rmcp::model::{
    ClientCapabilities, ClientConfig, ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationCapability,
    FormElicitationCapability, Implementation, ProgressNotificationParam, ProgressToken, ProtocolVersion,
};
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::{ClientHandler, ErrorData, RoleClient};
use serde_json::Value;
use tokio::sync::Notify;

use super::result;
use crate::arguments;
use crate::bounded::shown;
use crate::tool::Progress;

/// Bytes of one progress line.
const LINE: usize = 300;
/// Lines of calls that are not known yet.
const EARLY: usize = 16;
/// Questions of one call that its result names.
const QUESTIONS: usize = 4;

/// The client of one connection. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Client(Arc<ClientState>);

#[derive(Default)]
struct ClientState {
    /// Receivers of progress, by the token of their call.
    calls: Mutex<Calls>,
    /// Wakes who lists the tools.
    changed: Notify,
    /// Refused requests of the server for input from a person, since they were last taken.
    requests: Mutex<Vec<String>>,
    /// Answers of a person for the running call, in the order of its questions.
    answers: Mutex<VecDeque<Value>>,
}

#[derive(Default)]
struct Calls {
    watched: HashMap<ProgressToken, Progress>,
    /// The last lines of unknown calls: a fast server reports before the call is watched.
    early: VecDeque<(ProgressToken, String)>,
}

impl Client {
    pub(super) fn watch(&self, token: ProgressToken, progress: Progress) {
        let mut calls = self.0.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let early = std::mem::take(&mut calls.early);
        let (of_it, others): (VecDeque<_>, VecDeque<_>) = early.into_iter().partition(|(of, _)| *of == token);
        calls.early = others;
        // The latest is first.
        of_it.into_iter().rev().for_each(|(_, line)| progress.send(line));
        calls.watched.insert(token, progress);
    }

    pub(super) fn unwatch(&self, token: &ProgressToken) {
        self.0.calls.lock().unwrap_or_else(PoisonError::into_inner).watched.remove(token);
    }

    /// Waits until the server says that its tools changed.
    pub(super) async fn changed(&self) {
        self.0.changed.notified().await;
    }

    pub(super) fn tools_changed(&self) {
        self.0.changed.notify_one();
    }

    /// Returns what the server asked a person for and was not answered.
    pub(super) fn take_asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.requests.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Gives the answers for the questions of the call that starts now.
    pub(super) fn give(&self, answers: Vec<Value>) {
        *self.0.answers.lock().unwrap_or_else(PoisonError::into_inner) = answers.into();
    }

    /// Answers a question by the next answer that was given, if it fits. Else declines it, and remembers it for the result of the call.
    pub(super) fn answer(&self, params: &ElicitRequestParams) -> ElicitResult {
        let (message, schema) = match params {
            ElicitRequestParams::FormElicitationParams { message, requested_schema, .. } => {
                (message.as_str(), serde_json::to_value(requested_schema).ok())
            }
            ElicitRequestParams::UrlElicitationParams { message, .. } => (message.as_str(), None),
            _ => ("something", None),
        };
        if let Some(schema) = &schema
            && let Some(answer) = self.0.answers.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
            && arguments::compile(schema).is_ok_and(|schema| schema.is_valid(&answer))
        {
            return ElicitResult::new(ElicitationAction::Accept).with_content(answer);
        }
        let mut requests = self.0.requests.lock().unwrap_or_else(PoisonError::into_inner);
        if requests.len() < QUESTIONS {
            let form = schema.map_or_else(String::new, |schema| format!(" (an object that fits {schema})"));
            requests.push(result::short(&format!("{message}{form}")));
        }
        ElicitResult::new(ElicitationAction::Decline)
    }
}

impl ClientHandler for Client {
    fn get_info(&self) -> ClientConfig {
        let me = Implementation::new("subtend", env!("CARGO_PKG_VERSION"));
        let mut elicitation = ElicitationCapability::default();
        elicitation.form = Some(FormElicitationCapability::default());
        let mut capabilities = ClientCapabilities::default();
        capabilities.elicitation = Some(elicitation);
        let mut config = ClientConfig::new(capabilities, me);
        // Of the handshake, where a server does not speak the version without one.
        config.protocol_version = ProtocolVersion::LATEST_WITH_INITIALIZE;
        config
    }

    async fn on_progress(&self, params: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        let total = params.total.map_or_else(String::new, |total| format!("/{total}"));
        let message = params.message.as_deref().map_or_else(String::new, |message| format!(" {message}"));
        let line = crate::escape::harmless(&format!("{}{total}{message}", params.progress)).replace('\n', " ");
        let line = shown(&line, LINE);
        let mut calls = self.0.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(progress) = calls.watched.get(&params.progress_token).cloned() else {
            calls.early.truncate(EARLY);
            return calls.early.push_front((params.progress_token, line.into_owned()));
        };
        drop(calls);
        progress.send(line);
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.tools_changed();
    }

    async fn create_elicitation(
        &self,
        params: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        Ok(self.answer(&params))
    }
}
