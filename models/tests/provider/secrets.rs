//! Servers that echo secrets.

use super::server::*;
use subtend_models::model::Model as _;
use subtend_models::provider::Key;
use subtend_session::ids::Seq;
use subtend_session::message::Message;

const WORDS: [&str; 5] = ["anthropic/m", "openai/m", "openai-responses/m", "gemini/m", "ollama/m"];

#[tokio::test]
async fn key_in_a_body_is_masked() {
    for spec in WORDS {
        for status in ["400 Bad Request", "401 Unauthorized", "429 Slow", "500 Oops"] {
            for body in [
                json!({"error": {"message": format!("you sent {KEY}, also as Bearer {KEY}")}}).to_string(),
                format!("plain {KEY}"),
            ] {
                let error = answer(spec, Reply::with_head(status, body)).await.unwrap_err();
                let shown = format!("{error} {error:?}");
                assert!(!shown.contains(KEY) && shown.contains("[key]"), "{spec} {status}: {shown}");
            }
        }
    }
}

#[tokio::test]
async fn key_in_a_failed_stream_is_masked() {
    let attacks: [String; 3] = [
        format!("data: {{\"error\": {{\"message\": \"you sent {KEY}\"}}}}\n\n"),
        format!("data: you sent {KEY}\n\n"),
        format!("you sent {KEY}\n\n"),
    ];
    for body in attacks {
        let error = answer("openai/m", Reply::stream(body)).await.unwrap_err();
        assert!(!format!("{error:?}").contains(KEY), "{error:?}");
    }
}

/// An error shows the start of such data. The control: another text in place of the key.
#[tokio::test]
async fn key_at_the_cut_of_an_error_is_masked() {
    for shown in 3..KEY.len() {
        let before = "#".repeat(80 - shown);
        for frames in ["", "data: {\"choices\": []}\n\n"] {
            let start = KEY.get(..shown).unwrap();
            for (text, is_shown) in [(KEY.to_owned(), false), (format!("{start} and more"), true)] {
                let body = format!("{frames}data: {before}{text}{before}\n\n");
                let error = answer("openai/m", Reply::stream(body)).await.unwrap_err().to_string();
                assert_eq!(error.contains(start), is_shown, "{error}");
            }
        }
    }
    let name = format!("{}{KEY}", "m".repeat(195));
    let frame = json!({"model": name, "choices": [{"delta": {"content": "a"}, "finish_reason": "stop"}]});
    let body = format!("data: {frame}\n\ndata: [DONE]\n\n");
    let answer = answer("openai/m", Reply::stream(body)).await.unwrap();
    assert!(answer.model.is_some_and(|name| name.ends_with("m[key]")), "the name is cut too");
}

/// Answers are stored, exported and displayed. The control: another text in the answer does not change.
#[tokio::test]
async fn key_in_an_answer_is_masked() {
    let (head, tail) = KEY.split_at(5);
    for (text, pieces, masked) in [("another", ["ano", "ther"], "another"), (KEY, [head, tail], "[key]")] {
        let delta = |delta: serde_json::Value| json!({"model": text, "choices": [{"delta": delta}]});
        let call = json!({"index": 0, "id": text, "function": {"name": text, "arguments": format!("{{\"{text}\"")}});
        let frames = [
            delta(json!({"content": format!("you sent {}", pieces[0]), "reasoning_content": pieces[0]})),
            delta(json!({"content": pieces[1], "reasoning_content": pieces[1], "tool_calls": [call]})),
            delta(json!({"content": "!", "tool_calls": [{"index": 0, "function": {"arguments": ":1}"}}]})),
            json!({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}),
        ];
        let stream: String = frames.iter().map(|frame| format!("data: {frame}\n\n")).collect();
        let server = Server::start([Reply::stream(stream + "data: [DONE]\n\n")]).await;
        let seen: Arc<Mutex<String>> = Arc::default();
        let sink = Arc::clone(&seen);
        let deltas = Deltas::to(move |delta| {
            let text = match delta {
                Delta::Text(text) | Delta::Reasoning(text) => text.to_string(),
                Delta::Call { tool, .. } => format!("<{tool}>"),
            };
            sink.lock().unwrap().push_str(&text);
        });
        let answer = server.model("openai/m").call(request(), deltas).await.unwrap();
        assert_eq!(answer.text.as_deref(), Some(&*format!("you sent {masked}!")));
        let call = &answer.calls[0];
        assert_eq!((&*call.provider_id, &*call.tool, &*call.args), (masked, masked, &*format!("{{\"{masked}\":1}}")));
        assert!(!format!("{answer:?} {}", seen.lock().unwrap()).contains(KEY));
        assert!(seen.lock().unwrap().contains(&format!("<{masked}>")), "{:?}", seen.lock().unwrap());
    }
}

/// A run joins a truncated answer with its continuation. The control: after another answer, the same text does not change.
#[tokio::test]
async fn key_across_two_answers_is_masked() {
    let (head, tail) = KEY.split_at(5);
    for (earlier, masked) in [(head, "[key]!".to_owned()), ("another", format!("{tail}!"))] {
        let frame = json!({"choices": [{"delta": {"content": format!("{tail}!")}, "finish_reason": "stop"}]});
        let server = Server::start([Reply::stream(format!("data: {frame}\n\ndata: [DONE]\n\n"))]).await;
        let earlier =
            Message::Assistant { seq: Seq(3), text: Some(earlier.into()), reasoning: None, calls: Arc::default() };
        let messages = vec![earlier, Message::Prompt { text: "Continue.".into() }];
        let request = Request { messages: Arc::new(messages), ..request() };
        let answer = server.model("openai/m").call(request, Deltas::none()).await.unwrap();
        assert_eq!(answer.text.as_deref(), Some(&*masked));
    }
}

#[tokio::test]
async fn redirect_is_not_followed_and_its_address_not_shown() {
    let elsewhere = Server::start([Reply::stream("data: [DONE]\n\n")]).await;
    for spec in WORDS {
        // The host of an address is in lower case, so a mask would not find the key in it.
        for location in [format!("{}/{KEY}?key={KEY}", elsewhere.url), format!("http://{KEY}.example/")] {
            let head = format!("307 Temporary Redirect\r\nlocation: {location}");
            let error = answer(spec, Reply::with_head(&head, KEY)).await.unwrap_err();
            assert_eq!(error.kind, ModelFail::InvalidRequest, "{error}");
            let shown = format!("{error:?}").to_lowercase();
            assert!(!shown.contains(&KEY.to_lowercase()) && error.message.contains("redirect"), "{error}");
        }
    }
    assert_eq!(elsewhere.all().len(), 0);
}

#[tokio::test]
async fn key_is_sent_only_in_the_providers_header() {
    for (spec, header) in [
        ("anthropic/m", format!("x-api-key: {KEY}")),
        ("openai/m", format!("authorization: bearer {KEY}")),
        ("openai-responses/m", format!("authorization: bearer {KEY}")),
        ("gemini/m", format!("x-goog-api-key: {KEY}")),
        ("ollama/m", format!("authorization: bearer {KEY}")),
    ] {
        let server = Server::start([Reply::with_head("500 Oops", "")]).await;
        server.ask(spec, request()).await.0.unwrap_err();
        let received = server.received_request();
        assert!(received.headers.contains(&header), "{spec}: {}", received.headers);
        assert!(!received.line.contains(KEY) && !received.body.to_string().contains(KEY), "{spec}: {received:?}");
    }
}

#[tokio::test]
async fn refused_key_is_reported_without_its_value() {
    let error =
        answer("openai/m", Reply::with_head("401 Unauthorized", "{\"error\": {\"message\": \"bad key\"}}")).await;
    let error = error.unwrap_err();
    assert!(error.message.starts_with("the key was refused by http://127.0.0.1:"), "{error}");
    assert!(error.message.ends_with(" (401): bad key"), "{error}");
}

#[test]
fn debug_and_display_hide_the_key() {
    let target = Target::parse("openai/m").unwrap().with_key(Key::new(KEY));
    let provider = Provider::new(target.clone()).unwrap();
    let shown = format!("{target} {target:?} {provider:?} {} {:?}", Key::new(KEY), Key::new(KEY));
    assert!(!shown.contains(KEY), "{shown}");
}

/// Arguments are parsed later, and an escape in them hides the key from a plain text search. The control: another text does not change.
#[tokio::test]
async fn key_with_escapes_in_arguments_is_masked() {
    let escape = |spec: &str| format!("\\u{:04x}{}", spec.as_bytes()[0], &spec[1..]);
    for (spec, masked) in [(KEY.to_owned(), "[key]".to_owned()), ("another".to_owned(), escape("another"))] {
        let spec = escape(&spec);
        let args = format!(r#"{{"{spec}": ["{spec}", 1.50]}}"#);
        let call = json!({"index": 0, "id": "a", "function": {"name": "read", "arguments": args}});
        let frame = json!({"choices": [{"delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]});
        let server = Server::start([Reply::stream(format!("data: {frame}\n\ndata: [DONE]\n\n"))]).await;
        let answer = server.model("openai/m").call(request(), Deltas::none()).await.unwrap();
        assert_eq!(&*answer.calls[0].args, format!(r#"{{"{masked}": ["{masked}", 1.50]}}"#));
    }
}

/// The control: text that is not a key is shown.
#[tokio::test]
async fn unmasked_text_of_a_server_is_shown() {
    const OTHER: &str = "othersecret-4712";
    for status in ["400 Bad Request", "500 Oops"] {
        let error = answer("openai/m", Reply::with_head(status, format!("you sent {OTHER}"))).await.unwrap_err();
        assert!(error.message.contains(OTHER), "{error}");
    }
}

/// The control: a client that follows redirects reaches the other server.
#[tokio::test]
async fn client_that_follows_redirects_reaches_the_target() {
    let elsewhere = Server::start([Reply::with_head("200 OK", "arrived")]).await;
    let head = format!("307 Temporary Redirect\r\nlocation: {}/{KEY}", elsewhere.url);
    let server = Server::start([Reply::with_head(&head, "")]).await;
    let follow = |url: String| {
        let mut curl = std::process::Command::new("curl");
        curl.args(["--silent", "--location", &url]).output()
    };
    let url = server.url.clone();
    let done = tokio::task::spawn_blocking(move || follow(url)).await.unwrap().unwrap();
    assert_eq!(String::from_utf8_lossy(&done.stdout), "arrived");
    assert!(elsewhere.received_request().line.contains(KEY));
}
