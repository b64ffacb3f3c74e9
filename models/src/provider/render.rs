//! A transcript, as providers take it.
//!
//! `turns` brings it into the order that all of them accept; this file writes it down for one protocol.

mod notice;
mod turns;

use genai::chat::{ChatMessage, ChatRequest, ContentPart, CustomPart, MessageContent, Tool, ToolCall, ToolResponse};
use serde_json::{Map, Value, json};
use subtend_session::message::{Message, ToolSpec};
use subtend_session::settings::Effort;

use self::turns::{Call, Outcome, Turn};
use super::protocol::Protocol;
use super::reasoning::Kept;
use crate::model::Request;

/// The request for `protocol`.
pub(super) fn of(protocol: Protocol, request: &Request) -> ChatRequest {
    let turns = turns::of(&request.messages, notice::form(protocol, request));
    let mut messages = Vec::new();
    for turn in turns {
        match turn {
            Turn::User(texts) => user(protocol, &mut messages, texts),
            Turn::Assistant { text, kept, calls } => messages.push(assistant(protocol, text, kept, calls)),
            Turn::Results(outcomes) => results(protocol, &mut messages, outcomes),
        }
    }
    let mut rendered = ChatRequest::new(messages);
    let format = request.format.as_deref().filter(|_| protocol == Protocol::Ollama && request.tools.is_empty());
    let format = format.map(|schema| format!("Answer with JSON alone, which keeps this schema:\n{schema}"));
    let system = Some(request.system.to_string()).filter(|system| !system.trim().is_empty());
    let system: Vec<String> = system.into_iter().chain(format).collect();
    if !system.is_empty() {
        rendered = rendered.with_system(system.join("\n\n"));
    }
    let stubs =
        stubs(protocol, request).into_iter().map(|name| Tool::new(name).with_schema(json!({ "type": "object" })));
    let tools: Vec<Tool> = request.tools.iter().map(|spec| tool(protocol, spec)).chain(stubs).collect();
    if tools.is_empty() { rendered } else { rendered.with_tools(tools) }
}

/// Whether the provider thinks before it answers, or has done so in this conversation.
pub(super) fn thinks(protocol: Protocol, request: &Request) -> bool {
    let kept = |message: &Message| match message {
        Message::Assistant { reasoning: Some(reasoning), .. } => match Kept::of_text(reasoning) {
            Some(Kept::Anthropic { .. }) => protocol == Protocol::Anthropic,
            Some(Kept::OpenAi { .. }) => protocol == Protocol::OpenAi,
            Some(Kept::OpenAiResponses { .. } | Kept::Gemini { .. }) | None => false,
        },
        Message::Assistant { reasoning: None, .. }
        | Message::User { .. }
        | Message::Result { .. }
        | Message::Notice { .. }
        | Message::Prompt { .. } => false,
    };
    let asked = request.settings.effort.is_some_and(|effort| effort != Effort::None);
    asked && protocol == Protocol::Anthropic || request.messages.iter().any(kept)
}

/// Whether the last answer made calls and has no thinking that Anthropic signed, as after a change of provider: it must not be
/// asked to think on from there.
pub(super) fn is_unsigned(request: &Request) -> bool {
    let last = request.messages.iter().rev().find_map(|message| match message {
        Message::Assistant { calls, reasoning, .. } => Some((calls, reasoning)),
        Message::User { .. } | Message::Result { .. } | Message::Notice { .. } | Message::Prompt { .. } => None,
    });
    last.is_some_and(|(calls, reasoning)| {
        let kept = reasoning.as_deref().and_then(Kept::of_text);
        !calls.is_empty() && !matches!(kept, Some(Kept::Anthropic { .. }))
    })
}

/// Tools that were called and are offered no longer. Anthropic refuses calls in a transcript where no tools are given at all,
/// and so they are named, and forbidden.
pub(super) fn stubs(protocol: Protocol, request: &Request) -> Vec<String> {
    if protocol != Protocol::Anthropic || !request.tools.is_empty() {
        return Vec::new();
    }
    let calls = request.messages.iter().filter_map(|message| match message {
        Message::Assistant { calls, .. } => Some(calls),
        Message::User { .. } | Message::Result { .. } | Message::Notice { .. } | Message::Prompt { .. } => None,
    });
    let mut names: Vec<String> =
        calls.flat_map(|calls| calls.iter()).map(|asked| turns::tool_name(&asked.tool)).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Tools in full, where one has a name that `genai` takes for a tool of the provider's own.
pub(super) fn own_tools(protocol: Protocol, tools: &[ToolSpec]) -> Option<(String, Value)> {
    let reserved: &[&str] = match protocol {
        Protocol::Anthropic | Protocol::OpenAiResponses => &["web_search"],
        Protocol::Gemini => &["googleSearch", "googleSearchRetrieval", "codeExecution", "urlContext"],
        Protocol::OpenAi | Protocol::Ollama => &[],
    };
    if !tools.iter().any(|tool| reserved.contains(&&*tool.name)) {
        return None;
    }
    let written = tools.iter().map(|tool| {
        let ToolSpec { name, description, schema } = tool;
        match protocol {
            Protocol::Anthropic => json!({ "name": name, "description": description, "input_schema": schema }),
            Protocol::Gemini => json!({ "name": name, "description": description, "parametersJsonSchema": schema }),
            Protocol::OpenAi | Protocol::OpenAiResponses | Protocol::Ollama => json!({
                "type": "function", "name": name, "description": description, "parameters": schema, "strict": false,
            }),
        }
    });
    let written: Vec<Value> = written.collect();
    let tools =
        if protocol == Protocol::Gemini { json!([{ "functionDeclarations": written }]) } else { json!(written) };
    Some(("tools".into(), tools))
}

fn tool(protocol: Protocol, spec: &ToolSpec) -> Tool {
    let tool = Tool::new(&*spec.name).with_description(&*spec.description).with_schema((*spec.schema).clone());
    // The schema is taken as it is: unsaid, this protocol makes all that is optional required.
    if protocol == Protocol::OpenAiResponses { tool.with_strict(false) } else { tool }
}

/// Roles have to alternate: texts after results stand in one message with them where results are the user's.
fn user(protocol: Protocol, messages: &mut Vec<ChatMessage>, texts: Vec<String>) {
    let parts = texts.into_iter().map(ContentPart::Text);
    match messages.last_mut() {
        Some(last) if protocol == Protocol::Anthropic && last.content.contains_custom() && is_user(last) => {
            parts.for_each(|part| last.content.push(part));
        }
        Some(_) | None => messages.push(ChatMessage::user(parts.collect::<Vec<_>>())),
    }
}

fn is_user(message: &ChatMessage) -> bool {
    message.role == genai::chat::ChatRole::User
}

fn results(protocol: Protocol, messages: &mut Vec<ChatMessage>, outcomes: Vec<Outcome>) {
    match protocol {
        Protocol::Anthropic => {
            let parts: Vec<ContentPart> = outcomes.into_iter().map(tool_result).collect();
            messages.push(ChatMessage::user(parts));
        }
        // One result a message: of several the last alone would be sent.
        Protocol::Ollama => messages.extend(outcomes.into_iter().map(|of| ChatMessage::tool(response(of)))),
        Protocol::OpenAi | Protocol::OpenAiResponses | Protocol::Gemini => {
            messages.push(ChatMessage::tool(outcomes.into_iter().map(response).collect::<Vec<_>>()));
        }
    }
}

fn response(outcome: Outcome) -> ToolResponse {
    ToolResponse::new(outcome.id, outcome.content).with_fn_name(outcome.name)
}

/// Written by hand: `genai` leaves out that a call failed.
fn tool_result(outcome: Outcome) -> ContentPart {
    let mut block = Map::new();
    block.insert("type".into(), json!("tool_result"));
    block.insert("tool_use_id".into(), json!(outcome.id));
    block.insert("content".into(), json!(outcome.content));
    if outcome.error {
        block.insert("is_error".into(), json!(true));
    }
    custom(Value::Object(block))
}

fn custom(data: Value) -> ContentPart {
    ContentPart::Custom(CustomPart { model_iden: None, data })
}

fn assistant(protocol: Protocol, text: Option<String>, kept: Option<Kept>, calls: Vec<Call>) -> ChatMessage {
    let mut parts: Vec<ContentPart> = Vec::new();
    let mut signatures: Vec<Option<String>> = Vec::new();
    match (protocol, kept) {
        (Protocol::Anthropic, Some(Kept::Anthropic { blocks })) => parts.extend(blocks.into_iter().map(custom)),
        (Protocol::OpenAiResponses, Some(Kept::OpenAiResponses { encrypted })) => {
            parts.extend(encrypted.into_iter().map(ContentPart::ThoughtSignature));
        }
        // Beside an answer alone it is not wanted.
        (Protocol::OpenAi, Some(Kept::OpenAi { text })) if !calls.is_empty() => {
            parts.push(ContentPart::ReasoningContent(text));
        }
        (Protocol::Gemini, Some(Kept::Gemini { text: signature, calls })) => {
            parts.extend(signature.filter(|_| text.is_some()).map(ContentPart::ThoughtSignature));
            signatures = calls;
        }
        (_, _) => {}
    }
    parts.extend(text.map(ContentPart::Text));
    for (ix, call) in calls.into_iter().enumerate() {
        let signature = signatures.get(ix).cloned().flatten();
        parts.push(ContentPart::ToolCall(ToolCall {
            call_id: call.id,
            fn_name: call.name,
            fn_arguments: call.args,
            thought_signatures: signature.map(|signature| vec![signature]),
        }));
    }
    ChatMessage::assistant(MessageContent::from_parts(parts))
}

#[cfg(test)]
mod tests;
