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
    pub fn text(content: impl Into<Text>) -> Self {
        Self { content: content.into(), truncated_from: None }
    }
}

/// The reason why a call failed. The message tells the model the fault, the value and a remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ToolError {
    /// The kind, which decides how the model can react.
    pub kind: ToolErrorKind,
    /// True if the authority refused the call.
    pub denied: bool,
    /// True if the call stopped at an unknown point, so that side effects may have happened.
    pub unknown_effects: bool,
    pub message: String,
    /// True if a retry may succeed.
    pub retryable: bool,
}

impl ToolError {
    /// Creates an error that is not retryable.
    pub fn new(kind: ToolErrorKind, message: impl Into<String>) -> Self {
        Self { kind, denied: false, unknown_effects: false, message: message.into(), retryable: false }
    }

    pub fn bad_args(message: impl Into<String>) -> Self {
        Self::new(ToolErrorKind::BadArgs, message)
    }

    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(ToolErrorKind::NotFound, message)
    }

    pub fn limit(message: impl Into<String>) -> Self {
        Self::new(ToolErrorKind::Limit, message)
    }

    /// Creates an error for a call that the current state does not allow.
    pub fn refused(message: impl Into<String>) -> Self {
        Self::new(ToolErrorKind::Refused, message)
    }

    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(ToolErrorKind::Failed, message)
    }

    pub fn denied(message: impl Into<String>) -> Self {
        Self { denied: true, ..Self::new(ToolErrorKind::Refused, message) }
    }

    /// Creates an error for a call that stopped at an unknown point. The call is recorded as such and never repeated.
    pub fn unknown_effects(message: impl Into<String>) -> Self {
        Self { unknown_effects: true, ..Self::failed(message) }
    }

    pub fn cancelled() -> Self {
        Self {
            retryable: true,
            ..Self::new(ToolErrorKind::Failed, "stopped before it was done: the call was cancelled")
        }
    }
}
