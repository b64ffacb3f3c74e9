//! The form of a synthetic completion.

use super::super::protocol::Protocol;
use super::has_thinking;
use crate::model::Request;

/// The tool of a synthetic call, which is not offered.
pub(super) const TOOL: &str = "background_tasks";

/// The form in which the model receives ends of background runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// A call with its result.
    Call,
    /// User text, if a call would be refused.
    Text,
}

/// Returns the form that `protocol` accepts in this conversation. Without tools, calls are refused. With thinking, Anthropic requires signed thinking
/// before each call, and compatible servers require the reasoning of each call. A synthetic call has neither.
pub(super) fn form(protocol: Protocol, request: &Request) -> Form {
    if request.tools.is_empty() || has_thinking(protocol, request) { Form::Text } else { Form::Call }
}
