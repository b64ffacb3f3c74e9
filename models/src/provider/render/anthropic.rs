use serde_json::{Map, Value, json};
use subtend_session::settings::Effort;

use super::turns::{Call, Outcome, Turn, called_tools};
use super::{Outgoing, fields, insert_some, message, object, schema};
use crate::provider::claude::{Claude, Thinking};
use crate::provider::reasoning::StoredReasoning;

/// Thinking budgets by effort, for models with a budget. The cap on output tokens covers the budget and the answer.
const BUDGETS: [(Effort, u64); 3] = [(Effort::High, 24_000), (Effort::Medium, 8_000), (Effort::Low, 1_024)];

pub(super) fn body(outgoing: &Outgoing<'_>, turns: Vec<Turn>) -> Map<String, Value> {
    let claude = Claude::of(outgoing.model);
    let called = if outgoing.tools.is_empty() { called_tools(&turns) } else { Vec::new() };
    let mut messages = messages(turns);
    if outgoing.is_official {
        mark_for_cache(&mut messages);
    }
    let cap = outgoing.settings.output_tokens.unwrap_or(claude.max_tokens());
    let mut body = object(json!({ "model": outgoing.model, "stream": true, "max_tokens": cap }));
    insert_some(&mut body, "messages", Some(messages));
    insert_some(&mut body, "system", outgoing.system);
    tools(outgoing, called, &mut body);
    // The provider refuses these parameters together with thinking.
    if !outgoing.thinks {
        outgoing.sample(&mut body, "temperature", "top_p");
    }
    let mut output = Map::new();
    add_thinking(outgoing, claude, &mut body, &mut output);
    let format = outgoing.format.as_ref().map(|format| schema::close_objects(format, false));
    insert_some(
        &mut output,
        "format",
        format.map(|schema| fields([("type", "json_schema".into()), ("schema", schema)])),
    );
    insert_some(&mut body, "output_config", Some(output).filter(|output| !output.is_empty()));
    body
}

/// Writes the tools. The provider refuses a transcript with calls if no tools are offered. Then the called tools are listed, and calls are
/// forbidden.
fn tools(outgoing: &Outgoing<'_>, called: Vec<String>, body: &mut Map<String, Value>) {
    let offered = outgoing
        .tools
        .iter()
        .map(|tool| json!({ "name": tool.name, "description": tool.description, "input_schema": tool.schema }));
    insert_some(body, "tool_choice", (!called.is_empty()).then(|| json!({ "type": "none" })));
    let stubs = called.into_iter().map(|name| json!({ "name": name, "input_schema": { "type": "object" } }));
    let tools: Vec<Value> = offered.chain(stubs).collect();
    insert_some(body, "tools", Some(tools).filter(|tools| !tools.is_empty()));
}

fn add_thinking(
    outgoing: &Outgoing<'_>,
    claude: Claude,
    body: &mut Map<String, Value>,
    output: &mut Map<String, Value>,
) {
    let Some(requested) = outgoing.settings.effort else { return };
    // The provider refuses thinking after calls that were made without thinking.
    let requested = if outgoing.is_unsigned { Effort::None } else { requested };
    let effort = effort_within(requested, outgoing.settings.output_tokens);
    let thinking = match (claude.thinking(), effort) {
        (Thinking::Adaptive { by_default: true }, None) => json!({ "type": "disabled" }),
        (_, None) => return,
        (Thinking::Budget, Some((_, budget))) => json!({ "type": "enabled", "budget_tokens": budget }),
        (Thinking::Effort, Some((effort, _))) => return insert_some(output, "effort", Some(<&str>::from(effort))),
        (Thinking::Adaptive { .. }, Some((effort, _))) => {
            insert_some(output, "effort", Some(<&str>::from(effort)));
            json!({ "type": "adaptive", "display": "summarized" })
        }
    };
    insert_some(body, "thinking", Some(thinking));
}

/// Returns the highest effort, up to the requested one, that leaves enough of the cap for an answer.
fn effort_within(requested: Effort, cap: Option<u64>) -> Option<(Effort, u64)> {
    BUDGETS.into_iter().find(|(effort, budget)| *effort <= requested && cap.is_none_or(|cap| cap > *budget))
}

fn messages(turns: Vec<Turn>) -> Vec<Value> {
    let mut messages: Vec<Value> = Vec::new();
    for turn in turns {
        match turn {
            Turn::User(texts) => user(&mut messages, texts),
            Turn::Assistant { text, kept, calls } => messages.push(assistant_message(text, kept, calls)),
            Turn::Results(outcomes) => {
                let results: Vec<Value> = outcomes.into_iter().map(result).collect();
                messages.push(message("user", results));
            }
        }
    }
    messages
}

/// Adds user texts. Roles must alternate, so texts after results become part of the message with the results.
fn user(messages: &mut Vec<Value>, texts: Vec<String>) {
    let last = messages.last_mut().filter(|message| message.get("role") == Some(&json!("user")));
    match last.and_then(|message| message.get_mut("content")) {
        Some(Value::Array(blocks)) => blocks.extend(texts.into_iter().map(text)),
        _ => messages.push(message("user", texts.join("\n\n"))),
    }
}

fn text(text: String) -> Value {
    fields([("type", "text".into()), ("text", text.into())])
}

fn result(outcome: Outcome) -> Value {
    let (id, content) = (outcome.id.into(), outcome.content.into());
    let mut block = object(fields([("type", "tool_result".into()), ("tool_use_id", id), ("content", content)]));
    insert_some(&mut block, "is_error", outcome.error.then_some(true));
    Value::Object(block)
}

fn assistant_message(text: Option<String>, kept: Option<StoredReasoning>, calls: Vec<Call>) -> Value {
    let mut blocks: Vec<Value> = match kept {
        Some(StoredReasoning::Anthropic { blocks }) => blocks,
        Some(
            StoredReasoning::OpenAi { .. } | StoredReasoning::OpenAiResponses { .. } | StoredReasoning::Gemini { .. },
        )
        | None => Vec::new(),
    };
    if blocks.is_empty() && calls.is_empty() {
        return message("assistant", text.unwrap_or_default());
    }
    blocks.extend(text.map(self::text));
    blocks.extend(calls.into_iter().map(|Call { id, name, args }| {
        fields([("type", "tool_use".into()), ("id", id.into()), ("name", name.into()), ("input", args)])
    }));
    message("assistant", blocks)
}

/// Marks the end of the conversation for the provider's cache, which makes the next turn cheaper. Only for the provider itself, because a
/// compatible server may not support the mark.
fn mark_for_cache(messages: &mut [Value]) {
    let Some(content) = messages.last_mut().and_then(|message| message.get_mut("content")) else { return };
    if let Value::String(output) = content {
        *content = Value::Array(vec![text(std::mem::take(output))]);
    }
    if let Some(Value::Object(block)) = content.as_array_mut().and_then(|blocks| blocks.last_mut()) {
        insert_some(block, "cache_control", Some(json!({ "type": "ephemeral" })));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effort_leaves_room_for_an_answer() {
        assert_eq!(effort_within(Effort::High, None), Some((Effort::High, 24_000)));
        assert_eq!(effort_within(Effort::High, Some(10_000)), Some((Effort::Medium, 8_000)));
        assert_eq!(effort_within(Effort::High, Some(2_000)), Some((Effort::Low, 1_024)));
        assert_eq!(effort_within(Effort::High, Some(500)), None);
        assert_eq!(effort_within(Effort::None, None), None);
    }

    #[test]
    fn end_of_the_conversation_is_marked_for_the_cache() {
        let mut items = vec![json!({ "role": "user", "content": "hello" })];
        mark_for_cache(&mut items);
        let block = json!({ "type": "text", "text": "hello", "cache_control": { "type": "ephemeral" } });
        assert_eq!(items, [json!({ "role": "user", "content": [block] })]);
        let mut blocks = vec![json!({ "role": "user", "content": [text("a".into()), text("b".into())] })];
        mark_for_cache(&mut blocks);
        let last = json!({ "type": "text", "text": "b", "cache_control": { "type": "ephemeral" } });
        assert_eq!(blocks, [json!({ "role": "user", "content": [text("a".into()), last] })]);
    }
}
