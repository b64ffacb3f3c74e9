//! A journal with every record kind that `fixtures/1/example.jsonl` lacks. A new kind gets a journal and a fixture of
//! its own, like `described`: `SUBTEND_WRITE_FIXTURES=DIR cargo test -p subtend-journal --test journal kinds::`.
//! Existing fixtures never change.

use std::collections::BTreeSet;

use crate::scene::*;
use subtend_journal::codec;
use subtend_session::index::continue_input;

/// Writes records as the session's next frame.
pub(crate) fn append_records(journal: &Journal, writer: &mut SessionWriter, records: &[Value]) {
    let frame = writer.frame_of(records.iter().cloned().map(record).collect());
    journal.append(one(frame)).unwrap();
}

fn turn(no: u32, attempt: u32, run: u32) -> Value {
    json!({"turn_started": {"run": run, "turn": no, "attempt": attempt, "prompt": "plain", "model": "scripted"}})
}

pub(crate) fn answer(run: u32, no: u32, attempt: u32, tools: &[&str]) -> Value {
    let call = |tool: &&str| json!({"provider_id": format!("{tool}-{no}"), "tool": tool, "args": "{}"});
    let calls: Vec<Value> = tools.iter().map(call).collect();
    json!({"turn_answered": {
        "run": run, "turn": no, "attempt": attempt, "text": "so far", "calls": calls,
        "stop": if tools.is_empty() { "end" } else { "calls" }, "usage": {}, "worked_ms": 3,
    }})
}

fn call(turn: u32, ix: u32) -> Value {
    json!({"turn": turn, "ix": ix})
}

fn call_finished(turn: u32, ix: u32, content: &str) -> Value {
    json!({"call_finished": {"call": call(turn, ix), "end": "ok", "content": content, "worked_ms": 1}})
}

pub(crate) fn run_ended(run: u32, turns: u32, outcome: Value) -> Value {
    json!({"run_ended": {
        "run": run, "outcome": outcome, "text": "so far", "len": 6, "hash": Hash::of(b"so far"), "turns": turns,
        "usage_self": {}, "usage_owned": {}, "worked_ms": 3,
    }})
}

fn completion(child: SessionId, run: Option<u32>, key: Value, outcome: Value, refused: Option<&str>) -> Value {
    let turns = u32::from(run == Some(1));
    let (len, hash, prefix) =
        if refused.is_some() { (0, Hash::of(b""), "") } else { (6, Hash::of(b"so far"), "so far") };
    json!({"notice_taken": {"carrier": "message", "items": [{
        "child": child, "run": run, "key": key, "refused": refused, "outcome": outcome, "len": len, "hash": hash,
        "prefix": prefix, "usage": {}, "turns": turns, "waking": true,
    }]}})
}

pub(crate) fn input(n: u128, text: &str) -> Value {
    json!({"input_accepted": {
        "id": id(n).0, "from": "person", "lane": "send", "text": text, "as_owner": "person",
    }})
}

/// The child works and ends; a user closes it and opens it again.
fn append_child_records(journal: &Journal, child: &mut SessionWriter) {
    journal.append(one(child.frame_of(start(child.id)))).unwrap();
    append_records(journal, child, &[answer(1, 1, 1, &[]), run_ended(1, 1, json!("completed"))]);
    append_records(journal, child, &[json!({"session_closed": {"by": "person"}})]);
}

/// An attempt fails, a child is created, a call waits for approval, and an input is withdrawn.
fn append_first_turn(journal: &Journal, root: &mut SessionWriter, child: &mut SessionWriter) {
    journal.append(one(root.frame_of(start(root.id)))).unwrap();
    let discarded = json!({"attempt_discarded": {
        "turn": 1, "attempt": 1, "error": "rate", "message": "slow down", "again_ms": 5,
    }});
    append_records(journal, root, &[discarded, turn(1, 2, 1)]);
    append_records(journal, root, &[answer(1, 1, 2, &["task", "shell"])]);
    let args = json!({"ask_opened": {
        "call": call(1, 1), "action": "shell.run", "resource": "make", "root": root.id,
    }});
    let spawned = root.frame_of(vec![
        record(json!({"call_started": {"call": call(1, 0), "kind": {"child": "background"}}})),
        record(json!({"child_spawned": {
            "call": call(1, 0), "child": child.id, "short": child.id.short(), "agent": "explore", "mode": "background",
            "depth": 1, "grant": {"spawns_left": 9},
        }})),
        record(call_finished(1, 0, "started")),
        record(args),
    ]);
    let creations = created_session(child, Some(root.id), false);
    journal.append(Batch { frames: vec![spawned, creations] }).unwrap();
    append_records(
        journal,
        root,
        &[
            input(21, "never mind"),
            json!({"queue_changed": {
                "change": {"removed": [id(21).0]}, "by": "person",
            }}),
        ],
    );
    append_records(
        journal,
        root,
        &[
            json!({"ask_answered": {"call": call(1, 1), "verdict": "always", "by": "person"}}),
            json!({"call_started": {"call": call(1, 1), "kind": {"local": "side_effect"}}}),
        ],
    );
    append_records(journal, root, &[call_finished(1, 1, "made")]);
}

/// The child refuses to continue while it is closed; then it continues, and is cancelled.
fn append_other_records(journal: &Journal, root: &mut SessionWriter, child: &mut SessionWriter) {
    append_records(journal, root, &[completion(child.id, Some(1), call(1, 0), json!("completed"), None)]);
    let child_id = child.id;
    let ask = |journal: &Journal, root: &mut SessionWriter, no: u32| {
        append_records(journal, root, &[turn(no, 1, 1), answer(1, no, 1, &["task"])]);
        append_records(
            journal,
            root,
            &[
                json!({"call_started": {"call": call(no, 0), "kind": {"continue": "background"}}}),
                json!({"continue_asked": {
                    "call": call(no, 0), "child": child_id, "input": "go on", "mode": "background",
                }}),
                call_finished(no, 0, "asked"),
            ],
        );
    };
    let why = json!({"failed": {"kind": {"not_continued": {"why": "closed"}}}});
    let owner = json!({"run": {"session": root.id, "run": 1, "call": call(3, 0)}});
    ask(journal, root, 2);
    let refused = json!({"continue_refused": {"owner": root.id, "key": call(2, 0), "why": "closed"}});
    append_records(journal, child, &[refused]);
    append_records(journal, root, &[completion(child.id, None, call(2, 0), why, Some("closed"))]);
    append_records(journal, child, &[json!({"session_reopened": {"by": "person"}})]);
    ask(journal, root, 3);
    let input_id = continue_input(root.id, CallId { turn: TurnNo(3), ix: 0 });
    let from = json!({"model": {"session": root.id, "run": 1, "call": call(3, 0)}});
    append_records(
        journal,
        child,
        &[
            json!({"input_accepted": {
                "id": input_id, "from": from, "lane": "send", "text": "go on", "as_owner": owner,
            }}),
            json!({"run_opened": {
                "run": 2, "owner": owner, "inputs": [input_id], "mode": "background", "max_turns": 9, "slot": true,
            }}),
        ],
    );
    append_records(journal, root, &[turn(4, 1, 1), answer(1, 4, 1, &["cancel_task"])]);
    append_records(
        journal,
        root,
        &[
            json!({"call_started": {"call": call(4, 0), "kind": {"cancel": {"child": child.id}}}}),
            json!({"cancel_asked": {"call": call(4, 0), "child": child.id, "key": call(3, 0)}}),
            call_finished(4, 0, "it is asked to end"),
        ],
    );
    let cancelled = json!({"cancelled": {"by": {"model": {"call": call(4, 0)}}}});
    append_records(journal, child, &[run_ended(2, 0, cancelled.clone())]);
    append_records(journal, root, &[completion(child.id, Some(2), call(3, 0), cancelled, None)]);
}

async fn build_journal() -> Journal {
    let journal = Journal::open(Box::new(Memory::new()), Options::default()).unwrap();
    let (mut root, mut child, mut gone) =
        (SessionWriter::new(id(10)), SessionWriter::new(id(11)), SessionWriter::new(id(30)));
    let creation_of_root = created_session(&mut root, None, true);
    journal.append(one(creation_of_root)).unwrap();
    append_first_turn(&journal, &mut root, &mut child);
    append_child_records(&journal, &mut child);
    append_other_records(&journal, &mut root, &mut child);
    let held = json!({"run_held": {"run": 1, "why": {"interrupted": {"by": "person"}}}});
    append_records(&journal, &mut root, &[held]);
    let by_person = json!({"cancelled": {"by": "person"}});
    let closing = json!({"closing": {"outcome": by_person}});
    append_records(&journal, &mut root, &[json!({"run_held": {"run": 1, "why": closing}}), run_ended(1, 4, by_person)]);
    // A session that is created without a run, and deleted.
    let empty = gone.frame_of(creation(gone.id, None).into_iter().take(1).collect());
    journal.append(one(empty)).unwrap();
    append_records(&journal, &mut gone, &[json!({"session_deleted": {"by": "host"}})]);
    journal.settled().await.unwrap();
    journal
}

/// Encodes the records of each session as one frame, in hexadecimal.
fn frames(journal: &Journal) -> String {
    let hex = |bytes: Vec<u8>| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let frame = |session: SessionId| {
        let stored = journal.records(session).unwrap();
        let Some(Record::SessionCreated(created)) = stored.first().map(|stored| &stored.record) else {
            panic!("no creation")
        };
        let defs = subtend_session::index::defs(created).unwrap();
        let changes = subtend_session::index::Changes { defs, ..Default::default() };
        let records = stored.iter().map(|stored| stored.record.clone()).collect();
        let first = stored.first().unwrap();
        Frame { session, first_seq: first.seq, epoch: first.epoch, at_ms: first.at_ms, records, changes }
    };
    let sessions = journal.heads().unwrap().into_iter().map(|(session, _)| session);
    sessions.map(|session| hex(codec::encode(&frame(session)).unwrap()) + "\n").collect()
}

#[tokio::test]
async fn records_of_the_other_kinds_are_unchanged() {
    let journal = build_journal().await;
    assert_eq!(journal.verify(&mut |_| {}).unwrap().problems, Vec::new());
    subtend_journal::audit(&journal, false).unwrap();
    write_fixture("kinds", &journal);
}

/// Writes the fixtures of a journal to the requested directory.
pub(crate) fn write_fixture(name: &str, journal: &Journal) {
    let Some(dir) = std::env::var_os("SUBTEND_WRITE_FIXTURES").map(PathBuf::from) else { return };
    let mut export = Vec::new();
    journal.export(Scope::Store, &mut export, &mut |_| {}).unwrap();
    std::fs::write(dir.join(name).with_extension("jsonl"), export).unwrap();
    std::fs::write(dir.join(name).with_extension("hex"), frames(journal)).unwrap();
}

/// Returns the record kinds in an export or in hexadecimal frames.
fn kinds_of(file: &std::path::Path) -> BTreeSet<String> {
    let text = std::fs::read_to_string(file).unwrap();
    let records: Vec<Record> = if file.extension().is_some_and(|extension| extension == "hex") {
        text.lines().flat_map(|line| codec::decode(&crate::fixtures::bytes(line)).unwrap().records).collect()
    } else {
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let frames = lines.filter_map(|line| line["frame"]["records"].as_array().cloned()).flatten();
        frames.map(record).collect()
    };
    records.iter().map(|record| record.kind().to_owned()).collect()
}

#[test]
fn each_kind_of_record_has_a_fixture() {
    for extension in ["jsonl", "hex"] {
        let mut found = BTreeSet::new();
        let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures");
        for format in std::fs::read_dir(fixtures).unwrap() {
            for file in std::fs::read_dir(format.unwrap().path()).unwrap() {
                let path = file.unwrap().path();
                if path.extension().is_some_and(|found| found == extension) {
                    found.extend(kinds_of(&path));
                }
            }
        }
        let without: Vec<&&str> = Record::KINDS.iter().filter(|kind| !found.contains(**kind)).collect();
        assert!(without.is_empty(), "no fixture of {without:?} as {extension}: see {}", file!());
    }
}
