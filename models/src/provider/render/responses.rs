use serde_json::{Map, Value, json};

use super::turns::{Call, Turn};
use super::{Outgoing, fields, function, insert_some, message, object, reasons, schema};
use crate::provider::reasoning::StoredReasoning;

pub(super) fn body(outgoing: &Outgoing<'_>, turns: Vec<Turn>) -> Map<String, Value> {
    // The provider must not store the conversation.
    let mut body = object(json!({ "model": outgoing.model, "stream": true, "store": false }));
    insert_some(&mut body, "input", Some(input(turns)));
    insert_some(&mut body, "instructions", outgoing.system);
    insert_some(&mut body, "max_output_tokens", outgoing.settings.output_tokens);
    if !reasons(outgoing.model) {
        outgoing.sample(&mut body, "temperature", "top_p");
    }
    insert_some(
        &mut body,
        "reasoning",
        outgoing.settings.effort.map(|effort| json!({ "effort": <&str>::from(effort) })),
    );
    let encrypted = outgoing.shows() || reasons(outgoing.model);
    insert_some(&mut body, "include", encrypted.then(|| json!(["reasoning.encrypted_content"])));
    if outgoing.is_official {
        insert_some(&mut body, "prompt_cache_key", Some(outgoing.session.to_string()));
    }
    let tools: Vec<Value> = outgoing
        .tools
        .iter()
        .map(|tool| {
            let mut tool = function(tool);
            insert_some(&mut tool, "type", Some("function"));
            // The default of this protocol would make optional properties required.
            insert_some(&mut tool, "strict", Some(false));
            Value::Object(tool)
        })
        .collect();
    insert_some(&mut body, "tools", Some(tools).filter(|tools| !tools.is_empty()));
    let format = outgoing.format.as_ref().map(|format| {
        let schema = schema::close_objects(format, true);
        let (kind, name) = ("json_schema".into(), "answer".into());
        fields([("format", fields([("type", kind), ("name", name), ("strict", true.into()), ("schema", schema)]))])
    });
    insert_some(&mut body, "text", format);
    body
}

fn input(turns: Vec<Turn>) -> Vec<Value> {
    let mut items = Vec::new();
    for turn in turns {
        match turn {
            Turn::User(texts) => items.push(message("user", texts.join("\n\n"))),
            Turn::Assistant { text, kept, calls } => push_assistant(&mut items, text, kept, calls),
            Turn::Results(outcomes) => items.extend(outcomes.into_iter().map(|outcome| {
                let (id, output) = (outcome.id.into(), outcome.content.into());
                fields([("type", "function_call_output".into()), ("call_id", id), ("output", output)])
            })),
        }
    }
    items
}

fn push_assistant(items: &mut Vec<Value>, text: Option<String>, kept: Option<StoredReasoning>, calls: Vec<Call>) {
    if let Some(StoredReasoning::OpenAiResponses { encrypted }) = kept {
        items.extend(encrypted.into_iter().map(|text| {
            fields([("type", "reasoning".into()), ("encrypted_content", text.into()), ("summary", json!([]))])
        }));
    }
    items.extend(text.map(|text| {
        let content = fields([("type", "output_text".into()), ("text", text.into())]);
        fields([("type", "message".into()), ("role", "assistant".into()), ("content", vec![content].into())])
    }));
    items.extend(calls.into_iter().map(|Call { id, name, args }| {
        let (kind, arguments) = ("function_call".into(), args.to_string().into());
        fields([("type", kind), ("call_id", id.into()), ("name", name.into()), ("arguments", arguments)])
    }));
}
