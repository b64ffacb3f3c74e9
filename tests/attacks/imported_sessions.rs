//! Permissions, models and runs of imported sessions.

use super::scene::*;
use subtend_journal::{StoreSpec, open_store};

use super::imports::{forged, record};
use crate::cli::call::{CommandOutput, User, no_forks};
#[cfg(unix)]
use crate::cli::worktree::repository;

const ALLOW_ALL: [&str; 6] = ["--allow", "fs.*", "--allow", "shell.run", "--allow", "net.fetch"];

/// A user with the export of a session that was opened with all rights, and the id of that session.
fn exported() -> (User, String) {
    let user = User::new();
    let model = user.script(r#"{"rules": [{"agent": "*", "steps": [{"text": "done", "repeat": true}]}]}"#);
    user.succeeds(&[&["run", "--quiet", "--model", &model, "go"], &ALLOW_ALL[..]].concat());
    let id = user.json(&["sessions", "--json"])[0]["id"].as_str().expect("an id").to_owned();
    user.succeeds(&["export", "--out", "all.jsonl"]);
    (user, id)
}

fn data(user: &User, name: &str) -> String {
    user.data().join(name).to_str().expect("a path").to_owned()
}

fn import(user: &User, data: &str, more: &[&str]) -> CommandOutput {
    user.succeeds(&[&["import", "--data", data, "all.jsonl"], more].concat())
}

/// Sends an input to the session, whose model then makes these calls.
fn run_calls(user: &User, id: &str, data: &str, calls: &[Value]) {
    let mut steps: Vec<Value> = calls.iter().map(|call| json!({"calls": [call]})).collect();
    // The model used its first step before the export.
    steps.insert(0, json!({"text": "done"}));
    steps.push(json!({"text": "done"}));
    let model = user.script(&json!({"rules": [{"agent": "*", "steps": steps}]}).to_string());
    user.succeeds(&["send", "--json", "--data", data, "--model", &model, id, "go"]);
}

fn write(path: &str) -> Value {
    json!({"tool": "write", "args": {"path": path, "content": "spoiled"}})
}

fn exists(user: &User, path: &str) -> bool {
    user.workspace().join(path).exists()
}

/// The permissions in an export have no effect: an imported session has those of a new local session.
#[test]
fn imported_session_has_the_rights_of_a_new_one() {
    let (user, id) = exported();
    let (bounded, wide) = (data(&user, "bounded"), data(&user, "wide"));
    let done = import(&user, &bounded, &[]);
    assert!(
        done.err.ends_with(
            "their permissions are limited to those of a new session here: 1 session had more (fs.write allow → ask, net.fetch allow → ask, \
             shell.run allow → ask); to keep more, import into another store with --allow ACTION\n"
        ),
        "{done:?}"
    );
    let calls = |made: &str| {
        let shell = json!({"tool": "shell", "args": {"command": format!("echo x > {made}.sh")}});
        [shell, write(&format!("{made}.txt")), write("subtend.yaml"), write(".subtend/agents/general.md")]
    };
    run_calls(&user, &id, &bounded, &calls("bounded"));
    assert_eq!(["bounded.sh", "bounded.txt", "subtend.yaml"].map(|path| exists(&user, path)), [false; 3]);
    // The control: the importer may keep its permissions; protected paths still ask.
    let done = import(&user, &wide, &ALLOW_ALL);
    assert!(
        done.err.ends_with("their permissions are limited to those of a new session here; none had more\n"),
        "{done:?}"
    );
    run_calls(&user, &id, &wide, &calls("wide"));
    assert!(exists(&user, "wide.txt") && exists(&user, "wide.sh"));
    assert!(!exists(&user, "subtend.yaml") && !exists(&user, ".subtend/agents/general.md"));
    let shown = |data: &str| {
        let shown = user.json(&["show", "--json", "--data", data, &id]);
        (shown["imported"].clone(), shown["rights"]["shell.run"].clone())
    };
    assert_eq!(shown(&bounded), (json!(true), json!("ask")));
    assert_eq!(shown(&wide), (json!(true), json!("allow")));
    let shown = user.call(&["show", "--data", &bounded, &id]);
    assert!(shown.out.contains("imported, at most fs.read allow, fs.write ask, "), "{shown:?}");
}

/// An export names a file as the script of its model. The file must not be read.
#[test]
fn script_of_an_imported_session_is_not_opened() {
    let (user, id) = exported();
    let model = user.script(r#"{"rules": [{"agent": "*", "steps": [{"text": "done", "repeat": true}]}]}"#);
    for name in [model.clone(), format!("pool:{model},offline")] {
        let path = user.workspace().join("all.jsonl");
        let text = std::fs::read_to_string(&path).expect("the export");
        let mut lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        record(&mut lines, "session_created")["model"] = json!(name);
        std::fs::write(&path, forged(lines)).expect("written");
        let other = data(&user, if name == model { "other" } else { "pool" });
        import(&user, &other, &[]);
        let refused = user.call(&["send", "--data", &other, &id, "go"]);
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.err.contains("is a script, which only the command line can name"), "{refused:?}");
        // The control: the script answers when the user names it.
        let named = user.call(&["send", "--data", &other, "--model", &model, &id, "go"]);
        assert_eq!((named.code, named.out.trim()), (Some(0), "done"), "{named:?}");
    }
}

/// A session keeps the server that it was started with; an imported session calls only servers that the user names.
#[cfg(feature = "providers")]
#[test]
fn session_keeps_the_server_it_was_started_with() {
    let user = User::new();
    let at = "http://127.0.0.1:9";
    let options = ["--model", "ollama/small", "--base-url", at, "--limit", "attempts=1"];
    let first = user.call(&[&["run", "go"], &options[..]].concat());
    assert_eq!((first.code, first.err.contains("127.0.0.1:9")), (Some(1), true), "{first:?}");
    let shown = user.json(&["sessions", "--json"]);
    let id = shown[0]["id"].as_str().expect("an id").to_owned();
    assert_eq!(user.json(&["show", "--json", &id])["servers"], json!([at]));
    let again = user.call(&["send", &id, "go"]);
    assert!(again.err.contains(&format!("model: ollama/small at {at} (the session's own)")), "{again:?}");
    assert!(again.err.contains("127.0.0.1:9") && !again.err.contains("11434"), "{again:?}");
    let other = user.call(&["send", "--base-url", "http://127.0.0.1:10", &id, "go"]);
    assert!(other.err.contains("model: ollama/small at http://127.0.0.1:10 "), "{other:?}");
    assert_eq!(user.call(&["export", "--out", "all.jsonl"]).code, Some(0));
    let moved = data(&user, "moved");
    import(&user, &moved, &[]);
    let refused = user.call(&["send", "--data", &moved, &id, "go"]);
    assert_eq!((refused.code, refused.err.contains(&format!("`--base-url {at}`"))), (Some(2), true), "{refused:?}");
    // The control: the import calls a server that the user names.
    let named = user.call(&["send", "--data", &moved, "--base-url", at, &id, "go"]);
    assert!(named.err.contains("127.0.0.1:9"), "{named:?}");
}

/// The author of an export names a model at a provider that needs no key, and that the person has not enabled: that of a session, or that of an
/// agent that an input chose. The control: a model of that provider in the person's own file.
#[cfg(feature = "providers")]
#[test]
fn model_of_an_export_must_be_enabled_by_the_person() {
    let user = User::new();
    let model = user.script(r#"{"rules": [{"agent": "*", "steps": [{"text": "done", "repeat": true}]}]}"#);
    user.succeeds(&["run", "--quiet", "--model", &model, "--limit", "attempts=1", "go"]);
    let id = user.json(&["sessions", "--json"])[0]["id"].as_str().expect("an id").to_owned();
    user.succeeds(&["export", "--out", "all.jsonl"]);
    let exported = lines_with(&user, |_, records| records);
    let agent = json!({"agent": "build", "agent_hash": "00dbd5365cabe2a1e27d2526d34b23dc", "model": "ollama/small", "system": "s"});
    for (kind, field, value) in
        [("session_created", "model", json!("ollama/small")), ("input_accepted", "agent_override", agent)]
    {
        let mut lines = exported.clone();
        record(&mut lines, kind)[field] = value;
        let other = data(&user, kind);
        import_lines(&user, &other, lines, true);
        let send = ["send", "--data", &other, &id, "go"];
        let refused = user.call(&send);
        let why = "the session was imported, and its own model cannot answer: `ollama/small` belongs to a provider that is not enabled";
        assert!(refused.code == Some(2) && refused.err.contains(why), "{kind}: {refused:?}");
        std::fs::create_dir_all(user.config().join("subtend")).expect("a folder");
        let own = user.config().join("subtend/subtend.yaml");
        std::fs::write(&own, "llm: {model: ollama/other}\n").expect("a file");
        let called = user.call(&send);
        assert!(
            !called.err.contains("not enabled") && called.err.contains("model: ollama/small"),
            "{kind}: {called:?}"
        );
        std::fs::remove_file(own).expect("removed");
    }
}

/// The importer's configuration caps the limits of a session. The control: an older format, which records no limits.
#[test]
fn imported_session_has_the_limits_of_the_importer() {
    let (user, id) = exported();
    let (wide, bounded) = (data(&user, "wide"), data(&user, "bounded"));
    import(&user, &wide, &[]);
    std::fs::create_dir_all(user.config().join("subtend")).expect("a folder");
    std::fs::write(user.config().join("subtend/subtend.yaml"), "limits: {turns: 1}\n").expect("a file");
    import(&user, &bounded, &[]);
    let steps = json!([{"text": "done"}, {"calls": [{"tool": "list", "args": {}}]}, {"text": "done"}]);
    let model = user.script(&json!({"rules": [{"agent": "*", "steps": steps}]}).to_string());
    let ended = |data: &str| user.call(&["send", "--json", "--data", data, "--model", &model, &id, "go"]);
    let (done, cut) = (ended(&wide), ended(&bounded));
    assert_eq!(done.code, Some(0), "the control: {done:?}");
    assert!(cut.code != Some(0) && cut.out.contains("out_of_turns"), "{cut:?}");
}

/// Returns the lines of the user's export `all.jsonl`, with other records for each session: `of` gets a session's records after its creation.
fn lines_with(user: &User, of: impl Fn(&Value, Vec<Value>) -> Vec<Value>) -> Vec<Value> {
    let text = std::fs::read_to_string(user.workspace().join("all.jsonl")).expect("the export");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let mut sessions: Vec<(Value, Value, Vec<Value>)> = Vec::new();
    for frame in lines.iter().filter_map(|line| line.get("frame")) {
        let id = &frame["session"];
        let records = frame["records"].as_array().expect("records").clone();
        match sessions.iter_mut().find(|(_, creation, _)| creation["session"] == *id) {
            Some((_, _, all)) => all.extend(records),
            None => sessions.push((id.clone(), frame.clone(), records)),
        }
    }
    let is_frame = |line: &Value| line.get("frame").is_some();
    let mut forged: Vec<Value> = lines.iter().filter(|line| !is_frame(line)).cloned().collect();
    let mut end = forged.pop().expect("a last line");
    let (mut frames, mut count) = (0, 0);
    for (id, creation, mut records) in sessions {
        let rest = of(&id, records.split_off(1));
        for (first_seq, records) in [(1, records), (2, rest)] {
            (frames, count) = (frames + 1, count + records.len());
            let mut frame = creation.clone();
            (frame["first_seq"], frame["records"]) = (json!(first_seq), json!(records));
            forged.push(json!({ "frame": frame }));
        }
    }
    (end["end"]["tally"]["frames"], end["end"]["tally"]["records"]) = (json!(frames), json!(count));
    forged.push(end);
    forged
}

fn until(records: Vec<Value>, kind: &str) -> Vec<Value> {
    records.into_iter().take_while(|record| record.get(kind).is_none()).collect()
}

/// Imports lines into the store of `data` with `subtend import`, or directly without bounds.
fn import_lines(user: &User, data: &str, lines: Vec<Value>, is_bounded: bool) {
    let file = forged(lines);
    if is_bounded {
        std::fs::write(user.workspace().join("all.jsonl"), file).expect("written");
        import(user, data, &[]);
        return;
    }
    std::fs::create_dir(data).expect("a directory");
    let threads = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let _no_forks = no_forks();
    threads.block_on(async {
        let journal = open_store(&StoreSpec::Redb(format!("{data}/redb").into())).expect("a store");
        let done = journal.import(&mut BufReader::new(Cursor::new(file)), &ImportBounds::none(), &mut |_| {}).await;
        done.map(drop).expect("imported");
        journal.close().await.expect("closed");
    });
}

/// In the export, a run waits for a child at a provider's limit, and has an approved call that has not started. If the
/// run resumed, the call would write a file that no user of this store approved. The control: an import without bounds.
#[test]
fn approval_in_an_export_starts_no_call() {
    for is_bounded in [true, false] {
        let user = User::new();
        let task = json!({"tool": "task", "args": {"subagent_type": "general", "prompt": "wait"}});
        let done = json!({"text": "done", "repeat": true});
        let rules = json!([
            {"agent": "build", "steps": [{"calls": [task, write("spoiled.txt")]}, done]}, {"agent": "*", "steps": [done]}
        ]);
        let model = user.script(&json!({ "rules": rules }).to_string());
        let ran = user.call(&["run", "--quiet", "--agent", "build", "--model", &model, "go"]);
        assert_eq!((ran.code, exists(&user, "spoiled.txt")), (Some(0), false), "{ran:?}");
        let id = user.json(&["sessions", "--json"])[0]["id"].clone();
        assert_eq!(user.call(&["export", "--out", "all.jsonl"]).code, Some(0));
        let lines = lines_with(&user, |session, records| {
            let parked = |why: Value| json!({"run_parked": {"run": 1, "why": why, "worked_ms": 0}});
            if *session != id {
                let discarded = json!({"turn": 1, "attempt": 1, "error": "rate", "message": "x"});
                let limit = [json!({ "attempt_discarded": discarded }), parked(json!({"limit": {"until": 1}}))];
                return until(records, "turn_answered").into_iter().chain(limit).collect();
            }
            // The run was parked if its child took a long time.
            let is_left_out = |record: &Value| {
                ["ask_answered", "call_finished", "run_parked"].iter().any(|kind| record.get(kind).is_some())
            };
            let waiting = until(records, "notice_taken").into_iter().filter(|record| !is_left_out(record));
            let call = json!({"turn": 1, "ix": 1});
            let approved = json!({"ask_answered": {"call": call, "verdict": "allow", "by": "person"}});
            waiting.chain([parked(json!("ask")), approved]).collect()
        });
        let other = data(&user, "other");
        import_lines(&user, &other, lines, is_bounded);
        let sent = user.call(&["send", "--data", &other, "--model", &model, id.as_str().expect("an id"), "go"]);
        assert_eq!((sent.code, exists(&user, "spoiled.txt")), (Some(0), !is_bounded), "{sent:?}");
    }
}

/// The next command neither starts nor awaits a run queued in the export. The control: an import without bounds.
#[test]
fn queued_run_of_an_export_does_not_start() {
    for (is_bounded, slot) in [(true, false), (true, true), (false, true)] {
        let (user, id) = exported();
        let lines = lines_with(&user, |_, records| {
            let mut queued = until(records, "run_started");
            let opened = queued.iter_mut().find_map(|record| record.get_mut("run_opened"));
            opened.expect("a run")["slot"] = json!(slot);
            queued
        });
        let other = data(&user, "other");
        import_lines(&user, &other, lines, is_bounded);
        let model = user.script(r#"{"rules": [{"agent": "*", "steps": [{"text": "done", "repeat": true}]}]}"#);
        let ran = user.call(&["run", "--quiet", "--data", &other, "--model", &model, "something else"]);
        assert_eq!((ran.code, ran.out.trim()), (Some(0), "done"), "{ran:?}");
        let sessions = user.json(&["sessions", "--json", "--data", &other]);
        let rows = sessions.as_array().expect("an array");
        let outcome = rows.iter().find(|row| row["id"] == json!(id)).expect("the session")["outcome"].clone();
        let expected = if is_bounded { "cancelled" } else { "completed" };
        assert_eq!(outcome.as_str(), Some(expected), "{slot}: {sessions}");
    }
}

/// An export names an agent that must work in a worktree, for a session without one. The agent answers neither a
/// message nor again to an old one. The control: an import without bounds.
#[test]
fn isolated_agent_of_an_export_needs_a_worktree() {
    for is_bounded in [true, false] {
        let (user, id) = exported();
        user.file(".subtend/agents/apart.md", "---\nmode: all\ndescription: Works.\nisolation: worktree\n---\nWork.\n");
        let mut lines = lines_with(&user, |_, records| records);
        record(&mut lines, "session_created")["agent"] = json!("apart");
        let other = data(&user, "other");
        import_lines(&user, &other, lines, is_bounded);
        let model = user.script(r#"{"rules": [{"agent": "*", "steps": [{"text": "done", "repeat": true}]}]}"#);
        let sent = user.call(&["send", "--data", &other, "--model", &model, &id, "go"]);
        // A regenerated answer is of a new session, which no file brought.
        let again = user.call(&["regenerate", "--data", &other, "--model", &model, &id]);
        for done in [sent, again] {
            let refused = done.err.contains("agent `apart` needs a worktree of its own, which this session lacks");
            assert_eq!((done.code == Some(0), refused), (!is_bounded, is_bounded), "{done:?}");
        }
    }
}

/// An export names an agent that needs a worktree of its own, for a subagent in its parent's worktree. The agent does
/// not answer there. The control: an import without bounds.
#[cfg(unix)]
#[test]
fn isolated_subagent_of_an_export_needs_its_own_worktree() {
    for is_bounded in [true, false] {
        let user = User::new();
        repository(&user);
        let agent = |name: &str, isolation: &str| {
            let text = format!("---\nmode: all\ndescription: Works.\n{isolation}---\nWork.\n");
            user.file(&format!(".subtend/agents/{name}.md"), &text);
        };
        agent("apart", "isolation: worktree\n");
        agent("lower", "");
        let starts = json!({"calls": [{"tool": "task", "args": {"subagent_type": "lower", "prompt": "go"}}]});
        let done = json!({"text": "done", "repeat": true});
        let rules = json!([{"agent": "apart", "steps": [starts, done]}, {"agent": "*", "steps": [done]}]);
        let model = user.script(&json!({ "rules": rules }).to_string());
        user.succeeds(&["run", "--quiet", "--agent", "apart", "--model", &model, "go"]);
        assert_eq!(user.call(&["export", "--out", "all.jsonl"]).code, Some(0));
        agent("lower", "isolation: worktree\n");
        let lines = lines_with(&user, |_, records| records);
        let is_lower = |frame: &&Value| frame["records"][0]["session_created"]["agent"] == json!("lower");
        let child =
            lines.iter().filter_map(|line| line.get("frame")).find(is_lower).expect("a child")["session"].clone();
        let other = data(&user, "other");
        import_lines(&user, &other, lines, is_bounded);
        let sent = user.call(&["send", "--data", &other, "--model", &model, child.as_str().expect("an id"), "go"]);
        let refused = sent.err.contains("agent `lower` needs a worktree of its own, which this session lacks");
        assert_eq!((sent.code == Some(0), refused), (!is_bounded, is_bounded), "{sent:?}");
    }
}
