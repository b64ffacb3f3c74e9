//! The client side of a connection: handles requests and notifications of the server.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use rmcp::model::{
    ClientCapabilities, ClientConfig, CustomRequest, CustomResult, ElicitRequestParams, ElicitResult,
    ElicitationAction, ElicitationCapability, ErrorCode, FormElicitationCapability, Implementation, NumberOrString,
    ProgressNotificationParam, ProgressToken, ProtocolVersion, UrlElicitationCapability,
};
use rmcp::service::RequestContext;
use rmcp::{ClientHandler, ErrorData, RoleClient};
use serde_json::Value;

use super::list_changes::ListChanges;
use super::open_calls::{OpenCalls, ServerCall};
use super::question::{Question, ServerQuestion};
use crate::arguments;
use crate::bounded::{head, shorten};
use crate::tool::Progress;

/// Maximum bytes of one progress line.
const MAX_LINE: usize = 300;
/// Maximum number of progress lines kept for calls that are not watched yet.
const MAX_EARLY: usize = 16;
/// Maximum bytes of an id or token sent by a server.
pub(super) const MAX_ID: usize = 256;

/// The client of one connection. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Client(Arc<ClientState>);

#[derive(Default)]
struct ClientState {
    /// Receivers of progress, by the token of their call.
    calls: Mutex<Calls>,
    changes: ListChanges,
    open: OpenCalls,
}

#[derive(Default)]
struct Calls {
    watched: HashMap<ProgressToken, Progress>,
    /// The latest lines of calls that are not watched yet: a fast server can report progress that early.
    early: VecDeque<(ProgressToken, String)>,
}

impl Client {
    pub(super) fn watch(&self, token: ProgressToken, progress: Progress) {
        let mut calls = self.0.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let early = std::mem::take(&mut calls.early);
        let (matching, others): (VecDeque<_>, VecDeque<_>) = early.into_iter().partition(|(of, _)| *of == token);
        calls.early = others;
        // The latest line comes first in `early`.
        matching.into_iter().rev().for_each(|(_, line)| progress.send(line));
        calls.watched.insert(token, progress);
    }

    pub(super) fn unwatch(&self, token: &ProgressToken) {
        self.0.calls.lock().unwrap_or_else(PoisonError::into_inner).watched.remove(token);
    }

    pub(super) fn changes(&self) -> &ListChanges {
        &self.0.changes
    }

    /// Opens a call with the user's approved answers, by question id. Other questions become part of its result.
    pub(super) fn open_call(&self, answers: BTreeMap<String, Value>) -> ServerCall {
        self.0.open.open(answers)
    }

    /// Answers a question if the user approved an answer for exactly this message and form. Otherwise declines the question, and keeps it
    /// for the result of the call. `call` is the call that the server named, if it named one.
    pub(super) fn answer(&self, params: &ElicitRequestParams, call: Option<&ServerCall>) -> ElicitResult {
        let (mut question, form) = Question::of(params);
        if let ServerQuestion::Answerable(question) = &mut question
            && let Some(answer) = self.0.open.take_answer(question.id(), call)
        {
            match question.action(&answer) {
                Some(Ok(action)) => return ElicitResult::new(action),
                None if arguments::compile_foreign(&form).is_ok_and(|form| form.is_valid(&answer)) => {
                    return ElicitResult::new(ElicitationAction::Accept).with_content(answer);
                }
                Some(Err(_)) | None => question.note_misanswered(),
            }
        }
        match call {
            Some(call) => call.keep_question(question),
            None => self.0.open.keep_question(question),
        }
        // Do not decline a page, because the user may still open it.
        let is_page = matches!(params, ElicitRequestParams::UrlElicitationParams { .. });
        ElicitResult::new(if is_page { ElicitationAction::Cancel } else { ElicitationAction::Decline })
    }

    pub(super) fn progress(&self, params: &ProgressNotificationParam) {
        if is_long(&params.progress_token.0) {
            return;
        }
        let total = params.total.map_or_else(String::new, |total| format!("/{total}"));
        let message =
            params.message.as_deref().map_or_else(String::new, |message| format!(" {}", head(message, MAX_LINE)));
        // The receiver joins the lines after it has redacted secrets.
        let line = crate::escape::harmless(&format!("{}{total}{message}", params.progress));
        let line = shorten(&line, MAX_LINE);
        let mut calls = self.0.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(progress) = calls.watched.get(&params.progress_token).cloned() else {
            calls.early.truncate(MAX_EARLY);
            return calls.early.push_front((params.progress_token.clone(), line.into_owned()));
        };
        drop(calls);
        progress.send(line);
    }
}

/// Returns whether an id or token of a server is too long to be kept until the answer is read.
pub(super) fn is_long(id: &NumberOrString) -> bool {
    matches!(id, NumberOrString::String(id) if id.len() > MAX_ID)
}

impl ClientHandler for Client {
    fn get_info(&self) -> ClientConfig {
        let me = Implementation::new("subtend", env!("CARGO_PKG_VERSION"));
        let mut elicitation = ElicitationCapability::default();
        elicitation.form = Some(FormElicitationCapability::default());
        elicitation.url = Some(UrlElicitationCapability::default());
        let mut capabilities = ClientCapabilities::default();
        capabilities.elicitation = Some(elicitation);
        let mut config = ClientConfig::new(capabilities, me);
        // The handshake is for servers that do not support the newest protocol version.
        config.protocol_version = ProtocolVersion::LATEST_WITH_INITIALIZE;
        config
    }

    async fn create_elicitation(
        &self,
        params: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        Ok(self.answer(&params, None))
    }

    /// Refuses an unknown request. The answer omits the name of the request, which may be very long.
    async fn on_custom_request(
        &self,
        _: CustomRequest,
        _: RequestContext<RoleClient>,
    ) -> Result<CustomResult, ErrorData> {
        Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "this client does not support this request", None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The control: a short token and a short message.
    #[test]
    fn progress_with_long_tokens_or_messages_is_bounded() {
        let client = Client::default();
        let progress = |token: &str, message: &str| {
            let token = ProgressToken(NumberOrString::String(token.into()));
            let mut params = ProgressNotificationParam::new(token, 1.0);
            params.message = Some(message.to_owned());
            client.progress(&params);
            let calls = client.0.calls.lock().unwrap();
            (calls.early.len(), calls.early.front().map(|(_, line)| line.clone()).unwrap_or_default())
        };
        assert_eq!(progress(&"t".repeat(MAX_ID + 1), "one"), (0, String::new()));
        assert_eq!(progress("t", "one"), (1, "1 one".to_owned()));
        let (_, line) = progress("t", &"\u{7f}".repeat(15 << 20));
        assert!(line.len() < MAX_LINE + 50 && line.starts_with("1 <U+007F><U+007F>"), "{line}");
        (0..100).for_each(|_| assert!(progress("t", "x").0 <= MAX_EARLY + 1));
    }
}
