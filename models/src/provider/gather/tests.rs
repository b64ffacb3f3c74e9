use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::model::StreamProgress;

fn draft(protocol: Protocol, frames: &[Value]) -> Draft {
    let mut draft = Draft::new(protocol, TurnNo(1), Deltas::none());
    frames.iter().for_each(|frame| draft.frame(None, &frame.to_string()));
    draft
}

fn answer(protocol: Protocol, frames: &[Value]) -> Answer {
    draft(protocol, frames).finish(None).unwrap()
}

fn openai(delta: Value, finish: Option<&str>) -> Value {
    json!({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
}

fn calls(answer: &Answer) -> Vec<(&str, &str, &str)> {
    answer.calls.iter().map(|tool_call| (&*tool_call.provider_id, &*tool_call.tool, &*tool_call.args)).collect()
}

#[test]
fn calls_without_distinct_indices_are_split_by_id() {
    let piece = |index: Value, id: &str, args: &str| {
        let mut call = json!({"id": id, "function": {"name": "read", "arguments": args}});
        if !index.is_null() {
            call["index"] = index;
        }
        openai(json!({"tool_calls": [call]}), None)
    };
    for index in [json!(0), Value::Null] {
        let frames = [
            piece(index.clone(), "a", "{\"n\":1}"),
            piece(index.clone(), "b", "{\"n\":2}"),
            openai(json!({}), Some("stop")),
        ];
        let answer = answer(Protocol::OpenAi, &frames);
        assert_eq!(calls(&answer), [("a", "read", "{\"n\":1}"), ("b", "read", "{\"n\":2}")], "{index}");
        assert_eq!(answer.stop, Stop::Calls);
    }
}

#[test]
fn arguments_sent_as_json_become_text() {
    let call = json!({"index": 0, "id": "a", "function": {"name": "read", "arguments": {"n": 1}}});
    let answer = answer(Protocol::OpenAi, &[openai(json!({"tool_calls": [call]}), Some("tool_calls"))]);
    assert_eq!(calls(&answer), [("a", "read", "{\"n\":1}")]);
}

#[test]
fn refusals_of_all_protocols_are_recognised() {
    let anthropic = json!({"type": "message_delta", "delta": {"stop_reason": "refusal"}});
    let response = json!({"type": "response.completed", "response": {"status": "completed", "output": [
        {"type": "message", "content": [{"type": "refusal", "refusal": "no"}]}]}});
    for (protocol, frames) in [
        (Protocol::Anthropic, vec![anthropic]),
        (Protocol::OpenAi, vec![openai(json!({"refusal": "no"}), Some("stop"))]),
        (Protocol::OpenAi, vec![openai(json!({"content": "no"}), Some("content_filter"))]),
        (Protocol::OpenAiResponses, vec![response]),
        (Protocol::Gemini, vec![json!({"promptFeedback": {"blockReason": "SAFETY"}})]),
        (Protocol::Gemini, vec![json!({"candidates": [{"finishReason": "SAFETY"}]})]),
    ] {
        assert_eq!(answer(protocol, &frames).stop, Stop::Refused, "{protocol}");
    }
}

#[test]
fn length_stops_of_all_protocols_are_recognised() {
    for (protocol, frame) in [
        (Protocol::Anthropic, json!({"type": "message_delta", "delta": {"stop_reason": "max_tokens"}})),
        (Protocol::OpenAi, openai(json!({"content": "x"}), Some("length"))),
        (Protocol::Gemini, json!({"candidates": [{"finishReason": "MAX_TOKENS"}]})),
        (Protocol::Ollama, json!({"done": true, "done_reason": "length"})),
    ] {
        assert_eq!(answer(protocol, &[frame]).stop, Stop::Length, "{protocol}");
    }
}

#[test]
fn answer_sent_only_in_the_last_frame_is_used() {
    let response = json!({"type": "response.completed", "response": {"status": "completed", "output": [
        {"type": "message", "content": [{"type": "output_text", "text": "hi"}]},
        {"type": "function_call", "id": "fc", "call_id": "c", "name": "read", "arguments": "{"}]}});
    let answer = answer(Protocol::OpenAiResponses, &[response]);
    assert_eq!((answer.text.as_deref(), calls(&answer)), (Some("hi"), vec![("c", "read", "{")]));
}

#[test]
fn thinking_without_a_signature_is_not_kept() {
    let start = |index, block: Value| json!({"type": "content_block_start", "index": index, "content_block": block});
    let redacted = json!({"type": "redacted_thinking", "data": "ZW5j"});
    let frames = [
        start(0, json!({"type": "thinking", "thinking": "hm"})),
        start(1, redacted.clone()),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}),
    ];
    let kept = answer(Protocol::Anthropic, &frames).reasoning.and_then(|text| StoredReasoning::of_text(&text));
    assert_eq!(kept, Some(StoredReasoning::Anthropic { blocks: vec![redacted] }));
}

#[test]
fn missing_or_absurd_usage_is_unreliable() {
    let usage = |usage: Value| {
        answer(Protocol::OpenAi, &[json!({"choices": [], "usage": usage}), openai(json!({}), Some("stop"))]).usage
    };
    assert_eq!(usage(Value::Null), Usage { unreliable: true, ..Usage::default() });
    let odd = Usage { input: 0, output: 1_000_000_000, unreliable: true, ..Usage::default() };
    assert_eq!(usage(json!({"prompt_tokens": -5, "completion_tokens": 1e18 as u64})), odd);
    // Reasoning is missing in the output, and more tokens are cached than the input has.
    let report = json!({"prompt_tokens": 5, "completion_tokens": 2, "completion_tokens_details": {"reasoning_tokens": 9},
        "prompt_tokens_details": {"cached_tokens": 50}});
    assert_eq!(usage(report), Usage { input: 5, output: 9, reasoning: 9, cache_read: 5, ..Usage::default() });
}

#[test]
fn endless_answer_is_ended() {
    let mut draft = Draft::new(Protocol::OpenAi, TurnNo(1), Deltas::none());
    let frame = openai(json!({"content": "x".repeat(1 << 20)}), None).to_string();
    (0..65).for_each(|_| draft.frame(None, &frame));
    assert_eq!(draft.finish(None).map_err(|fault| fault.kind), Err(ModelFail::BadAnswer));
}

#[test]
fn frames_with_too_many_values_are_refused() {
    let answered = |frame: &str| {
        let mut draft = Draft::new(Protocol::OpenAi, TurnNo(1), Deltas::none());
        draft.frame(None, frame);
        draft.finish(None).map(|answer| answer.stop).map_err(|fault| fault.text)
    };
    let frame = |values: &str| format!("{{\"choices\":[{{\"finish_reason\":\"stop\"}}],\"more\":[{values}0]}}");
    let says = Err("the answer has more than 100000 JSON values in one frame".to_owned());
    assert_eq!(answered(&frame(&"0,".repeat(MAX_VALUES))), says);
    // The control: half as many values are accepted.
    assert_eq!(answered(&frame(&"0,".repeat(MAX_VALUES / 2))), Ok(Stop::End));
}

#[test]
fn kept_reasoning_is_bounded() {
    let text = "x".repeat(1 << 20);
    let anthropic = |data: &str| {
        json!({"type": "content_block_start", "content_block":
        {"type": "redacted_thinking", "data": data, "more": [data, data]}})
    };
    let responses = |data: &str| {
        json!({"type": "response.output_item.done", "item":
        {"type": "reasoning", "encrypted_content": data}})
    };
    let gemini = |data: &str| {
        json!({"candidates": [{"content": {"parts": [
        {"functionCall": {"name": "read"}, "thoughtSignature": data}]}}]})
    };
    let openai = |data: &str| {
        let call = json!({"id": &data[..2], "function": {"name": "read", "arguments": data}});
        json!({"choices": [{"delta": {"tool_calls": [call]}}]})
    };
    let frame = |protocol: Protocol, data: &str| match protocol {
        Protocol::Anthropic => anthropic(data),
        Protocol::OpenAiResponses => responses(data),
        Protocol::Gemini => gemini(data),
        Protocol::OpenAi | Protocol::Ollama => openai(data),
    };
    for protocol in [Protocol::Anthropic, Protocol::OpenAiResponses, Protocol::Gemini, Protocol::OpenAi] {
        let mut draft = Draft::new(protocol, TurnNo(1), Deltas::none());
        let taken = (0..100).take_while(|n| {
            draft.frame(None, &frame(protocol, &format!("{n}{text}")).to_string());
            !draft.is_over()
        });
        assert!(taken.count() < 5, "{protocol}");
        let says = "the answer has more than 4194304 bytes of content";
        assert_eq!(draft.finish(None).unwrap_err().text, says, "{protocol}");
    }
    let mut draft = Draft::new(Protocol::OpenAiResponses, TurnNo(1), Deltas::none());
    (0..=MAX_REASONING).for_each(|n| draft.frame(None, &responses(&n.to_string()).to_string()));
    assert_eq!(draft.finish(None).unwrap_err().text, "the answer has more than 4096 pieces of reasoning");
}

/// Only the last signature of a text is kept, so the limit on pieces does not apply to it. The control: a short signature is kept.
#[test]
fn signature_of_a_text_counts_as_content() {
    let kept = |bytes: usize| -> Result<usize, String> {
        let part = json!({"text": "a", "thoughtSignature": "s".repeat(bytes)});
        let frame = json!({"candidates": [{"content": {"parts": [part]}, "finishReason": "STOP"}]});
        let answer = draft(Protocol::Gemini, &[frame]).finish(None).map_err(|fault| fault.text)?;
        Ok(answer.reasoning.map_or(0, |text| text.len()))
    };
    assert_eq!(kept(MAX_CONTENT), Err("the answer has more than 4194304 bytes of content".to_owned()));
    assert_eq!(kept(100), Ok(r#"{"protocol":"gemini","text":""}"#.len() + 100));
}

/// Reasoning is stored as JSON, in which the key may be escaped. The control: another text is unchanged.
#[test]
fn key_with_escapes_in_reasoning_is_masked() {
    let key = "sk-\"a\\b-0";
    let kept = |content: &str| {
        let item = json!({"type": "reasoning", "encrypted_content": content});
        let frames = [
            json!({"type": "response.output_item.done", "item": item}),
            json!({"type": "response.completed", "response": {"status": "completed"}}),
        ];
        let mut draft =
            Draft::new(Protocol::OpenAiResponses, TurnNo(1), Deltas::none()).with_hidden_key(Some(Key::new(key)));
        frames.iter().for_each(|frame| draft.frame(None, &frame.to_string()));
        let reasoning = draft.finish(None).unwrap().reasoning;
        reasoning.and_then(|text| StoredReasoning::of_text(&text))
    };
    let stored = |text: &str| Some(StoredReasoning::OpenAiResponses { encrypted: vec![text.to_owned()] });
    assert_eq!(kept(&format!("at {key}!")), stored("at [key]!"));
    assert_eq!(kept("sk-\"a\\b"), stored("sk-\"a\\b"));
}

/// Returns what is shown of an answer with a key when `frames` arrive, with a pause before each, and when it ends.
async fn shown(key: &Key, frames: &[Value], pause: Duration) -> (Vec<String>, Vec<String>) {
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let take = || std::mem::take(&mut *seen.lock().unwrap());
    let sink = Arc::clone(&seen);
    let deltas = Deltas::to(move |delta| {
        sink.lock().unwrap().push(match delta {
            Delta::Text(text) => format!("text {text}"),
            Delta::Reasoning(text) => format!("reasoning {text}"),
            Delta::Call { tool, .. } => format!("call {tool}"),
        })
    });
    let mut draft = Draft::new(Protocol::OpenAi, TurnNo(1), deltas).with_hidden_key(Some(key.clone()));
    for frame in frames {
        tokio::time::advance(pause).await;
        draft.count_arrived(1);
        draft.frame(None, &frame.to_string());
    }
    let early = take();
    draft.frame(None, &openai(json!({}), Some("stop")).to_string());
    draft.finish(None).unwrap();
    (early, take())
}

/// Something else after each piece must not show the pieces. The controls: other text is shown in the order of its kinds, and a kind
/// that pauses is shown.
#[tokio::test(start_paused = true)]
async fn key_is_not_shown_by_changes_of_kind() {
    let key = Key::new("sk-aab-sk-aac");
    let text = |text: &str| openai(json!({"content": text}), None);
    let reasoning = |text: &str| openai(json!({"reasoning_content": text}), None);
    let call = |id: &str| openai(json!({"tool_calls": [{"index": 0, "id": id, "function": {"name": "read"}}]}), None);
    let pieces = ["sk-", "aab", "-sk", "-aac"];
    let others: [&dyn Fn(&str) -> Value; 2] = [&|_| reasoning("."), &|piece| call(piece)];
    let ends =
        [vec!["text [key]", "reasoning ...."], vec!["text [key]", "call read", "call read", "call read", "call read"]];
    for (other, end) in others.iter().zip(ends) {
        let frames: Vec<Value> = pieces.iter().flat_map(|piece| [text(piece), other(piece)]).collect();
        assert_eq!(
            shown(&key, &frames, Duration::from_millis(100)).await,
            (vec![], end.into_iter().map(str::to_owned).collect())
        );
    }
    let all = [reasoning("first I think"), text("then I answer"), call("a")];
    let (early, rest) = shown(&key, &all, Duration::ZERO).await;
    assert_eq!(early, ["reasoning f"]);
    assert_eq!(rest, ["reasoning irst I think", "text then I answer", "call read"]);
    let (early, rest) = shown(&key, &all, QUIET).await;
    assert_eq!(early, ["reasoning f", "reasoning irst I think", "text t", "text hen I answer", "call read"]);
    assert_eq!(rest, Vec::<String>::new());
}

/// A server can keep the stream of a complete answer open. The control: there is no limit while an answer grows.
#[tokio::test(start_paused = true)]
async fn rest_of_a_complete_answer_has_a_bounded_time() {
    let mut draft = Draft::new(Protocol::OpenAi, TurnNo(1), Deltas::none());
    draft.frame(None, &openai(json!({"content": "a"}), None).to_string());
    assert_eq!(draft.rest_until(), None);
    let seconds = |count| tokio::time::advance(Duration::from_secs(count));
    seconds(60).await;
    draft.frame(None, &openai(json!({}), Some("stop")).to_string());
    let until = Instant::now() + REST;
    for frame in [openai(json!({"content": ""}), None), openai(json!({}), Some("stop"))] {
        seconds(4).await;
        draft.frame(None, &frame.to_string());
        assert_eq!(draft.rest_until(), Some(until));
    }
    draft.frame(None, &openai(json!({"content": "b"}), None).to_string());
    assert_eq!(draft.rest_until(), Some(until + Duration::from_secs(8)));
}

/// Comparing each piece with the full last id takes quadratic time. The control: ids as long as those of gateways.
#[test]
fn endless_names_and_empty_pieces_are_bounded() {
    let opened = |protocol: Protocol, id: &str, name: &str| match protocol {
        Protocol::Anthropic => json!({"type": "content_block_start", "content_block":
            {"type": "tool_use", "id": id, "name": name, "input": {}}}),
        Protocol::OpenAi => openai(json!({"tool_calls": [{"id": id, "function": {"name": name}}]}), None),
        Protocol::OpenAiResponses => json!({"type": "response.output_item.added", "item":
            {"type": "function_call", "id": id, "call_id": id, "name": name}}),
        Protocol::Gemini => {
            json!({"candidates": [{"content": {"parts": [{"functionCall": {"id": id, "name": name}}]}}]})
        }
        Protocol::Ollama => json!({"message": {"tool_calls": [{"id": id, "function": {"name": name}}]}}),
    };
    let (long, short) = ("i".repeat(7 << 20), "i".repeat(8 << 10));
    let protocols =
        [Protocol::Anthropic, Protocol::OpenAi, Protocol::OpenAiResponses, Protocol::Gemini, Protocol::Ollama];
    for protocol in protocols {
        let fault = |id: &str, name: &str| draft(protocol, &[opened(protocol, id, name)]).fault.map(|fault| fault.text);
        let says = |what: &str, most: usize| Some(format!("the answer has more than {most} bytes in the {what}"));
        assert_eq!(fault(&long, "read"), says("id of a call", MAX_ID), "{protocol}");
        assert_eq!(fault("a", &long), says("name of a tool", MAX_NAME), "{protocol}");
        assert_eq!(fault(&short, "read"), None, "{protocol}");
    }
    let pieces = openai(json!({"tool_calls": vec![0; 40_000]}), None).to_string();
    let mut draft = draft(Protocol::OpenAi, &[opened(Protocol::OpenAi, &short, "read")]);
    // With this comparison, these frames take minutes.
    (0..100).for_each(|_| draft.frame(None, &pieces));
    draft.frame(
        None,
        &openai(json!({"tool_calls": [{"function": {"arguments": "{}"}}]}), Some("tool_calls")).to_string(),
    );
    assert_eq!(calls(&draft.finish(None).unwrap()), [(&*short, "read", "{}")]);
}

/// Returns JSON that resembles a frame: valid keys, and any values.
fn near_frame() -> impl Strategy<Value = Value> {
    let keys = [
        "type",
        "index",
        "delta",
        "content_block",
        "text",
        "partial_json",
        "choices",
        "message",
        "tool_calls",
        "function",
        "arguments",
        "name",
        "id",
        "usage",
        "input_tokens",
        "candidates",
        "content",
        "parts",
        "functionCall",
        "done",
        "item",
        "response",
        "output",
        "error",
        "stop_reason",
        "finish_reason",
        "thinking",
        "signature",
    ];
    let words = [
        "content_block_start",
        "content_block_delta",
        "tool_use",
        "thinking",
        "response.completed",
        "response.output_item.added",
        "response.output_item.done",
        "function_call",
        "message_delta",
        "stop",
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        prop::sample::select(words.to_vec()).prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((prop::sample::select(keys.to_vec()), inner), 0..5)
                .prop_map(|pairs| pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()),
        ]
    })
}

proptest! {
    #[test]
    fn random_frames_do_not_panic_the_reader(frames in prop::collection::vec(near_frame(), 0..6), noise in "\\PC{0,40}") {
        for protocol in Protocol::ALL {
            let mut draft = draft(protocol, &frames);
            draft.frame(None, &noise);
            let _ = draft.cost();
            let _ = draft.finish(Some(5));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn keep_alives_count_for_a_bounded_time() {
    let beats = Arc::new(AtomicUsize::new(0));
    let sink = Arc::clone(&beats);
    let deltas = Deltas::with_progress(move |sign| {
        if sign == StreamProgress::Alive {
            sink.fetch_add(1, Ordering::Relaxed);
        }
    });
    let mut draft = Draft::new(Protocol::OpenAi, TurnNo(1), deltas);
    let minutes = async |draft: &mut Draft, minutes: u32, frame: &str| {
        for _ in 0..minutes {
            tokio::time::advance(Duration::from_secs(60)).await;
            draft.count_arrived(8);
            draft.frame(None, frame);
        }
        beats.swap(0, Ordering::Relaxed)
    };
    // Frames without content count for five minutes.
    assert_eq!(minutes(&mut draft, 30, r#"{"choices":[{"delta":{"content":""}}]}"#).await, 4);
    // While an answer grows, frames count as progress.
    assert_eq!(minutes(&mut draft, 1, r#"{"choices":[{"delta":{"content":"a"}}]}"#).await, 0);
    assert_eq!(minutes(&mut draft, 30, r#"{"choices":[{"delta":{"content":"a"}}]}"#).await, 30);
    assert_eq!(minutes(&mut draft, 30, "").await, 4);
}

#[test]
fn frames_and_bytes_of_an_answer_are_bounded() {
    let mut draft = Draft::new(Protocol::OpenAi, TurnNo(1), Deltas::none());
    for _ in 0..MAX_FRAMES {
        draft.frame(None, "");
    }
    assert!(!draft.is_over());
    draft.frame(None, "");
    assert_eq!(draft.finish(None).unwrap_err().text, "the answer has more than 400000 frames");
    let mut draft = Draft::new(Protocol::OpenAi, TurnNo(1), Deltas::none());
    draft.count_arrived(MAX_BYTES);
    assert!(!draft.is_over());
    draft.count_arrived(1);
    assert_eq!(draft.finish(None).unwrap_err().text, "the answer has more than 134217728 bytes");
}
