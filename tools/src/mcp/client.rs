//! This side of a connection: what a server may ask, and where its notifications go.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use rmcp::model::{
    ClientCapabilities, ClientConfig, CustomRequest, CustomResult, ElicitRequestParams, ElicitResult,
    ElicitationAction, ElicitationCapability, ErrorCode, FormElicitationCapability, Implementation, NumberOrString,
    ProgressNotificationParam, ProgressToken, ProtocolVersion,
};
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::{ClientHandler, ErrorData, RoleClient};
use serde_json::Value;
use tokio::sync::Notify;

use super::question::{Question, ServerQuestion};
use crate::arguments;
use crate::bounded::{head, shown};
use crate::tool::Progress;

/// Bytes of one progress line.
const LINE: usize = 300;
/// Lines of calls that are not known yet.
const EARLY: usize = 16;
/// Bytes of an id or a token of a server.
pub(super) const ID: usize = 256;
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
    requests: Mutex<Vec<ServerQuestion>>,
    /// Answers of a person for the running call, by the ids of the questions that they were approved for.
    answers: Mutex<BTreeMap<String, Value>>,
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
    pub(super) fn take_asked(&self) -> Vec<ServerQuestion> {
        std::mem::take(&mut *self.0.requests.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Gives the answers for questions of the call that starts now, until it ends.
    pub(super) fn give(&self, answers: BTreeMap<String, Value>) -> GivenAnswers<'_> {
        *self.0.answers.lock().unwrap_or_else(PoisonError::into_inner) = answers;
        GivenAnswers(self)
    }

    /// Answers a question by what a person approved for it: for this message with this form, and no other. Else declines it, and
    /// remembers it for the result of the call.
    pub(super) fn answer(&self, params: &ElicitRequestParams) -> ElicitResult {
        let (question, form) = Question::of(params);
        if let ServerQuestion::Form(question) = &question
            && let Some(answer) = self.0.answers.lock().unwrap_or_else(PoisonError::into_inner).remove(question.id())
            && arguments::compile(&form).is_ok_and(|form| form.is_valid(&answer))
        {
            return ElicitResult::new(ElicitationAction::Accept).with_content(answer);
        }
        let mut requests = self.0.requests.lock().unwrap_or_else(PoisonError::into_inner);
        if requests.len() < QUESTIONS {
            requests.push(question);
        }
        ElicitResult::new(ElicitationAction::Decline)
    }

    /// Shows the progress of a call. Called for each message of the server, before any task is made of it.
    pub(super) fn progress(&self, params: &ProgressNotificationParam) {
        if is_long(&params.progress_token.0) {
            return;
        }
        let total = params.total.map_or_else(String::new, |total| format!("/{total}"));
        let message = params.message.as_deref().map_or_else(String::new, |message| format!(" {}", head(message, LINE)));
        let line = crate::escape::harmless(&format!("{}{total}{message}", params.progress)).replace('\n', " ");
        let line = shown(&line, LINE);
        let mut calls = self.0.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(progress) = calls.watched.get(&params.progress_token).cloned() else {
            calls.early.truncate(EARLY);
            return calls.early.push_front((params.progress_token.clone(), line.into_owned()));
        };
        drop(calls);
        progress.send(line);
    }
}

/// Answers for the running call, which end with it.
pub(super) struct GivenAnswers<'a>(&'a Client);

impl Drop for GivenAnswers<'_> {
    fn drop(&mut self) {
        self.0.0.answers.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// Whether an id or a token of a server is longer than any that is used: each is kept until its answer is taken.
pub(super) fn is_long(id: &NumberOrString) -> bool {
    matches!(id, NumberOrString::String(id) if id.len() > ID)
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

    /// Refuses it without its name, which may be as long as a message.
    async fn on_custom_request(
        &self,
        _: CustomRequest,
        _: RequestContext<RoleClient>,
    ) -> Result<CustomResult, ErrorData> {
        Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "this client does not offer it", None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The control: a token and a message as servers send them.
    #[test]
    fn long_tokens_and_messages_of_progress_are_not_kept() {
        let client = Client::default();
        let progress = |token: &str, message: &str| {
            let token = ProgressToken(NumberOrString::String(token.into()));
            let mut params = ProgressNotificationParam::new(token, 1.0);
            params.message = Some(message.to_owned());
            client.progress(&params);
            let calls = client.0.calls.lock().unwrap();
            (calls.early.len(), calls.early.front().map(|(_, line)| line.clone()).unwrap_or_default())
        };
        assert_eq!(progress(&"t".repeat(ID + 1), "one"), (0, String::new()));
        assert_eq!(progress("t", "one"), (1, "1 one".to_owned()));
        let (_, line) = progress("t", &"\u{7f}".repeat(15 << 20));
        assert!(line.len() < LINE + 50 && line.starts_with("1 <U+007F><U+007F>"), "{line}");
        (0..100).for_each(|_| assert!(progress("t", "x").0 <= EARLY + 1));
    }
}
