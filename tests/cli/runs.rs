use super::call::*;
use subtend::tools::PROTECTED;
use subtend::tools::sandbox::{self, SandboxStrength};

use super::repository;

fn every_agent(steps: &str) -> String {
    format!(r#"{{ "rules": [ {{ "agent": "*", "steps": [ {steps} ] }} ] }}"#)
}

#[test]
fn offline_model_answers_from_the_workspace() {
    let user = User::new();
    repository::make(&user);
    let done = user.succeeds(&["run", "How is this project put together, and where does it handle errors?"]);
    for area in repository::AREAS {
        assert!(done.out.contains(&format!("{area}/errors.rs:")), "{area}: {}", done.out);
    }
    let notes: Vec<_> = done.err.lines().take(2).collect();
    assert!(notes[0].contains("no model was named") && notes[0].contains("--model"), "{notes:?}");
    assert!(notes[1].contains(&*user.data().to_string_lossy()), "{notes:?}");
    assert!(done.err.contains("inspect it: subtend tree "), "{}", done.err);

    let again = user.call(&["run", "--quiet", "How big is it?"]);
    assert_eq!((again.code, again.err.as_str()), (Some(0), ""), "{again:?}");
}

#[test]
fn tree_of_an_offline_run_has_working_children() {
    let user = User::new();
    repository::make(&user);
    let done = user.succeeds(&["run", "--json", "Where does it handle errors?"]);
    let end = last_event(&done.out);
    let tree = user.json(&["tree", "--json", end["session"].as_str().expect("an id")]);
    assert_eq!((&tree["outcome"], &tree["state"], &tree["depth"]), (&json!("completed"), &json!("quiet"), &json!(0)));
    assert_eq!(tree["background"], json!(false));
    let children = tree["children"].as_array().expect("children");
    assert!(children.len() >= 3, "{tree:#}");
    for child in children {
        assert_eq!((&child["agent"], &child["outcome"]), (&json!("explore"), &json!("completed")), "{child:#}");
        assert_eq!((&child["background"], &child["depth"]), (&json!(true), &json!(1)), "{child:#}");
        let shown = user.json(&["show", "--json", child["id"].as_str().expect("an id")]);
        let entries = shown["entries"].as_array().expect("entries");
        let calls = entries.iter().filter_map(|entry| entry["calls"].as_array()).flatten();
        let worked = calls.filter(|call| call["result"]["result"]["end"] == json!("ok")).count();
        assert!(worked >= 2, "{shown:#}");
    }
}

#[test]
fn events_are_printed_one_per_line_and_the_end_last() {
    let user = User::new();
    repository::make(&user);
    let done = user.succeeds(&["run", "--json", "Where does it handle errors?"]);
    let events: Vec<Value> = done.out.lines().map(|line| serde_json::from_str(line).expect("json")).collect();
    let end = events.last().expect("an event");
    let expected = json!({
        "type": "run_ended", "session": end["session"], "run": 1, "outcome": "completed", "answer": end["answer"],
        "partial": null, "turns": end["turns"], "usage": end["usage"],
    });
    assert_eq!(end, &expected);
    assert!(end["answer"].as_str().is_some_and(|text| text.contains("errors.rs")), "{end:#}");

    // The records of each session begin with the first, and each appears once.
    let mut next = std::collections::HashMap::new();
    for event in events.iter().filter(|event| event["type"] == json!("record")) {
        let due = next.entry(event["session"].to_string()).or_insert(1);
        assert_eq!(event["seq"].as_u64(), Some(*due), "{event}");
        *due += 1;
    }
    assert!(next.len() >= 4, "{next:?}");
    let creation = &events[0]["record"]["session_created"];
    assert_eq!((&events[0]["session"], &creation["place"]), (&end["session"], &json!("root")), "{}", events[0]);
}

#[test]
fn each_outcome_has_its_exit_code_and_cause() {
    let user = User::new();
    user.file(
        ".subtend/agents/brief.md",
        "---\nmode: primary\ndescription: Has two turns.\nturns: 2\n---\nBe brief.\n",
    );
    let list = r#"{ "text": "listing", "calls": [ { "tool": "list", "args": { "path": "." } } ], "repeat": true }"#;
    let cases = [
        ("general", r#"{ "refuse": true }"#, 1, "the model refused", ""),
        ("general", r#"{ "error": { "kind": "auth", "message": "no key" } }"#, 1, "no key", ""),
        ("general", r#"{ "empty": true }, { "empty": true }"#, 1, "empty answer", ""),
        ("brief", list, 4, "out of turns", "listing"),
    ];
    for (agent, steps, code, cause, partial) in cases {
        let model = user.script(&every_agent(steps));
        let done = user.call(&["run", "--agent", agent, "--model", &model, "hi"]);
        assert_eq!(done.code, Some(code), "{steps}: {done:?}");
        assert!(done.err.contains(cause), "{steps}: {done:?}");
        assert!(done.out.contains(partial) && (partial.is_empty() == done.out.is_empty()), "{steps}: {done:?}");
    }
}

#[test]
fn partial_output_is_not_printed_as_an_answer() {
    let user = User::new();
    let list = r#"{ "text": "so far", "calls": [ { "tool": "list" } ] }, { "refuse": true }"#;
    let model = user.script(&every_agent(list));
    let done = user.call(&["run", "--json", "--model", &model, "hi"]);
    assert_eq!(done.code, Some(1), "{done:?}");
    let end = last_event(&done.out);
    assert_eq!((&end["answer"], &end["partial"]), (&Value::Null, &json!("so far")));
    assert_eq!(end["outcome"], json!({"failed": {"kind": "refused"}}));
}

#[test]
fn disallowed_tools_are_not_offered() {
    let user = User::new();
    let write =
        r#"{ "calls": [ { "tool": "write", "args": { "path": "a.txt", "content": "hi" } } ] }, { "text": "{last}" }"#;
    let model = user.script(&every_agent(write));
    let refused = user.call(&["run", "--quiet", "--model", &model, "hi"]);
    assert_eq!((refused.code, user.workspace().join("a.txt").exists()), (Some(0), false), "{refused:?}");

    let done = user.call(&["run", "--quiet", "--model", &model, "--allow", "fs.write=*.txt", "hi"]);
    let written = std::fs::read_to_string(user.workspace().join("a.txt")).ok();
    assert_eq!((done.code, written.as_deref()), (Some(0), Some("hi")), "{done:?}");
}

#[test]
fn shell_without_all_permissions_is_confined_or_refused() {
    let user = User::new();
    let shell = r#"{ "calls": [ { "tool": "shell", "args": { "command": "echo from $PWD; echo x > src/made" } } ] },
        { "text": "{last}" }"#;
    std::fs::create_dir(user.workspace().join("src")).expect("a folder");
    let model = user.script(&every_agent(shell));
    let run = ["run", "--model", &model, "--allow", "shell.run", "hi"];
    let limited = user.call(&run);
    // Which of the two happens depends on the system; in both cases nothing may be written.
    match sandbox::probe() {
        Ok(SandboxStrength::FilesAndNetwork) => {
            assert!(limited.out.contains("from /") && limited.out.contains("Permission denied"), "{limited:?}");
        }
        Ok(SandboxStrength::Files) | Err(_) => {
            assert!(limited.err.contains("shell is refused") && !limited.out.contains("from /"), "{limited:?}");
        }
    }
    let made = user.workspace().join("src/made");
    assert!(!made.exists());

    // Everything but protected paths is allowed, so the sandbox enforces the protection.
    let all = [&run[..], &["--allow", "fs.*", "--allow", "net.*"]].concat();
    let held = sandbox::probe() == Ok(SandboxStrength::FilesAndNetwork);
    let done = user.call(&all);
    assert_eq!((done.out.contains("from /"), made.exists()), (held, held), "{done:?}");
    let spelled: Vec<String> = PROTECTED.iter().map(|path| format!("fs.write={path}/**")).collect();
    let lifted: Vec<&str> = spelled.iter().flat_map(|rule| ["--allow", rule]).collect();
    let done = user.call(&[&all[..], &lifted].concat());
    assert!(!done.err.contains("shell is refused") && done.out.contains("from /"), "{done:?}");
    assert!(made.exists());
}

/// With all rights, commands run without a sandbox. A superuser's command could find the key in the runtime's memory,
/// but no record contains the key.
#[test]
fn keys_do_not_reach_commands_or_records() {
    const KEY: &str = "sk-test-0123456789";
    let user = User::new();
    let shell = r#"{ "calls": [ { "tool": "shell", "args": { "command": "env; cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | grep sk-test; true" } } ] },
        { "text": "{last}" }"#;
    let model = user.script(&every_agent(shell));
    let mut run =
        user.command(&["run", "--model", &model, "--allow", "shell.run", "--allow", "fs.*", "--allow", "net.*", "hi"]);
    run.env("OPENAI_API_KEY", KEY);
    let done = RunningCommand::start(run, "").done();
    assert_eq!(done.code, Some(0), "{done:?}");
    let (own, _) = done.out.split_once("PWD=").expect("an environment");
    assert!(!own.contains("OPENAI_API_KEY") && !done.out.contains(KEY), "{done:?}");
    let id = user.json(&["sessions", "--json"])[0]["id"].as_str().expect("an id").to_owned();
    let shown = user.call(&["show", &id, "--json"]);
    assert!(shown.out.contains("PWD=") && !shown.out.contains(KEY), "{shown:?}");
}

#[test]
fn run_can_be_followed_without_a_terminal() {
    let user = User::new();
    let steps = r#"{ "calls": [ { "tool": "list", "args": { "path": "." } } ] }, { "text": "done" }"#;
    let model = user.script(&every_agent(steps));
    let done = user.call(&["run", "--model", &model, "hi"]);
    assert_eq!((done.code, done.out.as_str()), (Some(0), "done\n"), "{done:?}");
    assert!(!done.err.contains('\u{1b}'), "{:?}", done.err);
    let lines: Vec<_> = done.err.lines().collect();
    assert!(lines.contains(&"general  list .  turn 1"), "{lines:?}");
}
