use super::call::*;
use super::second_terminal::ALWAYS;

const ECHO: &str = r#"{ "rules": [ { "agent": "*", "steps": [ { "text": "heard: {prompt}" } ] } ] }"#;
const HANG: &str = r#"{ "rules": [ { "agent": "*", "steps": [ { "text": "so far", "hang": true } ] } ] }"#;

fn run(user: &User, script: &str, prompt: &str) {
    let model = user.script(script);
    user.succeeds(&["run", "--quiet", "--model", &model, prompt]);
}

fn killed(user: &User) -> String {
    let model = user.script(HANG);
    let call = user.start(&["run", "--json", "--model", &model, "hang"]);
    let event = call.until(|event| event["record"]["turn_started"].is_object());
    call.signal("KILL");
    assert_eq!(call.done().code, None);
    event["session"].as_str().expect("an id").to_owned()
}

fn path_text(path: &Path) -> String {
    path.to_str().expect("a path").to_owned()
}

fn output_path(user: &User, name: &str) -> PathBuf {
    user.workspace().join(name)
}

#[test]
fn export_is_unchanged_after_an_import() {
    let user = User::new();
    run(&user, ECHO, "first");
    run(&user, ECHO, "second");
    let (file, again, other) =
        (output_path(&user, "all.jsonl"), output_path(&user, "again.jsonl"), path_text(&user.data().join("other")));
    let done = user.call(&["export", "--out", &path_text(&file)]);
    assert_eq!((done.code, done.out.as_str()), (Some(0), ""), "{done:?}");
    assert!(done.err.starts_with("exported 2 sessions with "), "{done:?}");
    let done = user.call(&["import", "--data", &other, &path_text(&file)]);
    assert_eq!((done.code, done.out.as_str()), (Some(0), ""), "{done:?}");
    assert!(done.err.starts_with("imported 2 sessions with "), "{done:?}");
    assert_eq!(user.call(&["verify", "--data", &other]).code, Some(0));
    assert_eq!(user.call(&["export", "--data", &other, "--out", &path_text(&again)]).code, Some(0));
    // Only the record of the import differs.
    let records = |path: &Path| {
        let text = std::fs::read_to_string(path).expect("an export");
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        let mut frames: Vec<Value> = lines.map(|mut line| line["frame"].take()).filter(|it| !it.is_null()).collect();
        for creation in frames.iter_mut().filter_map(|frame| frame["records"][0].get_mut("session_created")) {
            creation.as_object_mut().expect("a creation").remove("imported");
        }
        frames
    };
    assert_eq!(records(&file), records(&again));

    let sessions = user.json(&["sessions", "--json"]);
    let id = sessions[0]["id"].as_str().expect("an id");
    let done = user.call(&["export", id]);
    let lines: Vec<Value> = done.out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines[0]["export"], json!({"format": 1, "frames": 1, "what": {"tree": id}}));
    assert_eq!(lines.last().expect("a last line")["end"]["tally"]["sessions"], 1);
}

#[test]
fn export_keeps_files_and_import_takes_only_exports() {
    let user = User::new();
    run(&user, ECHO, "first");
    let file = output_path(&user, "all.jsonl");
    assert_eq!(user.call(&["export", "--out", &path_text(&file)]).code, Some(0));
    let cases: [(&[&str], i32, &str); 5] = [
        (&["export", "--out", &path_text(&file)], 2, "exists: choose another name"),
        (&["export", "nosuch"], 1, "no session matches `nosuch`"),
        (&["import", &path_text(&file)], 1, "exists in this store"),
        (&["import", "/no/such/file"], 2, "/no/such/file cannot be read"),
        (&["import", "."], 2, "is not a regular file"),
    ];
    for (args, code, text) in cases {
        let done = user.call(args);
        assert_eq!((done.code, done.out.as_str()), (Some(code), ""), "{args:?}: {done:?}");
        assert!(done.err.contains(text), "{args:?}: {done:?}");
    }
    let mut bytes = std::fs::read(&file).expect("the export");
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    user.file("flipped.jsonl", &String::from_utf8_lossy(&bytes));
    user.file("other.txt", "no export\n");
    for (name, text) in
        [("flipped.jsonl", "of the export is damaged"), ("other.txt", "this may not be an export of subtend")]
    {
        let other = path_text(&user.data().join("other"));
        let done = user.call(&["import", "--data", &other, name]);
        assert_eq!(done.code, Some(1), "{name}: {done:?}");
        assert!(done.err.contains(text), "{name}: {done:?}");
        assert!(!user.data().join("other").exists(), "{name}: a refused import left files");
        let deep = format!("sled:{}", user.data().join("not/there/yet").display());
        assert_eq!(user.call(&["import", "--store", &deep, name]).code, Some(1), "{name}");
        assert!(!user.data().join("not").exists(), "{name}");
    }
}

#[test]
fn a8_import_after_a_delete_names_the_remedy() {
    let user = User::new();
    run(&user, ECHO, "first");
    let file = path_text(&output_path(&user, "all.jsonl"));
    assert_eq!(user.call(&["export", "--out", &file]).code, Some(0));
    let id = user.json(&["sessions", "--json"])[0]["id"].as_str().expect("an id").to_owned();
    assert_eq!(user.call(&["delete", &id, "--yes"]).code, Some(0));
    let expected = format!(
        "error: session {id} was deleted in this store, and a deletion is final; nothing was imported. Import into another store (--data DIR)\n"
    );
    for args in [&["import", &file][..], &["compact"], &["import", &file]] {
        let done = user.call(args);
        if args[0] == "import" {
            assert_eq!((done.code, &*done.err), (Some(1), &*expected));
        }
    }
    let other = path_text(&user.data().join("other"));
    assert_eq!(user.call(&["import", "--data", &other, &file]).code, Some(0));
}

/// The import of an export with a deleted session succeeds, and reports lost permissions.
#[test]
fn export_with_a_deleted_session_is_imported() {
    let user = User::new();
    run(&user, ECHO, "first");
    let sessions = user.json(&["sessions", "--json"]);
    user.succeeds(&["delete", "--yes", sessions[0]["id"].as_str().expect("an id")]);
    run(&user, ECHO, "second");
    let (file, other) = (output_path(&user, "all.jsonl"), path_text(&user.data().join("other")));
    user.succeeds(&["export", "--out", &path_text(&file)]);
    assert!(std::fs::read_to_string(&file).expect("an export").contains("\"deleted\":{"));
    let done = user.call(&["import", "--data", &other, &path_text(&file)]);
    assert_eq!((done.code, done.out.as_str()), (Some(0), ""), "{done:?}");
    assert!(done.err.starts_with("imported 1 session with "), "{done:?}");
}

/// One session is damaged. Without `--skip-damaged`, the export is refused and names it.
#[test]
fn export_skips_damaged_sessions_when_requested() {
    let user = User::new();
    run(&user, ECHO, "first");
    run(&user, ECHO, "second");
    let sessions = user.json(&["sessions", "--json"]);
    let (bad, good) = (sessions[1]["id"].as_str().expect("an id"), sessions[0]["id"].as_str().expect("an id"));
    let path = user.data().join("redb/redb-4/journal.redb");
    let mut file = std::fs::read(&path).expect("the store's file");
    let needle = b"heard: first";
    let found: Vec<usize> = (0..file.len() - needle.len()).filter(|at| file[*at..].starts_with(needle)).collect();
    assert!(!found.is_empty(), "the answer is not in the file");
    found.iter().for_each(|at| file[at + 3] ^= 1);
    std::fs::write(&path, file).expect("damage the file");

    let all = output_path(&user, "all.jsonl");
    let refused = user.call(&["export", "--out", &path_text(&all)]);
    assert_eq!((refused.code, all.exists()), (Some(3), false), "{refused:?}");
    assert!(refused.err.contains(&format!("session {bad} is damaged")), "{refused:?}");
    assert!(refused.err.contains("--skip-damaged"), "{refused:?}");
    let done = user.call(&["export", "--skip-damaged", "--out", &path_text(&all)]);
    assert_eq!(done.code, Some(1), "the exit code hides the omission: {done:?}");
    assert!(done.err.contains(&format!("left out: the tree of {bad} (1 session)")), "{done:?}");
    assert!(done.err.contains("exported 1 session with ") && !done.err.contains(good), "{done:?}");
    let other = path_text(&user.data().join("other"));
    assert_eq!(user.call(&["import", "--data", &other, &path_text(&all)]).code, Some(0));
    let listed = user.json(&["sessions", "--json", "--data", &other]);
    assert_eq!((listed.as_array().map(Vec::len), &listed[0]["id"]), (Some(1), &json!(good)), "{listed}");
    assert_eq!(user.call(&["verify", "--data", &other]).code, Some(0));
}

#[test]
fn recover_ends_killed_runs_and_reports_them() {
    let user = User::new();
    let done = user.call(&["recover"]);
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.err.contains("no store at"), "{done:?}");
    let id = killed(&user);
    let left = user.json(&["doctor", "--json"]);
    assert_eq!(finding(&left, "left to do")["grade"], "note", "{left}");
    let mut report = user.json(&["recover", "--json"]);
    assert!(report["took_ms"].take().is_u64());
    let expected =
        json!({"swept": 1, "waiting": 0, "goes_on": 0, "inputs": 0, "notices": 0, "undone": [], "took_ms": null});
    assert_eq!(report, expected);
    assert_eq!(user.json(&["tree", &id, "--json"])["outcome"], json!("lost"));
    let done = user.succeeds(&["recover"]);
    assert!(done.out.contains("0 runs ended as lost, 0 notices delivered"), "{done:?}");
    assert_eq!(finding(&user.json(&["doctor", "--json"]), "left to do")["grade"], "good");
}

#[test]
fn recover_names_an_unreadable_session() {
    let user = User::new();
    let id = killed(&user);
    let path = user.data().join("redb/redb-4/journal.redb");
    let mut file = std::fs::read(&path).expect("the store's file");
    let needle = b"\"session_created\":{\"place\":\"root\"";
    let found: Vec<usize> = (0..file.len() - needle.len()).filter(|at| file[*at..].starts_with(needle)).collect();
    assert!(!found.is_empty(), "the first record is not in the file");
    found.iter().for_each(|at| file[at + 3] ^= 1);
    std::fs::write(&path, file).expect("damage the file");
    let done = user.call(&["recover", "--json"]);
    assert_eq!(done.code, Some(3), "{done:?}");
    let report: Value = serde_json::from_str(&done.out).expect("JSON");
    assert_eq!((&report["swept"], report["undone"].as_array().map(Vec::len)), (&json!(0), Some(1)), "{report}");
    assert_eq!(report["undone"][0]["session"], json!(id));
    assert!(report["undone"][0]["why"].as_str().is_some_and(|why| why.contains("is damaged at record 1")), "{report}");
}

fn finding(report: &Value, check: &str) -> Value {
    let findings = report["findings"].as_array().expect("findings");
    findings.iter().find(|finding| finding["check"] == check).expect(check).clone()
}

/// Returns the report of `doctor`, and checks that the exit code agrees with it.
fn doctor(user: &User) -> Value {
    let done = user.call(&["doctor", "--json"]);
    let report: Value = serde_json::from_str(&done.out).expect("JSON");
    let bad = report["findings"].as_array().expect("findings").iter().any(|finding| finding["grade"] == "bad");
    assert_eq!((report["sound"].as_bool(), done.code), (Some(!bad), Some(i32::from(bad))), "{done:?}");
    for finding in report["findings"].as_array().expect("findings") {
        assert_eq!(
            finding["do"].is_null(),
            finding["grade"] == "good",
            "only findings that are not good have advice: {finding}"
        );
    }
    report
}

#[test]
fn doctor_checks_installation_store_and_disk() {
    let user = User::new();
    assert_eq!(
        finding(&doctor(&user), "opens")["grade"],
        "note",
        "the store does not exist yet and must not be created"
    );
    assert!(!user.data().exists());
    run(&user, ECHO, "first");
    let report = doctor(&user);
    assert!(finding(&report, "engines")["found"].as_str().is_some_and(|found| found.contains("redb")));
    for check in ["version", "providers", "sandbox", "guard", "durability", "file system", "free space"] {
        finding(&report, check);
    }
    for check in ["opens", "rows", "left to do", "imports", "growth"] {
        assert_eq!(finding(&report, check)["grade"], "good", "{report}");
    }
    assert!(finding(&report, "sync")["found"].as_str().is_some_and(|found| found.contains("µs")), "{report}");
    let names = std::fs::read_dir(user.data().join("redb")).expect("the store");
    assert!(
        names.flatten().all(|name| !name.file_name().to_string_lossy().contains("doctor")),
        "temporary files remain"
    );

    let model = user.script(HANG);
    let first = user.start(&["run", "--json", "--model", &model, "hang"]);
    first.until(|event| event["record"]["turn_started"].is_object());
    let used = finding(&doctor(&user), "host");
    assert_eq!(used["grade"], "good", "the store was not read through its host");
    assert!(used["found"].as_str().is_some_and(|found| found.contains(&first.pid().to_string())), "{used}");
    first.signal("INT");
    assert_eq!(first.done().code, Some(130));

    std::fs::write(user.data().join("redb/WATERMARK"), vec![0x5a; 1024]).expect("damage the file");
    assert_eq!(finding(&doctor(&user), "opens")["grade"], "bad");
}

/// A parent waits for its child, which never ends. Both have a queued input.
const WAITS: &str = r#"{ "rules": [
    { "agent": "explore", "steps": [ { "text": "so far", "hang": true } ] },
    { "agent": "*", "steps": [
        { "calls": [ { "tool": "task", "args": { "subagent_type": "explore", "prompt": "scan" } } ] },
        { "text": "Done." } ] } ] }"#;

#[test]
fn h1_import_goes_through_the_host() {
    let (author, user) = (User::new(), User::new());
    let file = path_text(&user.data().with_file_name("all.jsonl"));
    let busy = author.start(&["run", "--json", "--model", &author.script(WAITS), "go"]);
    let turn = |event: &Value| event["record"]["turn_started"].is_object();
    let root = busy.until(turn)["session"].clone();
    busy.until(|event| turn(event) && event["session"] != root);
    assert_eq!(author.call(&["export", "--out", &file]).code, Some(0));
    busy.signal("KILL");
    busy.done();

    let host = user.start(&["serve", "--json", "--listen", "none", "--model", &user.script(ALWAYS)]);
    host.line().expect("the first line of the host");
    assert_eq!(user.call(&["run", "hello"]).code, Some(0));
    let done = user.succeeds(&["import", &file]);
    assert!(done.err.starts_with("imported 2 sessions with "), "{done:?}");
    // Both runs have ended, and no run was started.
    let sessions = user.json(&["sessions", "--json", "--all"]);
    let of = |session: &Value| ["agent", "state", "outcome"].map(|name| session[name].as_str().map(str::to_owned));
    let mut states: Vec<_> = sessions.as_array().expect("a list").iter().map(of).collect();
    states.sort();
    let expected = [("explore", "lost"), ("general", "completed"), ("general", "lost")];
    assert_eq!(states, expected.map(|(agent, outcome)| [agent, "quiet", outcome].map(|word| Some(word.to_owned()))));
    assert_eq!(user.call(&["verify"]).code, Some(0));
    // A second import of the file is refused, and so is a file that is not an export.
    let again = user.call(&["import", &file]);
    assert_eq!((again.code, again.err.contains("exists in this store")), (Some(1), true), "{again:?}");
    let none = user.workspace().join("none.jsonl");
    std::fs::write(&none, "{}\n").expect("written");
    let refused = user.call(&["import", &path_text(&none)]);
    assert_eq!((refused.code, refused.err.contains("line 1 of the export")), (Some(1), true), "{refused:?}");
    host.stops();
    assert_eq!(user.call(&["verify"]).code, Some(0));
}
