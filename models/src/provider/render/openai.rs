use serde_json::{Map, Value, json};

use super::turns::{Call, Turn};
use super::{Outgoing, function, insert_some, object, reasons, schema};
use crate::provider::reasoning::StoredReasoning;

/// Models that require the newer field name for the cap.
const NEWER_CAP: [&str; 5] = ["gpt-5", "gpt-6", "o1", "o3", "o4"];

pub(super) fn body(outgoing: &Outgoing<'_>) -> Map<String, Value> {
    let mut body = object(json!({
        "model": outgoing.model, "stream": true, "stream_options": { "include_usage": true }, "messages": messages(outgoing),
    }));
    let newer = NEWER_CAP.iter().any(|prefix| outgoing.model.starts_with(prefix));
    let cap = if newer { "max_completion_tokens" } else { "max_tokens" };
    insert_some(&mut body, cap, outgoing.settings.output_tokens);
    if !reasons(outgoing.model) {
        outgoing.sample(&mut body, "temperature", "top_p");
    }
    insert_some(&mut body, "reasoning_effort", outgoing.settings.effort.map(<&str>::from));
    if outgoing.is_official {
        insert_some(&mut body, "prompt_cache_key", Some(outgoing.session.to_string()));
    }
    let tools: Vec<Value> = outgoing
        .tools
        .iter()
        .map(|tool| {
            let mut function = function(tool);
            insert_some(&mut function, "strict", Some(false));
            json!({ "type": "function", "function": function })
        })
        .collect();
    insert_some(&mut body, "tools", Some(tools).filter(|tools| !tools.is_empty()));
    let format = outgoing.format.as_ref().map(|format| {
        let answer = json!({ "name": "answer", "strict": true, "schema": schema::close_objects(format, true) });
        json!({ "type": "json_schema", "json_schema": answer })
    });
    insert_some(&mut body, "response_format", format);
    body
}

fn messages(outgoing: &Outgoing<'_>) -> Vec<Value> {
    let mut messages: Vec<Value> =
        outgoing.system.map(|system| json!({ "role": "system", "content": system })).into_iter().collect();
    for turn in &outgoing.turns {
        match turn {
            Turn::User(texts) => messages.push(json!({ "role": "user", "content": texts.join("\n\n") })),
            Turn::Assistant { text, kept, calls } => {
                messages.push(assistant_message(text.as_deref(), kept.as_ref(), calls))
            }
            Turn::Results(outcomes) => messages.extend(
                outcomes
                    .iter()
                    .map(|outcome| json!({ "role": "tool", "tool_call_id": outcome.id, "content": outcome.content })),
            ),
        }
    }
    messages
}

fn assistant_message(text: Option<&str>, kept: Option<&StoredReasoning>, calls: &[Call]) -> Value {
    let mut message = object(json!({ "role": "assistant", "content": text.unwrap_or_default() }));
    let made: Vec<Value> = calls
        .iter()
        .map(|call| {
            let function = json!({ "name": call.name, "arguments": call.args.to_string() });
            json!({ "type": "function", "id": call.id, "function": function })
        })
        .collect();
    // Servers expect reasoning only with calls.
    if let Some(StoredReasoning::OpenAi { text }) = kept.filter(|_| !made.is_empty()) {
        insert_some(&mut message, "reasoning_content", Some(text.as_str()));
    }
    insert_some(&mut message, "tool_calls", Some(made).filter(|made| !made.is_empty()));
    Value::Object(message)
}
