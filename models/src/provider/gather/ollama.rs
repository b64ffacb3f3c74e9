//! Frames of Ollama chat: lines with complete calls, which usually have no ids.

use serde_json::Value;
use subtend_session::record::Stop;

use super::Draft;
use super::frame::{arguments, list, text};

pub(super) fn frame(draft: &mut Draft, line: &Value) {
    draft.model(text(line, "/model"));
    let reasoning = text(line, "/message/thinking").or_else(|| text(line, "/message/reasoning_content"));
    draft.push_reasoning(reasoning.unwrap_or_default());
    draft.push_text(text(line, "/message/content").unwrap_or_default());
    for call in list(line, "/message/tool_calls") {
        let call_key = draft.calls.len();
        let id = text(call, "/id").unwrap_or_default();
        let ix = draft.open(call_key.to_string(), id, text(call, "/function/name").unwrap_or_default());
        if let Some(open) = draft.calls.get_mut(ix) {
            open.args = arguments(call.pointer("/function/arguments"));
        }
    }
    if line.get("done").and_then(Value::as_bool).unwrap_or(false) {
        draft.tally.ollama(line);
        draft.stop = Some(match text(line, "/done_reason").unwrap_or("stop") {
            "stop" => Stop::End,
            "length" => Stop::Length,
            _ => Stop::Other,
        });
        draft.ended = true;
    }
}
