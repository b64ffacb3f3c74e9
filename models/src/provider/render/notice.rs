//! The form of a synthetic completion.

use super::super::protocol::Protocol;
use super::thinks;
use crate::model::Request;

/// The tool that a synthetic call names. It is not offered: nothing can be asked of it.
pub(super) const TOOL: &str = "background_tasks";

/// How ends of background runs are told to the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// As a call that the model might have made, and its result.
    Call,
    /// As words of the user, where a call would be refused.
    Text,
}

/// The form that `protocol` accepts in this conversation.
///
/// Without tools no call is accepted. While a model of Anthropic thinks each call has to follow the signed thinking that led to
/// it, and servers that give their reasoning beside OpenAI's protocol ask for it back with each call: there is none to this one.
pub(super) fn form(protocol: Protocol, request: &Request) -> Form {
    if request.tools.is_empty() || thinks(protocol, request) { Form::Text } else { Form::Call }
}
