//! Fuzzes the streams of model answers, with one target for each protocol.

use std::sync::{Arc, Mutex};

use subtend_models::model::{Answer, Delta, Deltas, ModelError};
use subtend_models::provider::{Protocol, recorded};
use subtend_session::limits::MAX_CALLS_PER_ANSWER;
use subtend_session::record::Stop;

use super::InputResult;

/// Fuzzes streams of Anthropic messages.
pub fn anthropic(bytes: &[u8]) -> InputResult {
    any_bytes(Protocol::Anthropic, bytes)
}

/// Fuzzes streams of OpenAI chat completions.
pub fn openai(bytes: &[u8]) -> InputResult {
    any_bytes(Protocol::OpenAi, bytes)
}

/// Fuzzes streams of OpenAI responses.
pub fn openai_responses(bytes: &[u8]) -> InputResult {
    any_bytes(Protocol::OpenAiResponses, bytes)
}

/// Fuzzes streams of Gemini.
pub fn gemini(bytes: &[u8]) -> InputResult {
    any_bytes(Protocol::Gemini, bytes)
}

/// Fuzzes streams of Ollama.
pub fn ollama(bytes: &[u8]) -> InputResult {
    any_bytes(Protocol::Ollama, bytes)
}

/// The result does not depend on the pieces of the stream, the answer equals the text, and an error is one short line.
fn any_bytes(protocol: Protocol, bytes: &[u8]) -> InputResult {
    let (whole, received) = read(protocol, bytes, bytes.len());
    let size = 1 + crc32c::crc32c(bytes) as usize % 64;
    let (pieces, received_in_pieces) = read(protocol, bytes, size);
    assert_eq!(whole, pieces, "the answer depends on pieces of {size} bytes");
    assert_eq!(received, received_in_pieces, "deltas depend on pieces of {size} bytes");
    match whole {
        Ok(answer) => {
            check_answer(&answer, &received, bytes.len());
            InputResult::Accepted
        }
        Err(error) => {
            assert!(!error.message.is_empty(), "an error without a reason: {error:?}");
            assert!(error.message.len() < 4096 && !error.message.contains(char::is_control), "{error:?}");
            InputResult::Refused
        }
    }
}

fn read(protocol: Protocol, bytes: &[u8], size: usize) -> (Result<Answer, ModelError>, Vec<Delta>) {
    let received = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&received);
    let deltas = Deltas::to(move |delta| {
        if let Ok(mut received) = sink.lock() {
            received.push(delta);
        }
    });
    let answer = recorded::read(protocol, bytes.chunks(size.max(1)), Some(100), deltas);
    let received = received.lock().map(|mut received| std::mem::take(&mut *received)).unwrap_or_default();
    (answer, received)
}

fn check_answer(answer: &Answer, received: &[Delta], sent: usize) {
    assert!(answer.calls.len() <= MAX_CALLS_PER_ANSWER as usize, "{} calls", answer.calls.len());
    let text: usize = answer.text.iter().map(|text| text.len()).sum();
    let args: usize = answer.calls.iter().map(|call| call.args.len()).sum();
    // Missing arguments are recorded as `{}`, and a number may be recorded with more digits than were sent.
    let most = sent.saturating_mul(8).saturating_add(answer.calls.len().saturating_mul(2));
    assert!(text + args <= most, "{text} and {args} bytes of {sent}");
    assert_ne!((answer.stop, answer.calls.len()), (Stop::Calls, 0), "an answer that stops for calls has no call");
    let streamed: String =
        received.iter().filter_map(|delta| if let Delta::Text(text) = delta { Some(&**text) } else { None }).collect();
    assert_eq!(streamed, answer.text.as_deref().unwrap_or_default(), "the deltas differ from the text");
    let named = answer.calls.iter().filter(|call| !call.tool.is_empty()).count();
    let announced = received.iter().filter(|delta| matches!(delta, Delta::Call { .. })).count();
    assert_eq!(announced, named, "a call is not announced exactly once");
    let kept = answer.reasoning.as_deref().map(serde_json::from_str::<serde_json::Value>);
    assert!(kept.is_none_or(|kept| kept.is_ok()), "recorded reasoning cannot be read");
}
