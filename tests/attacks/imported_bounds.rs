//! Foreign exports with more turns and permissions than a local session has.

use super::scene::*;
use subtend_journal::Scope;
use subtend_session::authority::Authority;
use subtend_session::ids::Hash;
use subtend_session::state::State;
use subtend_session::values::MAX_VALUES;

use crate::attacks::imports::{forged, import_within, lines, lines_of};
use crate::cli::call::User;

/// An export with merged metadata.
const DESCRIBED: &str = include_str!("../../journal/fixtures/1/metadata.jsonl");

fn imported(lines: Vec<Value>, within: &ImportBounds) -> Result<Journal, String> {
    import_within(&mut BufReader::new(Cursor::new(forged(lines))), within)
}

fn records<'a>(lines: &'a mut [Value], kind: &str) -> Vec<&'a mut Value> {
    let all = lines.iter_mut().filter_map(|line| line.get_mut("frame")?.get_mut("records")?.as_array_mut());
    all.flatten().filter_map(|record| record.get_mut(kind)).collect()
}

/// Returns the highest number of turns that a run of an imported session has or would have.
fn most_turns(journal: &Journal) -> u32 {
    let of = |session| {
        let stored = journal.records(session).expect("records");
        let records: Vec<Record> = stored.into_iter().map(|stored| stored.record).collect();
        let states = (1..=records.len()).map(|n| State::fold(session, &records[..n]).expect("it folds"));
        states.map(|state| state.run.as_ref().map_or(0, |run| run.allowance).max(state.allowance())).max()
    };
    journal.heads().expect("heads").into_iter().filter_map(|(session, _)| of(session)).max().expect("sessions")
}

/// Each attack sets one field of the export to 4,000 turns. The control: higher local limits keep those of the export.
#[test]
fn imported_runs_have_at_most_the_turns_of_the_importer() {
    let other = json!({"agent": "general", "agent_hash": "00dbd5365cabe2a1e27d2526d34b23dc", "model": "m", "system": "s",
        "turns": 4_000});
    let attacks: [(&str, &str, Value); 4] = [
        ("session_created", "turns", json!(4_000)),
        ("input_accepted", "turns", json!(4_000)),
        ("input_accepted", "agent_override", other),
        ("run_opened", "max_turns", json!(4_000)),
    ];
    let within = |turns| ImportBounds { limits: Some(Limits { turns, ..Limits::default() }), ..ImportBounds::none() };
    let own = most_turns(&imported(lines(), &within(5_000)).expect("the control"));
    assert!(own > 7, "{own}");
    for (kind, field, value) in attacks {
        let mut lines = lines();
        for record in records(&mut lines, kind) {
            record[field] = value.clone();
        }
        let journal = imported(lines, &within(7)).expect("imported");
        assert!(most_turns(&journal) <= 7, "{kind}.{field}: {}", most_turns(&journal));
    }
}

fn with_ceiling(permissions: &Value) -> Vec<Value> {
    let mut lines = lines();
    let (text, mut before) = (permissions.to_string(), Vec::new());
    let hash = Hash::of(text.as_bytes()).to_string();
    for created in records(&mut lines, "session_created") {
        before.push(std::mem::replace(&mut created["ceiling"]["hash"], json!(hash)));
    }
    for line in &mut lines {
        if line.get("def").is_some_and(|def| before.contains(&def["hash"])) {
            line["def"] = json!({"hash": hash, "body": text});
        }
    }
    lines
}

fn rule_set(first: usize, rules: usize) -> Value {
    let rule = |n| json!({"action": "fs.read", "resource": format!("{n:x}"), "verdict": "ask"});
    json!({"default": "ask", "rules": (first..first + rules).map(rule).collect::<Vec<_>>()})
}

/// Each call is checked against all rules of its session, so their number and length are limited. The control: the
/// largest number and length.
#[test]
fn import_refuses_permissions_of_too_many_rules() {
    let (rules, sets) = (Authority::MAX_RULES, Authority::MAX_SETS);
    let many = |sets| Value::from((0..sets).map(|n| rule_set(n, 1)).collect::<Vec<_>>());
    let before = |permissions: &Value| {
        let mut lines = lines();
        for created in records(&mut lines, "session_created") {
            created["imported"] = permissions.clone();
        }
        lines
    };
    let long = |more: usize| {
        let rule =
            json!({"action": "fs.read", "resource": "x".repeat(Authority::MAX_BYTES - 7 + more), "verdict": "ask"});
        json!([{"default": "ask", "rules": [rule]}])
    };
    let attacks: [(Vec<Value>, &str); 6] = [
        (with_ceiling(&long(1)), "patterns of 1048577 bytes, the limit is 1048576"),
        (before(&long(1)), "patterns of 1048577 bytes, the limit is 1048576"),
        (with_ceiling(&json!([rule_set(0, rules + 1)])), "4097 rules in 1 sets"),
        (with_ceiling(&many(sets + 1)), "257 rules in 257 sets"),
        (before(&json!([rule_set(0, rules + 1)])), "4097 rules in 1 sets"),
        (before(&many(sets + 1)), "257 rules in 257 sets"),
    ];
    for (lines, why) in attacks {
        let refused = imported(lines, &ImportBounds::none()).map(drop).expect_err(why);
        assert!(refused.contains(why) && refused.contains("the limits are 4096 and 256"), "{refused}");
    }
    let most = [json!([rule_set(0, rules)]), many(sets), long(0)];
    for lines in most.iter().map(with_ceiling).chain([before(&many(sets)), before(&long(0))]) {
        imported(lines, &ImportBounds::none()).expect("the control");
    }
}

/// The bound of an export is almost as large as an import takes, and meets that of the host. The store could not be moved
/// with it. The controls: the same bound again, and a smaller one, which remains.
#[test]
fn bound_of_an_import_is_importable_elsewhere() {
    let within = |first: usize| {
        let rights = serde_json::from_value(json!([rule_set(first, 13)])).expect("rules");
        ImportBounds { rights, ..ImportBounds::none() }
    };
    for (rules, is_kept) in [(Authority::MAX_RULES - 1, false), (Authority::MAX_RULES - 13, true), (1, true)] {
        let mut lines = lines();
        for created in records(&mut lines, "session_created") {
            created["imported"] = json!([rule_set(0, rules)]);
        }
        let mut journal = imported(lines, &within(5_000)).expect("imported");
        for (at, is_kept) in [(5_000, is_kept), (6_000, rules == 1)] {
            let mut file = Vec::new();
            journal.export(Scope::Store, &mut file, &mut |_| {}).expect("exported");
            journal = import_within(&mut BufReader::new(Cursor::new(file)), &within(at)).expect("imported again");
            for (session, _) in journal.heads().expect("heads") {
                let first = journal.records(session).expect("records").remove(0).record;
                let Record::SessionCreated(created) = first else { panic!("not a creation") };
                let bound = created.imported.expect("a bound");
                assert_eq!(!bound.within(&Authority::deny_all()), is_kept, "{rules} {at}");
            }
        }
    }
}

/// A text of a record may be JSON itself, and takes a hundred times its bytes when it is parsed. The first reading does
/// not count its values. The control: the largest number of values, and the deepest metadata of a call.
#[test]
fn import_refuses_endless_json_within_its_texts() {
    let values = |count: usize| format!("{{\"a\":[{}0]}}", "0,".repeat(count - 4));
    let nested = |levels: usize| format!("{{\"a\":{}{}}}", "[".repeat(levels - 1), "]".repeat(levels - 1));
    let long = |bytes: usize| format!("{{\"a\":\"{}\"}}", "x".repeat(bytes - 8));
    let set = |kind: &str, field: &str, text: &str| {
        let mut lines = if kind == "metadata_set" { lines_of(DESCRIBED) } else { lines() };
        for record in records(&mut lines, kind) {
            match record.get_mut(field).and_then(Value::as_array_mut) {
                Some(calls) => calls.iter_mut().for_each(|call| call["args"] = json!(text)),
                None if field == "calls" => {}
                None => record[field] = json!(text),
            }
        }
        imported(lines, &ImportBounds::none()).map(drop)
    };
    let fields = ["session_created", "input_accepted", "metadata_set"].map(|kind| (kind, "metadata"));
    for (kind, field) in fields.into_iter().chain([("input_accepted", "format")]) {
        for (text, why) in [
            (values(MAX_VALUES + 1), "has more than 100000 JSON values"),
            (nested(102), "nests more than 100 arrays and objects"),
            (long((4 << 20) + 1), "has 4194305 bytes, the limit is 4194304"),
        ] {
            let refused = set(kind, field, &text).expect_err(kind);
            assert!(refused.contains(&format!("the {field} ")) && refused.contains(why), "{kind}: {refused}");
        }
        for text in [values(MAX_VALUES), nested(101), long(4 << 20)] {
            set(kind, field, &text).expect(kind);
        }
    }
    let refused = set("turn_answered", "calls", &values(MAX_VALUES + 1)).expect_err("too many values");
    assert!(
        refused.contains("the arguments of an answer have ") && refused.contains("the limit is 100000"),
        "{refused}"
    );
    set("turn_answered", "calls", &values(1_000)).expect("the control");
}

/// A server reports up to a billion tokens for each call, which makes millions of dollars for a run. What a host recorded must be importable, since
/// one record would keep the whole store from it. The control: a figure that no host reaches.
#[test]
fn usage_that_a_server_exaggerates_is_imported() {
    for (figure, is_taken) in [(4_500_000_000_000_u64, true), (1 << 60, true), ((1 << 60) + 1, false)] {
        for field in ["usage_self", "usage_owned"] {
            let mut lines = lines();
            for ended in records(&mut lines, "run_ended") {
                ended[field] = json!({"in": figure, "out": figure, "cost_micro": figure});
            }
            let taken = imported(lines, &ImportBounds::none()).map(drop);
            assert_eq!(taken.is_ok(), is_taken, "{field} {figure}: {taken:?}");
        }
    }
}

/// A repository, or a client that may lower limits, sets a time limit of millions of years. The run gets the last time that an import takes. The
/// control: `import_refuses_runs_parked_until_absurd_times`.
#[test]
fn endless_time_limit_does_not_block_an_import() {
    let user = User::new();
    user.file("subtend.yaml", "limits: {wall_ms: 9000000000000000000}\n");
    let model = user.script(r#"{"rules": [{"agent": "*", "steps": [{"text": "done"}]}]}"#);
    user.succeeds(&["run", "--quiet", "--trust", "--model", &model, "go"]);
    user.succeeds(&["export", "--out", "all.jsonl"]);
    let text = std::fs::read_to_string(user.workspace().join("all.jsonl")).expect("the export");
    let caps: Vec<&str> =
        text.split("\"wall_cap_at\":").skip(1).filter_map(|rest| rest.split([',', '}']).next()).collect();
    assert_eq!(caps, ["253402300799999"]);
    let other = user.data().join("other");
    user.succeeds(&["import", "--data", other.to_str().expect("a path"), "all.jsonl"]);
}

/// Messages show the directory, the model, the servers and the agent of a session, and what follows a line break would pass for a line of the
/// command. The controls: titles of earlier versions have line breaks, and without one the texts are imported.
#[test]
fn line_break_in_a_name_is_refused() {
    let attacks: [(&str, &str, Value); 6] = [
        ("session_created", "workspace", json!("/srv/x\nmodel: ollama/small")),
        ("session_created", "model", json!("ollama/small\rdone")),
        ("session_created", "servers", json!(["http://127.0.0.1:9\ndone"])),
        ("session_created", "agent", json!("general\ndone")),
        ("child_spawned", "agent", json!("general\tdone")),
        ("child_spawned", "skipped", json!(["read\ndone"])),
    ];
    let with = |kind: &str, field: &str, value: Value| {
        let mut lines = lines();
        for record in records(&mut lines, kind) {
            record[field] = value.clone();
        }
        imported(lines, &ImportBounds::none()).map(drop)
    };
    for (kind, field, value) in attacks {
        let refused = with(kind, field, value.clone()).expect_err(field);
        assert!(refused.contains("has the control character"), "{kind}.{field}: {refused}");
        let visible = value.to_string().replace("\\n", "-").replace("\\r", "-").replace("\\t", "-");
        assert_eq!(with(kind, field, serde_json::from_str(&visible).expect("JSON")), Ok(()), "{kind}.{field}");
    }
    assert_eq!(with("session_created", "title", json!("one\ntwo")), Ok(()));
}

/// The repository lists a tool whose name has the most bytes that an agent file takes, and its directory has a character that no import takes.
/// The control: the directory under another name.
#[test]
fn names_in_a_repository_do_not_block_an_import() {
    let user = User::new();
    let tool = format!("mcp__{}", "x".repeat(315));
    user.file(
        ".subtend/agents/long.md",
        &format!("---\nmode: primary\ndescription: d\ntools: [read, spawn, {tool}]\n---\nWork.\n"),
    );
    user.file("subtend.yaml", "tools: {spawn: {enabled: true}}\n");
    let steps = json!([[{"when": {"prompt_contains": "CHILD"}, "text": "done"},
        {"calls": [{"tool": "spawn", "args": {"task": "CHILD"}}]}], {"text": "done", "repeat": true}]);
    let rules = json!([{"agent": "*", "steps": steps}]);
    let model = user.script(&json!({ "rules": rules }).to_string());
    user.succeeds(&["run", "--quiet", "--model", &model, "--agent", "long", "--allow", "task:*", "go"]);
    user.succeeds(&["export", "--out", "all.jsonl"]);
    let text = std::fs::read_to_string(user.workspace().join("all.jsonl")).expect("the export");
    assert!(text.contains(&format!("\"{tool}\"")), "{text}");
    for name in ["work\u{202e}", "work\n1"] {
        let directory = user.workspace().join(name);
        std::fs::create_dir(&directory).expect("a directory");
        let opened =
            user.call(&["run", "--quiet", "--model", &model, "--workspace", directory.to_str().expect("a path"), "go"]);
        assert!(opened.code != Some(0) && opened.err.contains("Rename the directory"), "{opened:?}");
        std::fs::rename(&directory, user.workspace().join("work")).expect("renamed");
        user.succeeds(&["run", "--quiet", "--model", &model, "--workspace", "work", "go"]);
        std::fs::remove_dir(user.workspace().join("work")).expect("removed");
    }
    user.succeeds(&["export", "--out", "more.jsonl"]);
    let other = user.data().join("other");
    user.succeeds(&["import", "--data", other.to_str().expect("a path"), "more.jsonl"]);
}
