//! What one call of a tool gives: its output, or why it failed.

use subtend_session::call::ToolErrorKind;
use subtend_session::ids::Text;

/// What a call gives back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolOutput {
    /// What the model sees.
    pub content: Text,
    /// Bytes before it was cut.
    pub truncated_from: Option<u64>,
}

impl ToolOutput {
    /// A result that fits.
    pub fn text(content: impl Into<Text>) -> Self {
        Self { content: content.into(), truncated_from: None }
    }
}

/// Why a call failed: told to the model, so it says what was wrong, with which value, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ToolError {
    /// By what the model can do about it.
    pub kind: ToolErrorKind,
    /// Whether the authority refused it.
    pub denied: bool,
    /// What the model sees.
    pub message: String,
    /// Whether the same call may work later.
    pub retryable: bool,
}

impl ToolError {
    /// An error of `kind` that the same call would meet again.
    pub fn new(kind: ToolErrorKind, message: impl Into<String>) -> Self {
        Self { kind, denied: false, message: message.into(), retryable: false }
    }

    /// The arguments are wrong.
    pub fn bad_args(message: impl Into<String>) -> Self {
        Self::new(ToolErrorKind::BadArgs, message)
    }

    /// What was asked for is not there.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(ToolErrorKind::NotFound, message)
    }

    /// A limit was reached.
    pub fn limit(message: impl Into<String>) -> Self {
        Self::new(ToolErrorKind::Limit, message)
    }

    /// It cannot be done in the present state.
    pub fn refused(message: impl Into<String>) -> Self {
        Self::new(ToolErrorKind::Refused, message)
    }

    /// The tool failed.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(ToolErrorKind::Failed, message)
    }

    /// The authority does not allow it.
    pub fn denied(message: impl Into<String>) -> Self {
        Self { denied: true, ..Self::new(ToolErrorKind::Refused, message) }
    }

    /// The call was stopped before it was done.
    pub fn cancelled() -> Self {
        Self {
            retryable: true,
            ..Self::new(ToolErrorKind::Failed, "stopped before it was done: the call was cancelled")
        }
    }
}
