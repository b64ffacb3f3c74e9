//! Controls of the checker of requests: it refuses what providers refuse.

use serde_json::{Value, json};

use super::chat_message::{messages_of, refused};
use super::protocol::Protocol;

fn refusals(protocol: Protocol, body: &Value) -> usize {
    refused(protocol, &messages_of(protocol, body)).len()
}

#[test]
fn chat_refused_by_a_provider_is_noticed() {
    let user = json!({ "role": "user", "content": "Go." });
    let answer = json!({ "role": "assistant", "content": "Gone." });
    let call = |id: &str| json!({ "id": id, "type": "function", "function": { "name": "read", "arguments": "{}" } });
    let calls = json!({ "role": "assistant", "content": null, "tool_calls": [call("a"), call("b")] });
    let result = |id: &str| json!({ "role": "tool", "tool_call_id": id, "content": "" });
    let (first, second) = (result("a"), result("b"));
    let cases = [
        (vec![&user, &calls, &first, &second], 0),
        (vec![&user, &calls, &first, &second, &user], 0),
        (vec![&user, &answer, &user], 0),
        (vec![&user, &answer], 1),
        (vec![&answer, &user], 1),
        (vec![&user, &calls, &first], 1),
        (vec![&user, &calls, &second, &first], 1),
        (vec![&user, &calls, &first, &user, &second], 2),
        (vec![&user, &first], 1),
        (vec![&user, &calls, &user], 1),
    ];
    for (messages, count) in cases {
        let body = json!({ "messages": messages });
        assert_eq!(refusals(Protocol::Chat, &body), count, "{body:#}");
    }
}

#[test]
fn items_and_blocks_refused_by_a_provider_are_noticed() {
    let user = json!({ "role": "user", "content": "Go." });
    let call = |id: &str| json!({ "type": "function_call", "call_id": id, "name": "read", "arguments": "{}" });
    let output = |id: &str| json!({ "type": "function_call_output", "call_id": id, "output": "done" });
    for (input, count) in [
        (vec![user.clone(), call("a"), call("b"), output("a"), output("b")], 0),
        (vec![user.clone(), call("a"), output("a"), call("b"), output("b")], 0),
        (vec![user.clone(), call("a"), call("b"), output("a")], 1),
        (vec![user.clone(), call("a")], 2),
    ] {
        let body = json!({ "instructions": "Be.", "input": input });
        assert_eq!(refusals(Protocol::Responses, &body), count, "{body:#}");
    }

    let calls =
        json!({ "role": "assistant", "content": [{ "type": "tool_use", "id": "a", "name": "read", "input": {} }] });
    let result = json!({ "type": "tool_result", "tool_use_id": "a", "content": "done" });
    let text = json!({ "type": "text", "text": "And?" });
    let behind = |blocks: Vec<&Value>| json!({ "role": "user", "content": blocks });
    for (messages, count) in [
        (vec![user.clone(), calls.clone(), behind(vec![&result, &text])], 0),
        (vec![user.clone(), calls.clone(), behind(vec![&text, &result])], 1),
        (vec![user.clone(), calls.clone(), behind(vec![&result]), behind(vec![&text])], 1),
        (vec![user, calls, behind(vec![&json!({ "type": "text", "text": "" })])], 2),
    ] {
        let body = json!({ "system": "Be.", "messages": messages });
        assert_eq!(refusals(Protocol::Anthropic, &body), count, "{body:#}");
    }

    let parts = |role: &str, parts: Value| json!({ "role": role, "parts": parts });
    let calls = parts(
        "model",
        json!([{ "functionCall": { "name": "read", "args": {} } }, { "functionCall": { "name": "list", "args": {} } }]),
    );
    let result = |name: &str| json!({ "functionResponse": { "name": name, "response": {} } });
    let go = parts("user", json!([{ "text": "Go." }]));
    for (contents, count) in [
        (vec![go.clone(), calls.clone(), parts("user", json!([result("read"), result("list")]))], 0),
        (vec![go.clone(), calls.clone(), parts("user", json!([result("read")]))], 1),
        (vec![go.clone(), calls, parts("user", json!([result("read"), result("list")])), go], 1),
    ] {
        let body = json!({ "contents": contents });
        assert_eq!(refusals(Protocol::Gemini, &body), count, "{body:#}");
    }
}
