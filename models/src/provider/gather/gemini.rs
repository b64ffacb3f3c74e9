//! Frames of Gemini content generation, which contain complete parts.

use serde_json::Value;
use subtend_session::record::Stop;

use super::Draft;
use super::frame::{arguments, list, text};

pub(super) fn frame(draft: &mut Draft, frame: &Value) {
    draft.model(text(frame, "/modelVersion"));
    draft.tally.gemini(frame.get("usageMetadata"));
    for part in list(frame, "/candidates/0/content/parts") {
        take(draft, part);
    }
    if text(frame, "/promptFeedback/blockReason").is_some() {
        draft.stop = Some(Stop::Refused);
        draft.ended = true;
    }
    if let Some(reason) = text(frame, "/candidates/0/finishReason") {
        draft.stop = Some(stop(reason));
        draft.ended = true;
    }
}

fn take(draft: &mut Draft, part: &Value) {
    let signature = text(part, "/thoughtSignature").filter(|signature| !signature.is_empty());
    if let Some(call) = part.get("functionCall") {
        let call_key = draft.calls.len();
        let ix = draft.open(
            call_key.to_string(),
            text(call, "/id").unwrap_or_default(),
            text(call, "/name").unwrap_or_default(),
        );
        if let Some(open) = draft.calls.get_mut(ix) {
            open.args = arguments(call.get("args"));
        }
        if let Some(signature) = signature.filter(|signature| draft.try_keep(signature.len())) {
            draft.reasoning.of_calls.push((ix, signature.to_owned()));
        }
        return;
    }
    let message = text(part, "/text").unwrap_or_default();
    if part.get("thought").and_then(Value::as_bool).unwrap_or(false) {
        draft.push_reasoning(message);
    } else {
        draft.push_text(message);
        draft.reasoning.signature = signature.map(str::to_owned).or(draft.reasoning.signature.take());
    }
}

fn stop(reason: &str) -> Stop {
    match reason {
        "STOP" => Stop::End,
        "MAX_TOKENS" => Stop::Length,
        "SAFETY"
        | "RECITATION"
        | "BLOCKLIST"
        | "PROHIBITED_CONTENT"
        | "SPII"
        | "LANGUAGE"
        | "IMAGE_SAFETY"
        | "IMAGE_PROHIBITED_CONTENT"
        | "IMAGE_RECITATION" => Stop::Refused,
        _ => Stop::Other,
    }
}
