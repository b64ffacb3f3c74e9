//! Permissions and models of imported sessions.

use serde_json::{Value, json};

use super::imports::{forged, record};
use crate::cli::call::{CommandOutput, User};

/// Options that allow everything in the workspace, commands and the network.
const ALLOW_ALL: [&str; 6] = ["--allow", "fs.*", "--allow", "shell.run", "--allow", "net.fetch"];

/// A user with the export of a session that was opened with all rights, and the id of that session.
fn exported() -> (User, String) {
    let user = User::new();
    let model = user.script(r#"{"rules": [{"agent": "*", "steps": [{"text": "done", "repeat": true}]}]}"#);
    let done = user.call(&[&["run", "--quiet", "--model", &model, "go"], &ALLOW_ALL[..]].concat());
    assert_eq!(done.code, Some(0), "{done:?}");
    let id = user.json(&["sessions", "--json"])[0]["id"].as_str().expect("an id").to_owned();
    let done = user.call(&["export", "--out", "all.jsonl"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    (user, id)
}

fn data(user: &User, name: &str) -> String {
    user.data().join(name).to_str().expect("a path").to_owned()
}

fn import(user: &User, data: &str, more: &[&str]) -> CommandOutput {
    let done = user.call(&[&["import", "--data", data, "all.jsonl"], more].concat());
    assert_eq!(done.code, Some(0), "{done:?}");
    done
}

/// Sends an input to the session, whose model then makes these calls.
fn run_calls(user: &User, id: &str, data: &str, calls: &[Value]) {
    let mut steps: Vec<Value> = calls.iter().map(|call| json!({"calls": [call]})).collect();
    // One step was used before the export.
    steps.insert(0, json!({"text": "done"}));
    steps.push(json!({"text": "done"}));
    let model = user.script(&json!({"rules": [{"agent": "*", "steps": steps}]}).to_string());
    let done = user.call(&["send", "--json", "--data", data, "--model", &model, id, "go"]);
    assert_eq!(done.code, Some(0), "{done:?}");
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

/// If an export names a file as a script, the file is not read.
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

/// The limits of an imported session are capped by the importer's configuration. The control: an import of the older
/// format, which records no limits.
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
