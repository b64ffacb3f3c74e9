use serde_json::{Map, Value, json};
use subtend_session::settings::Effort;

use super::turns::{Call, Turn};
use super::{Outgoing, fields, function, insert_some, message, object};

pub(super) fn body(outgoing: &Outgoing<'_>, turns: Vec<Turn>) -> Map<String, Value> {
    let mut body = object(json!({ "model": outgoing.model, "stream": true }));
    insert_some(&mut body, "messages", Some(messages(outgoing, turns)));
    let mut options = Map::new();
    insert_some(&mut options, "num_predict", outgoing.settings.output_tokens);
    outgoing.sample(&mut options, "temperature", "top_p");
    insert_some(&mut body, "options", Some(options).filter(|options| !options.is_empty()));
    let tools: Vec<Value> = outgoing
        .tools
        .iter()
        .map(|tool| fields([("type", "function".into()), ("function", function(tool).into())]))
        .collect();
    insert_some(&mut body, "tools", Some(tools).filter(|tools| !tools.is_empty()));
    insert_some(&mut body, "format", outgoing.format.as_ref().map(|_| "json"));
    let think = outgoing.settings.effort.map(|effort| match effort {
        Effort::None => json!(false),
        Effort::Low | Effort::Medium | Effort::High => json!(<&str>::from(effort)),
    });
    insert_some(&mut body, "think", think);
    body
}

fn messages(outgoing: &Outgoing<'_>, turns: Vec<Turn>) -> Vec<Value> {
    // The prompt contains the schema, because not every server of this protocol accepts a schema as a field.
    let format =
        outgoing.format.as_ref().map(|schema| format!("Answer only with JSON that matches this schema:\n{schema}"));
    let system: Vec<&str> = outgoing.system.into_iter().chain(format.as_deref()).collect();
    let mut messages = Vec::new();
    if !system.is_empty() {
        messages.push(message("system", system.join("\n\n")));
    }
    for turn in turns {
        match turn {
            Turn::User(texts) => messages.push(message("user", texts.join("\n\n"))),
            Turn::Assistant { text, calls, .. } => {
                let mut message = object(json!({ "role": "assistant" }));
                insert_some(&mut message, "content", text);
                let call = |Call { name, args, .. }| {
                    fields([("function", fields([("name", String::into(name)), ("arguments", args)]))])
                };
                let made: Vec<Value> = calls.into_iter().map(call).collect();
                insert_some(&mut message, "tool_calls", Some(made).filter(|made| !made.is_empty()));
                messages.push(Value::Object(message));
            }
            // Each result is a separate message.
            Turn::Results(outcomes) => {
                messages.extend(outcomes.into_iter().map(|outcome| message("tool", outcome.content)));
            }
        }
    }
    messages
}
