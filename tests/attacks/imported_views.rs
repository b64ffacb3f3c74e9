//! Foreign exports that make views of a host deep or slow.

use super::scene::*;
use subtend_actors::history::History;
use subtend_actors::transcript::{
    CallOutcome, Entry, MAX_NESTED_LEVELS, NestedTranscript, ShownEntry, Transcript, TranscriptReading,
};
use subtend_journal::faulty::{Faults, Faulty};
use subtend_journal::memory::Memory;
use subtend_journal::{Options, Stored};
use subtend_session::ids::{Epoch, Seq};
use subtend_session::limits::MAX_DEPTH;

use crate::attacks::imports::{forged, lines, record};
use crate::cli::call::User;
use crate::cli::serve::serve;

pub(super) type ExportedFrame = (String, Vec<Value>);

/// The hash of the text "so far".
const HASH: &str = "dcb9c3a39bda6131e1f529aa30921e8b";

pub(super) fn id(n: u32) -> String {
    format!("0192f0c1-0000-7abc-8def-{n:012x}")
}

pub(super) fn export_of(frames: &[ExportedFrame]) -> Vec<Value> {
    let mut lines: Vec<Value> = lines().into_iter().take(4).collect();
    let mut lengths: BTreeMap<&str, usize> = BTreeMap::new();
    for (session, records) in frames {
        let length = lengths.entry(session).or_default();
        let (first, at) = (*length + 1, 1_700_000_000_000_u64);
        lines.push(json!({"frame":
            {"session": session, "first_seq": first, "epoch": 1, "at_ms": at, "records": records}}));
        *length += records.len();
    }
    let records: usize = lengths.values().sum();
    let tally = json!({"sessions": lengths.len(), "frames": frames.len(), "records": records, "defs": 3});
    lines.push(json!({"end": {"tally": tally, "sum": ""}}));
    lines
}

/// Returns the records of session `n` of a chain, up to the answer of its first turn, which has the calls of `tools`.
pub(super) fn answered(n: u32, tools: &[&str]) -> Vec<Value> {
    let (mut place, mut from, mut owner) = (json!("root"), json!("person"), json!("person"));
    if let Some(parent) = n.checked_sub(1).map(id) {
        let call = json!({"turn": 1, "ix": 0});
        place = json!({"child": {"parent": parent, "root": id(0), "kind": "subagent", "call": call, "depth": n,
            "user_msg": {"session": parent, "seq": 5}, "assistant_msg": {"session": parent, "seq": 7}}});
        from = json!({"model": {"session": parent, "run": 1, "call": call}});
        owner = json!({"run": {"session": parent, "run": 1, "call": call}});
    }
    let mut created = record(&mut lines(), "session_created").clone();
    (created["place"], created["short"], created["inspectable"]) = (place, json!(id(n)[30..]), json!(n == 0));
    let calls: Vec<_> = tools.iter().map(|tool| json!({"provider_id": "", "tool": tool, "args": "{}"})).collect();
    let usage = json!({"in": 0, "out": 0});
    vec![
        json!({"session_created": created}),
        json!({"input_accepted": {"id": id(n), "from": from, "lane": "send", "text": "go", "as_owner": owner}}),
        json!({"run_opened": {"run": 1, "owner": owner, "inputs": [id(n)], "mode": "background", "max_turns": 9,
            "base_turns": 0, "on_restart": "fail", "slot": false}}),
        json!({"run_started": {"run": 1, "slot": false}}),
        json!({"inputs_taken": {"ids": [id(n)], "run": 1, "turn": 1}}),
        json!({"turn_started": {"run": 1, "turn": 1, "attempt": 1, "prompt": "plain", "model": "scripted"}}),
        json!({"turn_answered": {"run": 1, "turn": 1, "attempt": 1, "text": "so far", "calls": calls,
            "stop": if tools.is_empty() { "end" } else { "calls" }, "usage": usage, "worked_ms": 3}}),
    ]
}

pub(super) fn ended() -> Value {
    let usage = json!({"in": 0, "out": 0});
    json!({"run_ended": {"run": 1, "outcome": "completed", "text": "so far", "len": 6, "hash": HASH, "turns": 1,
        "usage_self": usage, "usage_owned": usage, "worked_ms": 3}})
}

pub(super) fn notice(child: u32, run: u32, key: &Value) -> Value {
    json!({"child": id(child), "run": run, "key": key, "outcome": "completed", "len": 6, "hash": HASH, "prefix": "",
        "usage": {"in": 0, "out": 0}, "turns": 1, "waking": true})
}

/// Returns the whole session `n` of a chain, whose call starts the next one; `forged` are ends of that child.
fn link(n: u32, forged: impl IntoIterator<Item = Value>) -> ExportedFrame {
    let (child, call) = (id(n + 1), json!({"turn": 1, "ix": 0}));
    let mut records = answered(n, &["task"]);
    records.extend([
        json!({"call_started": {"call": call, "kind": {"child": "background"}}}),
        json!({"child_spawned": {"call": call, "child": child, "short": child[30..], "agent": "explore",
            "mode": "background", "depth": n + 1, "grant": {"spawns_left": 9}}}),
        json!({"call_finished": {"call": call, "end": "ok", "content": "started", "worked_ms": 1}}),
        ended(),
    ]);
    let items: Vec<_> = [notice(n + 1, 1, &call)].into_iter().chain(forged).collect();
    records.push(json!({"notice_taken": {"items": items, "carrier": "message"}}));
    (id(n), records)
}

fn last(n: u32) -> ExportedFrame {
    let mut records = answered(n, &[]);
    records.push(ended());
    (id(n), records)
}

pub(super) fn imported(frames: &[ExportedFrame]) -> Result<(Journal, Faults), String> {
    let (engine, faults) = Faulty::new(Box::new(Memory::new()));
    let journal = Journal::open(Box::new(engine), Options::default()).expect("a journal");
    let threads = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut file = BufReader::new(Cursor::new(forged(export_of(frames))));
    let done = threads.block_on(journal.import(&mut file, &ImportBounds::none(), &mut |_| {}));
    done.map(|_| (journal, faults)).map_err(|error| error.to_string())
}

/// Views of a tree with the most levels that an import takes overflow neither the stack of a thread of the host, which has
/// 2 MiB, nor the parsers of clients. The control: the deepest session, and the levels that are shown.
#[test]
fn views_of_the_deepest_imported_tree_are_bounded() {
    let user = User::new();
    let frames: Vec<_> = (0..MAX_DEPTH).map(|n| link(n, [])).chain([last(MAX_DEPTH)]).collect();
    let file = user.workspace().join("deep.jsonl");
    std::fs::write(&file, forged(export_of(&frames))).expect("written");
    user.succeeds(&["import", file.to_str().expect("a path")]);
    let serving = serve(&user, &user.script_named("hello", "Hello."));
    let views = [
        "/s/{id}",
        "/s/{id}/replay",
        "/s/{id}/replay/at?at=12",
        "/s/{id}/tree",
        "/s/{id}/kids",
        "/s/{id}/timeline",
        "/s/{id}/timeline/chart",
        "/s/{id}/usage",
        "/s/{id}/branches",
        "/s/{id}/worktree",
        "/",
        "/usage",
        "/v1/sessions/{id}/transcript?children=true",
        "/v1/trees/{id}",
        "/v1/trees/{id}?depth=4000",
        "/v1/sessions",
        "/v1/sessions/{id}/usage",
        "/v1/sessions/{id}/branches",
        "/v1/sessions/{id}/export",
    ];
    for session in [0, MAX_DEPTH].map(id) {
        for view in views {
            let view = view.replace("{id}", &session);
            assert_eq!(serving.unix(&format!("GET {view}"), "").status, 200, "{view}");
        }
    }
    let get = |view: &str| serving.unix(&format!("GET {}", view.replace("{id}", &id(0))), "").json();
    let (whole, tree) = (get("/v1/sessions/{id}/transcript?children=true"), get("/v1/trees/{id}"));
    let call = |of: &Value| of["entries"].as_array()?.iter().find_map(|entry| entry.pointer("/calls/0").cloned());
    let mut nested = vec![call(&whole).expect("a call")];
    while let Some(below) = nested.last().and_then(|of| call(&of["transcript"])) {
        nested.push(below);
    }
    let text = format!("left out: it is nested too deep; read session {} itself", id(MAX_NESTED_LEVELS + 1));
    let deepest = nested.last().map(|call| &call["unreadable"]);
    assert_eq!((nested.len() as u32, deepest), (MAX_NESTED_LEVELS + 1, Some(&json!(text))));
    let child = "/children/0".repeat(60);
    let shown = tree["tree"].pointer(&child).map(|of| (&of["child_count"], &of["children"]));
    assert_eq!(shown, Some((&json!(1), &json!([]))));
    user.succeeds(&["show", "--json", &id(0)]);
    serving.host.stops();
}

/// Returns the text of the end of the child, what its call shows, and the number of reads of frames.
fn read_family(frames: &[ExportedFrame], nests: Option<u32>) -> (String, String, u64) {
    let (journal, faults) = imported(frames).expect("imported");
    let before = faults.ranges();
    let how = TranscriptReading { nests, ..TranscriptReading::default() };
    let transcript = Transcript::read(&journal, id(0).parse().expect("an id"), how).expect("a transcript");
    let reads = faults.ranges() - before;
    let (mut text, mut nested) = (String::new(), String::new());
    for shown in transcript.entries {
        match shown.entry {
            Entry::Notice { ends } => text = ends.iter().map(|end| &*end.text).collect::<Vec<_>>().join(""),
            Entry::Answer { calls, .. } => {
                assert!(matches!(calls[0].result, Some(CallOutcome::Result { .. })));
                nested = match &calls[0].nested {
                    Some(NestedTranscript::Transcript(of)) => format!("{} entries", of.entries.len()),
                    Some(NestedTranscript::Unreadable(why)) => why.clone(),
                    None => String::new(),
                };
            }
            _ => {}
        }
    }
    (text, nested, reads)
}

/// A parent with ends of runs that the child never had, and a child with frames of so many records.
fn family(cleared: &[usize]) -> Vec<ExportedFrame> {
    let mut frames = vec![link(0, (2..100).map(|run| notice(1, run, &Value::Null))), last(1)];
    let record = json!({"queue_changed": {"change": "cleared", "by": "person"}});
    frames.extend(cleared.iter().map(|count| (id(1), vec![record.clone(); *count])));
    frames
}

/// The ends of runs are searched backwards in the journal of the child. No frame is read twice, however large it is. The
/// control: the end before the large frame is found.
#[test]
fn forged_ends_read_each_frame_of_a_child_once() {
    assert_eq!(read_family(&family(&[10_000]), None), ("so far".to_owned(), String::new(), 3));
}

/// A sibling may continue a child, whose end then belongs to both owners. The control: the end of the first owner.
#[test]
fn end_of_a_shared_child_is_shown_for_each_owner() {
    let family = [link(0, [notice(2, 1, &Value::Null)]), link(1, []), last(2)];
    let (journal, _) = imported(&family).expect("imported");
    let how = TranscriptReading { nests: Some(1), ..TranscriptReading::default() };
    let transcript = Transcript::read(&journal, id(0).parse().expect("an id"), how).expect("a transcript");
    let ends = |of: &Transcript| -> Vec<String> {
        let ends = of.entries.iter().flat_map(|shown| match &shown.entry {
            Entry::Notice { ends } => ends.as_slice(),
            _ => &[],
        });
        ends.map(|end| end.text.to_string()).collect()
    };
    let nested = transcript.entries.iter().find_map(|shown| match &shown.entry {
        Entry::Answer { calls, .. } => match &calls[0].nested {
            Some(NestedTranscript::Transcript(nested)) => Some(ends(nested)),
            _ => None,
        },
        _ => None,
    });
    assert_eq!((ends(&transcript), nested), (vec!["so far".to_owned(); 2], Some(vec!["so far".to_owned()])));
}

/// The control: a child with few records.
#[test]
fn views_decode_a_bounded_number_of_records_of_children() {
    let shown = |cleared: &[usize]| read_family(&family(cleared), Some(1));
    let text = format!("left out: the transcript has too many records of children; read session {} itself", id(1));
    assert_eq!(shown(&[60_000, 60_000]), (String::new(), text, 3));
    assert_eq!(shown(&[100]), ("so far".to_owned(), "3 entries".to_owned(), 4));
}

/// The control: the largest number of calls.
#[test]
fn import_refuses_answers_of_too_many_calls() {
    let of = |calls: usize| imported(&[(id(0), answered(0, &vec!["read"; calls]))]).map(drop);
    let refused = of(65_537).expect_err("too many calls");
    assert!(refused.contains("an answer has 65537 calls, the limit is 65536"), "{refused}");
    assert_eq!(of(65_536), Ok(()));
}

/// Each repetition would be searched in the whole queue. The control: an input that is named once.
#[test]
fn import_refuses_inputs_that_are_named_twice() {
    for (at, pointer) in [(2, "/run_opened/inputs"), (4, "/inputs_taken/ids")] {
        for times in [1, 2] {
            let mut records = answered(0, &[]);
            *records[at].pointer_mut(pointer).expect("inputs") = json!(vec![id(0); times]);
            let taken = imported(&[(id(0), records)]).map(drop);
            let refused = taken.as_ref().is_err_and(|why| why.contains("it names an input that is not queued"));
            assert_eq!((taken.is_ok(), refused), (times == 1, times == 2), "{pointer}: {taken:?}");
        }
    }
}

/// Each child that an export names would get a copy of the long task of its call. The control: the child of another call.
#[test]
fn children_of_one_imported_call_share_its_task() {
    let mut records = answered(0, &["task", "task"]);
    for call in records[6]["turn_answered"]["calls"].as_array_mut().expect("calls") {
        call["args"] = json!(json!({"prompt": "find the cause"}).to_string());
    }
    for (child, ix) in [(1, 0), (2, 0), (3, 1)] {
        let (child, call) = (id(child), json!({"turn": 1, "ix": ix}));
        records.push(json!({"child_spawned": {"call": call, "child": child, "short": child[30..], "agent": "explore",
            "mode": "background", "depth": 1, "grant": {"spawns_left": 9}}}));
    }
    let stored = |(record, seq): (Value, u64)| {
        let record = serde_json::from_value(record).expect("a record");
        Stored { seq: Seq(seq), at_ms: 7, epoch: Epoch(1), record }
    };
    let history = History::of(&records.into_iter().zip(1..).map(stored).collect::<Vec<_>>());
    let [one, two, three] = [1, 2, 3].map(|child| &history.tasks[&id(child).parse::<SessionId>().expect("an id")]);
    assert_eq!([one, two, three].map(|task| &**task), ["find the cause"; 3]);
    assert_eq!([two, three].map(|other| Arc::ptr_eq(one, other)), [true, false]);
}

/// Returns a root whose calls start children of one system prompt: three of the first call, of which the next calls continue one each, and
/// one of the last call.
fn siblings() -> Vec<ExportedFrame> {
    let mut records = answered(0, &["task"; 5]);
    for (ix, task) in [(0, "find the cause"), (4, "mend it")] {
        records[6]["turn_answered"]["calls"][ix]["args"] = json!(json!({"prompt": task}).to_string());
    }
    let mut frames = Vec::new();
    for (child, ix) in [(1, 0), (2, 0), (3, 0), (4, 4)] {
        let (session, call) = (id(child), json!({"turn": 1, "ix": ix}));
        if child != 2 && child != 3 {
            records.push(json!({"call_started": {"call": call, "kind": {"child": "background"}}}));
        }
        records
            .push(json!({"child_spawned": {"call": call, "child": session, "short": session[30..], "agent": "explore",
            "mode": "background", "depth": 1, "detached": true, "grant": {"spawns_left": 9}}}));
        let mut created = answered(1, &[]).swap_remove(0);
        created["session_created"]["short"] = json!(session[30..]);
        created["session_created"]["place"]["child"]["call"] = call;
        frames.push((session, vec![created]));
    }
    for child in 1..4 {
        let call = json!({"turn": 1, "ix": child});
        records.push(json!({"call_started": {"call": call, "kind": {"continue": "background"}}}));
        let asked = json!({"call": call, "child": id(child), "input": "more", "mode": "background"});
        records.push(json!({"continue_asked": asked}));
    }
    records.push(ended());
    frames.insert(0, (id(0), records));
    frames
}

/// One text of an export may be the system prompt, or the task, of any number of children: a file of 2 MB took gigabytes. The controls: the
/// first session shows each, and so does a child of its own.
#[test]
fn texts_that_children_share_are_in_a_transcript_once() {
    let (journal, _) = imported(&siblings()).expect("imported");
    let how = TranscriptReading { nests: Some(1), ..TranscriptReading::default() };
    let read = |n| Transcript::read(&journal, id(n).parse().expect("an id"), how).expect("a transcript");
    let whole = read(0);
    let prompt = whole.header.system.clone().expect("a system prompt");
    let nested = |shown: &ShownEntry| match &shown.entry {
        Entry::Answer { calls, .. } => calls.clone(),
        _ => Vec::new(),
    };
    let calls: Vec<_> = whole.entries.iter().flat_map(nested).collect();
    let headers: Vec<_> = calls
        .iter()
        .filter_map(|call| match &call.nested {
            Some(NestedTranscript::Transcript(of)) => Some(&of.header),
            _ => None,
        })
        .collect();
    let prompts: Vec<_> = headers.iter().map(|of| (of.system.as_deref(), of.system_of)).collect();
    assert_eq!(prompts, vec![(None, Some(whole.header.id)); 4]);
    let tasks: Vec<_> = headers.iter().map(|of| of.branch.as_ref().and_then(|branch| branch.task.as_deref())).collect();
    assert_eq!(tasks, [Some("find the cause"), None, None, Some("mend it")]);
    let json = serde_json::to_string(&whole).expect("JSON");
    let prompt_json = serde_json::to_string(&*prompt).expect("JSON");
    assert_eq!([&*prompt_json, "find the cause", "mend it"].map(|text| json.matches(text).count()), [1, 2, 2]);
    let own = read(2).header;
    let task = own.branch.and_then(|branch| branch.task);
    assert_eq!((own.system, own.system_of, task.as_deref()), (Some(prompt), None, Some("find the cause")));
}

/// An entry showed the difference of a `write` of 8 million lines, and views the whole name of a model, before it was found to be too
/// long. The controls: the other call of the answer is shown, and a shorter name.
#[test]
fn page_shows_no_endless_difference_or_name() {
    let user = User::new();
    let mut records = answered(0, &["write", "write"]);
    for (ix, lines) in [(0, 3), (1, 200_000)] {
        let args = json!({"path": "a", "content": "line\n".repeat(lines)}).to_string();
        records[6]["turn_answered"]["calls"][ix]["args"] = json!(args);
    }
    let model = "m".repeat(4_000);
    records[5]["turn_started"]["model"] = json!(model);
    let usage = json!({"in": 1, "out": 1});
    let discarded = json!({"turn": 1, "attempt": 1, "error": "rate", "again_ms": 0, "usage": usage, "queued_ms": 5});
    let again = json!({"run": 1, "turn": 1, "attempt": 2, "prompt": "plain", "model": model});
    records.splice(6..6, [json!({"attempt_discarded": discarded}), json!({"turn_started": again})]);
    records[8]["turn_answered"]["attempt"] = json!(2);
    records.push(ended());
    let file = user.workspace().join("long.jsonl");
    std::fs::write(&file, forged(export_of(&[(id(0), records)]))).expect("written");
    user.succeeds(&["import", file.to_str().expect("a path")]);
    let serving = serve(&user, &user.script_named("hello", "Hello."));
    let [page, timeline, usage] =
        ["", "/timeline", "/usage"].map(|view| serving.unix(&format!("GET /s/{}{view}", id(0)), "").body);
    serving.host.stops();
    assert_eq!(page.matches("<span class=\"ins\">+line</span>").count(), 3, "{} bytes", page.len());
    assert!(page.contains("bytes more: the API has them]") && !page.contains("this entry has"), "{} bytes", page.len());
    for view in [&page, &timeline, &usage] {
        assert!(view.contains(&"m".repeat(100)) && !view.contains(&"m".repeat(200)), "{} bytes", view.len());
    }
    assert!(timeline.contains("<title>wait for a permit of m"), "{timeline}");
}

/// Views copied these names for each attempt and call. The control: names of the largest size, with a character that a provider may write.
#[test]
fn import_refuses_endless_names_of_models_and_tools() {
    type Named<'a> = &'a dyn Fn(&mut Vec<Value>, Value);
    let discarded = |records: &mut Vec<Value>, field: &str, name: Value| {
        let mut of = json!({"turn": 1, "attempt": 1, "error": "rate"});
        of[field] = name;
        records.truncate(6);
        records.push(json!({"attempt_discarded": of}));
    };
    let fields: [(&str, Named<'_>); 5] = [
        ("model", &|records, name| records[5]["turn_started"]["model"] = name),
        ("model", &|records, name| records[6]["turn_answered"]["model"] = name),
        ("tool", &|records, name| records[6]["turn_answered"]["calls"][0]["tool"] = name),
        ("model", &|records, name| discarded(records, "model", name)),
        ("model", &|records, name| discarded(records, "awaits", name)),
    ];
    for (at, (what, set)) in fields.into_iter().enumerate() {
        let named = |bytes: usize| {
            let mut records = answered(0, &["read"]);
            set(&mut records, json!("m\u{1b}".repeat(bytes / 2)));
            imported(&[(id(0), records)]).map(drop)
        };
        let refused = named(4_098).expect_err(what);
        assert!(refused.contains(&format!("the {what} ")), "{at}: {refused}");
        assert!(refused.contains("has 4098 bytes, the limit is 4096"), "{at}: {refused}");
        assert_eq!(named(4_096), Ok(()), "the control: {at}");
    }
}
