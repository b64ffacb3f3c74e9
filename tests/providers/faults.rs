use std::net::TcpListener;

use serde_json::{Value, json};

use super::broken::{BrokenServer, ServerAction};
use super::call::User;
use super::mock::{Mock, script};
use super::protocol::Protocol;
use super::provider_run::{ProviderRun, RunOutput};
use super::relay::Relay;
use super::stored_session::{StoredSession, only};
use super::text::agent;

const BRIEF: &str = "You are brief.";
const LONG: &str = "A whole answer, long enough that it comes in a good many pieces of the stream.";

fn run(protocol: Protocol, origin: &str) -> (RunOutput, StoredSession) {
    let user = User::new();
    agent(&user, "brief", "");
    let output = ProviderRun { agent: "brief", ..ProviderRun::new(protocol, origin) }.run(&user, "Speak.");
    (output, only(&user))
}

fn discarded(stored: &StoredSession) -> Vec<&str> {
    stored.of("attempt_discarded").iter().map(|record| record["error"].as_str().expect("a kind")).collect()
}

fn error(status: u16, message: &str) -> Value {
    json!({ "error": { "message": message, "type": "server_error" }, "status": status })
}

/// Checks that one attempt failed with `kind`, and that only the answer of the next attempt is recorded.
fn assert_one_attempt_discarded(protocol: Protocol, (output, stored): &(RunOutput, StoredSession), kind: &str) {
    assert_eq!(output.answer(), LONG, "{protocol:?}");
    assert_eq!(discarded(stored), [kind], "{protocol:?}: {stored:#?}");
    let attempts: Vec<_> = stored.of("turn_started").iter().map(|turn| turn["attempt"].clone()).collect();
    assert_eq!(attempts, [json!(1), json!(2)], "{protocol:?}");
    let answers = stored.of("turn_answered");
    assert_eq!(
        (answers.len(), &answers[0]["attempt"], &answers[0]["text"]),
        (1, &json!(2), &json!(LONG)),
        "{protocol:?}"
    );
}

#[test]
fn rate_limit_is_waited_out_for_the_retry_after() {
    for protocol in Protocol::ALL {
        let mut limited = error(429, "slow down");
        limited["retryAfter"] = json!(2);
        let mock = Mock::new(&script(BRIEF, &[limited, json!({ "content": LONG })]));
        let done = run(protocol, mock.origin());
        assert_one_attempt_discarded(protocol, &done, "rate");
        assert_eq!(mock.statuses(), [429, 200], "{protocol:?}");
        // Measured by the server's clock, and by the journal's.
        let journal = mock.journal();
        let at = |ix: usize| journal[ix]["timestamp"].as_i64().expect("a time");
        let (failed, answered) = (done.1.times("attempt_discarded")[0], done.1.times("turn_answered")[0]);
        let waited = [at(1) - at(0), answered - failed];
        assert!(waited.iter().all(|ms| (2000..8000).contains(ms)), "{protocol:?}: {waited:?} ms");
        let message = done.1.of("attempt_discarded")[0]["message"].as_str().expect("a message");
        assert!(message.contains("slow down"), "{protocol:?}: {message}");
    }
}

#[test]
fn server_error_is_retried() {
    for protocol in Protocol::ALL {
        let mock = Mock::new(&script(BRIEF, &[error(500, "something broke"), json!({ "content": LONG })]));
        assert_one_attempt_discarded(protocol, &run(protocol, mock.origin()), "unavailable");
        assert_eq!(mock.statuses(), [500, 200], "{protocol:?}");
    }
}

#[test]
fn failing_server_is_abandoned_and_its_error_reported() {
    let mock = Mock::new(&[json!({ "match": {}, "response": error(503, "down for the day") })]);
    let (output, stored) = run(Protocol::Anthropic, mock.origin());
    assert_eq!(output.code, Some(1), "{output:#?}");
    let kind = &output.end["outcome"]["failed"]["kind"]["model"];
    assert_eq!(kind["error"], json!("unavailable"), "{output:#?}");
    assert!(kind["message"].as_str().is_some_and(|text| text.contains("down for the day")), "{kind}");
    assert!(output.err.contains("down for the day"), "{}", output.err);
    assert_eq!((mock.statuses().len(), discarded(&stored).len()), (3, 3), "{stored:#?}");
}

/// The mock closes the connection after a few pieces, so the rest never arrives.
#[test]
fn broken_stream_is_not_taken_for_a_short_answer() {
    for protocol in Protocol::ALL {
        let cut = json!({ "response": { "content": LONG }, "chunkSize": 5, "latency": 5, "truncateAfterChunks": 8 });
        let mock = Mock::new(&script(BRIEF, &[cut, json!({ "content": LONG })]));
        let relay = Relay::to(mock.origin());
        let (output, stored) = run(protocol, relay.origin());
        let seen = relay.seen();
        assert!(
            seen[0].answer.contains("A who") && !seen[0].answer.contains("strea"),
            "{protocol:?}: {}",
            seen[0].answer
        );
        // A part of the first attempt was shown before the attempt was discarded.
        let first = |event: &&Value| event["type"] == "delta" && event["attempt"] == 1;
        assert!(output.events.iter().any(|event| first(&event)), "{protocol:?}");
        assert_one_attempt_discarded(protocol, &(output, stored), "unavailable");
    }
}

/// The final event is missing, although the connection ends normally.
#[test]
fn stream_without_its_final_event_is_not_an_answer() {
    for protocol in Protocol::ALL {
        let mock = Mock::new(&script(BRIEF, &[json!({ "content": LONG }), json!({ "content": LONG })]));
        let whole = Relay::to(mock.origin());
        let (output, _) = run(protocol, whole.origin());
        assert_eq!(output.answer(), LONG, "{protocol:?}");
        // The stream of the mock, truncated in the middle of the text.
        let stream = whole.seen()[0].answer.clone();
        let cut = stream.find("enough").expect("the middle");
        let cut = cut + stream[cut..].find('\n').expect("an end of line");
        let kind = if protocol == Protocol::Ollama { "application/x-ndjson" } else { "text/event-stream" };
        let answer = |text: &str| ServerAction::answer("200 OK", &format!("Content-Type: {kind}\r\n"), text);
        let half = format!("{}\n\n", &stream[..cut]);
        let broken = BrokenServer::new(vec![answer(&half), answer(&stream)]);
        let done = run(protocol, broken.origin());
        assert_eq!(done.0.answer(), LONG, "{protocol:?}");
        assert_eq!(discarded(&done.1).len(), 1, "{protocol:?}: {:#?}", done.1);
    }
}

#[test]
fn garbage_is_not_accepted_as_an_answer() {
    for protocol in Protocol::ALL {
        let garbage = json!({ "response": { "content": LONG }, "chaos": { "malformedRate": 1 } });
        let mock = Mock::new(&script(BRIEF, &[garbage, json!({ "content": LONG })]));
        assert_one_attempt_discarded(protocol, &run(protocol, mock.origin()), "bad_answer");
    }
}

#[test]
fn html_page_is_not_accepted_as_an_answer() {
    let page = "<!doctype html><html><body><h1>Welcome</h1><p>Please sign in to the network.</p></body></html>";
    for protocol in Protocol::ALL {
        let broken =
            BrokenServer::new(vec![ServerAction::answer("200 OK", "Content-Type: text/html; charset=utf-8\r\n", page)]);
        let (output, stored) = run(protocol, broken.origin());
        assert_eq!(output.code, Some(1), "{protocol:?}: {output:#?}");
        let kind = &output.end["outcome"]["failed"]["kind"]["model"];
        assert_eq!(kind["error"], json!("bad_answer"), "{protocol:?}: {kind}");
        assert_eq!((broken.requests().len(), stored.of("turn_answered").len()), (3, 0), "{protocol:?}");
    }
}

#[test]
fn connection_dropped_at_once_is_retried() {
    for protocol in Protocol::ALL {
        let dropped = json!({ "response": { "content": LONG }, "chaos": { "disconnectRate": 1 } });
        let mock = Mock::new(&script(BRIEF, &[dropped, json!({ "content": LONG })]));
        assert_one_attempt_discarded(protocol, &run(protocol, mock.origin()), "unavailable");
    }
}

#[test]
fn unreachable_server_is_named() {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
    let (output, stored) = run(Protocol::Chat, &format!("http://{free}"));
    assert_eq!((output.code, discarded(&stored)), (Some(1), vec!["unavailable"; 3]), "{output:#?}");
    assert!(output.err.contains(&free.to_string()), "{}", output.err);
}

#[test]
fn unknown_model_error_lists_similar_names() {
    for protocol in [Protocol::Chat, Protocol::Responses, Protocol::Anthropic] {
        let models = json!({ "object": "list", "data": [
            { "id": "haiku-5", "object": "model" }, { "id": "sonnet-5", "object": "model" }, { "id": "opus-5", "object": "model" } ] });
        let missing = json!({ "error": { "message": "The model `sonet-5` does not exist", "type": "not_found_error", "code": "model_not_found" } });
        let server = BrokenServer::making(move |_, request| {
            let json = "Content-Type: application/json\r\n";
            match request.path() {
                "/v1/models" => ServerAction::answer("200 OK", json, &models.to_string()),
                _ => ServerAction::answer("404 Not Found", json, &missing.to_string()),
            }
        });
        let user = User::new();
        agent(&user, "brief", "");
        let output = ProviderRun { agent: "brief", model: "sonet-5", ..ProviderRun::new(protocol, server.origin()) }
            .run(&user, "Speak.");
        assert_eq!(output.code, Some(1), "{protocol:?}: {output:#?}");
        let kind = &output.end["outcome"]["failed"]["kind"]["model"];
        assert_eq!(kind["error"], json!("invalid_request"), "{protocol:?}: {kind}");
        assert!(output.err.contains("sonet-5") && output.err.contains("sonnet-5"), "{protocol:?}: {}", output.err);
        // A retry would fail in the same way.
        let requests = server.requests();
        let calls = requests.iter().filter(|message| message.first.starts_with("POST")).count();
        assert_eq!((calls, only(&user).of("turn_answered").len()), (1, 0), "{protocol:?}");
    }
}

#[test]
fn request_refused_by_a_real_server_is_not_retried() {
    let llm = super::llm::llm();
    let user = User::new();
    agent(&user, "brief", "");
    // The prompt is larger than the 4096 tokens of a slot.
    let prompt = "one two three four five six seven ".repeat(900);
    for protocol in Protocol::REAL {
        let relay = Relay::to(llm.origin());
        let output = ProviderRun { agent: "brief", model: "smollm2", ..ProviderRun::new(protocol, relay.origin()) }
            .run(&user, &prompt);
        let kind = &output.end["outcome"]["failed"]["kind"]["model"];
        assert_eq!((output.code, &kind["error"]), (Some(1), &json!("context_overflow")), "{protocol:?}: {output:#?}");
        assert_eq!(relay.seen().len(), 1, "{protocol:?}: {:#?}", relay.seen());
    }
}
