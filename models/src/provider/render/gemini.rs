use serde_json::{Map, Value, json};
use subtend_session::settings::Effort;

use super::turns::{Call, Turn};
use super::{Outgoing, insert_some, object};
use crate::provider::reasoning::StoredReasoning;

/// Models with thinking levels instead of thinking budgets.
const LEVELS: [&str; 2] = ["gemini-3", "gemma-4"];
/// The documented placeholder for the signature of a foreign call.
const UNSIGNED: &str = "skip_thought_signature_validator";

pub(super) fn body(outgoing: &Outgoing<'_>) -> Map<String, Value> {
    let mut body = object(json!({ "contents": contents(outgoing) }));
    insert_some(&mut body, "systemInstruction", outgoing.system.map(|system| json!({ "parts": [{ "text": system }] })));
    let declared: Vec<Value> = outgoing
        .tools
        .iter()
        .map(|tool| json!({ "name": tool.name, "description": tool.description, "parametersJsonSchema": tool.schema }))
        .collect();
    insert_some(&mut body, "tools", (!declared.is_empty()).then(|| json!([{ "functionDeclarations": declared }])));
    let mut config = Map::new();
    insert_some(&mut config, "maxOutputTokens", outgoing.settings.output_tokens);
    outgoing.sample(&mut config, "temperature", "topP");
    if let Some(format) = &outgoing.format {
        insert_some(&mut config, "responseMimeType", Some("application/json"));
        insert_some(&mut config, "responseJsonSchema", Some(format.clone()));
    }
    insert_some(&mut config, "thinkingConfig", Some(thinking_config(outgoing)).filter(|thinking| !thinking.is_empty()));
    insert_some(&mut body, "generationConfig", Some(config).filter(|config| !config.is_empty()));
    body
}

fn thinking_config(outgoing: &Outgoing<'_>) -> Map<String, Value> {
    let mut thinking = Map::new();
    let Some(effort) = outgoing.settings.effort else { return thinking };
    let (level, budget) = match effort {
        // Only these models accept a budget of zero.
        Effort::None => (None, outgoing.model.contains("2.5-flash").then_some(0)),
        Effort::Low => (Some("LOW"), Some(1_000)),
        Effort::Medium => (Some("MEDIUM"), Some(8_000)),
        Effort::High => (Some("HIGH"), Some(24_000)),
    };
    if LEVELS.iter().any(|line| outgoing.model.contains(line)) {
        insert_some(&mut thinking, "thinkingLevel", level);
    } else {
        insert_some(&mut thinking, "thinkingBudget", budget);
    }
    insert_some(&mut thinking, "includeThoughts", outgoing.shows().then_some(true));
    thinking
}

fn contents(outgoing: &Outgoing<'_>) -> Vec<Value> {
    let wants_signature = outgoing.model.contains("gemini-3");
    let written = outgoing.turns.iter().map(|turn| match turn {
        Turn::User(texts) => {
            let parts: Vec<Value> = texts.iter().map(|text| json!({ "text": text })).collect();
            json!({ "role": "user", "parts": parts })
        }
        Turn::Assistant { text, kept, calls } => {
            let parts = assistant_parts(text.as_deref(), kept.as_ref(), calls, wants_signature);
            json!({ "role": "model", "parts": parts })
        }
        Turn::Results(outcomes) => {
            let parts = outcomes.iter().map(|of| {
                let response = json!({ "name": of.name, "content": of.content });
                json!({ "functionResponse": { "id": of.id, "name": of.name, "response": response } })
            });
            json!({ "role": "user", "parts": parts.collect::<Vec<Value>>() })
        }
    });
    written.collect()
}

fn assistant_parts(
    text: Option<&str>,
    kept: Option<&StoredReasoning>,
    calls: &[Call],
    wants_signature: bool,
) -> Vec<Value> {
    let (of_text, of_calls): (Option<&String>, &[Option<String>]) = match kept {
        Some(StoredReasoning::Gemini { text, calls }) => (text.as_ref(), calls),
        Some(
            StoredReasoning::Anthropic { .. }
            | StoredReasoning::OpenAi { .. }
            | StoredReasoning::OpenAiResponses { .. },
        )
        | None => (None, &[]),
    };
    let mut parts = Vec::new();
    if let Some(text) = text {
        let mut part = object(json!({ "text": text }));
        // Send each signature back only once.
        let own = of_text.filter(|own| !of_calls.iter().take(calls.len()).flatten().any(|other| other == *own));
        insert_some(&mut part, "thoughtSignature", own.map(String::as_str));
        parts.push(Value::Object(part));
    }
    for (ix, call) in calls.iter().enumerate() {
        let function = json!({ "id": call.id, "name": call.name, "args": call.args });
        let mut part = object(json!({ "functionCall": function }));
        let signature = of_calls.get(ix).and_then(Option::as_deref);
        // The first call of an answer needs a signature.
        let signature = signature.or((wants_signature && ix == 0).then_some(UNSIGNED));
        insert_some(&mut part, "thoughtSignature", signature);
        parts.push(Value::Object(part));
    }
    parts
}
