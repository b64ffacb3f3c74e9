//! Processes that are killed while running relatives send messages to each other (X16).

#![allow(
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    reason = "a test that cannot continue fails, and most records are not of interest"
)]

use crate::killed::*;
use subtend_tools::message;
use subtend_tools::registry::Registry;

/// Variable with the number of records after which [`killed_process`] dies, and its directory.
const KILLED: &str = "SUBTEND_TEST_MESSAGES";
const TEXTS: [&str; 2] = ["for the sibling", "for the parent"];
/// Maximum wait for the kill, and for the end of all runs.
const MAX_WAIT: Duration = Duration::from_secs(60);

fn call(tool: &str, args: &serde_json::Value) -> ToolCall {
    ToolCall { provider_id: "c".into(), tool: tool.into(), args: args.to_string().into() }
}

/// Plays a parent with two tasks. `writes` sends messages to its sibling `waits` and to its parent, which await them.
async fn fake_model(dir: Arc<Path>, request: Request) -> Result<Answer, ModelError> {
    let has = |prompt: &str| {
        request.messages.iter().any(|message| matches!(message, Message::User { text, .. } if **text == *prompt))
    };
    let shown: String = request.messages.iter().map(|message| format!("{message:?}")).collect();
    let answered = request.messages.iter().filter(|message| matches!(message, Message::Assistant { .. })).count();
    if has("writes") {
        return Ok(match answered {
            0 => Answer::of_calls(None, vec![call("message", &json!({"to": "stranger", "text": "hello"}))]),
            1 => {
                // The message to the unknown `stranger` fails, and its error lists the sibling.
                let names = shown.split("running: ").nth(1).unwrap_or_default();
                let sibling = names.split(", ").find_map(|name| name.split_once(" (")).map(|(id, _)| id);
                let receivers = [sibling.unwrap_or("no sibling is listed"), "parent"];
                let to = |(to, text)| call("message", &json!({"to": to, "text": text}));
                Answer::of_calls(None, receivers.into_iter().zip(TEXTS).map(to).collect())
            }
            _ => {
                std::fs::write(dir.join("written"), "").expect("written");
                Answer::of_text("written")
            }
        });
    }
    let seen = TEXTS.map(|text| shown.matches(text).count());
    if has("waits") {
        while !dir.join("written").exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        note(&dir, &format!("waits {seen:?}"));
        return Ok(Answer::of_text("waited"));
    }
    note(&dir, &format!("parent {seen:?}"));
    let task = |prompt: &str| call("task", &json!({"subagent_type": "worker", "prompt": prompt, "background": true}));
    Ok(match answered {
        0 => Answer::of_calls(None, vec![task("waits"), task("writes")]),
        _ => Answer::of_text("resting"),
    })
}

fn host(dir: &Path) -> (Journal, Builder) {
    let journal = store(dir);
    let mut catalog = Catalog::builtin();
    let worker = Manifest::new("worker", AgentMode::All, "You are a worker.");
    catalog.insert(Manifest { on_restart: Some(OnRestart::Resume), ..worker });
    let tools = Registry::builder().tool(message::tool()).expect("one tool").build();
    let dir: Arc<Path> = dir.into();
    let model = fn_model("family", move |request, _| fake_model(Arc::clone(&dir), request));
    let builder = Runtime::builder()
        .journal(journal.clone())
        .catalog(catalog)
        .tools(tools)
        .policy(RuleSet { default: Verdict::Allow, rules: Vec::new() })
        .model(Arc::new(model));
    (journal, builder)
}

/// Not a test: starts or resumes the family. Kills this process at a record, counted from the first message.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_process() {
    let Ok(text) = std::env::var(KILLED) else { return };
    let (last, dir) = text.split_once(' ').expect("an instruction");
    let (last, dir): (u32, _) = (last.parse().expect("a number"), Path::new(dir));
    let is_new = !dir.join("store").exists();
    let (journal, builder) = host(dir);
    let runtime = builder.start().await.expect("a runtime");
    let mut events = runtime.subscribe(None);
    if is_new {
        runtime.open(OpenOptions::agent("worker")).expect("a session").send("parent").await.expect("accepted");
    }
    let mut seen = u32::from(!is_new);
    let waits = async {
        while seen < last {
            let next = tokio::time::timeout(Duration::from_millis(50), events.next()).await;
            // If the recovery left no run in flight, no record will follow.
            if !is_new && journal.inflight().expect("readable").is_empty() {
                break;
            }
            let Ok(Some(Next::Event(event))) = next else { continue };
            let EventKind::Record { record, .. } = event.what else { continue };
            seen += u32::from(seen > 0 || is_sent(&record));
        }
    };
    // The test fails if this process ends without a kill.
    if tokio::time::timeout(MAX_WAIT, waits).await.is_ok() {
        die();
    }
}

fn is_sent(record: &Record) -> bool {
    let is_message = |call: &ToolCall| TEXTS.iter().any(|text| call.args.contains(text));
    matches!(record, Record::TurnAnswered(answered) if answered.calls.iter().any(is_message))
}

/// The contents of the store when no run is in flight.
struct KilledFamily {
    sessions: Vec<(SessionId, Vec<Record>)>,
    /// The messages in each model call of the last process.
    calls: Vec<String>,
}

/// Starts a runtime in this process, and waits for the end of all runs.
async fn finished(dir: &Path) -> KilledFamily {
    let (journal, builder) = host(dir);
    let runtime = builder.start().await.expect("the runtime starts again");
    let heads = journal.heads().expect("heads");
    let (root, _) = heads.iter().find(|(_, head)| head.parent.is_none()).expect("a root");
    let session = runtime.session(*root).expect("readable").expect("a session");
    let ends = async {
        session.run_ended(RunNo(1)).await.expect("the runtime runs");
        while !journal.inflight().expect("readable").is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(MAX_WAIT, ends).await.expect("all runs end");
    journal.settled().await.expect("the journal is open");
    subtend_journal::audit(&journal, true).expect("every invariant holds");
    let records = |id| journal.records(id).expect("records").into_iter().map(|stored| stored.record).collect();
    let sessions = journal.heads().expect("heads").into_iter().map(|(id, _)| (id, records(id))).collect();
    runtime.shutdown(Duration::from_secs(1)).await;
    KilledFamily { sessions, calls: take_notes(dir) }
}

/// Checks that each message was accepted and taken once, and that no request contained a message twice.
fn judge(family: &KilledFamily) -> Result<(), String> {
    let (mut accepted, mut taken) = (BTreeMap::new(), BTreeMap::new());
    for record in family.sessions.iter().flat_map(|(_, records)| records) {
        match record {
            Record::InputAccepted(input) if input.is_from_relative() => {
                let text = TEXTS.into_iter().find(|text| input.text.contains(text)).unwrap_or("another text");
                accepted.entry(text).or_insert_with(Vec::new).push(input.id);
            }
            Record::InputsTaken { ids, .. } => ids.iter().for_each(|id| *taken.entry(*id).or_insert(0) += 1),
            _ => {}
        }
    }
    for text in TEXTS {
        let ids = accepted.remove(text).unwrap_or_default();
        let [id] = &*ids else { return Err(format!("`{text}` was accepted {} times", ids.len())) };
        if taken.get(id) != Some(&1) {
            return Err(format!("`{text}` was taken {:?} times", taken.get(id)));
        }
    }
    if let Some(text) = accepted.keys().next() {
        return Err(format!("`{text}` was accepted"));
    }
    // A request contains at most one message, and that only once.
    match family.calls.iter().find(|call| !["[0, 0]", "[1, 0]", "[0, 1]"].iter().any(|seen| call.ends_with(seen))) {
        Some(call) => Err(format!("a message was shown twice: {call}")),
        None => Ok(()),
    }
}

/// Kills at the records of deliveries, of their results and of their entries, and then again during the recovery.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn x16_messages_are_delivered_once_over_kills() {
    let mut kills = tokio::task::JoinSet::new();
    let moments: [&[u32]; 8] = [&[1], &[2], &[3], &[4], &[5], &[6], &[8, 3], &[2, 4, 6]];
    for moments in moments {
        kills.spawn(async move {
            let dir = tempfile::tempdir().expect("a directory");
            for last in moments {
                let instruction = format!("{last} {}", dir.path().display());
                let killed = move || is_killed("messages::killed_process", KILLED, &instruction);
                let killed = tokio::task::spawn_blocking(killed).await.expect("it ends");
                assert!(killed, "record {last} of {moments:?} was not reached");
            }
            let family = finished(dir.path()).await;
            judge(&family).unwrap_or_else(|error| panic!("killed at {moments:?}: {error}"));
            family
        });
    }
    let mut last = None;
    while let Some(kill) = kills.join_next().await {
        last = Some(kill.expect("each kill leaves messages that are delivered once"));
    }
    assert_controls(&last.expect("a family"));
}

/// The controls: lost and repeated messages are noticed.
fn assert_controls(good: &KilledFamily) {
    let is_message = |record: &Record| matches!(record, Record::InputAccepted(input) if input.is_from_relative());
    let is_taken = |record: &Record| matches!(record, Record::InputsTaken { .. });
    let judged = |edit: &dyn Fn(&mut Vec<Record>)| {
        let mut sessions = good.sessions.clone();
        sessions.iter_mut().for_each(|(_, records)| edit(records));
        judge(&KilledFamily { sessions, calls: good.calls.clone() })
    };
    for is in [is_message as fn(&Record) -> bool, is_taken] {
        let twice = |records: &mut Vec<Record>| {
            let copies: Vec<Record> = records.iter().filter(|record| is(record)).cloned().collect();
            records.extend(copies);
        };
        assert!(judged(&twice).is_err(), "repeated");
        assert!(judged(&|records| records.retain(|record| !is(record))).is_err(), "lost");
    }
    let calls = vec!["waits [2, 0]".to_owned()];
    assert!(judge(&KilledFamily { sessions: good.sessions.clone(), calls }).is_err(), "shown twice");
}
