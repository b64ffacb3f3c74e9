//! Renders requests in each protocol. `turns` converts the transcript into an order that all protocols accept.

mod anthropic;
mod gemini;
mod notice;
mod ollama;
mod openai;
mod responses;
mod schema;
mod turns;

use serde_json::{Map, Value, json};
use subtend_session::ids::SessionId;
use subtend_session::message::{Message, ToolSpec};
use subtend_session::outcome::ModelFail;
use subtend_session::settings::{Effort, Settings};
use subtend_session::values::parse_recorded;

use self::turns::{MAX_REQUEST_VALUES, OrderedTurns};
use super::client::Client;
use super::fault::Fault;
use super::protocol::Protocol;
use super::reasoning::StoredReasoning;
use crate::model::Request;

/// Maximum bytes of text in a request: more than four million tokens. Rendering takes a multiple of this memory, so it moves values.
const MAX_REQUEST: u64 = 16 << 20;

struct Outgoing<'a> {
    model: &'a str,
    session: SessionId,
    /// True for a call of the provider itself. A compatible server may not support all fields.
    is_official: bool,
    system: Option<&'a str>,
    tools: &'a [ToolSpec],
    settings: Settings,
    format: Option<Value>,
    /// True if the model thinks, or has thought in this conversation.
    thinks: bool,
    is_unsigned: bool,
}

/// Returns the body of the request, or an error if the conversation is too large, or the answer's format is not JSON.
pub(super) fn body(client: &Client, request: &Request) -> Result<Value, Fault> {
    let protocol = client.protocol;
    let bytes = request.messages.iter().map(Message::json_bytes).fold(0, u64::saturating_add);
    if bytes > MAX_REQUEST {
        let text = format!("the conversation has more than {MAX_REQUEST} bytes");
        return Err(Fault::new(ModelFail::ContextOverflow, text));
    }
    // Omit the format if there are tools: some servers refuse both together.
    let format = match request.format.as_deref().filter(|_| request.tools.is_empty()) {
        Some(format) => Some(parse_recorded(format).map_err(|error| {
            Fault::new(ModelFail::InvalidRequest, format!("the answer's format is not JSON: {error}"))
        })?),
        None => None,
    };
    let Some(OrderedTurns { turns, is_unsigned }) = turns::of(&request.messages, notice::form(protocol, request))
    else {
        let text =
            format!("the messages and calls of the conversation have more than {MAX_REQUEST_VALUES} JSON values");
        return Err(Fault::new(ModelFail::ContextOverflow, text));
    };
    let outgoing = Outgoing {
        model: &client.model,
        session: request.session,
        is_official: client.is_official(),
        system: Some(&*request.system).filter(|system| !system.trim().is_empty()),
        tools: &request.tools,
        settings: request.settings,
        format,
        thinks: has_thinking(protocol, request),
        is_unsigned,
    };
    Ok(Value::Object(match protocol {
        Protocol::Anthropic => anthropic::body(&outgoing, turns),
        Protocol::OpenAi => openai::body(&outgoing, turns),
        Protocol::OpenAiResponses => responses::body(&outgoing, turns),
        Protocol::Gemini => gemini::body(&outgoing, turns),
        Protocol::Ollama => ollama::body(&outgoing, turns),
    }))
}

impl Outgoing<'_> {
    fn shows(&self) -> bool {
        self.settings.effort.is_some_and(|effort| effort != Effort::None)
    }

    fn sample(&self, into: &mut Map<String, Value>, temperature: &str, top_p: &str) {
        insert_some(into, temperature, self.settings.temperature);
        insert_some(into, top_p, self.settings.top_p);
    }
}

fn insert_some(into: &mut Map<String, Value>, name: &str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        into.insert(name.to_owned(), value.into());
    }
}

/// Returns an object of the fields. For large values, because `json!` would copy them.
fn fields<const N: usize>(fields: [(&str, Value); N]) -> Value {
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn message(role: &str, content: impl Into<Value>) -> Value {
    fields([("role", role.into()), ("content", content.into())])
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
    }
}

/// Returns a function of OpenAI's chat completions, which Ollama accepts too.
fn function(tool: &ToolSpec) -> Map<String, Value> {
    object(json!({ "name": tool.name, "description": tool.description, "parameters": tool.schema }))
}

/// Returns whether a model of OpenAI is a reasoning model. Reasoning models refuse sampling settings, and other models refuse reasoning
/// settings.
fn reasons(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model);
    ["o1", "o3", "o4", "gpt-5", "gpt-6", "codex"].iter().any(|line| name.starts_with(line)) && !name.contains("-chat")
}

/// Returns whether the model thinks, or has thought in this conversation.
fn has_thinking(protocol: Protocol, request: &Request) -> bool {
    let kept = |message: &Message| match message {
        Message::Assistant { reasoning: Some(reasoning), .. } => match StoredReasoning::of_text(reasoning) {
            Some(StoredReasoning::Anthropic { .. }) => protocol == Protocol::Anthropic,
            Some(StoredReasoning::OpenAi { .. }) => protocol == Protocol::OpenAi,
            Some(StoredReasoning::OpenAiResponses { .. } | StoredReasoning::Gemini { .. }) | None => false,
        },
        Message::Assistant { reasoning: None, .. }
        | Message::User { .. }
        | Message::Result { .. }
        | Message::Notice { .. }
        | Message::Prompt { .. } => false,
    };
    let is_requested = request.settings.effort.is_some_and(|effort| effort != Effort::None);
    is_requested && protocol == Protocol::Anthropic || request.messages.iter().any(kept)
}

#[cfg(test)]
mod tests;
