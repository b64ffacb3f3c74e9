//! The result of a tool call.

use subtend_session::call::ToolErrorKind;
use subtend_session::ids::Text;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolOutput {
    /// The text for the model.
    pub content: Text,
    pub truncated_from: Option<u64>,
}

impl ToolOutput {
    /// Returns a result within the bound.
    pub fn text(content: impl Into<Text>) -> Self {
        Self { content: content.into(), truncated_from: None }
    }
}

/// Why a call failed, for the model: what was wrong, with which value, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ToolError {
    /// The kind, which says what the model can do about it.
    pub kind: ToolErrorKind,
    /// Whether the authority refused it.
    pub denied: bool,
    /// Whether the call stopped at an unknown point: side effects may have happened.
    pub unknown_effects: bool,
    /// The text for the model.
    pub message: String,
    /// Whether a retry may succeed.
    pub retryable: bool,
}

impl ToolError {
    /// Returns an error that a retry would meet again.
    pub fn new(kind: ToolErrorKind, message: impl Into<String>) -> Self {
        Self { kind, denied: false, unknown_effects: false, message: message.into(), retryable: false }
    }

    pub fn bad_args(message: impl Into<String>) -> Self {
        Self::new(ToolErrorKind::BadArgs, message)
    }

    /// Returns an error for a missing object.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(ToolErrorKind::NotFound, message)
    }

    pub fn limit(message: impl Into<String>) -> Self {
        Self::new(ToolErrorKind::Limit, message)
    }

    /// Returns an error for a call that the present state does not allow.
    pub fn refused(message: impl Into<String>) -> Self {
        Self::new(ToolErrorKind::Refused, message)
    }

    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(ToolErrorKind::Failed, message)
    }

    pub fn denied(message: impl Into<String>) -> Self {
        Self { denied: true, ..Self::new(ToolErrorKind::Refused, message) }
    }

    /// Returns an error for a call that stopped at an unknown point. It is recorded as such, and nothing repeats it.
    pub fn unknown_effects(message: impl Into<String>) -> Self {
        Self { unknown_effects: true, ..Self::failed(message) }
    }

    /// Returns an error for a call that was stopped.
    pub fn cancelled() -> Self {
        Self {
            retryable: true,
            ..Self::new(ToolErrorKind::Failed, "stopped before it was done: the call was cancelled")
        }
    }
}
