use super::server::*;
use subtend_models::model::Answer;
use subtend_session::ids::CallId;
use subtend_session::record::{Stop, ToolCall};
use subtend_session::usage::Usage;

pub(crate) fn events(events: &[serde_json::Value]) -> String {
    events.iter().map(|data| format!("event: {}\r\ndata: {data}\r\n\r\n", data["type"].as_str().unwrap())).collect()
}

pub(crate) fn data(events: &[serde_json::Value]) -> String {
    events.iter().map(|data| format!("data: {data}\n\n")).collect()
}

fn tool_call(id: &str, tool: &str, args: &str) -> ToolCall {
    ToolCall { provider_id: id.into(), tool: tool.into(), args: args.into() }
}

fn call(ix: u32, tool: &str) -> Delta {
    Delta::Call { call: CallId { turn: TurnNo(4), ix }, tool: tool.into() }
}

fn usage(input: u64, output: u64) -> Usage {
    Usage { input, output, ..Usage::default() }
}

/// Checks an answer, which must not depend on how its stream is split.
async fn check(spec: &str, body: String, expected: Answer, deltas: Vec<Delta>) {
    for size in [1, 7, 100_000] {
        let server = Server::start([Reply::stream(body.clone()).in_pieces_of(size)]).await;
        let (answer, deltas_received) = server.ask(spec, request()).await;
        assert_eq!(answer, Ok(expected.clone()), "{spec} in pieces of {size}");
        assert_eq!(deltas_received, deltas, "{spec} in pieces of {size}");
    }
}

pub(crate) fn anthropic() -> String {
    events(&[
        json!({"type": "message_start", "message": {"model": "claude-x-1", "usage":
            {"input_tokens": 10, "cache_creation_input_tokens": 5, "cache_read_input_tokens": 100, "output_tokens": 1}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": "", "signature": ""}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "c2ln"}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "ping"}),
        json!({"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Größe"}}),
        json!({"type": "content_block_stop", "index": 1}),
        json!({"type": "content_block_start", "index": 2, "content_block": {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {}}}),
        json!({"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": "{\"pa"}}),
        // The next block opens before this one ends.
        json!({"type": "content_block_start", "index": 3, "content_block": {"type": "tool_use", "id": "toolu_2", "name": "list"}}),
        json!({"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": "th\": 1}"}}),
        json!({"type": "content_block_stop", "index": 2}),
        json!({"type": "content_block_delta", "index": 3, "delta": {"type": "input_json_delta", "partial_json": "{}"}}),
        json!({"type": "content_block_stop", "index": 3}),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 30}}),
        json!({"type": "message_stop"}),
    ])
}

#[tokio::test]
async fn anthropic_thinking_and_overlapping_blocks_are_gathered() {
    let kept =
        json!({ "protocol": "anthropic", "blocks": [{ "type": "thinking", "thinking": "hm", "signature": "c2ln" }] });
    let expected = Answer {
        text: Some("Größe".into()),
        reasoning: None,
        calls: vec![tool_call("toolu_1", "read", "{\"path\": 1}"), tool_call("toolu_2", "list", "{}")],
        stop: Stop::Calls,
        model: Some("anthropic/claude-x-1".into()),
        usage: Usage { cache_new: 5, cache_read: 100, ..usage(115, 30) },
    };
    for size in [1, 13, 100_000] {
        let server = Server::start([Reply::stream(anthropic()).in_pieces_of(size)]).await;
        let (answer, deltas_received) = server.ask("anthropic/claude-x", request()).await;
        let answer = answer.unwrap();
        let reasoning: serde_json::Value = serde_json::from_str(answer.reasoning.as_deref().unwrap()).unwrap();
        assert_eq!(reasoning, kept);
        assert_eq!(Answer { reasoning: None, ..answer }, expected, "in pieces of {size}");
        let deltas = [Delta::Reasoning("hm".into()), Delta::Text("Größe".into()), call(0, "read"), call(1, "list")];
        assert_eq!(deltas_received, deltas);
    }
}

#[tokio::test]
async fn openai_parallel_calls_in_fragments_are_gathered() {
    let delta = |delta: serde_json::Value| json!({"model": "gpt-x", "choices": [{"index": 0, "delta": delta, "finish_reason": null}]});
    let body = data(&[
        delta(json!({"role": "assistant", "content": null})),
        delta(json!({"content": "give"})),
        delta(json!({"content": " me"})),
        delta(json!({"tool_calls": [{"index": 0, "id": "call_a", "function": {"name": "read", "arguments": ""}}]})),
        delta(
            json!({"tool_calls": [{"index": 0, "function": {"arguments": "{\"a\":"}}, {"index": 1, "id": "call_b", "function": {"name": "list", "arguments": "{"}}]}),
        ),
        delta(json!({"tool_calls": [{"index": 1, "function": {"arguments": "\"b\""}}]})),
        delta(json!({"tool_calls": [{"index": 0, "function": {"arguments": "1}"}}]})),
        json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}),
        json!({"choices": [], "usage": {"prompt_tokens": 20, "completion_tokens": 9,
            "prompt_tokens_details": {"cached_tokens": 16}, "completion_tokens_details": {"reasoning_tokens": 4}}}),
    ]) + ": a comment\n\ndata: [DONE]\n\n";
    let expected = Answer {
        text: Some("give me".into()),
        reasoning: None,
        // The model truncated the second call. Its arguments are kept unchanged.
        calls: vec![tool_call("call_a", "read", "{\"a\":1}"), tool_call("call_b", "list", "{\"b\"")],
        stop: Stop::Calls,
        model: Some("openai/gpt-x".into()),
        usage: Usage { reasoning: 4, cache_read: 16, ..usage(20, 9) },
    };
    let deltas = vec![Delta::Text("give me".into()), call(0, "read"), call(1, "list")];
    check("openai/gpt-x", body, expected, deltas).await;
}

#[tokio::test]
async fn responses_items_that_overlap_without_indexes_are_gathered() {
    let body = events(&[
        json!({"type": "response.created", "response": {"model": "gpt-y", "status": "in_progress"}}),
        json!({"type": "response.output_item.done", "item": {"type": "reasoning", "id": "rs_1", "encrypted_content": "ZW5j"}}),
        json!({"type": "response.output_text.delta", "item_id": "msg_1", "delta": "ok"}),
        json!({"type": "response.output_item.added", "item": {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "read", "arguments": ""}}),
        json!({"type": "response.function_call_arguments.delta", "item_id": "fc_1", "delta": "{\"a\""}),
        json!({"type": "response.output_item.added", "item": {"type": "function_call", "id": "fc_2", "call_id": "call_2", "name": "read", "arguments": ""}}),
        json!({"type": "response.function_call_arguments.delta", "item_id": "fc_1", "delta": ":1}"}),
        json!({"type": "response.function_call_arguments.delta", "item_id": "fc_2", "delta": "{\"a\":2"}),
        json!({"type": "response.output_item.done", "item": {"type": "function_call", "id": "fc_2", "call_id": "call_2", "name": "read", "arguments": "{\"a\":2}"}}),
        json!({"type": "response.completed", "response": {"status": "completed", "usage": {"input_tokens": 8, "output_tokens": 7,
            "input_tokens_details": {"cached_tokens": 3}, "output_tokens_details": {"reasoning_tokens": 2}}, "output": []}}),
    ]);
    let expected = Answer {
        text: Some("ok".into()),
        reasoning: Some("{\"protocol\":\"openai-responses\",\"encrypted\":[\"ZW5j\"]}".into()),
        calls: vec![tool_call("call_1", "read", "{\"a\":1}"), tool_call("call_2", "read", "{\"a\":2}")],
        stop: Stop::Calls,
        model: Some("openai-responses/gpt-y".into()),
        usage: Usage { reasoning: 2, cache_read: 3, ..usage(8, 7) },
    };
    let deltas = vec![Delta::Text("ok".into()), call(0, "read"), call(1, "read")];
    check("openai-responses/gpt-y", body, expected, deltas).await;
}

#[tokio::test]
async fn gemini_signatures_and_thoughts_are_gathered() {
    let parts = |parts: serde_json::Value| json!({"modelVersion": "gemini-z", "candidates": [{"content": {"parts": parts, "role": "model"}}]});
    let mut last = parts(json!([
        {"functionCall": {"name": "read", "args": {"a": 1}}, "thoughtSignature": "c2ln"},
        {"functionCall": {"name": "read", "args": {"a": 2}}}
    ]));
    last["candidates"][0]["finishReason"] = json!("STOP");
    last["usageMetadata"] = json!({"promptTokenCount": 30, "candidatesTokenCount": 5, "thoughtsTokenCount": 11, "cachedContentTokenCount": 12});
    let body = data(&[parts(json!([{"text": "hm", "thought": true}])), parts(json!([{"text": "see:"}])), last]);
    let expected = Answer {
        text: Some("see:".into()),
        reasoning: Some("{\"protocol\":\"gemini\",\"calls\":[\"c2ln\",null]}".into()),
        calls: vec![tool_call("", "read", "{\"a\":1}"), tool_call("", "read", "{\"a\":2}")],
        stop: Stop::Calls,
        model: Some("gemini/gemini-z".into()),
        usage: Usage { reasoning: 11, cache_read: 12, ..usage(30, 16) },
    };
    let deltas = vec![Delta::Reasoning("hm".into()), Delta::Text("see:".into()), call(0, "read"), call(1, "read")];
    check("gemini/gemini-z", body, expected, deltas).await;
}

#[tokio::test]
async fn ollama_lines_are_gathered() {
    let lines = [
        json!({"model": "qwen3:8b", "message": {"role": "assistant", "content": "", "thinking": "hm"}, "done": false}),
        json!({"model": "qwen3:8b", "message": {"role": "assistant", "content": "ok", "tool_calls": [
            {"function": {"name": "read", "arguments": {"a": 1}}}, {"function": {"name": "list", "arguments": {}}}]}, "done": false}),
        json!({"model": "qwen3:8b", "message": {"role": "assistant", "content": ""}, "done": true, "done_reason": "stop",
            "prompt_eval_count": 12, "eval_count": 3}),
    ];
    let body: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let expected = Answer {
        text: Some("ok".into()),
        reasoning: None,
        calls: vec![tool_call("", "read", "{\"a\":1}"), tool_call("", "list", "{}")],
        stop: Stop::Calls,
        model: Some("ollama/qwen3:8b".into()),
        usage: usage(12, 3),
    };
    let deltas = vec![Delta::Reasoning("hm".into()), Delta::Text("ok".into()), call(0, "read"), call(1, "list")];
    check("ollama/qwen3:8b", body, expected, deltas).await;
}
