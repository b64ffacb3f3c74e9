pub(super) mod http;
mod words;

use reqwest::StatusCode;
use serde_json::Value;
use subtend_session::outcome::ModelFail;

use super::client::Client;
use super::scrub::scrub;
use crate::model::ModelError;

/// The text of an error without a message.
const WITHOUT_MESSAGE: &str = "the answer is an error without a message";

/// A failure. Its text is not safe for display yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) kind: ModelFail,
    /// The text of the failure. It may contain any text that a server sent.
    pub(super) text: String,
    pub(super) retry_after_ms: Option<u64>,
    pub(super) unknown_model: bool,
}

impl Fault {
    pub(super) fn new(kind: ModelFail, text: impl Into<String>) -> Self {
        Self { kind, text: text.into(), retry_after_ms: None, unknown_model: false }
    }

    pub(super) fn interrupted() -> Self {
        Self::new(ModelFail::Unavailable, "the connection was interrupted in the middle of the answer")
    }

    /// Converts the failure for the caller. The text has its source, and is shortened to one line without secrets.
    pub(super) fn into_error(self, client: &Client) -> ModelError {
        let message = self.display_text(client.key.as_ref().map(|key| key.reveal()));
        ModelError { retry_after_ms: self.retry_after_ms, ..ModelError::new(self.kind, message) }
    }

    /// Returns the text, shortened to one line without `key`. The result is never empty.
    pub(super) fn display_text(&self, key: Option<&str>) -> String {
        let line = words::line(&scrub(&self.text, key));
        if line.is_empty() { WITHOUT_MESSAGE.to_owned() } else { line }
    }
}

/// Returns the failure that a frame reports: an error event, or an error in place of a piece of the answer.
pub(super) fn of_frame(frame: &Value) -> Option<Fault> {
    of_error_object(frame).or_else(|| {
        let is_error = frame.get("type").and_then(Value::as_str) == Some("error");
        is_error.then(|| classify(None, frame, None))
    })
}

pub(super) fn of_error_object(value: &Value) -> Option<Fault> {
    let error = value.get("error").filter(|error| !error.is_null())?;
    let code = error.get("code").or_else(|| error.get("status")).or_else(|| error.get("http_code"));
    let status = code.and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok());
    Some(classify(status.and_then(|status| StatusCode::from_u16(status).ok()), value, None))
}

/// Classifies a failure by its status, if there is one, and by the provider's message.
fn classify(status: Option<StatusCode>, body: &Value, raw: Option<&str>) -> Fault {
    let message = words::message(body).or_else(|| raw.and_then(words::plain));
    let kind = words::kind(body);
    let text_of_error = format!("{} {}", words::kinds(body), message.as_deref().unwrap_or_default()).to_lowercase();
    let fail = match status.map(|status| status.as_u16()) {
        Some(402) => ModelFail::Credit,
        // Some providers report missing credit as a bad request, a refusal or a rate limit.
        Some(400 | 403 | 429) | None if words::is_out_of_credit(&text_of_error) => ModelFail::Credit,
        Some(413) => ModelFail::ContextOverflow,
        Some(400 | 422) | None if words::is_context_overflow(&text_of_error) => ModelFail::ContextOverflow,
        Some(401) => ModelFail::Auth,
        Some(400 | 403) if words::is_key_refused(body, &text_of_error) => ModelFail::Auth,
        Some(400) if words::is_unsupported_region(&text_of_error) => ModelFail::Access,
        Some(403) => ModelFail::Access,
        Some(429) => ModelFail::Rate,
        Some(408 | 500..) => ModelFail::Unavailable,
        Some(400..) => ModelFail::InvalidRequest,
        Some(_) | None => words::fail(&text_of_error),
    };
    let unknown_model = fail == ModelFail::InvalidRequest
        && (status == Some(StatusCode::NOT_FOUND) || words::is_unknown_model(&text_of_error));
    let text = message.or_else(|| kind.map(str::to_owned)).unwrap_or_default();
    let text = match status {
        _ if status.is_none() && text.is_empty() => WITHOUT_MESSAGE.to_owned(),
        None => format!("the answer is an error: {text}"),
        Some(_) => text,
    };
    Fault { kind: fail, text, retry_after_ms: None, unknown_model }
}

#[cfg(test)]
mod tests;
