use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::call::User;
use super::chat_message::{ChatMessage, MessagePart, Role, messages_of, refused};
use super::llm::llm;
use super::mock::{Mock, script};
use super::protocol::Protocol;
use super::provider_run::ProviderRun;
use super::relay::Relay;
use super::stored_session::{StoredSession, only};

/// A user with two files, and an agent that may read them.
fn reader(keys: &str) -> User {
    let user = User::new();
    user.file("a.txt", "alpha\n");
    user.file("b.txt", "beta\n");
    let agent = format!("---\nmode: primary\ntools: [read]\ntemperature: 0\n{keys}---\nYou read files.\n");
    user.file(".subtend/agents/reader.md", &agent);
    user
}

fn read_both_files() -> Vec<Value> {
    let call = |id: &str, path: &str| json!({ "id": id, "name": "read", "arguments": { "path": path } });
    let calls = [call("call_a", "a.txt"), call("call_b", "b.txt"), call("call_c", "none.txt")];
    let first = json!({ "content": "I read them.", "toolCalls": calls });
    script("You read files.", &[first, json!({ "content": "One says alpha, one beta." })])
}

#[test]
fn parallel_calls_run_and_return_results_in_order() {
    for protocol in Protocol::ALL {
        let mock = Mock::new(&read_both_files());
        let (user, relay) = (reader(""), Relay::to(mock.origin()));
        let output = ProviderRun { agent: "reader", ..ProviderRun::new(protocol, relay.origin()) }
            .run(&user, "Read both files.");
        assert_eq!(output.answer(), "One says alpha, one beta.", "{protocol:?}");

        let stored = only(&user);
        let first = stored.of("turn_answered")[0];
        assert_eq!((&first["text"], &first["stop"]), (&json!("I read them."), &json!("calls")), "{protocol:?}");
        let calls: Vec<_> = first["calls"].as_array().expect("calls").iter().map(name_and_args).collect();
        let read = |path: &str| ("read".to_owned(), json!({ "path": path }));
        assert_eq!(calls, [read("a.txt"), read("b.txt"), read("none.txt")], "{protocol:?}");

        let sent = relay.sent();
        assert_eq!(sent.len(), 2, "{protocol:?}: {sent:#?}");
        let messages = messages_of(protocol, &sent[1]);
        assert_eq!(refused(protocol, &messages), [""; 0], "{protocol:?}: {:#}", sent[1]);
        assert_returned(protocol, &messages);
        assert_mock_parsed(protocol, &mock.journal()[1]["body"]["messages"]);
    }
}

/// Checks the messages as the mock parsed them, independently of this test: each result follows the calls.
fn assert_mock_parsed(protocol: Protocol, messages: &Value) {
    let messages = messages.as_array().expect("messages");
    let roles: Vec<_> = messages.iter().map(|message| message["role"].as_str().expect("a role")).collect();
    // The responses protocol has text and each call as separate items.
    let model = if protocol == Protocol::Responses { 4 } else { 1 };
    let expected = [&["system", "user"][..], &["assistant"; 4][..model], &["tool"; 3][..]].concat();
    assert_eq!(roles, expected, "{protocol:?}: {messages:#?}");
    let results: Vec<_> = messages[2 + model..].iter().map(|message| message["content"].to_string()).collect();
    let found = ["alpha", "beta", "none.txt"].iter().zip(&results).all(|(word, result)| result.contains(word));
    assert!(found, "{protocol:?}: {results:#?}");
}

fn name_and_args(call: &Value) -> (String, Value) {
    let args = serde_json::from_str(call["args"].as_str().expect("arguments")).expect("JSON");
    (call["tool"].as_str().expect("a tool").to_owned(), args)
}

/// Checks the text and calls of the first answer, then each result; a failed call is marked as failed.
fn assert_returned(protocol: Protocol, messages: &[ChatMessage]) {
    let model: Vec<&MessagePart> =
        messages.iter().filter(|message| message.role == Role::Model).flat_map(|message| &message.parts).collect();
    assert_eq!(model[0], &MessagePart::Text("I read them.".to_owned()), "{protocol:?}: {messages:#?}");
    let args: Vec<_> = model
        .iter()
        .filter_map(|part| if let MessagePart::Call(_, _, args) = part { Some(args) } else { None })
        .collect();
    assert_eq!(
        args,
        [&json!({"path": "a.txt"}), &json!({"path": "b.txt"}), &json!({"path": "none.txt"})],
        "{protocol:?}"
    );
    let results: Vec<&str> = messages
        .iter()
        .flat_map(|message| &message.parts)
        .filter_map(|part| if let MessagePart::Result(_, text) = part { Some(&**text) } else { None })
        .collect();
    let [a, b, none] = &*results else { panic!("{protocol:?}: {results:#?}") };
    assert!(a.contains("alpha") && b.contains("beta") && none.contains("none.txt"), "{protocol:?}: {results:#?}");
}

/// Returns a relay that makes the real model call a tool, by forcing its answer to begin with a call.
fn forcing(protocol: Protocol, origin: &'static str) -> Relay {
    Relay::start(move |_, body| {
        let answered =
            body["messages"].as_array().expect("messages").iter().any(|message| message["role"] == "assistant");
        if !answered {
            let anthropic = protocol == Protocol::Anthropic;
            body["tool_choice"] = if anthropic { json!({ "type": "any" }) } else { json!("required") };
            let prefill = json!({ "role": "assistant", "content": "<tool_call>\n" });
            body["messages"].as_array_mut().expect("messages").push(prefill);
        }
        origin.to_owned()
    })
}

/// Returns the calls in a streamed answer: tool and arguments, possibly incomplete, by index.
fn streamed(protocol: Protocol, stream: &str) -> Vec<(String, String)> {
    let mut calls = BTreeMap::<u64, (String, String)>::new();
    for data in stream.lines().filter_map(|line| line.strip_prefix("data: ")) {
        let event: Value = serde_json::from_str(data).unwrap_or_default();
        let piece = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        if protocol == Protocol::Anthropic {
            let call = calls.entry(event["index"].as_u64().unwrap_or_default()).or_default();
            call.0.push_str(&piece(&event["content_block"]["name"]));
            call.1.push_str(&piece(&event["delta"]["partial_json"]));
        } else {
            for delta in event["choices"][0]["delta"]["tool_calls"].as_array().into_iter().flatten() {
                let call = calls.entry(delta["index"].as_u64().expect("an index")).or_default();
                call.0.push_str(&piece(&delta["function"]["name"]));
                call.1.push_str(&piece(&delta["function"]["arguments"]));
            }
        }
    }
    calls.into_values().filter(|(tool, _)| !tool.is_empty()).collect()
}

/// Returns each call of the first answer as recorded in the journal: tool and arguments as text.
fn recorded(stored: &StoredSession) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let calls = stored.of("turn_answered")[0]["calls"].as_array().cloned().unwrap_or_default();
    calls.iter().map(|call| (text(&call["tool"]), text(&call["args"]))).collect()
}

#[test]
fn calls_of_a_real_model_are_not_lost() {
    let llm = llm();
    for protocol in [Protocol::Chat, Protocol::Anthropic] {
        let (user, relay) = (reader("output_tokens: 60\n"), forcing(protocol, llm.origin()));
        let talk = ProviderRun { agent: "reader", model: "smollm2", ..ProviderRun::new(protocol, relay.origin()) };
        let output = talk.run(&user, "Read the file a.txt.");

        let seen = relay.seen();
        assert!(seen.len() > 1, "{protocol:?}: {output:#?}");
        assert!(seen.iter().all(|exchange| exchange.status.contains(" 200 ")), "{protocol:?}: {seen:#?}");
        let stored = only(&user);
        let calls = streamed(protocol, &seen[0].answer);
        assert!(!calls.is_empty() && calls.iter().all(|(tool, _)| tool == "read"), "{protocol:?}: {}", seen[0].answer);
        assert_eq!(recorded(&stored), calls, "{protocol:?}: {}", seen[0].answer);
        // Each call has one end, and the next request contains each of them.
        assert_eq!(stored.of("call_finished").len(), calls.len(), "{protocol:?}: {stored:#?}");
        let messages = messages_of(protocol, &seen[1].sent);
        assert_eq!(refused(protocol, &messages), [""; 0], "{protocol:?}: {:#}", seen[1].sent);
        let results =
            messages.iter().flat_map(|message| &message.parts).filter(|part| matches!(part, MessagePart::Result(..)));
        assert_eq!(results.count(), calls.len(), "{protocol:?}");
    }
}

#[test]
fn model_can_correct_truncated_arguments() {
    let llm = llm();
    for protocol in [Protocol::Chat, Protocol::Anthropic] {
        let (user, relay) = (reader("output_tokens: 12\nturns: 2\n"), forcing(protocol, llm.origin()));
        let talk = ProviderRun { agent: "reader", model: "smollm2", ..ProviderRun::new(protocol, relay.origin()) };
        let output = talk.run(&user, "Read the file a.txt.");
        assert!(matches!(output.code, Some(0 | 1 | 4)), "{protocol:?}: {output:#?}");

        let seen = relay.seen();
        let calls = streamed(protocol, &seen[0].answer);
        let cut = calls.iter().filter(|(_, args)| serde_json::from_str::<Value>(args).is_err()).count();
        assert!(cut > 0, "{protocol:?}: no arguments were truncated: {}", seen[0].answer);
        let stored = only(&user);
        assert_eq!(recorded(&stored), calls, "{protocol:?}");
        let ends: Vec<_> = stored.of("call_finished").iter().map(|end| end["end"].clone()).collect();
        let wrong = json!({ "tool_error": { "kind": "bad_args", "retryable": false } });
        assert_eq!(ends.iter().filter(|end| **end == wrong).count(), cut, "{protocol:?}: {stored:#?}");
        // The request with the error has a form that the server accepts.
        let messages = messages_of(protocol, &seen[1].sent);
        assert_eq!(refused(protocol, &messages), [""; 0], "{protocol:?}: {:#}", seen[1].sent);
        assert!(seen[1].status.contains(" 200 "), "{protocol:?}: {:#?}", seen[1]);
    }
}
