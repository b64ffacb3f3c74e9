use serde_json::{Value, json};

use super::call::User;
use super::chat_message::{MessagePart, Role, messages_of};
use super::llm::llm;
use super::mock::Mock;
use super::protocol::Protocol;
use super::provider_run::{KEY, ProviderRun};
use super::relay::Relay;
use super::stored_session::only;

const HELLO: &str = "Hello. This answer comes in several pieces, so that it can be seen on its way.";

/// Writes an agent without tools, whose prompt a small model reads quickly.
pub(crate) fn agent(user: &User, name: &str, keys: &str) {
    let text = format!("---\nmode: primary\ntools: []\ntemperature: 0\n{keys}---\nYou are brief.\n");
    user.file(&format!(".subtend/agents/{name}.md"), &text);
}

#[test]
fn streamed_text_is_recorded_with_its_usage() {
    let usage = json!({ "prompt_tokens": 31, "completion_tokens": 17, "total_tokens": 48 });
    let fixture = json!({ "match": { "userMessage": "say hello" }, "response": { "content": HELLO, "usage": usage } });
    let mock = Mock::new(&[fixture]);
    for protocol in Protocol::ALL {
        let (user, relay) = (User::new(), Relay::to(mock.origin()));
        agent(&user, "brief", "output_tokens: 77\n");
        let output = ProviderRun { agent: "brief", ..ProviderRun::new(protocol, relay.origin()) }
            .run(&user, "Please say hello.");
        assert_eq!(output.answer(), HELLO, "{protocol:?}");
        let pieces = output.deltas(output.session());
        assert_eq!((pieces.concat().as_str(), pieces.len() > 2), (HELLO, true), "{protocol:?}: {pieces:?}");

        // The mock reports no usage for this protocol.
        let usage =
            if protocol == Protocol::Ollama { json!({"in": 0, "out": 0}) } else { json!({"in": 31, "out": 17}) };
        assert_eq!(output.end["usage"], usage, "{protocol:?}");
        let stored = only(&user);
        let answers = stored.of("turn_answered");
        assert_eq!(answers.len(), 1, "{protocol:?}: {answers:#?}");
        let (text, stop) = (&answers[0]["text"], &answers[0]["stop"]);
        assert_eq!((text, stop, &answers[0]["usage"]), (&json!(HELLO), &json!("end"), &usage), "{protocol:?}");
        assert_eq!(stored.of("turn_started")[0]["model"], json!(protocol.model("canned")), "{protocol:?}");
        assert_request(protocol, &relay);
    }
}

/// Checks that one request was sent, to the protocol's path, with the key, the settings and the messages.
fn assert_request(protocol: Protocol, relay: &Relay) {
    let seen = relay.seen();
    assert_eq!(seen.len(), 1, "{protocol:?}: {seen:#?}");
    let (sent, path) = (&seen[0].sent, seen[0].path.split('?').next().expect("a path"));
    assert_eq!(path, protocol.path("canned"), "{protocol:?}");
    let header = |name: &str| {
        let value = seen[0].headers.iter().find(|(known, _)| known == name);
        value.map(|(_, value)| value.clone()).unwrap_or_default()
    };
    let (key, cap, temperature) = match protocol {
        Protocol::Chat => (header("authorization"), cap_of_chat(sent), &sent["temperature"]),
        Protocol::Responses => (header("authorization"), &sent["max_output_tokens"], &sent["temperature"]),
        Protocol::Anthropic => (header("x-api-key"), &sent["max_tokens"], &sent["temperature"]),
        Protocol::Gemini => {
            let config = &sent["generationConfig"];
            (header("x-goog-api-key"), &config["maxOutputTokens"], &config["temperature"])
        }
        Protocol::Ollama => (String::new(), &sent["options"]["num_predict"], &sent["options"]["temperature"]),
    };
    let key = key.strip_prefix("Bearer ").map_or(key.clone(), str::to_owned);
    assert_eq!(key, if protocol == Protocol::Ollama { "" } else { KEY }, "{protocol:?}");
    assert!(!seen[0].path.contains(KEY), "{protocol:?}: {}", seen[0].path);
    assert_eq!((cap, temperature.as_f64()), (&json!(77), Some(0.0)), "{protocol:?}: {sent:#}");

    let messages = messages_of(protocol, sent);
    let [system, prompt] = &*messages else { panic!("{protocol:?}: {messages:#?}") };
    assert!(system.role == Role::System && system.text_of().contains("You are brief."), "{protocol:?}: {system:#?}");
    assert_eq!((prompt.role, &*prompt.parts), (Role::User, &[MessagePart::Text("Please say hello.".to_owned())][..]));
}

fn cap_of_chat(sent: &Value) -> &Value {
    let (old, new) = (&sent["max_tokens"], &sent["max_completion_tokens"]);
    if old.is_null() { new } else { old }
}

/// Text, finish reason and counted tokens must be exact, whether or not the model ends within its tokens.
#[test]
fn usage_of_a_real_model_is_recorded() {
    let llm = llm();
    for protocol in Protocol::REAL {
        let (user, relay) = (User::new(), Relay::to(llm.origin()));
        agent(&user, "brief", "output_tokens: 60\n");
        let talk = ProviderRun { agent: "brief", model: "smollm2", ..ProviderRun::new(protocol, relay.origin()) };
        let output = talk.run(&user, "What is the capital of France?");

        let (stored, seen) = (only(&user), relay.seen());
        let answers = stored.of("turn_answered");
        assert_eq!(answers.len(), seen.len(), "{protocol:?}: {answers:#?}");
        for (answer, exchange) in answers.iter().zip(&seen) {
            let (usage, counted) = (&answer["usage"], counted_tokens(protocol, &exchange.answer));
            assert_eq!((usage["in"].as_u64(), usage["out"].as_u64()), counted, "{protocol:?}: {usage}");
            assert!(counted.0 > Some(10) && counted.1 > Some(1), "{protocol:?}: {counted:?}");
            assert_eq!(answer["model"], json!(format!("{}/smollm2", protocol.provider())), "{protocol:?}");
        }
        let texts: String = answers.iter().map(|answer| answer["text"].as_str().expect("a text")).collect();
        assert!(!texts.trim().is_empty(), "{protocol:?}: {output:#?}");
        assert_eq!(output.deltas(output.session()).concat(), texts, "{protocol:?}");
        match answers.last().map(|answer| &answer["stop"]) {
            Some(stop) if stop == "end" => assert_eq!(output.answer(), texts, "{protocol:?}"),
            // A truncated answer is continued only once.
            stop => {
                assert_eq!((stop, answers.len(), output.code), (Some(&json!("length")), 2, Some(1)), "{protocol:?}")
            }
        }
    }
}

/// Returns the input tokens, including cached ones, and the output tokens from the events of a stream.
fn counted_tokens(protocol: Protocol, stream: &str) -> (Option<u64>, Option<u64>) {
    let events: Vec<Value> = stream
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .filter_map(|data| serde_json::from_str(data).ok())
        .collect();
    let find = |pointer: &str| events.iter().rev().find_map(|event| event.pointer(pointer)?.as_u64());
    match protocol {
        Protocol::Chat => (find("/usage/prompt_tokens"), find("/usage/completion_tokens")),
        Protocol::Responses => (find("/response/usage/input_tokens"), find("/response/usage/output_tokens")),
        Protocol::Anthropic => {
            let new = find("/message/usage/input_tokens").unwrap_or(0);
            let cached = find("/message/usage/cache_read_input_tokens").unwrap_or(0);
            (Some(new + cached), find("/usage/output_tokens"))
        }
        Protocol::Gemini | Protocol::Ollama => panic!("the real server does not support {protocol:?}"),
    }
}

#[test]
fn answer_truncated_by_the_server_is_not_complete() {
    let llm = llm();
    for protocol in Protocol::REAL {
        let user = User::new();
        agent(&user, "terse", "output_tokens: 6\n");
        let talk = ProviderRun { agent: "terse", model: "smollm2", ..ProviderRun::new(protocol, llm.origin()) };
        let output = talk.run(&user, "Tell me a story of a fox.");
        assert_eq!(output.code, Some(1), "{protocol:?}: {output:#?}");
        assert_eq!(output.end["outcome"], json!({"failed": {"kind": "truncated"}}), "{protocol:?}");
        assert!(output.end["partial"].as_str().is_some_and(|text| !text.is_empty()), "{protocol:?}: {:#}", output.end);
        let stored = only(&user);
        let stops: Vec<_> = stored.of("turn_answered").iter().map(|answer| answer["stop"].clone()).collect();
        // A truncated answer is continued only once.
        assert_eq!(stops, [json!("length"), json!("length")], "{protocol:?}");
        assert_eq!(stored.of("turn_started")[1]["prompt"], json!("continuation"), "{protocol:?}");
    }
}
