//! Messages in a request body, parsed and rejected as providers do.

use serde_json::Value;

use super::protocol::Protocol;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    System,
    User,
    Model,
    Tool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MessagePart {
    Text(String),
    /// A call: its id, if the protocol has ids, and its tool's name.
    Call(Option<String>, String, Value),
    /// The result of a call: the call's id, or the tool's name if the protocol has no ids.
    Result(Option<String>, String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChatMessage {
    pub(crate) role: Role,
    pub(crate) parts: Vec<MessagePart>,
}

pub(crate) fn messages_of(protocol: Protocol, body: &Value) -> Vec<ChatMessage> {
    match protocol {
        Protocol::Chat | Protocol::Ollama => list(&body["messages"]).iter().map(chat).collect(),
        Protocol::Responses => {
            let system = body["instructions"].as_str().map(|text| ChatMessage::text(Role::System, text));
            let items = list(&body["input"]).iter().filter(|item| item["type"] != "reasoning").map(item);
            system.into_iter().chain(items).collect()
        }
        Protocol::Anthropic => {
            let system =
                some(&body["system"]).map(|content| ChatMessage { role: Role::System, parts: blocks(content) });
            system.into_iter().chain(list(&body["messages"]).iter().map(message)).collect()
        }
        Protocol::Gemini => {
            let system = some(&body["systemInstruction"]).or(some(&body["system_instruction"]));
            let system = system.map(|content| ChatMessage { role: Role::System, ..content_of(content) });
            system.into_iter().chain(list(&body["contents"]).iter().map(content_of)).collect()
        }
    }
}

impl ChatMessage {
    fn text(role: Role, text: &str) -> Self {
        Self { role, parts: vec![MessagePart::Text(text.to_owned())] }
    }

    fn calls(&self) -> Vec<Option<&str>> {
        let id = |part: &'_ MessagePart| matches!(part, MessagePart::Call(..));
        let calls = self.parts.iter().filter(|part| id(part));
        calls.map(|part| if let MessagePart::Call(id, ..) = part { id.as_deref() } else { None }).collect()
    }

    fn results(&self) -> Vec<Option<&str>> {
        let all =
            self.parts.iter().filter_map(|part| if let MessagePart::Result(id, _) = part { Some(id) } else { None });
        all.map(Option::as_deref).collect()
    }

    pub(crate) fn text_of(&self) -> String {
        let words = self.parts.iter().map(|part| match part {
            MessagePart::Text(text) | MessagePart::Result(_, text) => text.as_str(),
            MessagePart::Call(..) => "",
        });
        words.collect::<Vec<_>>().join("\n")
    }
}

/// Returns the reasons for which a provider of this protocol would refuse `messages`; empty if it accepts them.
pub(crate) fn refused(protocol: Protocol, messages: &[ChatMessage]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut turns = messages.iter().filter(|message| message.role != Role::System).peekable();
    if turns.peek().is_none_or(|first| first.role != Role::User) {
        wrong.push("it does not begin with the user".to_owned());
    }
    if messages.last().is_none_or(|last| last.role == Role::Model) {
        wrong.push("it ends with the model: a prefill, which newer models refuse".to_owned());
    }
    if messages
        .iter()
        .any(|message| message.parts.is_empty() || message.parts.contains(&MessagePart::Text(String::new())))
    {
        wrong.push("a message, or a text in it, is empty".to_owned());
    }
    wrong.extend(pairing(messages));
    match protocol {
        // Providers refuse or merge consecutive messages of one role, and user text before results.
        Protocol::Anthropic | Protocol::Gemini => {
            let all: Vec<_> = messages.iter().filter(|message| message.role != Role::System).collect();
            for pair in all.windows(2).filter(|pair| pair[0].role == pair[1].role) {
                wrong.push(format!("two messages in a row are of {:?}: {pair:#?}", pair[0].role));
            }
            for turn in all {
                let results = turn.parts.iter().rposition(|part| matches!(part, MessagePart::Result(..)));
                let text = turn.parts.iter().position(|part| matches!(part, MessagePart::Text(_)));
                if results.zip(text).is_some_and(|(result, text)| text < result) {
                    wrong.push(format!("a text precedes a result: {turn:#?}"));
                }
            }
        }
        Protocol::Chat | Protocol::Responses | Protocol::Ollama => {}
    }
    wrong
}

/// Returns violations of the pairing: each call has one result, right after the message (or items) with it, in order.
fn pairing(messages: &[ChatMessage]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut rest = messages;
    while let [first, after @ ..] = rest {
        rest = after;
        if first.calls().is_empty() {
            if !first.results().is_empty() {
                wrong.push(format!("a result without a call: {first:#?}"));
            }
            continue;
        }
        let mut calls = first.calls();
        // The responses protocol has each call as an item.
        while let [next, after @ ..] = rest
            && next.role == Role::Model
            && !next.calls().is_empty()
        {
            calls.extend(next.calls());
            rest = after;
        }
        let mut results = Vec::new();
        while let [next, after @ ..] = rest
            && !next.results().is_empty()
        {
            results.extend(next.results());
            rest = after;
        }
        if calls != results {
            wrong.push(format!("calls {calls:?} have results {results:?}"));
        }
    }
    wrong
}

fn some(value: &Value) -> Option<&Value> {
    (!value.is_null()).then_some(value)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn word(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn role(value: &Value) -> Role {
    match value.as_str() {
        Some("system" | "developer") => Role::System,
        Some("user") => Role::User,
        Some("assistant" | "model") => Role::Model,
        Some("tool") => Role::Tool,
        _ => panic!("unknown role: {value}"),
    }
}

/// Parses text, or blocks in the formats of Anthropic and OpenAI.
fn blocks(content: &Value) -> Vec<MessagePart> {
    let block = |block: &Value| match block["type"].as_str() {
        Some("thinking" | "redacted_thinking") => None,
        Some("text" | "input_text" | "output_text") => Some(MessagePart::Text(word(&block["text"]).expect("a text"))),
        Some("tool_use") => {
            Some(MessagePart::Call(word(&block["id"]), word(&block["name"]).expect("a name"), block["input"].clone()))
        }
        Some("tool_result") => {
            let text: Vec<_> = blocks(&block["content"])
                .into_iter()
                .map(|part| ChatMessage { role: Role::Tool, parts: vec![part] }.text_of())
                .collect();
            Some(MessagePart::Result(word(&block["tool_use_id"]), text.concat()))
        }
        _ => panic!("unknown block: {block}"),
    };
    match content {
        Value::Null => Vec::new(),
        Value::String(text) => vec![MessagePart::Text(text.clone())],
        Value::Array(_) | Value::Object(_) | Value::Bool(_) | Value::Number(_) => {
            list(content).iter().filter_map(block).collect()
        }
    }
}

/// Parses a message of OpenAI's chat, or of Ollama's, which has no ids: a result is identified by its position.
fn chat(message: &Value) -> ChatMessage {
    let role = role(&message["role"]);
    if role == Role::Tool {
        let text = ChatMessage { role, parts: blocks(&message["content"]) }.text_of();
        return ChatMessage { role, parts: vec![MessagePart::Result(word(&message["tool_call_id"]), text)] };
    }
    let mut parts = blocks(&message["content"]);
    // With calls, the text may be missing or empty.
    let calls = list(&message["tool_calls"]);
    parts.retain(|part| calls.is_empty() || *part != MessagePart::Text(String::new()));
    parts.extend(calls.iter().map(|call| {
        let (function, args) = (&call["function"], &call["function"]["arguments"]);
        let args = args
            .as_str()
            .map_or_else(|| args.clone(), |text| serde_json::from_str(text).unwrap_or_else(|_| text.into()));
        MessagePart::Call(word(&call["id"]), word(&function["name"]).expect("a name"), args)
    }));
    ChatMessage { role, parts }
}

/// Parses an item of OpenAI's responses.
fn item(item: &Value) -> ChatMessage {
    match item["type"].as_str() {
        Some("function_call") => {
            let args = serde_json::from_str(item["arguments"].as_str().expect("arguments")).expect("JSON");
            let call = MessagePart::Call(word(&item["call_id"]), word(&item["name"]).expect("a name"), args);
            ChatMessage { role: Role::Model, parts: vec![call] }
        }
        Some("function_call_output") => {
            let text = ChatMessage { role: Role::Tool, parts: blocks(&item["output"]) }.text_of();
            ChatMessage { role: Role::Tool, parts: vec![MessagePart::Result(word(&item["call_id"]), text)] }
        }
        None | Some("message") => ChatMessage { role: role(&item["role"]), parts: blocks(&item["content"]) },
        Some(_) => panic!("unknown item: {item}"),
    }
}

fn message(message: &Value) -> ChatMessage {
    ChatMessage { role: role(&message["role"]), parts: blocks(&message["content"]) }
}

/// Parses a content of Gemini's: calls and results are paired by tool, so the name replaces the id.
fn content_of(content: &Value) -> ChatMessage {
    let part = |part: &Value| {
        if let Some(text) = part["text"].as_str() {
            return MessagePart::Text(text.to_owned());
        }
        let (call, result) = (&part["functionCall"], &part["functionResponse"]);
        if call.is_object() {
            return MessagePart::Call(word(&call["name"]), word(&call["name"]).expect("a name"), call["args"].clone());
        }
        assert!(result.is_object(), "unknown part: {part}");
        MessagePart::Result(word(&result["name"]), result["response"].to_string())
    };
    let role = content["role"].as_str().map_or(Role::User, |_| role(&content["role"]));
    ChatMessage { role, parts: list(&content["parts"]).iter().map(part).collect() }
}
