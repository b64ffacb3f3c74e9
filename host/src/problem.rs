//! The errors of the API: problem details (RFC 9457) with a stable code.

use std::borrow::Cow;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use subtend_actors::{
    AnswerError, ControlError, FindError, OpenSessionError, PromptError, SendError, Stopped, WaitError,
};
use subtend_journal::{AppendError, ImportError, ReadError};
use subtend_session::ids::SessionId;
use utoipa::ToSchema;

use crate::json::Json;

const MEDIA: HeaderValue = HeaderValue::from_static("application/problem+json");

/// The reason why a request was refused, as problem details (RFC 9457).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Problem {
    /// Always `about:blank`: `code` names the problem.
    pub r#type: &'static str,
    /// The reason phrase of the status.
    #[schema(value_type = String)]
    pub title: &'static str,
    /// The status of the response.
    pub status: u16,
    /// A sentence that says what failed, for which value, and what to do.
    pub detail: String,
    /// The name of the problem. It does not change between versions.
    #[schema(value_type = String)]
    pub code: &'static str,
    /// Seconds after which the same request may succeed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u64>,
}

/// Maximum bytes of a detail: a refusal must not be larger than its request.
const MAX_DETAIL_BYTES: usize = 4 << 10;
/// Maximum bytes of a name in a detail, so that the advice after it is kept.
const MAX_QUOTED_BYTES: usize = 200;

/// Returns the start of a text, with the number of omitted bytes.
fn truncate(text: Cow<'_, str>, most: usize) -> Cow<'_, str> {
    let kept = text.get(..text.floor_char_boundary(most)).unwrap_or_default();
    match text.len().saturating_sub(kept.len()) {
        0 => text,
        more => format!("{kept}… ({more} more bytes)").into(),
    }
}

/// Returns a name that a client sent in quotes, with escapes. Omits the end of a long name.
pub fn quote(name: &str) -> String {
    format!("{:?}", truncate(name.into(), MAX_QUOTED_BYTES))
}

impl Problem {
    /// Creates a problem with `status` and `code`, and with `detail` for people, of which the start is kept.
    pub fn new(status: StatusCode, code: &'static str, detail: impl Into<Cow<'static, str>>) -> Self {
        Self {
            r#type: "about:blank",
            title: status.canonical_reason().unwrap_or("refused"),
            status: status.as_u16(),
            detail: truncate(detail.into(), MAX_DETAIL_BYTES).into_owned(),
            code,
            retry_after: None,
        }
    }

    /// Returns 400: the request is malformed.
    pub fn malformed(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "malformed", detail)
    }

    /// Returns 422: the request is well formed, but a value in it cannot take effect.
    pub fn invalid(code: &'static str, detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, code, detail)
    }

    /// Returns 409: the state of the session does not allow the request.
    pub fn conflict(code: &'static str, detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::CONFLICT, code, detail)
    }

    /// Returns 403: the scope of the token does not allow the request.
    pub fn forbidden(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "scope_too_small", detail)
    }

    /// Returns 404: no session has this id or short name.
    pub fn no_session(name: &str) -> Self {
        let name = quote(name);
        let detail = format!("no session {name}: GET /v1/sessions lists those that exist");
        Self::new(StatusCode::NOT_FOUND, "session_not_found", detail)
    }

    /// Returns 410: the session was deleted.
    pub fn deleted(session: SessionId) -> Self {
        Self::new(StatusCode::GONE, "session_deleted", format!("session {session} is deleted"))
    }

    /// Returns 422: the key was used with another command before.
    pub(crate) fn reused_key(key: &str) -> Self {
        let detail =
            format!("Idempotency-Key {key:?} was sent with another request before: use a new key for each command");
        Self::invalid("idempotency_key_reused", detail)
    }

    /// Returns 503: the host cannot perform the request now.
    fn unavailable(code: &'static str, detail: String) -> Self {
        Self { retry_after: Some(1), ..Self::new(StatusCode::SERVICE_UNAVAILABLE, code, detail) }
    }

    pub(crate) fn internal(code: &'static str, detail: String) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, code, detail)
    }

    /// Returns a response with `body`, and with the status and `Retry-After` of this problem.
    pub(crate) fn with_body(&self, body: impl IntoResponse) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, body).into_response();
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = self.with_body(Json(&self));
        response.headers_mut().insert(header::CONTENT_TYPE, MEDIA);
        response
    }
}

impl From<ImportError> for Problem {
    fn from(error: ImportError) -> Self {
        let detail = error.to_string();
        match error {
            ImportError::Read(error) => error.into(),
            ImportError::Append(error) => error.into(),
            ImportError::Poisoned(_) => Self::unavailable("store_failed", detail),
            ImportError::Exists(_) | ImportError::Deleted(_) | ImportError::Leftover { .. } => {
                Self::conflict("import_conflict", detail)
            }
            ImportError::Io(_)
            | ImportError::Damaged { .. }
            | ImportError::Truncated { .. }
            | ImportError::Newer { .. }
            | ImportError::TooLarge { .. }
            | ImportError::TooMany { .. }
            | ImportError::Changed { .. } => Self::invalid("invalid_export", detail),
        }
    }
}

impl From<Stopped> for Problem {
    fn from(stopped: Stopped) -> Self {
        let detail = stopped.to_string();
        match stopped {
            Stopped::Shutdown => Self::unavailable("stopping", detail),
            Stopped::Poisoned(_) | Stopped::StoreUnread(_) => Self::unavailable("store_failed", detail),
            Stopped::Gone => Self::unavailable("session_unavailable", detail),
            Stopped::Unreadable(_) => Self::internal("session_damaged", detail),
        }
    }
}

impl From<ReadError> for Problem {
    fn from(error: ReadError) -> Self {
        let detail = error.to_string();
        match error {
            ReadError::NoSuchSession(_) => Self::new(StatusCode::NOT_FOUND, "session_not_found", detail),
            ReadError::Damaged { .. } | ReadError::Newer { .. } => Self::internal("session_damaged", detail),
            ReadError::Engine(_) => Self::unavailable("store_failed", detail),
            ReadError::Closed => Self::unavailable("stopping", detail),
        }
    }
}

impl From<FindError> for Problem {
    fn from(error: FindError) -> Self {
        match error {
            FindError::Ambiguous { .. } => Self::conflict("ambiguous_session", error.to_string()),
            FindError::Read(error) => error.into(),
        }
    }
}

impl From<SendError> for Problem {
    fn from(error: SendError) -> Self {
        let detail = error.to_string();
        match error {
            SendError::Busy { .. } => {
                Self { retry_after: Some(1), ..Self::new(StatusCode::TOO_MANY_REQUESTS, "busy", detail) }
            }
            SendError::BadInput(_) => Self::invalid("invalid_input", detail),
            SendError::Stopped(stopped) => stopped.into(),
            SendError::Refused(_) => Self::conflict("refused", detail),
        }
    }
}

impl From<ControlError> for Problem {
    fn from(error: ControlError) -> Self {
        let detail = error.to_string();
        match error {
            ControlError::Stopped(stopped) => stopped.into(),
            ControlError::Working(_) | ControlError::Waiting(_) => Self::conflict("session_working", detail),
            ControlError::NotFound(_) => Self::new(StatusCode::NOT_FOUND, "not_found", detail),
            ControlError::Deleted => Self::new(StatusCode::GONE, "session_deleted", detail),
            ControlError::Refused(_) => Self::conflict("refused", detail),
        }
    }
}

impl From<WaitError> for Problem {
    fn from(error: WaitError) -> Self {
        let detail = error.to_string();
        match error {
            WaitError::Stopped(stopped) => stopped.into(),
            WaitError::NoSuchRun { .. } => Self::new(StatusCode::NOT_FOUND, "run_not_found", detail),
            WaitError::Refused(_) => Self::conflict("refused", detail),
        }
    }
}

impl From<AppendError> for Problem {
    fn from(error: AppendError) -> Self {
        let detail = error.to_string();
        match error {
            AppendError::Fenced { .. } | AppendError::SeqConflict { .. } => Self::conflict("refused", detail),
            AppendError::TooLarge { .. } => Self::invalid("invalid_input", detail),
            AppendError::Full { .. } => {
                Self { retry_after: Some(1), ..Self::new(StatusCode::TOO_MANY_REQUESTS, "busy", detail) }
            }
            AppendError::Encode { .. } => Self::internal("internal", detail),
            AppendError::Poisoned(_) => Self::unavailable("store_failed", detail),
            AppendError::Closed => Self::unavailable("stopping", detail),
        }
    }
}

impl From<OpenSessionError> for Problem {
    fn from(error: OpenSessionError) -> Self {
        let detail = error.to_string();
        match error {
            OpenSessionError::UnknownAgent { .. } | OpenSessionError::NotPrimary { .. } => {
                Self::invalid("unknown_agent", detail)
            }
            OpenSessionError::Model(_) => Self::invalid("unknown_model", detail),
            OpenSessionError::Workspace(_) => Self::invalid("workspace_unusable", detail),
            OpenSessionError::Memory(_) => Self::unavailable("busy", detail),
            OpenSessionError::LimitChange(_) | OpenSessionError::Limits(_) | OpenSessionError::AboveSlots(_) => {
                Self::invalid("invalid_limit", detail)
            }
            OpenSessionError::Rules(_) => Self::invalid("invalid_rule", detail),
            OpenSessionError::Title(_) => Self::invalid("invalid_title", detail),
            // The API refuses such a body, so only the metadata of the host itself gets here.
            OpenSessionError::Metadata(_) => Self::invalid("invalid_input", detail),
            OpenSessionError::NoPrice(_) => Self::invalid("no_price", detail),
            OpenSessionError::NoWindow(_) => Self::invalid("no_window", detail),
            OpenSessionError::Deleted(session) => Self::deleted(session),
            OpenSessionError::Read(error) => error.into(),
            OpenSessionError::Stopped => Self::unavailable("stopping", detail),
            OpenSessionError::Unrecordable(_) => Self::internal("internal", detail),
            OpenSessionError::Journal(error) => error.into(),
        }
    }
}

impl From<PromptError> for Problem {
    fn from(error: PromptError) -> Self {
        let detail = error.to_string();
        match error {
            PromptError::Open(error) => error.into(),
            PromptError::Control(error) => error.into(),
            PromptError::Send(error) => error.into(),
            PromptError::Wait(error) => error.into(),
            PromptError::Ended { .. } | _ => Self::conflict("run_ended", detail),
        }
    }
}

impl From<AnswerError> for Problem {
    fn from(error: AnswerError) -> Self {
        let detail = error.to_string();
        match error {
            AnswerError::Ended(_) => Self::conflict("run_ended", detail),
            AnswerError::Removed { .. } => Self::conflict("input_removed", detail),
            AnswerError::NoSuchInput { .. } => Self::new(StatusCode::NOT_FOUND, "input_not_found", detail),
            AnswerError::Stopped(stopped) => stopped.into(),
            AnswerError::Read(error) => error.into(),
            // The enum may grow.
            _ => Self::internal("internal", detail),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problem_serialises_as_problem_details() {
        let expected = serde_json::json!({
            "type": "about:blank", "title": "Not Found", "status": 404, "code": "session_not_found",
            "detail": "no session \"x\": GET /v1/sessions lists those that exist",
        });
        assert_eq!(serde_json::to_value(Problem::no_session("x")).expect("JSON"), expected);
    }

    /// The control: short details are complete.
    #[test]
    fn long_details_are_truncated_with_a_count() {
        let of = |detail: String| Problem::malformed(detail).detail;
        assert_eq!(of("é".repeat(2_048)), "é".repeat(2_048));
        assert_eq!(of("é".repeat(5_000)), format!("{}… (5904 more bytes)", "é".repeat(2_048)));
        let named = Problem::no_session(&"\u{7f}".repeat(1_000)).detail;
        let quoted = format!("\"{}… (800 more bytes)\"", "\\u{7f}".repeat(200));
        assert_eq!(named, format!("no session {quoted}: GET /v1/sessions lists those that exist"));
    }

    #[test]
    fn opening_without_memory_may_be_retried() {
        let problem = Problem::from(OpenSessionError::Memory("full".to_owned()));
        assert_eq!((problem.status, problem.code, problem.retry_after), (503, "busy", Some(1)));
    }

    #[test]
    fn busy_problem_says_when_to_retry() {
        let response = Problem::from(SendError::Busy { what: "the inbox", limit: 7 }).into_response();
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(response.headers()[header::RETRY_AFTER], "1");
        assert_eq!(response.headers()[header::CONTENT_TYPE], "application/problem+json");
    }
}
