use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use serde_json::{Value, json};

use super::call::User;
use super::chat_message::{MessagePart, messages_of, refused};
use super::llm::llm;
use super::mock::{Mock, script};
use super::protocol::Protocol;
use super::provider_run::{ProviderRun, RunOutput};
use super::relay::{Exchange, Relay};
use super::stored_session::{StoredSession, stored_sessions};

const LEAD: &str = "You lead.";
const SCOUT: &str = "You scout.";
const NOTICE: &str = "Background tasks have ended.";

#[derive(Clone, Default)]
pub(crate) struct RequestGate(Arc<(Mutex<bool>, Condvar)>);

impl RequestGate {
    pub(crate) fn open(&self) {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.1.notify_all();
    }

    pub(crate) fn pass(&self) {
        let shut = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.0.1.wait_while(shut, |open| !*open).unwrap_or_else(PoisonError::into_inner));
    }
}

pub(crate) fn family(keys: &str) -> User {
    let user = User::new();
    user.file("a.txt", "alpha\n");
    let agent = |mode: &str, tools: &str, prompt: &str| {
        format!("---\nmode: {mode}\ndescription: One of two.\ntools: [{tools}]\ntemperature: 0\n{keys}---\n{prompt}\n")
    };
    user.file(".subtend/agents/lead.md", &agent("primary", "task, read", LEAD));
    user.file(".subtend/agents/scout.md", &agent("subagent", "read", SCOUT));
    user
}

pub(crate) fn task(id: &str, prompt: &str, background: bool) -> Value {
    let arguments = json!({ "subagent_type": "scout", "prompt": prompt, "background": background });
    json!({ "id": id, "name": "task", "arguments": arguments })
}

fn of<'a>(seen: &'a [Exchange], prompt: &str) -> Vec<&'a Exchange> {
    seen.iter().filter(|exchange| exchange.sent.to_string().contains(prompt)).collect()
}

/// Checks that every request was answered, and contains nothing that a provider of this protocol refuses.
fn assert_accepted(protocol: Protocol, seen: &[Exchange]) {
    for exchange in seen {
        let messages = messages_of(protocol, &exchange.sent);
        assert_eq!(refused(protocol, &messages), [""; 0], "{protocol:?}: {:#}", exchange.sent);
        assert!(exchange.status.contains(" 200 "), "{protocol:?}: {exchange:#?}");
    }
}

/// Checks that the last message is the result of a generated call, which reports the ends once and contains `expected`.
fn ends_with_the_notice(protocol: Protocol, body: &Value, expected: &[&str]) {
    let messages = messages_of(protocol, body);
    let [.., call, last] = &*messages else { panic!("{protocol:?}: {messages:#?}") };
    let Some(MessagePart::Call(_, tool, args)) = call.parts.last() else { panic!("{protocol:?}: {messages:#?}") };
    assert_eq!((&**tool, args), ("background_tasks", &json!({})), "{protocol:?}");
    let [MessagePart::Result(_, text)] = &*last.parts else { panic!("{protocol:?}: {messages:#?}") };
    assert!(expected.iter().all(|word| text.contains(word)), "{protocol:?}: {text}");
    let all: String = messages.iter().map(|message| message.text_of()).collect();
    assert_eq!((text.matches(NOTICE).count(), all.matches(NOTICE).count()), (1, 1), "{protocol:?}: {messages:#?}");
}

fn ends(stored: &[StoredSession]) -> Vec<Value> {
    stored.iter().flat_map(|stored| stored.of("run_ended")).map(|end| end["outcome"].clone()).collect()
}

/// The children's ends arrive while the parent rests after its own last answer.
#[test]
fn notices_at_rest_fit_every_protocol() {
    for protocol in Protocol::ALL {
        let calls = [task("call_1", "Look at the left.", true), task("call_2", "Look at the right.", false)];
        let lead = [
            json!({ "content": "Two scouts.", "toolCalls": calls }),
            json!({ "content": "The left is still out." }),
            json!({ "content": "Both are back." }),
        ];
        let scout = |side: &str, answer: &str| json!({ "match": { "systemMessage": SCOUT, "userMessage": side }, "response": { "content": answer } });
        let scouts = [scout("left", "Left is clear."), scout("right", "Right is clear.")];
        let mock = Mock::new(&[script(LEAD, &lead), scouts.to_vec()].concat());
        let (gate, origin) = (RequestGate::default(), mock.origin().to_owned());
        let hold = gate.clone();
        let relay = Relay::start(move |_, body| {
            if body.to_string().contains("Look at the left") && body.to_string().contains(SCOUT) {
                hold.pass();
            }
            origin.clone()
        });
        let user = family("");
        let run = ProviderRun { agent: "lead", ..ProviderRun::new(protocol, relay.origin()) }
            .start(&user, "Scout both sides.");
        run.until(|event| event["record"]["turn_answered"]["text"] == "The left is still out.");
        gate.open();
        let output = RunOutput::of(run.done());
        assert_eq!(output.answer(), "Both are back.", "{protocol:?}");

        let seen = relay.seen();
        assert_accepted(protocol, &seen);
        let lead = of(&seen, LEAD);
        assert_eq!((lead.len(), of(&seen, SCOUT).len()), (3, 2), "{protocol:?}: {seen:#?}");
        ends_with_the_notice(protocol, &lead[2].sent, &["Left is clear."]);
        let blocking = messages_of(protocol, &lead[1].sent).last().expect("a message").text_of();
        assert!(
            blocking.contains("Right is clear.") && !blocking.contains("Left is clear."),
            "{protocol:?}: {blocking}"
        );
        let stored = stored_sessions(&user);
        assert_eq!(ends(&stored), vec![json!("completed"); 3], "{protocol:?}");
        let notices = stored[0].of("notice_taken");
        let carriers: Vec<_> = notices.iter().map(|notice| notice["carrier"].clone()).collect();
        assert_eq!(carriers, [json!("result"), json!("message")], "{protocol:?}");
    }
}

/// A child's end arrives during the parent's call: results and notice are in one request.
#[test]
fn notice_at_a_turn_boundary_follows_the_results() {
    for protocol in Protocol::ALL {
        let read = json!({ "id": "call_2", "name": "read", "arguments": { "path": "a.txt" } });
        let lead = [
            json!({ "toolCalls": [task("call_1", "Look at the left.", true)] }),
            json!({ "content": "Meanwhile I read.", "toolCalls": [read] }),
            json!({ "content": "Read, and scouted." }),
        ];
        let mock = Mock::new(&[script(LEAD, &lead), script(SCOUT, &[json!({ "content": "Left is clear." })])].concat());
        let (gate, origin) = (RequestGate::default(), mock.origin().to_owned());
        let hold = gate.clone();
        let relay = Relay::start(move |_, body| {
            if body.to_string().contains(LEAD) && body.to_string().contains("Look at the left.") {
                hold.pass();
            }
            origin.clone()
        });
        let user = family("");
        let run =
            ProviderRun { agent: "lead", ..ProviderRun::new(protocol, relay.origin()) }.start(&user, "Scout the left.");
        run.until(|event| event["record"]["run_ended"].is_object());
        gate.open();
        let output = RunOutput::of(run.done());
        assert_eq!(output.answer(), "Read, and scouted.", "{protocol:?}");

        let seen = relay.seen();
        assert_accepted(protocol, &seen);
        let lead = of(&seen, LEAD);
        assert_eq!(lead.len(), 3, "{protocol:?}: {seen:#?}");
        ends_with_the_notice(protocol, &lead[2].sent, &["Left is clear."]);
        let all: String = messages_of(protocol, &lead[2].sent).iter().map(|message| message.text_of()).collect();
        let (result, notice) = (all.find("alpha"), all.find(NOTICE));
        assert!(result.is_some() && result < notice, "{protocol:?}: {all}");
    }
}

/// The server of a real model accepts a history with calls, results and a notice.
#[test]
fn real_server_answers_the_history_of_a_parent() {
    let llm = llm();
    for protocol in Protocol::REAL {
        let calls = [task("call_1", "Say one word.", true), task("call_2", "Say two words.", false)];
        let end = |agent: &str| json!({ "match": { "systemMessage": agent }, "response": { "content": "Done." } });
        let opening = script(LEAD, &[json!({ "content": "Two scouts.", "toolCalls": calls })]);
        let mock = Mock::new(&[opening, vec![end(LEAD), end(SCOUT)]].concat());
        let (canned, real, notified) = (mock.origin().to_owned(), llm.origin(), AtomicBool::new(false));
        // A model this small may repeat a call until its context is full: the mock ends the run after what is tested.
        let relay = Relay::start(move |_, body| {
            let text = body.to_string();
            let over = if text.contains(SCOUT) {
                text.contains("\"assistant\"") || text.contains("\"function_call\"")
            } else {
                !text.contains("Two scouts.") || text.contains(NOTICE) && notified.swap(true, Ordering::Relaxed)
            };
            if over { canned.clone() } else { real.to_owned() }
        });
        let user = family("output_tokens: 60\n");
        let talk = ProviderRun { agent: "lead", model: "smollm2", ..ProviderRun::new(protocol, relay.origin()) };
        let output = talk.run(&user, "Ask both scouts.");

        let seen = relay.seen();
        assert_accepted(protocol, &seen);
        let lead = of(&seen, LEAD);
        let notified = lead.iter().find(|exchange| exchange.sent.to_string().contains(NOTICE));
        let notified = notified.unwrap_or_else(|| panic!("{protocol:?}: {output:#?}"));
        ends_with_the_notice(protocol, &notified.sent, &[]);
        // A model this small may ramble until the limit.
        let stored = stored_sessions(&user);
        let cut = json!({ "failed": { "kind": "truncated" } });
        let ends = ends(&stored);
        assert!(ends.len() >= 3, "{protocol:?}: {ends:?}");
        assert!(ends.iter().all(|end| *end == json!("completed") || *end == cut), "{protocol:?}: {ends:?}");
        let answers: Vec<_> = stored[0].of("turn_answered");
        assert!(answers.iter().all(|answer| answer["text"].is_string()), "{protocol:?}: {answers:#?}");
    }
}
