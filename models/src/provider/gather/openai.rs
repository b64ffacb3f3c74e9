//! Frames of OpenAI chat completions and their variants.

use serde_json::Value;
use subtend_session::record::Stop;

use super::Draft;
use super::frame::{arguments, list, text};

pub(super) fn frame(draft: &mut Draft, frame: &Value) {
    draft.model(text(frame, "/model"));
    draft.tally.openai(frame.get("usage"));
    let Some(choice) = frame.pointer("/choices/0") else {
        // The usage follows the stop reason. Not every server sends `[DONE]` afterwards.
        draft.ended |= draft.stop.is_some() && draft.tally.is_reported();
        return;
    };
    let delta = choice.get("delta").or_else(|| choice.get("message")).unwrap_or(&Value::Null);
    match delta.get("content") {
        Some(Value::String(piece)) => draft.push_text(piece),
        Some(Value::Array(pieces)) => pieces.iter().for_each(|piece| push_part(draft, piece)),
        _ => {}
    }
    let reasoning = text(delta, "/reasoning_content").or_else(|| text(delta, "/reasoning"));
    draft.push_reasoning(reasoning.unwrap_or_default());
    if let Some(refusal) = text(delta, "/refusal").filter(|refusal| !refusal.is_empty()) {
        draft.push_text(refusal);
        draft.stop = Some(Stop::Refused);
    }
    for piece in list(delta, "/tool_calls") {
        push_call(draft, piece);
    }
    if let Some(reason) = text(choice, "/finish_reason").filter(|_| draft.stop != Some(Stop::Refused)) {
        draft.stop = Some(stop(reason));
    }
}

/// Adds a typed part. Some servers send reasoning and text in typed parts.
fn push_part(draft: &mut Draft, piece: &Value) {
    match (piece.get("text"), piece.get("thinking")) {
        (Some(Value::String(text)), _) => draft.push_text(text),
        (_, Some(Value::String(text))) => draft.push_reasoning(text),
        (_, Some(Value::Array(pieces))) => {
            pieces.iter().filter_map(|piece| text(piece, "/text")).for_each(|text| draft.push_reasoning(text));
        }
        _ => {}
    }
}

/// Adds a piece of a call. Some servers send no index, or the same index for all calls. So a new id means a new call.
fn push_call(draft: &mut Draft, piece: &Value) {
    if !piece.is_object() {
        return;
    }
    let index = piece.get("index").and_then(Value::as_u64).map(|index| index.to_string());
    let id = text(piece, "/id").unwrap_or_default();
    let tool = text(piece, "/function/name").unwrap_or_default();
    let args = arguments(piece.pointer("/function/arguments"));
    let (known, call_key) = match index {
        Some(index) => (draft.position(&index), index),
        None if id.is_empty() && tool.is_empty() => (draft.calls.len().checked_sub(1), String::new()),
        None => {
            let call_key = format!("{id} {tool}");
            (draft.position(&call_key), call_key)
        }
    };
    let continues =
        |ix: &usize| draft.calls.get(*ix).is_some_and(|call| id.is_empty() || call.id.is_empty() || call.id == id);
    let ix = match known.filter(continues) {
        Some(ix) => ix,
        None => draft.open(call_key, id, tool),
    };
    if !draft.fits(id, tool) {
        return;
    }
    if let Some(call) = draft.calls.get_mut(ix) {
        if call.id.is_empty() {
            call.id = id.into();
        }
        if call.tool.is_empty() {
            call.tool = tool.into();
        }
        call.args.push_str(&args);
    }
    draft.report_call(ix);
}

fn stop(reason: &str) -> Stop {
    match reason {
        "stop" | "eos" | "end_turn" => Stop::End,
        "tool_calls" | "function_call" => Stop::Calls,
        "length" | "max_tokens" | "model_length" => Stop::Length,
        "content_filter" | "refusal" => Stop::Refused,
        _ => Stop::Other,
    }
}
