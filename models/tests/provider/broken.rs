use std::time::Duration;

use super::server::*;
use subtend_models::model::Model as _;
use subtend_session::record::Stop;
use tokio::sync::Notify;

use super::answers::{anthropic, data, events};

fn first_frames() -> [(&'static str, String); 5] {
    [
        (
            "anthropic/m",
            events(&[
                json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "half"}}),
            ]),
        ),
        ("openai/m", data(&[json!({"choices": [{"index": 0, "delta": {"content": "half"}}]})])),
        ("openai-responses/m", events(&[json!({"type": "response.output_text.delta", "delta": "half"})])),
        ("gemini/m", data(&[json!({"candidates": [{"content": {"parts": [{"text": "half"}]}}]})])),
        ("ollama/m", format!("{}\n", json!({"message": {"content": "half"}, "done": false}))),
    ]
}

#[tokio::test]
async fn interrupted_stream_is_not_an_answer() {
    for (spec, body) in first_frames() {
        // The connection closes in the middle, or ends properly but without the final event.
        for reply in [Reply::stream(&body).truncated(), Reply::stream(&body)] {
            let error = answer(spec, reply).await.unwrap_err();
            assert_eq!(error.kind, ModelFail::Unavailable, "{spec}: {error}");
            assert!(error.message.contains("interrupted in the middle of the answer"), "{spec}: {error}");
        }
        // The stream is interrupted within a frame.
        let within = format!("{body}{}", body.get(..body.len() - 6).unwrap());
        let error = answer(spec, Reply::stream(within)).await.unwrap_err();
        assert_eq!(error.kind, ModelFail::Unavailable, "{spec}: {error}");
    }
}

#[tokio::test]
async fn loss_after_the_stop_reason_does_not_fail_the_answer() {
    let body = data(&[
        json!({"choices": [{"index": 0, "delta": {"content": "done"}}]}),
        json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
    ]);
    let answer = answer("openai/m", Reply::stream(body).truncated()).await.unwrap();
    assert_eq!((answer.text.as_deref(), answer.stop, answer.usage.unreliable), (Some("done"), Stop::End, true));
}

/// The answer must not be lost, or the call repeated. The control: without a stop reason, the client waits for the rest.
#[tokio::test(start_paused = true)]
async fn answer_is_complete_although_its_stream_stays_open() {
    let text = json!({"choices": [{"index": 0, "delta": {"content": "done"}}]});
    let stop = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
    let answer = answer("openai/m", Reply::stream(data(&[text.clone(), stop])).and_silence()).await.unwrap();
    assert_eq!((answer.text.as_deref(), answer.stop), (Some("done"), Stop::End));
    let server = Server::start([Reply::stream(data(&[text])).and_silence()]).await;
    let (model, seen) = (server.model("openai/m"), Arc::new(Notify::new()));
    let deltas = Deltas::to({
        let seen = Arc::clone(&seen);
        move |_| seen.notify_one()
    });
    let call = tokio::spawn(async move { model.call(request(), deltas).await });
    seen.notified().await;
    tokio::time::advance(Duration::from_secs(3_600)).await;
    tokio::task::yield_now().await;
    assert!(!call.is_finished());
    call.abort();
}

#[tokio::test]
async fn body_without_a_stream_is_a_bad_answer() {
    for (spec, _) in first_frames() {
        for body in [
            "<html>\n\n<p>Sign in to the hotel's network</p></html>\n",
            "data: {\"oops\n\ndata: 1\n\n",
            "data: [1]\n\n",
        ] {
            let error = answer(spec, Reply::with_head("200 OK\r\ncontent-type: text/html", body)).await.unwrap_err();
            assert_eq!(error.kind, ModelFail::BadAnswer, "{spec}: {body:?}: {error}");
        }
    }
}

/// A complete frame that is not JSON does not count as truncated.
#[tokio::test]
async fn frame_that_is_not_json_is_malformed() {
    for (spec, body) in first_frames() {
        let (line, end) = if spec == "ollama/m" { ("{\"message\":", "\n") } else { ("data: {\"delta\":", "\n\n") };
        let error = answer(spec, Reply::stream(format!("{body}{line}{end}{body}"))).await.unwrap_err();
        let malformed = error.message.contains("a frame of the answer is malformed: `{");
        assert_eq!((error.kind, malformed), (ModelFail::BadAnswer, true), "{spec}: {error}");
    }
}

#[tokio::test]
async fn error_instead_of_a_stream_is_reported() {
    let body = "{\"error\": {\"message\": \"no such luck\"}}\n";
    let error = answer("ollama/m", Reply::stream(body)).await.unwrap_err();
    assert_eq!((error.kind, error.message.as_str()), (ModelFail::BadAnswer, "the answer is an error: no such luck"));
    let error = answer("openai/m", Reply::stream(format!("data: {body}\n"))).await.unwrap_err();
    assert_eq!((error.kind, error.message.as_str()), (ModelFail::BadAnswer, "the answer is an error: no such luck"));
    let error =
        answer("openai/m", Reply::with_head("200 OK\r\ncontent-type: application/json", body)).await.unwrap_err();
    assert_eq!(error.kind, ModelFail::BadAnswer);
}

#[tokio::test]
async fn error_in_a_stream_counts_by_its_kind() {
    for (kind, fail) in [
        ("overloaded_error", ModelFail::Unavailable),
        ("rate_limit_error", ModelFail::Rate),
        ("authentication_error", ModelFail::Auth),
        ("invalid_request_error", ModelFail::InvalidRequest),
        ("whatever", ModelFail::BadAnswer),
    ] {
        let events = events(&[
            json!({"type": "message_start", "message": {"usage": {"input_tokens": 9, "output_tokens": 1}}}),
            json!({"type": "error", "error": {"type": kind, "message": "see"}}),
        ]);
        let error = answer("anthropic/m", Reply::stream(events)).await.unwrap_err();
        assert_eq!((error.kind, error.message.as_str()), (fail, "the answer is an error: see"), "{kind}");
        assert_eq!(error.usage.map(|usage| usage.input), Some(9));
    }
}

#[tokio::test]
async fn announced_but_missing_calls_are_a_bad_answer() {
    let body = data(&[
        json!({"choices": [{"index": 0, "delta": {"content": "I will check:"}}]}),
        json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}),
    ]);
    let error = answer("openai/m", Reply::stream(body + "data: [DONE]\n\n")).await.unwrap_err();
    let says = "the answer announces tool calls, but includes no call";
    assert_eq!((error.kind, error.message.as_str()), (ModelFail::BadAnswer, says));
}

#[tokio::test]
async fn answer_truncated_at_the_cap_is_not_complete() {
    let end = |response: serde_json::Value| {
        let kind = if response["status"] == "incomplete" { "response.incomplete" } else { "response.completed" };
        let text = json!({"type": "response.output_text.delta", "delta": "half of"});
        Reply::stream(events(&[text, json!({"type": kind, "response": response})]))
    };
    let settings = Settings { output_tokens: Some(16), ..Settings::default() };
    let asking = || Request { settings, ..request() };
    let usage = |output| json!({"input_tokens": 3, "output_tokens": output});
    for (response, stop) in [
        (json!({"status": "completed", "usage": usage(15)}), Stop::End),
        (json!({"status": "completed", "usage": usage(16)}), Stop::Length),
        (
            json!({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}, "usage": usage(16)}),
            Stop::Length,
        ),
        (json!({"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}), Stop::Refused),
        (json!({"status": "incomplete"}), Stop::Length),
    ] {
        let server = Server::start([end(response.clone())]).await;
        let (answer, _) = server.ask("openai-responses/m", asking()).await;
        assert_eq!(answer.map(|answer| answer.stop), Ok(stop), "{response}");
    }
}

#[tokio::test]
async fn dropping_the_call_closes_the_connection() {
    let server = Server::start([Reply::stream(anthropic().get(..1200).unwrap()).and_silence()]).await;
    let first = Arc::new(tokio::sync::Notify::new());
    let report = Arc::clone(&first);
    let deltas_received = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&deltas_received);
    let deltas = Deltas::to(move |delta| {
        sink.lock().unwrap().push(delta);
        report.notify_one();
    });
    let call = tokio::spawn(server.model("anthropic/m").call(request(), deltas));
    first.notified().await;
    call.abort();
    server.wait_until_left().await;
    assert_eq!(deltas_received.lock().unwrap().first(), Some(&Delta::Reasoning("hm".into())));
}

/// Returns an answer of `count` calls in each protocol, one frame each.
fn answers_of_calls(count: usize) -> [(&'static str, String); 5] {
    let all = |call: &dyn Fn(usize) -> serde_json::Value| (0..count).map(call).collect::<Vec<_>>();
    let end = |mut frames: Vec<serde_json::Value>, last: serde_json::Value| {
        frames.push(last);
        frames
    };
    let anthropic = all(&|ix| {
        let block = json!({"type": "tool_use", "id": format!("c{ix}"), "name": "read", "input": {}});
        json!({"type": "content_block_start", "index": ix, "content_block": block})
    });
    let openai = all(&|ix| {
        let call = json!({"index": ix, "id": format!("c{ix}"), "function": {"name": "read", "arguments": "{}"}});
        json!({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]})
    });
    let responses = all(&|ix| {
        let item =
            json!({"type": "function_call", "id": format!("i{ix}"), "call_id": format!("c{ix}"), "name": "read"});
        json!({"type": "response.output_item.added", "output_index": ix, "item": item})
    });
    let gemini = all(&|_| json!({"candidates": [{"content": {"parts": [{"functionCall": {"name": "read"}}]}}]}));
    let ollama = all(&|_| {
        let call = json!({"function": {"name": "read", "arguments": {}}});
        json!({"message": {"content": "", "tool_calls": [call]}, "done": false})
    });
    let stop = json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}});
    let ollama = end(ollama, json!({"message": {"content": ""}, "done": true, "done_reason": "stop"}));
    [
        ("anthropic/m", events(&end(end(anthropic, stop), json!({"type": "message_stop"})))),
        (
            "openai/m",
            data(&end(openai, json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}))),
        ),
        ("openai-responses/m", events(&end(responses, json!({"type": "response.completed", "response": {}})))),
        ("gemini/m", data(&end(gemini, json!({"candidates": [{"finishReason": "STOP"}]})))),
        ("ollama/m", ollama.iter().map(|frame| format!("{frame}\n")).collect()),
    ]
}

#[tokio::test]
async fn too_many_calls_in_one_answer_are_a_bad_answer() {
    for (spec, body) in answers_of_calls(1_024) {
        let answer = answer(spec, Reply::stream(body)).await.unwrap();
        assert_eq!(answer.calls.len(), 1_024, "{spec}");
    }
    for (spec, body) in answers_of_calls(4_000) {
        let error = answer(spec, Reply::stream(body)).await.unwrap_err();
        assert_eq!(error.kind, ModelFail::BadAnswer, "{spec}: {error}");
        let text = "the answer has more than 1024 calls";
        assert!(error.message.contains(text), "{spec}: {error}");
    }
}
