//! Foreign exports whose records name sessions of the local store, or whose bodies are too large or too many.

use std::io::{BufReader, Cursor};

use serde_json::{Value, json};
use subtend_journal::memory::Memory;
use subtend_journal::{ImportBounds, Journal, Options};
use subtend_session::ids::Hash;

use crate::attacks::imports::{forged, lines_of};

const EXAMPLE: &str = include_str!("../../journal/fixtures/1/example.jsonl");
const KINDS: &str = include_str!("../../journal/fixtures/1/kinds.jsonl");
const COMPACTED: &str = include_str!("../../journal/fixtures/1/compacted.jsonl");
const DELETED: &str = include_str!("../../journal/fixtures/1/deleted.jsonl");

fn store() -> Journal {
    Journal::open(Box::new(Memory::new()), Options::default()).expect("a journal")
}

fn import(journal: &Journal, lines: Vec<Value>) -> Result<(), String> {
    let threads = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut file = BufReader::new(Cursor::new(forged(lines)));
    let done = threads.block_on(journal.import(&mut file, &ImportBounds::none(), &mut |_| {}));
    done.map(drop).map_err(|error| error.to_string())
}

/// Returns the first record of a kind that has a value at `at`, else the first of that kind.
fn found<'a>(lines: &'a mut [Value], kind: &str, at: &str) -> &'a mut Value {
    let mut all: Vec<&mut Value> = Vec::new();
    for line in lines {
        if kind == "deleted" {
            all.extend(line.get_mut(kind));
        } else if let Some(records) = line.get_mut("frame").and_then(|frame| frame["records"].as_array_mut()) {
            all.extend(records.iter_mut().filter_map(|record| record.get_mut(kind)));
        }
    }
    let position = all.iter().position(|record| record.pointer(at).is_some()).unwrap_or_default();
    all.swap_remove(position)
}

/// Returns the line that creates session `id`, a root like that of the export.
fn creation(lines: &[Value], id: &str) -> Value {
    let is_root = |line: &&Value| line["frame"]["records"][0]["session_created"]["place"] == json!("root");
    let mut line = lines.iter().find(is_root).expect("a root").clone();
    let mut created = line["frame"]["records"][0].clone();
    created["session_created"]["short"] = json!(id[id.len() - 6..]);
    (line["frame"]["session"], line["frame"]["records"]) = (json!(id), json!([created]));
    line
}

fn with_session(mut lines: Vec<Value>, id: &str) -> Vec<Value> {
    let mut end = lines.pop().expect("a last line");
    lines.push(creation(&lines, id));
    for count in ["sessions", "frames", "records"] {
        let before = end["end"]["tally"][count].as_u64().expect("a number");
        end["end"]["tally"][count] = json!(before + 1);
    }
    lines.push(end);
    lines
}

fn export_of(lines: &[Value], id: &str) -> Vec<Value> {
    let is_before = |line: &&Value| line.get("export").or(line.get("def")).is_some();
    let mut alone: Vec<Value> = lines.iter().filter(is_before).cloned().collect();
    let tally = json!({"sessions": 1, "frames": 1, "records": 1, "defs": alone.len() - 1});
    alone.push(creation(lines, id));
    alone.push(json!({"end": {"tally": tally, "sum": ""}}));
    alone
}

/// A record of an export names a session of the local store. The imported run could adopt, cancel, continue or notify
/// that session, or read its end. Each file is refused, even by a store that does not have the session yet. The
/// control: the same file with the named session in it.
#[test]
fn import_refuses_records_that_name_sessions_of_the_store() {
    let id = |id: &str| json!(id);
    let check = |id: &str| json!({"check": {"run": {"session": id, "run": 1}, "wait": true}});
    let waits = |id: &str| json!({"await": {"all": false, "runs": [{"session": id, "run": 1}]}});
    let cancel = |id: &str| json!({"cancel": {"child": id}});
    type Named<'a> = &'a dyn Fn(&str) -> Value;
    let attacks: [(&str, &str, &str, Named<'_>); 17] = [
        (EXAMPLE, "session_created", "/place/child/user_msg/session", &id),
        (EXAMPLE, "session_created", "/place/child/assistant_msg/session", &id),
        (EXAMPLE, "input_accepted", "/from/model/session", &id),
        (EXAMPLE, "input_accepted", "/as_owner/run/session", &id),
        (EXAMPLE, "run_opened", "/owner/run/session", &id),
        (EXAMPLE, "child_spawned", "/child", &id),
        (EXAMPLE, "branch_created", "/child", &id),
        (EXAMPLE, "notice_taken", "/items/0/child", &id),
        (KINDS, "call_started", "/kind", &check),
        (KINDS, "call_started", "/kind", &waits),
        (KINDS, "call_started", "/kind", &cancel),
        (KINDS, "cancel_asked", "/child", &id),
        (KINDS, "continue_refused", "/owner", &id),
        (KINDS, "ask_opened", "/root", &id),
        (COMPACTED, "compaction_failed", "/of", &id),
        (DELETED, "deleted", "/head/root", &id),
        (DELETED, "deleted", "/head/parent", &id),
    ];
    for (export, kind, at, named) in attacks {
        let mut lines = lines_of(export);
        let record = found(&mut lines, kind, at);
        // A short name is the end of its session's id.
        let end = record.pointer(at).and_then(Value::as_str).map_or("00000a", |id| &id[id.len() - 6..]);
        let own = format!("01920000-0000-7000-8000-000000{end}");
        match record.pointer_mut(at) {
            Some(value) => *value = named(&own),
            None => record[&at[1..]] = named(&own),
        }
        let journal = store();
        import(&journal, export_of(&lines, &own)).expect("the local session");
        for journal in [&journal, &store()] {
            let before = journal.heads().expect("heads").len();
            let refused = import(journal, lines.clone()).expect_err(kind);
            let why = format!("names session {own}, which is not in the export; nothing was imported. Export again");
            let is_named = refused.contains(&format!("`{kind}` of session ")) || kind == "deleted";
            assert!(refused.contains(&why) && is_named, "{kind}{at}: {refused}");
            assert_eq!(journal.heads().expect("heads").len(), before, "{kind}{at}");
        }
        assert_eq!(import(&store(), with_session(lines, &own)), Ok(()), "the control: {kind}{at}");
    }
}

/// A deletion is final, so the row of a deleted session would block the import of an export that has the session. The
/// control: a deletion that another session of the file names is kept.
#[test]
fn import_leaves_out_deletions_that_no_session_names() {
    let victim = "01920000-0000-7000-8000-000000000abc";
    let mut attack = export_of(&lines_of(KINDS), "01920000-0000-7000-8000-000000000def");
    let mut deleted = lines_of(DELETED).into_iter().find(|line| line.get("deleted").is_some()).expect("a deletion");
    let named = deleted["deleted"]["session"].as_str().expect("an id").to_owned();
    deleted["deleted"]["session"] = json!(victim);
    for (field, value) in [("root", json!(victim)), ("parent", Value::Null), ("short", json!("000abc"))] {
        deleted["deleted"]["head"][field] = value;
    }
    attack.insert(1, deleted);
    let later = |journal: &Journal, id| import(journal, export_of(&lines_of(KINDS), id));
    let journal = store();
    assert_eq!(import(&journal, attack), Ok(()));
    assert_eq!(journal.heads().expect("heads").len(), 1);
    assert_eq!(later(&journal, victim), Ok(()));
    let journal = store();
    assert_eq!(import(&journal, lines_of(DELETED)), Ok(()));
    assert!(later(&journal, &named).is_err_and(|refused| refused.contains("was deleted in this store")));
}

/// Both bodies do not fit into memory, so each of the alternating sessions would read one of them again. The control:
/// sessions that use one body after the other.
#[test]
fn import_refuses_sessions_that_alternate_large_bodies() {
    const SESSIONS: u64 = 14;
    let of = |in_turns: bool| {
        let mut lines = lines_of(KINDS);
        lines.truncate(lines.iter().position(|line| line.get("frame").is_some()).expect("a frame"));
        let mut hashes = Vec::new();
        for text in ["a", "b"] {
            let body = json!(text.repeat(9 << 20)).to_string();
            let hash = Hash::of(body.as_bytes()).to_string();
            lines.push(json!({"def": {"hash": hash, "body": body}}));
            hashes.push(hash);
        }
        let defs = lines.len() - 1;
        for n in 0..SESSIONS {
            let mut line = creation(&lines_of(KINDS), &format!("01920000-0000-7000-8000-{n:012x}"));
            let body = if in_turns { n % 2 } else { n / (SESSIONS / 2) };
            let created = &mut line["frame"]["records"][0]["session_created"];
            created["system"] = json!({"hash": hashes[usize::try_from(body).expect("a number")]});
            lines.push(line);
        }
        let tally = json!({"sessions": SESSIONS, "frames": SESSIONS, "records": SESSIONS, "defs": defs});
        lines.push(json!({"end": {"tally": tally, "sum": ""}}));
        import(&store(), lines)
    };
    let refused = of(true).expect_err("large bodies in turns");
    assert!(refused.contains("its sessions use large bodies in turns, such as "), "{refused}");
    assert_eq!(of(false), Ok(()));
}

/// All bodies before a frame are kept in memory until the frame is written, so their number is limited. The control: a
/// frame between two halves of them.
#[test]
fn import_refuses_too_many_bodies_before_a_frame() {
    let of = |bodies: usize, bytes: usize, is_split: bool| {
        let mut lines = lines_of(KINDS);
        lines.truncate(lines.iter().position(|line| line.get("frame").is_some()).expect("a frame"));
        let (mut defs, mut sessions) = (lines.len() - 1, 0_u64);
        for n in 0..bodies {
            let body = json!(format!("{n}{}", "x".repeat(bytes))).to_string();
            lines.push(json!({"def": {"hash": Hash::of(body.as_bytes()).to_string(), "body": body}}));
            defs += 1;
            if n + 1 == bodies || is_split && n == bodies / 2 {
                lines.push(creation(&lines_of(KINDS), &format!("01920000-0000-7000-8000-{sessions:012x}")));
                sessions += 1;
            }
        }
        let tally = json!({"sessions": sessions, "frames": sessions, "records": sessions, "defs": defs});
        lines.push(json!({"end": {"tally": tally, "sum": ""}}));
        import(&store(), lines)
    };
    for (bodies, bytes) in [(4_097, 8), (33, 1 << 20)] {
        let refused = of(bodies, bytes, false).expect_err("bodies without end");
        assert!(refused.contains("more than 4096 bodies, or 32 MiB of them, are before one frame"), "{refused}");
        assert_eq!(of(bodies, bytes, true), Ok(()), "the control: {bodies}");
    }
}
