//! Token estimates for rate limits. Accounting uses the usage that providers report instead.

use serde_json::{Number, Value};
use subtend_session::message::{Message, ToolSpec};
use subtend_session::record::{Prompt, ToolCall};

use crate::model::Request;

/// Bytes per token: about four for English and code. Text in other scripts is underestimated, because it has fewer bytes per token.
const BYTES_PER_TOKEN: u64 = 4;

/// Bytes around each message, call and tool: roles, ids, punctuation.
const FRAMING_BYTES: u64 = 16;

/// Bytes of a prompt in addition to the transcript.
const PROMPT_BYTES: u64 = 120;

/// Estimated tokens of an answer without a cap: most answers are far shorter than a model allows.
const TYPICAL_ANSWER: u64 = 1_024;

/// Estimates the tokens of `request` and its answer, from lengths alone. The answer counts with its full cap, as providers reserve it. The
/// unused part is returned when the call is settled.
pub fn tokens(request: &Request) -> u64 {
    let texts = [Some(&request.system), request.format.as_ref()].into_iter().flatten().map(|text| length(text));
    let messages = request.messages.iter().map(message);
    let tools = request.tools.iter().map(tool);
    let prompt = match request.prompt {
        Prompt::Plain => 0,
        Prompt::Continuation | Prompt::Nudge => PROMPT_BYTES,
    };
    let bytes = texts.chain(messages).chain(tools).fold(prompt, u64::saturating_add);
    let answer = request.settings.output_tokens.unwrap_or(TYPICAL_ANSWER);
    bytes.div_ceil(BYTES_PER_TOKEN).saturating_add(answer)
}

fn message(message: &Message) -> u64 {
    let text = match message {
        Message::User { text, .. } | Message::Notice { text, .. } | Message::Prompt { text } => length(text),
        Message::Assistant { text, reasoning, calls, .. } => {
            let texts = [text, reasoning].into_iter().flatten().map(|text| length(text));
            let calls = calls.iter().map(|ToolCall { provider_id, tool, args }| {
                FRAMING_BYTES
                    .saturating_add(length(provider_id))
                    .saturating_add(length(tool))
                    .saturating_add(length(args))
            });
            texts.chain(calls).fold(0, u64::saturating_add)
        }
        Message::Result { content, .. } => length(content),
    };
    text.saturating_add(FRAMING_BYTES)
}

fn tool(tool: &ToolSpec) -> u64 {
    let ToolSpec { name, description, schema } = tool;
    FRAMING_BYTES.saturating_add(length(name)).saturating_add(length(description)).saturating_add(json(schema))
}

/// Returns the length of `value` as compact JSON, without escapes.
fn json(value: &Value) -> u64 {
    let list = |items: u64, count: usize| items.saturating_add(units(count.saturating_sub(1))).saturating_add(2);
    match value {
        Value::Null | Value::Bool(true) => 4,
        Value::Bool(false) => 5,
        Value::Number(number) => digits(number),
        Value::String(text) => length(text).saturating_add(2),
        Value::Array(items) => list(items.iter().map(json).fold(0, u64::saturating_add), items.len()),
        Value::Object(fields) => {
            let field = |(name, value): (&String, &Value)| length(name).saturating_add(3).saturating_add(json(value));
            list(fields.iter().map(field).fold(0, u64::saturating_add), fields.len())
        }
    }
}

fn digits(number: &Number) -> u64 {
    let of = |whole: u64| u64::from(whole.checked_ilog10().unwrap_or(0)).saturating_add(1);
    match (number.as_u64(), number.as_i64()) {
        (Some(whole), _) => of(whole),
        (None, Some(negative)) => of(negative.unsigned_abs()).saturating_add(1),
        // An approximation for fractions.
        (None, None) => 8,
    }
}

fn length(text: &str) -> u64 {
    units(text.len())
}

fn units(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;
    use subtend_session::ids::{AttemptNo, CallId, Seq, Text, TurnNo};
    use subtend_session::settings::Settings;

    use super::*;

    fn request(messages: Vec<Message>, tools: Vec<ToolSpec>) -> Request {
        Request {
            session: "01890000-0000-7000-8000-000000000001".parse().unwrap(),
            agent: "writer".into(),
            model: "lab/model".into(),
            turn: TurnNo(1),
            attempt: AttemptNo(1),
            system: "x".repeat(400).into(),
            messages: Arc::new(messages),
            prompt: Prompt::Plain,
            tools: tools.into(),
            settings: Settings { output_tokens: Some(1_000), ..Settings::default() },
            format: None,
        }
    }

    fn text(bytes: usize) -> Text {
        "x".repeat(bytes).into()
    }

    #[test]
    fn token_is_four_bytes_and_answer_counts_up_to_its_cap() {
        let plain = request(Vec::new(), Vec::new());
        assert_eq!(tokens(&plain), 100 + 1_000);
        assert_eq!(tokens(&Request { settings: Settings::default(), ..plain.clone() }), 100 + 1_024);
        assert_eq!(tokens(&Request { format: Some(text(41)), ..plain.clone() }), 111 + 1_000);
        assert_eq!(tokens(&Request { prompt: Prompt::Nudge, ..plain }), 130 + 1_000);
    }

    #[test]
    fn every_kind_of_message_counts_with_all_its_text() {
        let tool_call = ToolCall { provider_id: text(10), tool: text(4), args: text(70) };
        let call = CallId { turn: TurnNo(1), ix: 0 };
        let assistant = |calls: Vec<ToolCall>| Message::Assistant {
            seq: Seq(2),
            text: Some(text(24)),
            reasoning: Some(text(60)),
            calls: calls.into(),
        };
        let cost = |message| tokens(&request(vec![message], Vec::new())) - 1_100;
        assert_eq!(cost(Message::User { seq: Seq(1), text: text(84) }), 25);
        assert_eq!(cost(assistant(Vec::new())), 25);
        assert_eq!(cost(assistant(vec![tool_call.clone(), tool_call])), 25 + 50);
        assert_eq!(cost(Message::Result { call, error: false, content: text(84) }), 25);
        assert_eq!(cost(Message::Notice { seq: Seq(3), text: text(84) }), 25);
        assert_eq!(cost(Message::Prompt { text: text(84) }), 25);
    }

    #[test]
    fn schema_counts_its_written_length() {
        let schema = json!({
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "Where to find.", "default": null},
                "depth": {"type": "integer", "minimum": -10, "maximum": 1_000, "exclusiveMinimum": 0},
                "kinds": {"enum": ["file", "folder", 7], "uniqueItems": true, "minItems": 1},
                "empty": {"items": [], "properties": {}},
            },
            "required": ["path"],
            "additionalProperties": false,
        });
        let written = units(schema.to_string().len());
        assert_eq!(json(&schema), written);
        let spec = ToolSpec { name: text(10), description: text(74), schema: Arc::new(schema) };
        assert_eq!(tokens(&request(Vec::new(), vec![spec])), 100 + (100 + written).div_ceil(4) + 1_000);
    }
}
