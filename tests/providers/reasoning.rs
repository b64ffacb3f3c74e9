use serde_json::{Value, json};

use super::chat_message::{messages_of, refused};
use super::mock::{Mock, script};
use super::protocol::Protocol;
use super::provider_run::ProviderRun;
use super::relay::Relay;
use super::stored_session::stored_sessions;
use super::subagents::{family, task};

const THOUGHT: &str = "First the file, then the scout.";

fn fixtures() -> Vec<Value> {
    let read = json!({ "id": "call_2", "name": "read", "arguments": { "path": "a.txt" } });
    let calls = [task("call_1", "Look at the left.", false), read];
    let think = |mut answer: Value| {
        answer["reasoning"] = THOUGHT.into();
        answer["reasoningSignature"] = "c2lnbmVk".into();
        answer
    };
    let lead =
        [think(json!({ "content": "Two things.", "toolCalls": calls })), think(json!({ "content": "All seen." }))];
    [script("You lead.", &lead), script("You scout.", &[think(json!({ "content": "Left is clear." }))])].concat()
}

fn model(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Chat => "deepseek-reasoner",
        Protocol::Responses => "gpt-5",
        Protocol::Anthropic => "claude-sonnet-4-5",
        Protocol::Gemini => "gemini-2.5-pro",
        Protocol::Ollama => "deepseek-r1",
    }
}

/// The mock checks that the thinking before calls is returned, first and signed; otherwise it answers 400.
#[test]
fn reasoning_is_kept_apart_and_returned_where_required() {
    for protocol in Protocol::ALL {
        let mock = Mock::new(&fixtures());
        let (user, relay) = (family("effort: low\n"), Relay::to(mock.origin()));
        let talk = ProviderRun { agent: "lead", model: model(protocol), ..ProviderRun::new(protocol, relay.origin()) };
        let output = talk.run(&user, "See to both.");
        assert_eq!(output.answer(), "All seen.", "{protocol:?}");
        assert_eq!(mock.statuses(), [200; 3], "{protocol:?}");

        let sent = relay.sent();
        for body in &sent {
            assert_eq!(refused(protocol, &messages_of(protocol, body)), [""; 0], "{protocol:?}: {body:#}");
        }
        let stored = stored_sessions(&user);
        let answer = stored[0].of("turn_answered")[0];
        assert_eq!(answer["text"], json!("Two things."), "{protocol:?}");
        let last = sent.last().expect("a request");
        if protocol == Protocol::Anthropic {
            assert_eq!(last["thinking"]["type"], json!("enabled"), "{last:#}");
            let thinking = json!({ "type": "thinking", "thinking": THOUGHT, "signature": "c2lnbmVk" });
            assert_eq!(last["messages"][1]["content"][0], thinking, "{last:#}");
            assert!(answer["reasoning"].as_str().is_some_and(|text| text.contains("c2lnbmVk")), "{answer:#}");
            // With thinking enabled, no other temperature is allowed.
            assert!(last["temperature"].is_null() || last["temperature"] == json!(1), "{last:#}");
        }
    }
}
