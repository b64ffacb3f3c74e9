use serde_json::{Value, json};

use super::broken::{BrokenServer, ServerAction};
use super::call::User;
use super::mock::{Mock, script};
use super::protocol::Protocol;
use super::provider_run::ProviderRun;
use super::relay::{Exchange, Relay};
use super::stored_session::only;
use super::subagents::{family, task};
use super::text::agent;

/// Runs a parent with three concurrent children whose answers begin late; returns the exchanges of the children.
fn run_children(more: &[&str]) -> Vec<Exchange> {
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

fn overlapping(seen: &[Exchange]) -> usize {
    let pairs = seen.iter().enumerate().flat_map(|(at, one)| seen[at + 1..].iter().map(move |other| (one, other)));
    pairs.filter(|(one, other)| one.began < other.ended && other.began < one.ended).count()
}

#[test]
fn concurrent_calls_reach_the_configured_limit() {
    assert_eq!(overlapping(&run_children(&[])), 3, "with three slots and no other limit, all calls overlap");
    assert_eq!(overlapping(&run_children(&["--calls", "1"])), 0, "with one call at a time, no calls overlap");
}

#[test]
fn silent_server_times_out_after_the_configured_limit() {
    let server = BrokenServer::new(vec![ServerAction::Hang(String::new())]);
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
