//! One conversation in each protocol: two calls, one of which fails, a notice, and a prompt.

use super::server::*;
use serde_json::Value;
use subtend_session::ids::{CallId, Seq};
use subtend_session::message::{Message, ToolSpec};
use subtend_session::record::ToolCall;
use subtend_session::settings::Effort;

fn conversation() -> Vec<Message> {
    let tool_call = |args: &str| ToolCall { provider_id: "".into(), tool: "read".into(), args: args.into() };
    let result = |ix, error, content: &str| Message::Result {
        call: CallId { turn: TurnNo(1), ix },
        error,
        content: content.into(),
    };
    let answer = |text: Option<&str>, calls: &[ToolCall]| Message::Assistant {
        seq: Seq(2),
        text: text.map(Into::into),
        reasoning: None,
        calls: calls.into(),
    };
    vec![
        Message::User { seq: Seq(1), text: "look".into() },
        answer(None, &[tool_call("{\"n\":1}"), tool_call("{\"n\":")]),
        result(0, false, ""),
        result(1, true, "no JSON"),
        answer(Some("started"), &[]),
        Message::Notice { seq: Seq(6), text: "it has ended".into() },
        Message::Prompt { text: "proceed".into() },
    ]
}

async fn sent(spec: &str, messages: Vec<Message>, tools: bool) -> Value {
    let server = Server::start([Reply::with_head("500 Oops", "")]).await;
    let schema = Arc::new(json!({"type": "object"}));
    let tool = ToolSpec { name: "read".into(), description: "d".into(), schema };
    let tools: Vec<ToolSpec> = if tools { vec![tool] } else { Vec::new() };
    let request = Request { messages: Arc::new(messages), tools: tools.into(), ..request() };
    server.ask(spec, request).await.0.unwrap_err();
    server.received_request().body
}

#[tokio::test]
async fn anthropic() {
    let expected = json!([
        {"role": "user", "content": "look"},
        {"role": "assistant", "content": [
            {"type": "tool_use", "id": "call_0", "name": "read", "input": {"n": 1}},
            {"type": "tool_use", "id": "call_1", "name": "read", "input": {"unparsed": "{\"n\":"}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "call_0", "content": "(empty)"},
            {"type": "tool_result", "tool_use_id": "call_1", "content": "no JSON", "is_error": true},
        ]},
        {"role": "assistant", "content": [
            {"type": "text", "text": "started"},
            {"type": "tool_use", "id": "call_2", "name": "background_tasks", "input": {}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "call_2", "content": "it has ended"},
            {"type": "text", "text": "proceed"},
        ]},
    ]);
    assert_eq!(sent("anthropic/m", conversation(), true).await["messages"], expected);
}

#[tokio::test]
async fn anthropic_without_tools_names_and_forbids_called_tools() {
    let body = sent("anthropic/m", conversation(), false).await;
    assert_eq!(body["tools"], json!([{"name": "read", "input_schema": {"type": "object"}}]));
    assert_eq!(body["tool_choice"], json!({"type": "none"}));
    let last = json!({"role": "user", "content": "it has ended\n\nproceed"});
    assert_eq!(body["messages"].as_array().and_then(|messages| messages.last()), Some(&last));
}

#[tokio::test]
async fn openai() {
    let call = |id: &str, name: &str, args: &str| json!({"type": "function", "id": id, "function": {"name": name, "arguments": args}});
    let expected = json!([
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "look"},
        {"role": "assistant", "content": "", "tool_calls": [
            call("call_0", "read", "{\"n\":1}"),
            call("call_1", "read", "{\"unparsed\":\"{\\\"n\\\":\"}"),
        ]},
        {"role": "tool", "tool_call_id": "call_0", "content": "(empty)"},
        {"role": "tool", "tool_call_id": "call_1", "content": "no JSON"},
        {"role": "assistant", "content": "started", "tool_calls": [call("call_2", "background_tasks", "{}")]},
        {"role": "tool", "tool_call_id": "call_2", "content": "it has ended"},
        {"role": "user", "content": "proceed"},
    ]);
    assert_eq!(sent("openai/m", conversation(), true).await["messages"], expected);
}

#[tokio::test]
async fn responses() {
    let call = |id: &str, name: &str, args: &str| json!({"type": "function_call", "call_id": id, "name": name, "arguments": args});
    let output = |id: &str, text: &str| json!({"type": "function_call_output", "call_id": id, "output": text});
    let body = sent("openai-responses/m", conversation(), true).await;
    let expected = json!([
        {"role": "user", "content": "look"},
        call("call_0", "read", "{\"n\":1}"),
        call("call_1", "read", "{\"unparsed\":\"{\\\"n\\\":\"}"),
        output("call_0", "(empty)"),
        output("call_1", "no JSON"),
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "started"}]},
        call("call_2", "background_tasks", "{}"),
        output("call_2", "it has ended"),
        {"role": "user", "content": "proceed"},
    ]);
    assert_eq!(
        (&body["input"], &body["instructions"], &body["store"]),
        (&expected, &json!("Be brief."), &json!(false))
    );
}

#[tokio::test]
async fn gemini() {
    let call = |id: &str, name: &str, args: Value| json!({"functionCall": {"id": id, "name": name, "args": args}});
    let response = |id: &str, name: &str, text: &str| json!({"functionResponse": {"id": id, "name": name, "response": {"name": name, "content": text}}});
    let expected = json!([
        {"role": "user", "parts": [{"text": "look"}]},
        {"role": "model", "parts": [call("call_0", "read", json!({"n": 1})), call("call_1", "read", json!({"unparsed": "{\"n\":"}))]},
        {"role": "user", "parts": [response("call_0", "read", "(empty)"), response("call_1", "read", "no JSON")]},
        {"role": "model", "parts": [{"text": "started"}, call("call_2", "background_tasks", json!({}))]},
        {"role": "user", "parts": [response("call_2", "background_tasks", "it has ended")]},
        {"role": "user", "parts": [{"text": "proceed"}]},
    ]);
    assert_eq!(sent("gemini/m", conversation(), true).await["contents"], expected);
}

#[tokio::test]
async fn ollama() {
    let call = |name: &str, args: Value| json!({"function": {"name": name, "arguments": args}});
    let expected = json!([
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "look"},
        {"role": "assistant", "tool_calls": [call("read", json!({"n": 1})), call("read", json!({"unparsed": "{\"n\":"}))]},
        {"role": "tool", "content": "(empty)"},
        {"role": "tool", "content": "no JSON"},
        {"role": "assistant", "content": "started", "tool_calls": [call("background_tasks", json!({}))]},
        {"role": "tool", "content": "it has ended"},
        {"role": "user", "content": "proceed"},
    ]);
    assert_eq!(sent("ollama/m", conversation(), true).await["messages"], expected);
}

#[tokio::test]
async fn anthropic_does_not_think_after_foreign_calls() {
    let thinking = async |messages: Vec<Message>| {
        let server = Server::start([Reply::with_head("500 Oops", "")]).await;
        let settings = Settings { effort: Some(Effort::Low), ..Settings::default() };
        let request = Request { messages: Arc::new(messages), settings, ..request() };
        server.ask("anthropic/claude-sonnet-4", request).await.0.unwrap_err();
        server.received_request().body.get("thinking").is_some()
    };
    let all = conversation();
    assert!(thinking(all.clone()).await);
    assert!(!thinking(all.into_iter().take(4).collect()).await);
}
