//! Form of a synthetic completion.

use super::super::protocol::Protocol;
use super::thinks;
use crate::model::Request;

/// Tool of a synthetic call. It is not offered.
pub(super) const TOOL: &str = "background_tasks";

/// How the model receives ends of background runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// As a call with its result.
    Call,
    /// As user text, where a call would be refused.
    Text,
}

/// Returns the form that `protocol` accepts in this conversation. Without tools, calls are refused. With thinking, Anthropic requires
/// signed thinking before each call; compatible servers require the reasoning of each call. A synthetic call has neither.
pub(super) fn form(protocol: Protocol, request: &Request) -> Form {
    if request.tools.is_empty() || thinks(protocol, request) { Form::Text } else { Form::Call }
}
