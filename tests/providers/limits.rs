use serde_json::{Value, json};

use super::broken::{Act, Broken};
use super::call::User;
use super::mock::{Mock, script};
use super::protocol::Protocol;
use super::provider_run::ProviderRun;
use super::relay::{Exchange, Relay};
use super::stored_session::only;
use super::subagents::{family, task};
use super::text::agent;

/// A parent with three children at the same time, each of whose answers takes a while to begin; gives the children's calls.
fn children(more: &[&str]) -> Vec<Exchange> {
    let calls = ["one", "two", "three"].map(|name| task(&format!("call_{name}"), &format!("Look at {name}."), false));
    let lead = [json!({ "toolCalls": calls }), json!({ "content": "All are back." })];
    let slow = json!({ "match": { "systemMessage": "You scout." }, "response": { "content": "Seen." },
        "streamingProfile": { "ttft": 400, "tps": 1000 } });
    let mock = Mock::new(&[script("You lead.", &lead), vec![slow]].concat());
    let (user, relay) = (family(""), Relay::to(mock.origin()));
    let output = ProviderRun { agent: "lead", more, ..ProviderRun::new(Protocol::Chat, relay.origin()) }
        .run(&user, "Look at all.");
    assert_eq!(output.answer(), "All are back.");
    let seen = relay.seen().into_iter().filter(|exchange| exchange.sent.to_string().contains("You scout."));
    let seen: Vec<Exchange> = seen.collect();
    assert_eq!(seen.len(), 3, "{seen:#?}");
    seen
}

fn beside(seen: &[Exchange]) -> usize {
    let pairs = seen.iter().enumerate().flat_map(|(at, one)| seen[at + 1..].iter().map(move |other| (one, other)));
    pairs.filter(|(one, other)| one.began < other.ended && other.began < one.ended).count()
}

#[test]
fn calls_at_the_same_time_are_as_many_as_were_allowed() {
    assert_eq!(beside(&children(&[])), 3, "three slots, and no narrower limit: all at once");
    assert_eq!(beside(&children(&["--calls", "1"])), 0, "one at a time");
}

#[test]
fn silent_server_times_out_after_the_configured_limit() {
    let server = Broken::new(vec![Act::Hang(String::new())]);
    let user = User::new();
    agent(&user, "brief", "");
    let more = ["--limit", "first_byte_ms=250", "--limit", "attempts=1"];
    let talk = ProviderRun { agent: "brief", more: &more, ..ProviderRun::new(Protocol::Anthropic, server.origin()) };
    let output = talk.run(&user, "Speak.");
    let kind = &output.end["outcome"]["failed"]["kind"]["model"];
    assert_eq!((output.code, &kind["error"]), (Some(1), &json!("unavailable")), "{output:#?}");
    assert!(kind["message"].as_str().is_some_and(|text| text.contains("250")), "{kind}");
    assert_eq!(only(&user).of("turn_answered"), [&Value::Null; 0]);
}
