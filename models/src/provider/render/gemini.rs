use serde_json::{Map, Value, json};
use subtend_session::settings::Effort;

use super::turns::{Call, Outcome, Turn};
use super::{Outgoing, fields, insert_some};
use crate::provider::reasoning::StoredReasoning;

/// Models with thinking levels instead of thinking budgets.
const LEVELS: [&str; 2] = ["gemini-3", "gemma-4"];
/// The documented placeholder for the signature of a foreign call.
const UNSIGNED: &str = "skip_thought_signature_validator";

pub(super) fn body(outgoing: &Outgoing<'_>, turns: Vec<Turn>) -> Map<String, Value> {
    let mut body = Map::new();
    insert_some(&mut body, "contents", Some(contents(outgoing, turns)));
    insert_some(&mut body, "systemInstruction", outgoing.system.map(|system| json!({ "parts": [{ "text": system }] })));
    let declared: Vec<Value> = outgoing
        .tools
        .iter()
        .map(|tool| json!({ "name": tool.name, "description": tool.description, "parametersJsonSchema": tool.schema }))
        .collect();
    let declared = Some(declared).filter(|declared| !declared.is_empty());
    insert_some(&mut body, "tools", declared.map(|tools| vec![fields([("functionDeclarations", tools.into())])]));
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

fn contents(outgoing: &Outgoing<'_>, turns: Vec<Turn>) -> Vec<Value> {
    let wants_signature = outgoing.model.contains("gemini-3");
    let written = turns.into_iter().map(|turn| {
        let (role, parts): (&str, Vec<Value>) = match turn {
            Turn::User(texts) => ("user", texts.into_iter().map(|text| fields([("text", text.into())])).collect()),
            Turn::Assistant { text, kept, calls } => ("model", assistant_parts(text, kept, calls, wants_signature)),
            Turn::Results(outcomes) => ("user", outcomes.into_iter().map(result).collect()),
        };
        fields([("role", role.into()), ("parts", parts.into())])
    });
    written.collect()
}

fn result(Outcome { id, name, content, .. }: Outcome) -> Value {
    let response = fields([("name", name.clone().into()), ("content", content.into())]);
    fields([("functionResponse", fields([("id", id.into()), ("name", name.into()), ("response", response)]))])
}

fn assistant_parts(
    text: Option<String>,
    kept: Option<StoredReasoning>,
    calls: Vec<Call>,
    wants_signature: bool,
) -> Vec<Value> {
    let (of_text, of_calls) = match kept {
        Some(StoredReasoning::Gemini { text, calls }) => (text, calls),
        Some(
            StoredReasoning::Anthropic { .. }
            | StoredReasoning::OpenAi { .. }
            | StoredReasoning::OpenAiResponses { .. },
        )
        | None => (None, Vec::new()),
    };
    let mut parts = Vec::new();
    if let Some(text) = text {
        let mut part = Map::new();
        insert_some(&mut part, "text", Some(text));
        // Send each signature back only once.
        let own = of_text.filter(|own| !of_calls.iter().take(calls.len()).flatten().any(|other| other == own));
        insert_some(&mut part, "thoughtSignature", own);
        parts.push(Value::Object(part));
    }
    let mut signatures = of_calls.into_iter();
    for (ix, Call { id, name, args }) in calls.into_iter().enumerate() {
        let mut part = Map::new();
        let function = fields([("id", id.into()), ("name", name.into()), ("args", args)]);
        insert_some(&mut part, "functionCall", Some(function));
        // The first call of an answer needs a signature.
        let unsigned = (wants_signature && ix == 0).then(|| UNSIGNED.to_owned());
        insert_some(&mut part, "thoughtSignature", signatures.next().flatten().or(unsigned));
        parts.push(Value::Object(part));
    }
    parts
}
