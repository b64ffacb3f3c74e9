use serde_json::{Map, Value, json};

use super::turns::{Call, Turn};
use super::{Outgoing, function, insert_some, object, reasons, schema};
use crate::provider::reasoning::StoredReasoning;

pub(super) fn body(outgoing: &Outgoing<'_>) -> Map<String, Value> {
    // The provider must not store the conversation.
    let mut body =
        object(json!({ "model": outgoing.model, "stream": true, "store": false, "input": input(&outgoing.turns) }));
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
        json!({ "format": { "type": "json_schema", "name": "answer", "strict": true, "schema": schema } })
    });
    insert_some(&mut body, "text", format);
    body
}

fn input(turns: &[Turn]) -> Vec<Value> {
    let mut items = Vec::new();
    for turn in turns {
        match turn {
            Turn::User(texts) => items.push(json!({ "role": "user", "content": texts.join("\n\n") })),
            Turn::Assistant { text, kept, calls } => push_assistant(&mut items, text.as_deref(), kept.as_ref(), calls),
            Turn::Results(outcomes) => items.extend(outcomes.iter().map(
                |outcome| json!({ "type": "function_call_output", "call_id": outcome.id, "output": outcome.content }),
            )),
        }
    }
    items
}

fn push_assistant(items: &mut Vec<Value>, text: Option<&str>, kept: Option<&StoredReasoning>, calls: &[Call]) {
    if let Some(StoredReasoning::OpenAiResponses { encrypted }) = kept {
        items.extend(
            encrypted.iter().map(|text| json!({ "type": "reasoning", "encrypted_content": text, "summary": [] })),
        );
    }
    items.extend(text.map(
        |text| json!({ "type": "message", "role": "assistant", "content": [{ "type": "output_text", "text": text }] }),
    ));
    items.extend(calls.iter().map(|call| {
        let arguments = call.args.to_string();
        json!({ "type": "function_call", "call_id": call.id, "name": call.name, "arguments": arguments })
    }));
}
