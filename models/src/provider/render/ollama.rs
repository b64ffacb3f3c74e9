use serde_json::{Map, Value, json};
use subtend_session::settings::Effort;

use super::turns::Turn;
use super::{Outgoing, function, insert_some, object};

pub(super) fn body(outgoing: &Outgoing<'_>) -> Map<String, Value> {
    let mut body = object(json!({ "model": outgoing.model, "stream": true, "messages": messages(outgoing) }));
    let mut options = Map::new();
    insert_some(&mut options, "num_predict", outgoing.settings.output_tokens);
    outgoing.sample(&mut options, "temperature", "top_p");
    insert_some(&mut body, "options", Some(options).filter(|options| !options.is_empty()));
    let tools: Vec<Value> =
        outgoing.tools.iter().map(|tool| json!({ "type": "function", "function": function(tool) })).collect();
    insert_some(&mut body, "tools", Some(tools).filter(|tools| !tools.is_empty()));
    insert_some(&mut body, "format", outgoing.format.as_ref().map(|_| "json"));
    let think = outgoing.settings.effort.map(|effort| match effort {
        Effort::None => json!(false),
        Effort::Low | Effort::Medium | Effort::High => json!(<&str>::from(effort)),
    });
    insert_some(&mut body, "think", think);
    body
}

fn messages(outgoing: &Outgoing<'_>) -> Vec<Value> {
    // The prompt contains the schema, because not every server of this protocol accepts a schema as a field.
    let format =
        outgoing.format.as_ref().map(|schema| format!("Answer only with JSON that matches this schema:\n{schema}"));
    let system: Vec<&str> = outgoing.system.into_iter().chain(format.as_deref()).collect();
    let mut messages = Vec::new();
    if !system.is_empty() {
        messages.push(json!({ "role": "system", "content": system.join("\n\n") }));
    }
    for turn in &outgoing.turns {
        match turn {
            Turn::User(texts) => messages.push(json!({ "role": "user", "content": texts.join("\n\n") })),
            Turn::Assistant { text, calls, .. } => {
                let mut message = object(json!({ "role": "assistant" }));
                insert_some(&mut message, "content", text.as_deref());
                let made: Vec<Value> = calls
                    .iter()
                    .map(|call| json!({ "function": { "name": call.name, "arguments": call.args } }))
                    .collect();
                insert_some(&mut message, "tool_calls", Some(made).filter(|made| !made.is_empty()));
                messages.push(Value::Object(message));
            }
            // Each result is a separate message.
            Turn::Results(outcomes) => {
                messages.extend(outcomes.iter().map(|outcome| json!({ "role": "tool", "content": outcome.content })));
            }
        }
    }
    messages
}
