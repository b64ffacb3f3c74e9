//! Frames of Anthropic messages: blocks by index, which may be open at the same time.

use serde_json::{Value, json};
use subtend_session::record::Stop;

use super::Draft;
use super::frame::{arguments, text};

pub(super) fn frame(draft: &mut Draft, frame: &Value) {
    // Read the kind from the data, because the name of the event can be lost if a chunk ends within a line break.
    match text(frame, "/type").unwrap_or_default() {
        "message_start" => {
            draft.model(text(frame, "/message/model"));
            draft.tally.anthropic(frame.pointer("/message/usage"));
        }
        "content_block_start" => start(draft, frame),
        "content_block_delta" => delta(draft, frame),
        "message_delta" => {
            draft.tally.anthropic(frame.get("usage"));
            draft.stop = text(frame, "/delta/stop_reason").map(stop).or(draft.stop);
        }
        "message_stop" => draft.ended = true,
        _ => {}
    }
}

fn index(frame: &Value) -> u64 {
    frame.get("index").and_then(Value::as_u64).unwrap_or(0)
}

fn start(draft: &mut Draft, frame: &Value) {
    let index = index(frame);
    match text(frame, "/content_block/type").unwrap_or_default() {
        "text" => draft.push_text(text(frame, "/content_block/text").unwrap_or_default()),
        "thinking" => {
            let thinking = text(frame, "/content_block/thinking").unwrap_or_default();
            let signature = text(frame, "/content_block/signature").unwrap_or_default();
            if draft.try_keep(signature.len()) {
                let block = json!({ "type": "thinking", "thinking": thinking, "signature": signature });
                draft.reasoning.blocks.push((index, block));
                draft.push_reasoning(thinking);
            }
        }
        "redacted_thinking" => {
            // Keep only this field: other fields could be values of any size in each frame.
            let data = text(frame, "/content_block/data").unwrap_or_default();
            if draft.try_keep(data.len()) {
                draft.reasoning.blocks.push((index, json!({ "type": "redacted_thinking", "data": data })));
            }
        }
        "tool_use" => {
            let id = text(frame, "/content_block/id").unwrap_or_default();
            draft.open(index.to_string(), id, text(frame, "/content_block/name").unwrap_or_default());
            // Some servers send the whole input here, without deltas.
            let input = frame.pointer("/content_block/input").filter(|input| **input != json!({}));
            let input = arguments(input);
            if let Some(call) = draft.call(&index.to_string()) {
                call.args = input;
            }
        }
        _ => {}
    }
}

fn delta(draft: &mut Draft, frame: &Value) {
    let index = index(frame);
    if let Some(piece) = text(frame, "/delta/text") {
        draft.push_text(piece);
    } else if let Some(piece) = text(frame, "/delta/partial_json") {
        if let Some(call) = draft.call(&index.to_string()) {
            call.args.push_str(piece);
        }
    } else if let Some(piece) = text(frame, "/delta/thinking") {
        append(draft, index, "thinking", piece);
        draft.push_reasoning(piece);
    } else if let Some(piece) = text(frame, "/delta/signature") {
        draft.reasoning.bytes = draft.reasoning.bytes.saturating_add(piece.len());
        append(draft, index, "signature", piece);
    }
}

fn append(draft: &mut Draft, index: u64, field: &str, piece: &str) {
    let block = draft.reasoning.blocks.iter_mut().rev().find(|(at, _)| *at == index).map(|(_, block)| block);
    if let Some(Value::String(text)) = block.and_then(|block| block.get_mut(field)) {
        text.push_str(piece);
    }
}

/// Returns whether a block can be sent back. The provider refuses thinking without a signature.
pub(super) fn is_signed(block: &Value) -> bool {
    text(block, "/type") != Some("thinking") || text(block, "/signature").is_some_and(|sign| !sign.is_empty())
}

fn stop(reason: &str) -> Stop {
    match reason {
        "end_turn" | "stop_sequence" => Stop::End,
        "tool_use" => Stop::Calls,
        "max_tokens" | "model_context_window_exceeded" => Stop::Length,
        "refusal" => Stop::Refused,
        _ => Stop::Other,
    }
}
