use serde_json::{Map, Value, json};

use super::turns::{Call, Turn};
use super::{Outgoing, fields, function, insert_some, message, object, reasons, schema};
use crate::provider::reasoning::StoredReasoning;

/// Models that require the newer field name for the cap.
const NEWER_CAP: [&str; 5] = ["gpt-5", "gpt-6", "o1", "o3", "o4"];

pub(super) fn body(outgoing: &Outgoing<'_>, turns: Vec<Turn>) -> Map<String, Value> {
    let mut body =
        object(json!({ "model": outgoing.model, "stream": true, "stream_options": { "include_usage": true } }));
    insert_some(&mut body, "messages", Some(messages(outgoing, turns)));
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
            fields([("type", "function".into()), ("function", function.into())])
        })
        .collect();
    insert_some(&mut body, "tools", Some(tools).filter(|tools| !tools.is_empty()));
    let format = outgoing.format.as_ref().map(|format| {
        let schema = schema::close_objects(format, true);
        let answer = fields([("name", "answer".into()), ("strict", true.into()), ("schema", schema)]);
        fields([("type", "json_schema".into()), ("json_schema", answer)])
    });
    insert_some(&mut body, "response_format", format);
    body
}

fn messages(outgoing: &Outgoing<'_>, turns: Vec<Turn>) -> Vec<Value> {
    let mut messages: Vec<Value> = outgoing.system.map(|system| message("system", system)).into_iter().collect();
    for turn in turns {
        match turn {
            Turn::User(texts) => messages.push(message("user", texts.join("\n\n"))),
            Turn::Assistant { text, kept, calls } => messages.push(assistant_message(text, kept, calls)),
            Turn::Results(outcomes) => messages.extend(outcomes.into_iter().map(|outcome| {
                let (id, content) = (outcome.id.into(), outcome.content.into());
                fields([("role", "tool".into()), ("tool_call_id", id), ("content", content)])
            })),
        }
    }
    messages
}

fn assistant_message(text: Option<String>, kept: Option<StoredReasoning>, calls: Vec<Call>) -> Value {
    let mut message = object(message("assistant", text.unwrap_or_default()));
    let made: Vec<Value> = calls
        .into_iter()
        .map(|Call { id, name, args }| {
            let function = fields([("name", name.into()), ("arguments", args.to_string().into())]);
            fields([("type", "function".into()), ("id", id.into()), ("function", function)])
        })
        .collect();
    // Servers expect reasoning only with calls.
    if let Some(StoredReasoning::OpenAi { text }) = kept.filter(|_| !made.is_empty()) {
        insert_some(&mut message, "reasoning_content", Some(text));
    }
    insert_some(&mut message, "tool_calls", Some(made).filter(|made| !made.is_empty()));
    Value::Object(message)
}
