//! Foreign exports: names, trees and approvals.

use std::io::{BufRead, Read, Result as IoResult, Seek, SeekFrom};

use super::scene::*;
use subtend_journal::memory::Memory;
use subtend_journal::{Options, codec};
use subtend_session::ids::Interned;
use subtend_session::place::OnRestart;
use subtend_session::state::State;

/// An export with a child and an approval for the whole session.
const EXPORT: &str = include_str!("../../journal/fixtures/1/kinds.jsonl");
const WAITING: &str = include_str!("../../journal/fixtures/1/example.jsonl");
/// The same records in the format of an engine.
const FRAMES: &str = include_str!("../../journal/fixtures/1/kinds.hex");

pub(crate) fn lines() -> Vec<Value> {
    lines_of(EXPORT)
}

pub(crate) fn lines_of(export: &str) -> Vec<Value> {
    export.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// Adds checksums, numbers and the final sum to lines, as an attacker who writes an export by hand would.
pub(crate) fn forged(lines: Vec<Value>) -> Vec<u8> {
    forged_with(lines, ("", ""))
}

/// Like [`forged`], but replaces a placeholder in the text: a JSON value with millions of parts would take gigabytes.
fn forged_with(lines: Vec<Value>, (placeholder, text): (&str, &str)) -> Vec<u8> {
    let (mut out, mut sum) = (Vec::new(), blake3::Hasher::new());
    for (n, mut line) in (1_u64..).zip(lines) {
        let fields = line.as_object_mut().expect("an object");
        fields.remove("crc");
        fields.insert("n".into(), n.into());
        if let Some(end) = fields.get_mut("end") {
            end["sum"] = sum.finalize().to_hex().as_str().into();
        }
        let mut bytes = serde_json::to_vec(&line).expect("JSON");
        if !placeholder.is_empty() && bytes.windows(placeholder.len()).any(|at| at == placeholder.as_bytes()) {
            bytes = String::from_utf8(bytes).expect("text").replace(placeholder, text).into();
        }
        bytes.pop();
        let crc = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(format!(",\"crc\":\"{crc:08x}\"}}\n").as_bytes());
        sum.update(&bytes);
        out.extend(bytes);
    }
    out
}

/// Imports into an empty store. Returns the store, or the refusal, after which the store must still be empty.
fn imported(lines: Vec<Value>) -> Result<Journal, String> {
    import_file(&mut BufReader::new(Cursor::new(forged(lines))))
}

fn import_file<R: BufRead + Seek>(file: &mut R) -> Result<Journal, String> {
    import_within(file, &ImportBounds::none())
}

pub(crate) fn import_within<R: BufRead + Seek>(file: &mut R, within: &ImportBounds) -> Result<Journal, String> {
    let threads = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let journal = Journal::open(Box::new(Memory::new()), Options::default()).expect("a journal");
    let done = threads.block_on(journal.import(file, within, &mut |_| {}));
    match done {
        Ok(_) => Ok(journal),
        Err(error) => {
            assert!(journal.heads().expect("heads").is_empty(), "a refused export left sessions");
            Err(error.to_string())
        }
    }
}

pub(crate) fn record<'a>(lines: &'a mut [Value], kind: &str) -> &'a mut Value {
    let records = lines.iter_mut().filter_map(|line| line.get_mut("frame")?.get_mut("records")?.as_array_mut());
    records.flatten().find_map(|record| record.get_mut(kind)).expect("a record of that kind")
}

#[test]
fn sec7_names_of_an_export_are_validated_field_by_field() {
    assert!(imported(lines()).is_ok(), "the control: an unchanged forged export is refused");
    let escape = "\u{1b}]0;owned\u{7}";
    let attacks: [(&str, &str, &str, &str); 15] = [
        ("session_created", "short", "etcetc", "the short name \"etcetc\" is not"),
        ("session_created", "short", "", "the short name \"\" is not"),
        ("session_created", "agent", "../../agents/evil", "is a path, not a name"),
        ("session_created", "agent", escape, "has the control character"),
        ("session_created", "model", escape, "the model"),
        ("session_created", "workspace", escape, "the workspace"),
        ("session_created", "title", escape, "the title"),
        ("session_created", "title", "\u{202e}txt.exe", "the title"),
        ("session_created", "workspace", "../../etc", "the workspace \"../../etc\" is not an absolute path"),
        ("session_created", "workspace", "/home/me/../../etc", "is not an absolute path"),
        ("session_created", "workspace", "etc", "is not an absolute path"),
        ("child_spawned", "short", "A3F9C1", "the short name \"A3F9C1\" is not"),
        ("child_spawned", "agent", "/bin/sh", "is a path, not a name"),
        ("child_spawned", "agent", "team/../../evil", "is a path, not a name"),
        ("child_spawned", "label", escape, "the label"),
    ];
    let attacks_by_number: [(&str, &str, Value, &str); 7] = [
        ("session_created", "servers", json!(vec!["http://a"; 257]), "257 servers are listed, the limit is 256"),
        ("session_created", "servers", json!(vec!["a".repeat(4_096); 3]), "the servers have 12288 bytes together"),
        ("input_accepted", "tools", json!(["read", ""]), "the tool \"\" is not a valid name"),
        ("input_accepted", "tools", json!(vec!["read"; 32_769]), "32769 tools are listed, the limit is 32768"),
        ("child_spawned", "depth", json!(4_000_000_000_u32), "the depth 4000000000 is above the limit"),
        ("turn_answered", "usage", json!({"in": u64::MAX, "out": 0}), "the usage of 18446744073709551615 is above"),
        ("run_ended", "usage_owned", json!({"in": 0, "out": 0, "cost_micro": u64::MAX}), "the usage of"),
    ];
    let texts = attacks.map(|(kind, field, value, why)| (kind, field, json!(value), why));
    for (kind, field, value, why) in texts.into_iter().chain(attacks_by_number) {
        let mut lines = lines();
        record(&mut lines, kind)[field] = value;
        // The control: the record itself folds.
        assert!(serde_json::from_value::<Record>(json!({kind: record(&mut lines, kind)})).is_ok(), "{kind}.{field}");
        let refused = imported(lines).map(drop).expect_err(field);
        assert!(refused.contains(why) && refused.contains("nothing was imported"), "{kind}.{field}: {refused}");
    }
}

/// Commands print short names as they are, also those of a store from elsewhere. The control: letters and digits.
#[test]
fn short_name_with_other_characters_is_no_record() {
    let mut lines = lines();
    let mut read =
        |short: &str| serde_json::from_value::<Record>(json!({"session_created": short_named(&mut lines, short)}));
    for short in ["../../etc", "a3f9\u{1b}[2J", "a3f9c1\n"] {
        let refused = read(short).expect_err("other characters").to_string();
        assert!(refused.contains(&format!("the short name {short:?} is not of letters and digits only")), "{refused}");
    }
    assert!(read("a3f9c1").is_ok());
}

fn short_named(lines: &mut [Value], short: &str) -> Value {
    let created = record(lines, "session_created");
    created["short"] = json!(short);
    created.clone()
}

/// A short name must be the end of its session's id, or it could be another session's. The control: a longer end.
#[test]
fn import_refuses_the_short_name_of_another_session() {
    let attacks: [(&str, &str); 3] =
        [("session_created", "58ecc1"), ("child_spawned", "58ecc1"), ("session_created", "58ecc100000a")];
    for (kind, short) in attacks {
        let mut lines = lines();
        record(&mut lines, kind)["short"] = json!(short);
        let refused = imported(lines).map(drop).expect_err("the import was accepted");
        assert!(refused.contains(&format!("the short name \"{short}\" is not the end of the id")), "{refused}");
    }
    let mut lines = lines();
    record(&mut lines, "session_created")["short"] = json!("0000000a");
    imported(lines).map(drop).expect("the control");
}

/// Imported sessions are limited by the importer's limits. The control: without such bounds they keep their own.
#[test]
fn imported_sessions_have_at_most_the_limits_of_the_importer() {
    let own = Limits { turns: 7, max_depth: 9, queue: u32::MAX, tokens: None, ..Limits::default() };
    let lower = Limits { turns: 50, max_depth: 1, tokens: Some(1_000), ..Limits::default() };
    let text = serde_json::to_string(&own).expect("JSON");
    let hash = json!(subtend_session::ids::Hash::of(text.as_bytes()).to_string());
    let limits = |bound: Option<Limits>| {
        let mut lines = lines();
        let creations = |line: &Value| line["frame"]["records"][0]["session_created"]["limits"]["hash"].clone();
        let before = lines.iter().map(creations).find(|hash| !hash.is_null()).expect("limits");
        for line in &mut lines {
            if line["def"]["hash"] == before {
                line["def"] = json!({"hash": hash, "body": text});
            }
            if let Some(created) =
                line.get_mut("frame").and_then(|frame| frame["records"][0].get_mut("session_created"))
            {
                created["limits"]["hash"] = hash.clone();
            }
        }
        let within = ImportBounds { limits: bound, ..ImportBounds::none() };
        let journal = import_within(&mut BufReader::new(Cursor::new(forged(lines))), &within).expect("imported");
        let heads = journal.heads().expect("heads");
        let states = heads.iter().map(|(session, _)| {
            let stored = journal.records(*session).expect("records");
            let records: Vec<Record> = stored.into_iter().map(|stored| stored.record).collect();
            State::fold(*session, &records).expect("it folds")
        });
        let limits: Vec<_> = states
            .map(|state| (state.limits.turns, state.limits.max_depth, state.limits.queue, state.limits.tokens))
            .collect();
        assert!(limits.len() > 1 && limits.iter().all(|it| *it == limits[0]), "{limits:?}");
        limits[0]
    };
    assert_eq!(limits(Some(lower)), (7, 1, 256, Some(1_000)));
    assert_eq!(limits(None), (7, 9, u32::MAX, None), "the control");
}

/// Values that are short as text take much memory, so they are counted before parsing. The control: fewer values.
#[test]
fn import_counts_values_before_it_keeps_them() {
    let of = |count: usize| {
        let mut lines = lines();
        record(&mut lines, "child_spawned")["warnings"] = json!("@many@");
        let many = format!("[\"\"{}]", ",\"\"".repeat(count));
        import_file(&mut BufReader::new(Cursor::new(forged_with(lines, ("\"@many@\"", &many))))).map(drop)
    };
    let refused = of(2 << 20).expect_err("too many");
    assert!(refused.contains(" values, the limit is 2097152"), "{refused}");
    of(1_000).expect("the control");
}

/// A line is read whole, so its length is bounded before parsing, for every engine. The control: a shorter line.
#[test]
fn import_refuses_lines_longer_than_any_frame() {
    let of = |bytes: usize| {
        let mut lines = lines();
        record(&mut lines, "child_spawned")["warnings"] = json!(["@long@"]);
        let file = forged_with(lines, ("@long@", &"x".repeat(bytes)));
        import_file(&mut BufReader::new(Cursor::new(file))).map(drop)
    };
    let refused = of(64 << 20 | 4 << 10).expect_err("too long");
    assert!(refused.contains(" bytes, but this store's limit is 67112960"), "{refused}");
    of(1 << 20).expect("the control");
}

struct CountedFile(Cursor<Vec<u8>>, u64);

impl Read for CountedFile {
    fn read(&mut self, buffer: &mut [u8]) -> IoResult<usize> {
        let read = self.0.read(buffer)?;
        self.1 += read as u64;
        Ok(read)
    }
}

impl Seek for CountedFile {
    fn seek(&mut self, to: SeekFrom) -> IoResult<u64> {
        self.0.seek(to)
    }
}

/// A body shared by many sessions is read a few times, not once per session. The control: one session.
#[test]
fn import_reads_a_shared_body_once() {
    const BODY: usize = 256 << 10;
    let of = |sessions: u64| {
        let lines = lines();
        let creation = lines.iter().find(|line| line.get("frame").is_some()).expect("a creation").clone();
        let mut file: Vec<Value> = lines.iter().take_while(|line| line.get("frame").is_none()).cloned().collect();
        let body = json!("x".repeat(BODY)).to_string();
        let hash = subtend_session::ids::Hash::of(body.as_bytes()).to_string();
        file.push(json!({"def": {"hash": hash, "body": body}}));
        let defs = file.iter().filter(|line| line.get("def").is_some()).count();
        for n in 0..sessions {
            let mut creation = creation.clone();
            let id = format!("00000000-0000-0000-0000-{:012x}", 0xabc_0000_0000 + n);
            let created = creation["frame"]["records"][0].clone();
            creation["frame"]["records"] = json!([created]);
            creation["frame"]["session"] = json!(id);
            let created = &mut creation["frame"]["records"][0]["session_created"];
            created["short"] = json!(id[id.len() - 6..]);
            created["system"] = json!({"hash": hash});
            file.push(creation);
        }
        let tally = json!({"sessions": sessions, "frames": sessions, "records": sessions, "defs": defs});
        file.push(json!({"end": {"tally": tally, "sum": ""}}));
        let bytes = forged(file);
        let size = bytes.len() as u64;
        let mut file = BufReader::with_capacity(4_096, CountedFile(Cursor::new(bytes), 0));
        let done = import_file(&mut file).map(drop);
        assert_eq!(done, Ok(()), "{sessions} sessions");
        file.get_ref().1 / size
    };
    assert!(of(1) < 6, "the control: {}", of(1));
    assert!(of(200) < 6, "{} times its size", of(200));
}

/// A session that claims the worktree of no ancestor is refused. The control: its parent's worktree.
#[test]
fn x14_import_refuses_a_worktree_of_another_session() {
    let own = |lines: &[Value], nth: usize| {
        let creations = lines.iter().filter_map(|line| line.get("frame"));
        let mut creations = creations.filter(|frame| frame["records"][0].get("session_created").is_some());
        creations.nth(nth).expect("a creation")["session"].clone()
    };
    let (root, child) = (own(&lines(), 0), own(&lines(), 1));
    let stranger = "01920000-0000-7000-8000-0000000000ff";
    let (top, lower) = (root.clone(), child.clone());
    let works = |of_root: Value, of_child: Value| {
        let mut lines = lines();
        for line in &mut lines {
            let Some(frame) = line.get_mut("frame") else { continue };
            let session = frame["session"].clone();
            if let Some(created) = frame["records"][0].get_mut("session_created") {
                let at = [session, created["place"]["child"]["parent"].clone()];
                let of_it = [(&lower, &of_child), (&top, &of_root)].into_iter().find(|(id, _)| at.contains(id));
                created["worktree"] = of_it.map_or(Value::Null, |(_, worktree)| worktree.clone());
            }
        }
        imported(lines).map(drop)
    };
    let of = |of: &Value| json!({ "of": of });
    for (root, child) in [
        (of(&json!(stranger)), of(&json!(stranger))),
        (Value::Null, of(&json!(stranger))),
        (Value::Null, json!({"of": child, "from": stranger})),
        (of(&child), of(&child)),
    ] {
        let refused = works(root, child).expect_err("a stranger's");
        assert!(refused.contains("works in the worktree of another session than its parent"), "{refused}");
    }
    works(Value::Null, of(&child)).expect("its own");
    works(of(&root), of(&root)).expect("its parent's");
    works(of(&root), json!({"of": child, "from": root})).expect("its own worktree, made from its parent's");
}

/// Each record of a long queue would be compared with all its inputs. The control: the longest permitted queue.
#[test]
fn import_refuses_endless_queues() {
    let queued = |inputs: usize| {
        let mut lines = lines();
        let first = record(&mut lines, "input_accepted").clone();
        let mut frames = lines.iter_mut().rev().filter_map(|line| line.get_mut("frame"));
        let last = frames.find(|frame| frame["records"][1]["run_ended"].is_object()).expect("the end of a run");
        let records = last["records"].as_array_mut().expect("records");
        records.extend((0..inputs).map(|n| {
            let mut input = first.clone();
            input["id"] = json!(format!("01a203e5-0000-7000-8000-{n:012x}"));
            json!({"input_accepted": input})
        }));
        let count = lines.last_mut().and_then(|line| line.get_mut("end")).expect("the last line");
        let before = count["tally"]["records"].as_u64().expect("a number");
        count["tally"]["records"] = json!(before + inputs as u64);
        imported(lines).map(drop)
    };
    let refused = queued(4_097).expect_err("too many inputs");
    assert!(refused.contains("more than 4096 inputs are queued"), "{refused}");
    assert_eq!(queued(4_096), Ok(()));
}

/// Times that no host can have recorded are refused. The control: the last accepted moment.
#[test]
fn import_refuses_frames_with_absurd_times() {
    let latest = 253_402_300_799_999_i64;
    let attacks = [i64::MIN, -1, latest + 1, i64::MAX];
    for (at_ms, is_taken) in attacks.map(|at_ms| (at_ms, false)).into_iter().chain([(0, true), (latest, true)]) {
        let mut lines = lines();
        let frame = lines.iter_mut().rev().find_map(|line| line.get_mut("frame")).expect("a frame");
        frame["at_ms"] = json!(at_ms);
        let taken = imported(lines);
        let refused = taken.as_ref().is_err_and(|why| why.contains(&format!("is of {at_ms} ms")));
        assert_eq!((taken.is_ok(), refused), (is_taken, !is_taken), "{at_ms}");
    }
}

/// A run parked until an absurd time is refused: a view fails at the year 10000. The control: the last moment.
#[test]
fn import_refuses_runs_parked_until_absurd_times() {
    let latest = 253_402_300_799_999_i64;
    let attacks: [(&str, &str, i64); 6] = [
        ("run_parked", "why", i64::MAX),
        ("run_parked", "why", latest + 1),
        ("run_parked", "why", -1),
        ("run_opened", "wall_cap_at", i64::MAX),
        ("run_opened", "wall_cap_at", -1),
        ("ask_opened", "deadline_at", i64::MAX),
    ];
    let control =
        [("run_parked", "why", latest), ("run_opened", "wall_cap_at", latest), ("ask_opened", "deadline_at", 0)];
    for (kind, field, at) in attacks.into_iter().chain(control) {
        let mut lines = lines_of(if kind == "run_parked" { WAITING } else { EXPORT });
        record(&mut lines, kind)[field] = if field == "why" { json!({"limit": {"until": at}}) } else { json!(at) };
        let taken = imported(lines);
        let refused = taken.as_ref().is_err_and(|why| why.contains(&format!("of a run is {at} ms")));
        assert_eq!(refused, !(0..=latest).contains(&at), "{kind}.{field} at {at}");
        assert!(refused || kind == "run_parked" || taken.is_ok(), "{kind}.{field} at {at}");
    }
}

#[test]
fn sec7_child_must_belong_to_the_tree_of_its_parent() {
    let mut other = lines();
    // The child claims its parent, but in another tree.
    let creations = other.iter_mut().filter_map(|line| line.get_mut("frame"));
    let child =
        creations.filter_map(|frame| frame["records"][0].get_mut("session_created")).find(|it| it["place"] != "root");
    let child = child.expect("a child");
    child["place"]["child"]["root"] = json!("00000000-0000-0000-0000-00000000000b");
    let refused = imported(other).map(drop).expect_err("another tree");
    assert!(refused.contains("belongs to the tree of"), "{refused}");
    let mut deep = lines();
    let creations = deep.iter_mut().filter_map(|line| line.get_mut("frame")?["records"][0].get_mut("session_created"));
    creations
        .filter(|creation| creation["place"] != "root")
        .for_each(|creation| creation["place"]["child"]["depth"] = json!(0));
    let refused = imported(deep).map(drop).expect_err("the import was accepted");
    assert!(refused.contains("has depth 0, expected 1"), "{refused}");
}

/// An import accepts everything that a host records: agent names with slashes, long keys, and warnings with any text.
#[test]
fn import_accepts_all_records_of_a_host() {
    let long = format!("{}\u{1b}", "k".repeat(5_000));
    for (kind, field, value) in [
        ("session_created", "agent", json!("team/reviewer")),
        ("child_spawned", "agent", json!("team/reviewer")),
        ("child_spawned", "warnings", json!([long])),
        ("input_accepted", "key", json!(long)),
    ] {
        let mut lines = lines();
        record(&mut lines, kind)[field] = value;
        let taken = imported(lines).map(drop);
        assert_eq!(taken, Ok(()), "{kind}.{field}");
    }
}

/// A call that the export marks as approved and not started would begin at the next start if the run resumed.
#[test]
fn imported_run_does_not_resume() {
    let mut lines = lines();
    let runs = lines.iter_mut().filter_map(|line| line.get_mut("frame")?.get_mut("records")?.as_array_mut()).flatten();
    runs.filter_map(|record| record.get_mut("run_opened")).for_each(|run| run["on_restart"] = json!("resume"));
    let journal = imported(lines).expect("imported");
    let heads = journal.heads().expect("heads");
    let records = heads.iter().flat_map(|(session, _)| journal.records(*session).expect("records"));
    let of_run = |record| if let Record::RunOpened(run) = record { Some(run.on_restart) } else { None };
    let restarts: Vec<OnRestart> = records.filter_map(|stored| of_run(stored.record)).collect();
    assert!(!restarts.is_empty() && restarts.iter().all(|it| *it == OnRestart::Fail), "{restarts:?}");
}

fn permanent_approvals(records: Vec<(SessionId, Vec<Record>)>) -> usize {
    let folded = records.into_iter().map(|(session, records)| State::fold(session, &records).expect("it folds"));
    folded.map(|state| state.always.len()).sum()
}

#[test]
fn sec7_permanent_approval_is_not_imported() {
    let journal = imported(lines()).expect("imported");
    let heads = journal.heads().expect("heads");
    let records = |session| journal.records(session).expect("records").into_iter().map(|it| it.record).collect();
    let taken: Vec<(SessionId, Vec<Record>)> = heads.iter().map(|(session, _)| (*session, records(*session))).collect();
    assert_eq!(permanent_approvals(taken), 0);
    // The control: the same records in the store that recorded them.
    let bodies = journal.records(heads[0].0).expect("records").remove(0).record;
    let Record::SessionCreated(known) = bodies else { panic!("not a creation") };
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("digits"), 16).expect("a byte");
    let kept = FRAMES.lines().map(|line| {
        let bytes: Vec<u8> = line.as_bytes().chunks(2).map(byte).collect();
        let frame = codec::decode(&bytes).expect("a frame");
        let mut records = frame.records;
        if let Some(Record::SessionCreated(created)) = records.first_mut() {
            fill(&mut created.system, &known.system);
            fill(&mut created.ceiling, &known.ceiling);
            fill(&mut created.limits, &known.limits);
        }
        (frame.session, records)
    });
    assert_eq!(permanent_approvals(kept.collect()), 1);
}

fn fill<T: ?Sized>(body: &mut Interned<T>, known: &Interned<T>) {
    body.body.clone_from(&known.body);
}
