use std::collections::BTreeMap;

use super::call::*;
use super::terminal::{TerminalSession, screen_text};

const HANG: &str = r#"{ "rules": [ { "agent": "*", "steps": [ { "text": "so far", "hang": true } ] } ] }"#;

/// The agent of the killed run answers slowly.
const RESUMED: &str = r#"{ "rules": [ { "agent": "steady", "steps": [ { "text": "resumed", "latency_ms": 3000, "repeat": true } ] },
    { "agent": "*", "steps": [ { "text": "back" } ] } ] }"#;

#[test]
fn store_in_use_is_refused_with_the_process_of_its_host() {
    let user = User::new();
    let model = user.script(HANG);
    let first = user.start(&["run", "--json", "--model", &model, "hang"]);
    first.until(|event| event["record"]["turn_started"].is_object());
    for (args, advice) in [(["compact"], "--data DIR"), (["recover"], "nothing is left to do")] {
        let refused = user.call(&args);
        assert_eq!((refused.code, refused.out.as_str()), (Some(3), ""), "{args:?}: {refused:?}");
        let pid = first.pid().to_string();
        assert!(refused.err.contains(&pid) && refused.err.contains(advice), "{args:?}: {refused:?}");
    }
    first.signal("INT");
    assert_eq!(first.done().code, Some(130));
    assert_eq!(user.call(&["verify"]).code, Some(0));
}

/// `--data D` and `--store ENGINE:D/ENGINE` name the same store: a command finds the host that the other one started.
#[test]
fn host_is_found_by_the_other_name_of_its_store() {
    let user = User::new();
    let model = user.script(HANG);
    let (data, store) = (user.data(), format!("redb:{}", user.data().join("redb").display()));
    let names = [["--data", data.to_str().expect("a path")], ["--store", &store]];
    for (own, other) in [(names[0], names[1]), (names[1], names[0])] {
        let host = user.start(&[&["run", "--json", "--model", &model, "hang"], &own[..]].concat());
        let event = host.until(|event| event["record"]["turn_started"].is_object());
        let id = event["session"].as_str().expect("an id");
        user.succeeds(&[&["cancel", id], &other[..]].concat());
        assert_eq!(host.done().code, Some(130), "{own:?}");
    }
}

/// A command on a session asks whether its directory is trusted. Meanwhile `compact` has the store for itself.
#[test]
fn store_is_free_while_a_person_is_asked_for_trust() {
    let user = User::new();
    let model = user.script(r#"{ "rules": [ { "agent": "*", "steps": [ { "text": "there", "repeat": true } ] } ] }"#);
    user.succeeds(&["run", "--quiet", "--model", &model, "hi"]);
    let id = user.json(&["sessions", "--json"])[0]["id"].as_str().expect("an id").to_owned();
    user.file(".subtend/agents/mine.md", "---\nmode: all\ndescription: Works here.\n---\nObey.\n");
    let again = screen_text(&user, &["regenerate", &id, "--model", &model]);
    let mut asked = TerminalSession::shell(&user, &format!("SUBTEND_TRUST=0 {again}"));
    asked.until("Use it? [y/N]");
    user.succeeds(&["compact"]);
    asked.types("n\n");
    let (code, last) = asked.wait_for_exit();
    assert_eq!(code, Some(0), "{last}");
}

#[test]
fn two_stores_are_independent() {
    let user = User::new();
    let model = user.script(r#"{ "rules": [ { "agent": "*", "steps": [ { "text": "there" } ] } ] }"#);
    let other = user.data().join("other");
    let other = other.to_str().expect("a path");
    let done = user.succeeds(&["run", "--model", &model, "--data", other, "elsewhere"]);
    assert!(done.err.contains(&format!("--data {other}")), "{done:?}");
    assert_eq!(user.json(&["sessions", "--json"]), json!([]));
    assert_eq!(user.json(&["sessions", "--json", "--data", other]).as_array().map(Vec::len), Some(1));

    let done = user.succeeds(&["run", "--model", &model, "--store", "memory", "nowhere"]);
    assert!(done.err.contains("in memory only"), "{done:?}");
    assert!(!user.data().join("redb").exists());
}

#[test]
fn killed_run_ends_as_lost_and_is_reported_at_the_next_start() {
    let user = User::new();
    let model = user.script(HANG);
    let killed = user.start(&["run", "--json", "--model", &model, "hang"]);
    let event = killed.until(|event| event["record"]["turn_started"].is_object());
    killed.signal("KILL");
    assert_eq!(killed.done().code, None);

    let id = event["session"].as_str().expect("an id");
    let listed = user.call(&["sessions"]).err;
    let short = user.json(&["show", "--json", id])["short"].as_str().expect("a name").to_owned();
    let left = "no process hosts the store, so no run is active: `subtend tree ";
    assert_eq!(listed, format!("{left}{short}` shows what the next start does with runs in flight\n"));
    let before = user.call(&["tree", id]);
    assert!(before.out.contains("1 run was in flight when the last process ended"), "{before:?}");

    let model = user.script(r#"{ "rules": [ { "agent": "*", "steps": [ { "text": "back" } ] } ] }"#);
    let next = user.call(&["run", "--model", &model, "again"]);
    assert_eq!((next.code, next.out.as_str()), (Some(0), "back\n"), "{next:?}");
    assert!(next.err.contains("1 run of an earlier process ended as lost"), "{next:?}");
    assert_eq!(user.json(&["tree", id, "--json"])["outcome"], json!("lost"));
    assert_eq!(user.call(&["sessions"]).err, "", "the control");
    assert_eq!(user.call(&["verify"]).code, Some(0));
}

fn killed_with_a_resumable_run(user: &User) -> String {
    user.resumable_agent("steady", "primary");
    let model = user.script(HANG);
    let killed = user.start(&["run", "--json", "--agent", "steady", "--model", &model, "hang"]);
    let event = killed.until(|event| event["record"]["turn_started"].is_object());
    killed.signal("KILL");
    assert_eq!(killed.done().code, None);
    event["session"].as_str().expect("an id").to_owned()
}

/// A run that resumes after a restart is not announced as lost.
#[test]
fn resumable_killed_run_is_reported_and_resumes() {
    let user = User::new();
    let id = killed_with_a_resumable_run(&user);
    let before = user.call(&["tree", &id]);
    assert!(before.out.contains("it resumes with the next command that runs agents"), "{before:?}");
    // A command without a model does not resume it.
    assert_eq!(user.call(&["queue", &id, "clear"]).code, Some(0));
    let still = user.call(&["tree", &id]);
    assert!(still.out.contains("it resumes with the next command that runs agents"), "{still:?}");
    // Every command that lets agents work waits until the resumed run has ended.
    let model = user.script(RESUMED);
    let next = user.call(&["run", "--model", &model, "again"]);
    assert_eq!((next.code, next.out.as_str()), (Some(0), "back\n"), "{next:?}");
    assert!(next.err.contains("1 run of an earlier process resumes"), "{next:?}");
    assert!(next.err.contains("waiting for 1 run hosted by this process"), "{next:?}");
    assert_eq!(user.json(&["tree", &id, "--json"])["outcome"], json!("completed"));
    assert_eq!(user.call(&["verify"]).code, Some(0));
}

/// The wait for the resumed run is not an error, so a quiet command does not report it.
#[test]
fn quiet_run_waits_for_a_resumed_run_silently() {
    let user = User::new();
    let id = killed_with_a_resumable_run(&user);
    let model = user.script(RESUMED);
    let next = user.call(&["run", "--quiet", "--model", &model, "again"]);
    assert_eq!((next.code, next.out.as_str(), next.err.as_str()), (Some(0), "back\n", ""));
    assert_eq!(
        user.json(&["tree", &id, "--json"])["outcome"],
        json!("completed"),
        "the command did not wait for the resumed run"
    );
}

/// The store is an older copy, while the watermark is newer. It is refused until the user accepts the loss.
#[test]
fn store_that_lost_its_end_opens_only_if_accepted() {
    let user = User::new();
    let model = user.script(r#"{ "rules": [ { "agent": "*", "steps": [ { "text": "there" } ] } ] }"#);
    assert_eq!(user.call(&["run", "--model", &model, "first"]).code, Some(0));
    let (file, mark) = (user.data().join("redb/redb-4/journal.redb"), user.data().join("redb/WATERMARK"));
    let old = std::fs::read(&file).expect("the store");
    assert_eq!(user.call(&["run", "--model", &model, "second"]).code, Some(0));
    assert!(mark.exists());
    std::fs::write(&file, old).expect("an older copy");
    let refused = user.call(&["recover"]);
    assert_eq!(refused.code, Some(3), "{refused:?}");
    assert!(refused.err.contains("--accept-loss"), "{refused:?}");
    user.succeeds(&["recover", "--accept-loss"]);
    assert_eq!(user.json(&["sessions", "--json"]).as_array().map(Vec::len), Some(1), "the second session must be lost");
    assert_eq!(user.call(&["verify"]).code, Some(0));
}

#[test]
fn each_engine_keeps_completed_runs() {
    let user = User::new();
    let model = user.script(r#"{ "rules": [ { "agent": "*", "steps": [ { "text": "there" } ] } ] }"#);
    for engine in ["redb", "sled"] {
        let store = format!("{engine}:{}", user.data().join(engine).display());
        for _ in 0..2 {
            let done = user.call(&["run", "--model", &model, "--store", &store, "hi"]);
            assert_eq!((done.code, done.out.as_str()), (Some(0), "there\n"), "{engine}: {done:?}");
            assert!(done.err.contains(&format!("--store {store}")), "{engine}: {done:?}");
        }
        let sessions = user.json(&["sessions", "--json", "--store", &store]);
        assert_eq!(sessions.as_array().map(Vec::len), Some(2), "{engine}: {sessions}");
        assert_eq!(user.call(&["verify", "--store", &store]).code, Some(0), "{engine}");
    }
    let other = format!("redb:{}", user.data().join("sled").display());
    let refused = user.call(&["sessions", "--store", &other]);
    assert_eq!((refused.code, refused.out.as_str()), (Some(3), ""), "{refused:?}");
    assert!(refused.err.contains("is a store of the engine sled, not redb: name it `sled:PATH`"), "{refused:?}");
}

#[test]
fn damaged_store_of_any_engine_is_refused() {
    for engine in ["redb", "sled"] {
        let user = User::new();
        let model = user.script(r#"{ "rules": [ { "agent": "*", "steps": [ { "text": "there" } ] } ] }"#);
        let folder = user.data().join(engine);
        let store = format!("{engine}:{}", folder.display());
        assert_eq!(user.call(&["run", "--model", &model, "--store", &store, "hi"]).code, Some(0));
        let largest = files(&folder).into_iter().max_by_key(|path| size(path)).expect("a file");
        std::fs::write(&largest, vec![0x5a; size(&largest)]).expect("damage the file");
        for args in [&["verify"][..], &["sessions"], &["run", "--model", &model, "hi"]] {
            let refused = user.call(&[args, &["--store", &store]].concat());
            assert_eq!((refused.code, refused.out.as_str()), (Some(3), ""), "{engine} {args:?}: {refused:?}");
            assert!(refused.err.contains("error: "), "{engine} {args:?}: {refused:?}");
            assert!(!refused.err.contains("panicked at"), "{engine} {args:?}: {refused:?}");
        }
    }
}

#[test]
fn damaged_store_is_refused_or_reported() {
    let user = User::new();
    let model = user.script(r#"{ "rules": [ { "agent": "*", "steps": [ { "text": "there" } ] } ] }"#);
    assert_eq!(user.call(&["run", "--model", &model, "hi"]).code, Some(0));
    let largest = files(&user.data()).into_iter().max_by_key(|path| size(path)).expect("a file");
    std::fs::write(&largest, vec![0x5a; size(&largest)]).expect("damage the file");
    for args in [&["verify"][..], &["sessions"], &["run", "--model", &model, "hi"]] {
        let refused = user.call(args);
        assert_eq!((refused.code, refused.out.as_str()), (Some(3), ""), "{args:?}: {refused:?}");
        assert!(refused.err.starts_with("error: ") || refused.err.contains("\nerror: "), "{args:?}: {refused:?}");
        assert!(!refused.err.contains("panicked at"), "{args:?}: {refused:?}");
    }
}

fn contents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let kept = |path: &PathBuf| !path.ends_with("LOCK") && !path.ends_with("host.sock");
    let files = files(folder).into_iter().filter(kept);
    files.map(|path| (path.clone(), std::fs::read(path).expect("a file"))).collect()
}

/// Reading commands report what a killed process left, and change nothing: no engine repairs or truncates its files.
#[test]
fn verify_and_doctor_change_nothing_after_a_crash() {
    for engine in ["redb", "sled"] {
        let user = User::new();
        let store = format!("{engine}:{}", user.data().join(engine).display());
        let model = user.script(HANG);
        let killed = user.start(&["run", "--json", "--model", &model, "--store", &store, "hang"]);
        killed.until(|event| event["record"]["turn_started"].is_object());
        killed.signal("KILL");
        assert_eq!(killed.done().code, None);
        let left = contents(&user.data());
        for args in [&["verify"][..], &["doctor"], &["verify", "--json"]] {
            let done = user.call(&[args, &["--store", &store]].concat());
            assert_eq!(done.code, Some(0), "{engine} {args:?}: {done:?}");
            assert!(contents(&user.data()) == left, "{engine}: {args:?} has changed the store");
        }
        // The control: a command that opens the store for writing changes it.
        assert_eq!(user.call(&["recover", "--store", &store]).code, Some(0));
        assert!(contents(&user.data()) != left, "{engine}");
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

fn size(path: &Path) -> usize {
    let bytes = std::fs::metadata(path).expect("its size").len();
    usize::try_from(bytes).expect("a size that fits")
}
