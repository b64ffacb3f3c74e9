use std::time::Duration;

use serde_json::json;
use subtend::models::ModelSpec;
use subtend::session::{FailKind, Limits, ModelFail, Outcome};
use subtend::{Ended, OpenOptions, Runtime};

use super::broken::{BrokenServer, ServerAction};
use super::protocol::Protocol;

async fn run(protocol: Protocol, origin: &str, limits: Limits) -> Ended {
    let spec = ModelSpec::parse(&protocol.model("canned")).expect("a model");
    let spec = spec.with_base_url(&protocol.base(origin)).expect("an address");
    let model = spec.build().expect("a client");
    let runtime = Runtime::builder().model(model).limits(limits).start().await.expect("a runtime");
    let session = runtime.open(OpenOptions { agent: "general".into(), ..OpenOptions::default() }).expect("a session");
    let receipt = session.send("Speak.").await.expect("a receipt");
    let ended = session.run_ended(receipt.run).await.expect("an end");
    runtime.shutdown(Duration::from_secs(5)).await;
    ended
}

fn unavailable(outcome: &Outcome) -> &str {
    let Outcome::Failed { kind: FailKind::Model { error: ModelFail::Unavailable, message } } = outcome else {
        panic!("{outcome:?}")
    };
    message
}

#[tokio::test]
async fn silent_server_times_out() {
    for protocol in Protocol::ALL {
        let server = BrokenServer::new(vec![ServerAction::Hang(String::new())]);
        let limits = Limits { first_byte_ms: 300, attempts: 2, backoff_ms: 10, ..Limits::default() };
        let ended = run(protocol, server.origin(), limits).await;
        let message = unavailable(&ended.outcome);
        assert!(message.contains("300"), "{protocol:?}: {message}");
        assert_eq!(server.requests().len(), 2, "{protocol:?}");
    }
}

fn opening(protocol: Protocol) -> String {
    let event = |name: &str, data: serde_json::Value| format!("event: {name}\ndata: {data}\n\n");
    let text = "So far";
    match protocol {
        Protocol::Chat => format!("data: {}\n\n", json!({ "choices": [{ "index": 0, "delta": { "content": text } }] })),
        Protocol::Responses => event(
            "response.output_text.delta",
            json!({ "type": "response.output_text.delta", "item_id": "m", "output_index": 0, "content_index": 0, "delta": text }),
        ),
        Protocol::Anthropic => [
            event(
                "message_start",
                json!({ "type": "message_start", "message": { "id": "m", "role": "assistant", "usage": {} } }),
            ),
            event(
                "content_block_start",
                json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "text", "text": "" } }),
            ),
            event(
                "content_block_delta",
                json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta", "text": text } }),
            ),
        ]
        .concat(),
        Protocol::Gemini => {
            let content = json!({ "role": "model", "parts": [{ "text": text }] });
            format!("data: {}\n\n", json!({ "candidates": [{ "index": 0, "content": content }] }))
        }
        Protocol::Ollama => {
            format!("{}\n", json!({ "model": "m", "message": { "role": "assistant", "content": text }, "done": false }))
        }
    }
}

#[tokio::test]
async fn silent_stream_times_out() {
    for protocol in Protocol::ALL {
        let kind = if protocol == Protocol::Ollama { "application/x-ndjson" } else { "text/event-stream" };
        let opening = opening(protocol);
        // Without a length, more data could follow.
        let server = BrokenServer::new(vec![ServerAction::Hang(format!(
            "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nConnection: close\r\n\r\n{opening}"
        ))]);
        let limits = Limits { first_byte_ms: 60_000, stall_ms: 300, attempts: 2, backoff_ms: 10, ..Limits::default() };
        let ended = run(protocol, server.origin(), limits).await;
        let message = unavailable(&ended.outcome);
        assert!(message.contains("300"), "{protocol:?}: {message}");
        assert_eq!((server.requests().len(), ended.text.as_deref()), (2, None), "{protocol:?}");
    }
}
