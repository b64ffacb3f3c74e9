//! Frames of OpenAI's Responses API. They refer to items by id or index, and several items may be open at once.

use serde_json::Value;
use subtend_session::ids::Hash;
use subtend_session::outcome::ModelFail;
use subtend_session::record::Stop;

use super::Draft;
use super::frame::{list, text};
use crate::provider::fault::{self, Fault};

pub(super) fn frame(draft: &mut Draft, frame: &Value) {
    draft.model(text(frame, "/response/model"));
    let piece = text(frame, "/delta").unwrap_or_default();
    match text(frame, "/type").unwrap_or_default() {
        "response.output_text.delta" => draft.push_text(piece),
        "response.refusal.delta" => {
            draft.push_text(piece);
            draft.stop = Some(Stop::Refused);
        }
        "response.reasoning_text.delta" | "response.reasoning_summary_text.delta" => draft.push_reasoning(piece),
        "response.output_item.added" => on_added(draft, frame),
        "response.function_call_arguments.delta" => {
            if let Some(call) = draft.call(&call_key(frame)) {
                call.args.push_str(piece);
            }
        }
        "response.function_call_arguments.done" => replace_arguments(draft, frame, text(frame, "/arguments")),
        "response.output_item.done" => on_done(draft, frame),
        "response.completed" | "response.incomplete" => end(draft, frame),
        "response.failed" | "response.cancelled" => {
            draft.tally.responses(frame.pointer("/response/usage"));
            let fault = frame.pointer("/response").and_then(fault::of_error_object);
            draft.fail(fault.unwrap_or_else(|| Fault::new(ModelFail::BadAnswer, "the response failed")));
        }
        _ => {}
    }
}

/// Returns the id or the index of an item, because some servers omit one of them.
fn call_key(frame: &Value) -> String {
    let id = text(frame, "/item_id").or_else(|| text(frame, "/item/id")).filter(|id| !id.is_empty());
    match (id, frame.get("output_index")) {
        (Some(id), _) => id.to_owned(),
        (None, Some(index)) => index.to_string(),
        (None, None) => String::new(),
    }
}

fn on_added(draft: &mut Draft, frame: &Value) {
    if text(frame, "/item/type") == Some("function_call") {
        let id = text(frame, "/item/call_id").unwrap_or_default();
        draft.open(call_key(frame), id, text(frame, "/item/name").unwrap_or_default());
        replace_arguments(draft, frame, text(frame, "/item/arguments"));
    }
}

/// Replaces the pieces of the arguments with the complete arguments.
fn replace_arguments(draft: &mut Draft, frame: &Value, arguments: Option<&str>) {
    let arguments = arguments.filter(|arguments| !arguments.is_empty());
    if let (Some(arguments), Some(call)) = (arguments, draft.call(&call_key(frame))) {
        call.args = arguments.to_owned();
    }
}

fn on_done(draft: &mut Draft, frame: &Value) {
    let Some(item) = frame.get("item") else { return };
    match text(item, "/type").unwrap_or_default() {
        "function_call" => {
            let call_key = call_key(frame);
            let id = text(item, "/call_id").unwrap_or_default();
            let of_id = |draft: &Draft| draft.calls.iter().rposition(|call| !id.is_empty() && call.id == id);
            let known = draft.position(&call_key).or_else(|| of_id(draft));
            match (known.and_then(|ix| draft.calls.get_mut(ix)), text(item, "/arguments").unwrap_or_default()) {
                (Some(call), arguments) if !arguments.is_empty() => call.args = arguments.to_owned(),
                (Some(_), _) => {}
                (None, _) => add_listed(draft, item),
            }
        }
        "reasoning" => keep_reasoning(draft, item),
        _ => {}
    }
    if text(item, "/status") == Some("incomplete") {
        draft.stop.get_or_insert(Stop::Length);
    }
}

fn keep_reasoning(draft: &mut Draft, item: &Value) {
    let encrypted = text(item, "/encrypted_content").filter(|content| !content.is_empty());
    if let Some(content) = encrypted
        && draft.reasoning.seen.insert(Hash::of(content.as_bytes()))
        && draft.try_keep(content.len())
    {
        draft.reasoning.encrypted.push(content.to_owned());
    }
}

fn end(draft: &mut Draft, frame: &Value) {
    draft.tally.responses(frame.pointer("/response/usage"));
    let output = list(frame, "/response/output");
    // The last frame lists the whole answer, so it supplies what the stream omitted.
    let (no_calls, no_text) = (draft.calls.is_empty(), draft.text.is_empty());
    for item in output {
        match text(item, "/type").unwrap_or_default() {
            "function_call" if no_calls => add_listed(draft, item),
            "message" if no_text => {
                for part in list(item, "/content") {
                    draft.push_text(text(part, "/text").or_else(|| text(part, "/refusal")).unwrap_or_default());
                }
            }
            "reasoning" => keep_reasoning(draft, item),
            _ => {}
        }
    }
    let refused = output.iter().flat_map(|item| list(item, "/content")).any(|part| part.get("refusal").is_some());
    let why = text(frame, "/response/incomplete_details/reason").unwrap_or_default();
    let status = text(frame, "/response/status").unwrap_or_default();
    let incomplete = status == "incomplete" || text(frame, "/type") == Some("response.incomplete");
    draft.stop = Some(match (draft.stop, why) {
        (Some(Stop::Refused), _) | (_, "content_filter") => Stop::Refused,
        _ if refused => Stop::Refused,
        (_, "max_output_tokens" | "max_tokens") | (Some(Stop::Length), _) => Stop::Length,
        _ if incomplete => Stop::Length,
        _ if draft.calls.is_empty() => Stop::End,
        _ => Stop::Calls,
    });
    draft.ended = true;
}

/// Adds a call from a complete item of the answer.
fn add_listed(draft: &mut Draft, item: &Value) {
    let id = text(item, "/call_id").unwrap_or_default();
    let call_key = text(item, "/id").unwrap_or(id).to_owned();
    draft.open(call_key.clone(), id, text(item, "/name").unwrap_or_default());
    if let Some(call) = draft.call(&call_key) {
        call.args = text(item, "/arguments").unwrap_or_default().to_owned();
    }
}
