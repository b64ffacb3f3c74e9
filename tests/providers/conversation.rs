use serde_json::{Value, json};

use super::call::User;
use super::chat_message::{messages_of, refused};
use super::mock::{Mock, script};
use super::protocol::Protocol;
use super::provider_run::{ProviderRun, RunOutput};
use super::relay::Relay;
use super::same::normalize;
use super::stored_session::{StoredSession, stored_sessions};
use super::subagents::{RequestGate, task};

const LEAD: &str = "You lead.";
const SCOUT: &str = "You scout.";

fn user() -> User {
    let user = User::new();
    let agent = |mode: &str, tools: &str, prompt: &str| {
        format!("---\nmode: {mode}\ndescription: One of two.\ntools: [{tools}]\n---\n{prompt}\n")
    };
    user.file(".subtend/agents/lead.md", &agent("primary", "task, write", LEAD));
    user.file(".subtend/agents/scout.md", &agent("subagent", "read", SCOUT));
    user
}

fn fixtures() -> Vec<Value> {
    let write = |id: &str, path: &str, content: &str| json!({ "id": id, "name": "write", "arguments": { "path": path, "content": content } });
    let notes = [write("call_1", "one.txt", "uno\n"), write("call_2", "two.txt", "zwölf „\"dos\"“\n")];
    let read = json!({ "id": "call_4", "name": "read", "arguments": { "path": "one.txt" } });
    let lead = [
        json!({ "content": "Zwei Notizen zuerst — “dos” ist die zweite. 👍🏽 Dann geht es weiter.", "toolCalls": notes }),
        json!({ "toolCalls": [task("call_3", "Read one.txt.", true)] }),
        json!({ "content": "The scout is out." }),
        json!({ "content": "Both notes are written, and one says uno." }),
    ];
    let scout = [json!({ "toolCalls": [read] }), json!({ "content": "One says:\nuno" })];
    [script(LEAD, &lead), script(SCOUT, &scout)].concat()
}

/// Runs one conversation over `protocol`, with text, parallel calls, a background child and its notice.
fn converse(protocol: Protocol) -> (User, Vec<StoredSession>) {
    let mock = Mock::new(&fixtures());
    let (gate, origin) = (RequestGate::default(), mock.origin().to_owned());
    let hold = gate.clone();
    let relay = Relay::start(move |_, body| {
        if body.to_string().contains(SCOUT) {
            hold.pass();
        }
        origin.clone()
    });
    let user = user();
    let talk = ProviderRun {
        agent: "lead",
        more: &["--allow", "fs.write=*.txt"],
        ..ProviderRun::new(protocol, relay.origin())
    };
    let run = talk.start(&user, "Write two notes, and have one read.");
    run.until(|event| event["record"]["turn_answered"]["text"] == "The scout is out.");
    gate.open();
    let output = RunOutput::of(run.done());
    assert_eq!(output.answer(), "Both notes are written, and one says uno.", "{protocol:?}");
    assert_eq!(mock.statuses(), [200; 6], "{protocol:?}");
    for body in relay.sent() {
        assert_eq!(refused(protocol, &messages_of(protocol, &body)), [""; 0], "{protocol:?}: {body:#}");
    }
    let stored = stored_sessions(&user);
    (user, stored)
}

fn normalized((user, stored): &(User, Vec<StoredSession>)) -> Vec<Vec<Value>> {
    normalize(stored, &user.workspace().canonicalize().expect("a workspace").display().to_string())
}

fn line(record: &Value) -> String {
    let (kind, of) = record.as_object().and_then(|record| record.iter().next()).expect("a record");
    let text = |name: &str| of[name].as_str().unwrap_or_default().replace('\n', "/");
    let call = || format!("{}.{}", of["call"]["turn"], of["call"]["ix"]);
    let rest = match &**kind {
        "session_created" => text("agent"),
        "input_accepted" => text("text"),
        "turn_started" => format!("{}.{} {}", of["turn"], of["attempt"], text("prompt")),
        "turn_answered" => {
            let calls = of["calls"].as_array().into_iter().flatten();
            let calls: String = calls.map(|call| format!(" {}{}", call["tool"], call["args"])).collect();
            format!("{} {}: {}{}", of["turn"], text("stop"), text("text"), calls.replace(['"', '\\'], ""))
        }
        "call_started" => format!("{} {}", call(), of["kind"]).replace('"', ""),
        "call_finished" => format!("{} {}: {}", call(), text("end"), text("content")),
        "child_spawned" => format!("{} {} {} {}", call(), text("child"), text("agent"), text("mode")),
        "notice_taken" => {
            let item = &of["items"][0];
            let message = item["prefix"].as_str().unwrap_or_default().replace('\n', "/");
            let child = item["child"].as_str().unwrap_or_default();
            format!("{} {child} {}: {message}", text("carrier"), item["outcome"].as_str().unwrap_or_default())
        }
        "run_ended" => format!("{}: {}", text("outcome"), text("text")),
        _ => String::new(),
    };
    format!("{kind} {rest}").trim().to_owned()
}

const PARENT: [&str; 22] = [
    "session_created lead",
    "input_accepted Write two notes, and have one read.",
    "run_opened",
    "run_started",
    "inputs_taken",
    "turn_started 1.1 plain",
    "turn_answered 1 calls: Zwei Notizen zuerst — “dos” ist die zweite. 👍🏽 Dann geht es weiter. \
     write{path:one.txt,content:unon} write{path:two.txt,content:zwölf „dos“n}",
    "call_started 1.0 {local:side_effect}",
    "call_finished 1.0 ok: created `one.txt`: 4 bytes, 1 line",
    "call_started 1.1 {local:side_effect}",
    "call_finished 1.1 ok: created `two.txt`: 19 bytes, 1 line",
    "turn_started 2.1 plain",
    "turn_answered 2 calls:  task{subagent_type:scout,prompt:Read one.txt.,background:true}",
    "call_started 2.0 {child:background}",
    "child_spawned 2.0 [session 1] scout background",
    "call_finished 2.0 ok: {\"session_id\":\"[short 1]\",\"status\":\"started\"}",
    "turn_started 3.1 plain",
    "turn_answered 3 end: The scout is out.",
    "notice_taken message [session 1] completed: One says:/uno",
    "turn_started 4.1 plain",
    "turn_answered 4 end: Both notes are written, and one says uno.",
    "run_ended completed: Both notes are written, and one says uno.",
];

const CHILD: [&str; 12] = [
    "session_created scout",
    "input_accepted Read one.txt.",
    "run_opened",
    "run_started",
    "inputs_taken",
    "turn_started 1.1 plain",
    "turn_answered 1 calls:  read{path:one.txt}",
    "call_started 1.0 {local:read_only}",
    "call_finished 1.0 ok:      1\tuno/[lines 1-1 of 1, 4 bytes]",
    "turn_started 2.1 plain",
    "turn_answered 2 end: One says:/uno",
    "run_ended completed: One says:/uno",
];

#[test]
fn every_protocol_records_the_same() {
    let all = Protocol::ALL.map(|protocol| (protocol, normalized(&converse(protocol))));
    let (_, first) = &all[0];
    for (protocol, records) in &all[1..] {
        let pairs = records.iter().flatten().zip(first.iter().flatten());
        pairs.for_each(|(record, as_before)| assert_eq!(record, as_before, "{protocol:?}"));
        assert_eq!(records, first, "{protocol:?}");
    }
    let lines: Vec<Vec<String>> = first.iter().map(|records| records.iter().map(line).collect()).collect();
    assert_eq!(lines, [&PARENT[..], &CHILD[..]]);
}

/// A normalized journal keeps every relevant difference: each of these changes is noticed.
#[test]
fn doctored_journal_is_noticed() {
    let (user, stored) = converse(Protocol::Chat);
    let workspace = user.workspace().canonicalize().expect("a workspace").display().to_string();
    let true_ones = normalize(&stored, &workspace);
    let find = |session: usize, kind: &str| {
        let records = &stored[session].records;
        records.iter().position(|record| record.get(kind).is_some()).expect("a record")
    };
    let mut doctored: Vec<(&str, Vec<StoredSession>)> = Vec::new();
    let mut doctor = |what, session: usize, change: &dyn Fn(&mut Vec<Value>)| {
        let mut copy = stored.clone();
        change(&mut copy[session].records);
        doctored.push((what, copy));
    };
    doctor("no server", 0, &|records| records[0]["session_created"]["servers"] = Value::Array(Vec::new()));
    let (answer, notice, end) = (find(0, "turn_answered"), find(0, "notice_taken"), find(1, "run_ended"));
    doctor("a text", 0, &|records| records[answer]["turn_answered"]["text"] = "Zwei Notizen.".into());
    doctor("no text", 0, &|records| records[answer]["turn_answered"]["text"] = Value::Null);
    doctor("a stop", 0, &|records| records[answer]["turn_answered"]["stop"] = "end".into());
    doctor("the order of calls", 0, &|records| {
        records[answer]["turn_answered"]["calls"].as_array_mut().expect("calls").reverse();
    });
    doctor("an argument", 0, &|records| records[answer]["turn_answered"]["calls"][0]["args"] = "{}".into());
    doctor("a call more", 0, &|records| {
        let calls = records[answer]["turn_answered"]["calls"].as_array_mut().expect("calls");
        calls.push(calls[0].clone());
    });
    doctor("no notice", 0, &|records| drop(records.remove(notice)));
    doctor("two notices", 0, &|records| records.insert(notice, records[notice].clone()));
    doctor("another child", 0, &|records| {
        records[notice]["notice_taken"]["items"][0]["child"] = stored[0].id.clone().into()
    });
    doctor("an outcome", 1, &|records| records[end]["run_ended"]["outcome"] = "lost".into());
    doctor("another attempt", 1, &|records| records[end - 1]["turn_answered"]["attempt"] = 2.into());
    for (what, copy) in &doctored {
        assert_ne!(normalize(copy, &workspace), true_ones, "{what} was not noticed");
    }
    assert_eq!(normalize(&stored, &workspace), true_ones);
}
