//! The form of notices about ends of background runs.

use super::super::protocol::Protocol;
use super::has_thinking;
use crate::model::Request;

/// The tool of synthetic calls. It is not offered.
pub(super) const TOOL: &str = "background_tasks";

/// The form in which the model receives ends of background runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// A synthetic call with its result.
    Call,
    /// User text, if the provider would refuse a synthetic call.
    Text,
}

/// Returns the form that `protocol` accepts in this conversation. Providers refuse calls if no tools are offered. With thinking, Anthropic requires
/// signed thinking before each call, and compatible servers require the reasoning of each call. A synthetic call has neither.
pub(super) fn form(protocol: Protocol, request: &Request) -> Form {
    if request.tools.is_empty() || has_thinking(protocol, request) { Form::Text } else { Form::Call }
}
