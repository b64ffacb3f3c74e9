use super::call::*;

const GREETER: &str = r#"{ "rules": [
    { "agent": "general", "steps": [
        { "fan_out": { "n": 2, "agent": "explore", "background": false, "prompt": "Look at part {n}." } },
        { "text": "Both read." } ] },
    { "agent": "explore", "steps": [
        { "calls": [ { "tool": "list", "args": { "path": "." } }, { "tool": "read", "args": { "path": "none.txt" } } ] },
        { "text": "Seen." } ] } ] }"#;

/// A user with one finished run; returns its session.
fn finished_run() -> (User, String) {
    let user = User::new();
    let model = user.script(GREETER);
    let done = user.succeeds(&["run", "--json", "--model", &model, "greet"]);
    let end = last_event(&done.out);
    (user, end["session"].as_str().expect("an id").to_owned())
}

#[test]
fn missing_store_is_reported_and_not_created() {
    let user = User::new();
    let done = user.call(&["sessions"]);
    assert_eq!((done.code, done.out.as_str()), (Some(0), ""), "{done:?}");
    assert!(done.err.contains("no sessions yet"), "{done:?}");
    assert_eq!(user.json(&["sessions", "--json"]), json!([]));
    for args in [["tree", "root"], ["show", "root"]] {
        let done = user.call(&args);
        assert_eq!(done.code, Some(1), "{done:?}");
        assert!(done.err.contains("no store at") && done.err.contains("--data DIR"), "{done:?}");
    }
    assert!(!user.data().exists());
}

#[test]
fn sessions_are_listed_with_their_outcome() {
    let (user, id) = finished_run();
    let rows = user.json(&["sessions", "--json"]);
    let rows = rows.as_array().expect("rows");
    assert_eq!(rows.len(), 1);
    let row = &rows[0];
    assert_eq!((&row["id"], &row["outcome"], &row["title"]), (&json!(id), &json!("completed"), &json!("greet")));
    assert_eq!(user.json(&["sessions", "--all", "--json"]).as_array().map(Vec::len), Some(3));
    let text = user.call(&["sessions"]);
    let workspace = user.workspace().canonicalize().expect("a folder");
    assert_eq!(row["workspace"], json!(workspace));
    let folder = workspace.to_string_lossy();
    for part in [&id[id.len() - 6..], "completed", "just now", &folder[folder.len() - 20..], "greet"] {
        assert!(text.out.contains(part), "{part}: {text:?}");
    }
}

#[test]
fn sessions_are_filtered_by_workspace_and_limit() {
    let (user, first) = finished_run();
    let model = user.script(GREETER);
    let other = user.workspace().join("other");
    std::fs::create_dir(&other).expect("a folder");
    let run = ["run", "--json", "--model", &model, "--workspace", other.to_str().expect("a path"), "greet"];
    let done = user.call(&run);
    let end = last_event(&done.out);
    let second = end["session"].as_str().expect("an id");
    let ids = |args: &[&str]| -> Vec<String> {
        let rows = user.json(&[&["sessions", "--json"], args].concat());
        rows.as_array().expect("rows").iter().map(|row| row["id"].as_str().expect("an id").to_owned()).collect()
    };
    assert_eq!(ids(&[]), [second, &first]);
    assert_eq!(ids(&["--limit", "1"]), [second]);
    assert_eq!(ids(&["--workspace", "."]), [&*first]);
    assert_eq!(ids(&["--workspace", "other", "--limit", "3"]), [second]);
    std::fs::remove_dir(&other).expect("removed");
    assert_eq!(ids(&["--workspace", "other"]), [second], "the other workspace has lost its session");
    assert_eq!(ids(&["--workspace", "nowhere"]), Vec::<String>::new());
    for verb in ["sessions", "tasks"] {
        let none = user.call(&[verb, "--limit", "0"]);
        assert!(none.code == Some(2) && none.err.contains("invalid value '0' for '--limit <N>'"), "{none:?}");
    }
}

/// A file exists in place of the store's directory. The command must fail, and not report that no sessions exist.
#[test]
fn unreadable_data_directory_is_an_error() {
    let user = User::new();
    user.file("file", "text");
    let data = user.workspace().join("file/data");
    let data = data.to_str().expect("a path");
    for verb in [&["sessions"][..], &["tasks"], &["show", "root"], &["cancel", "root"], &["verify"]] {
        let done = user.call(&[verb, &["--data", data]].concat());
        assert_eq!((done.code, &*done.out), (Some(3), ""), "{verb:?}: {done:?}");
        assert!(done.err.contains("cannot be read") && done.err.contains("--data DIR"), "{verb:?}: {done:?}");
    }
}

#[test]
fn g4_tree_and_show_name_messages_and_call_of_the_parent() {
    let (user, id) = finished_run();
    let shown = user.json(&["show", &id, "--json"]);
    let entries = shown["entries"].as_array().expect("entries");
    let message = |of: &str| entries.iter().find(|entry| entry["type"] == of).expect(of)["seq"].clone();
    let tree = user.json(&["tree", &id, "--json"]);
    let branch = &tree["children"][1]["branch"];
    let expected = json!({
        "type": "subagent", "inherit_context": false, "task": "Look at part 2.", "state": "complete", "iterations": 2,
        "parent_message": { "session": id, "seq": message("input") },
        "assistant_message": { "session": id, "seq": message("answer") },
        "call": { "turn": 1, "ix": 1 }, "metadata": {}, "created": branch["created"], "updated": branch["updated"],
    });
    assert_eq!(branch, &expected);
    assert!(branch["updated"].as_i64() >= branch["created"].as_i64(), "{branch:#}");
    let child = tree["children"][1]["id"].as_str().expect("an id");
    assert_eq!(user.json(&["show", child, "--json"])["branch"], expected);
    assert_eq!((&tree["branch"], &shown["branch"]), (&Value::Null, &Value::Null), "a root is shown as a branch");
}

#[test]
fn g9_show_nests_opaque_children_in_their_calls() {
    let (user, id) = finished_run();
    let shown = user.json(&["show", &id, "--json"]);
    let answer = shown["entries"].as_array().expect("entries").iter().find(|entry| entry["type"] == "answer");
    let call = &answer.expect("an answer")["calls"][0];
    let nested = &call["transcript"];
    assert_eq!((&nested["id"], &nested["branch"]["call"]), (&call["child"], &call["call"]));
    assert_eq!(
        nested,
        &user.json(&["show", call["child"].as_str().expect("an id"), "--json"]),
        "the nested child differs from the child shown alone"
    );

    let full = user.succeeds(&["show", &id, "--full"]);
    let lines: Vec<_> = full.out.lines().filter(|line| line.starts_with("    │ ")).collect();
    for part in ["session ", "system prompt", "Look at part 1.", "Look at part 2.", "none.txt", "run 1 completed"] {
        assert!(lines.iter().any(|line| line.contains(part)), "{part}: {}", full.out);
    }
    assert!(!user.call(&["show", &id]).out.contains('│'), "without --full no child may be nested");
}

#[test]
fn b3_metadata_is_merged_and_shown() {
    let (user, id) = finished_run();
    let metadata = |args: &[&str]| user.json(&[&["metadata", &id], args].concat());
    assert_eq!(metadata(&[]), json!({}));
    assert_eq!(metadata(&["ticket=7", "owner=kim"]), json!({ "owner": "kim", "ticket": 7 }));
    let merged = json!({ "tags": ["a"], "ticket": 7 });
    assert_eq!(metadata(&["owner=null", "tags=[\"a\"]"]), merged);
    assert_eq!(metadata(&[]), merged);
    assert_eq!(user.json(&["show", &id, "--json"])["metadata"], merged);
    let child = user.json(&["tasks", "--json"])[0]["id"].as_str().expect("an id").to_owned();
    assert_eq!(user.call(&["metadata", &child, "seen=true"]).code, Some(0));
    assert_eq!(user.json(&["tasks", "--json"])[0]["metadata"], json!({ "seen": true }));
    let wrong = user.call(&["metadata", &id, "ticket"]);
    assert!(wrong.code == Some(2) && wrong.err.contains("write KEY=VALUE"), "{wrong:?}");
    assert_eq!(user.call(&["verify"]).code, Some(0));
}

#[test]
fn sessions_are_found_by_part_short_name_and_path() {
    let (user, id) = finished_run();
    let whole = user.json(&["tree", &id, "--json"]);
    for name in [&id[..id.len() - 6], "root"] {
        assert_eq!(user.json(&["tree", name, "--json"]), whole, "{name}");
    }
    let child = &whole["children"][0];
    let child_id = child["id"].as_str().expect("an id");
    let short = &child_id[child_id.len() - 6..];
    assert_eq!(&user.json(&["tree", &format!("root/{short}"), "--json"]), child);

    let done = user.call(&["tree", &id[..4]]);
    assert_eq!(done.code, Some(2), "{done:?}");
    assert!(done.err.contains("3 sessions") && done.err.contains(&id), "{done:?}");
    let done = user.call(&["show", "nothing"]);
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.err.contains("`nothing`"), "{done:?}");
}

#[test]
fn tree_is_drawn() {
    let (user, id) = finished_run();
    let done = user.succeeds(&["tree", &id]);
    let lines: Vec<_> = done.out.lines().collect();
    assert_eq!(lines.len(), 4, "{}", done.out);
    for (line, start) in lines.iter().zip(["✓ general ", "├─ ✓ explore ", "└─ ✓ explore ", "3 sessions, "])
    {
        assert!(line.starts_with(start), "{line}");
    }
}

#[test]
fn transcript_shows_messages_calls_and_ends() {
    let (user, id) = finished_run();
    let root = user.succeeds(&["show", &id]);
    for part in [
        "system prompt",
        "lines more (--full)",
        "input of the user",
        "\n  greet\n",
        "task",
        "Both read.",
        "run 1 completed",
    ] {
        assert!(root.out.contains(part), "{part}: {}", root.out);
    }
    let child = user.json(&["tree", &id, "--json"])["children"][0]["id"].as_str().expect("an id").to_owned();
    let shown = user.call(&["show", &child, "--full"]);
    for part in ["input of ", "Look at part 1.", "list", "none.txt", "error", "Seen."] {
        assert!(shown.out.contains(part), "{part}: {}", shown.out);
    }
    assert!(!shown.out.contains("--full"), "{}", shown.out);
}

#[test]
fn agents_are_listed_with_the_errors_of_their_files() {
    let user = User::new();
    user.file(".subtend/agents/critic.md", "---\nmode: subagent\ndescription: Finds faults.\n---\nFind faults.\n");
    user.file(".subtend/agents/broken.md", "no front matter\n");
    let listing = user.json(&["agents", "--json"]);
    let agents = listing["agents"].as_array().expect("agents");
    let find = |name: &str| agents.iter().find(|agent| agent["name"] == json!(name)).expect(name);
    assert_eq!(
        (&find("critic")["mode"], &find("critic")["description"]),
        (&json!("subagent"), &json!("Finds faults."))
    );
    assert_eq!((&find("general")["mode"], &find("general")["source"]), (&json!("all"), &json!("built in")));
    let warnings = listing["warnings"].as_array().expect("warnings");
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0]["path"].as_str().is_some_and(|path| path.ends_with("broken.md")), "{warnings:?}");

    let text = user.call(&["agents"]);
    assert_eq!(text.code, Some(0));
    assert!(text.out.contains("critic") && text.err.contains("broken.md"), "{text:?}");
}

#[test]
fn store_of_completed_runs_is_sound() {
    let (user, _) = finished_run();
    let report = user.json(&["verify", "--json"]);
    assert_eq!((&report["sound"], &report["sessions"], &report["problems"]), (&json!(true), &json!(3), &json!([])));
    let text = user.call(&["verify"]);
    assert!(text.out.contains("no problems"), "{text:?}");
}

#[test]
fn m5_show_groups_the_steps_of_a_minion() {
    const SCRIPT: &str = r#"{ "rules": [ { "agent": "*", "steps": [
        [ { "when": { "prompt_contains": "start" },
            "calls": [ { "tool": "minion", "args": { "message": "scan", "enableWeb": false, "enabledTools": ["list"] } } ] },
          { "text": "Let me see.", "calls": [ { "tool": "list", "args": { "path": "." } } ] } ],
        [ { "when": { "prompt_contains": "start" }, "text": "done" },
          { "text": "Found it.", "calls": [ { "tool": "return", "args": { "result": "nothing" } } ] } ] ] } ] }"#;
    let user = User::new();
    let model = user.script(SCRIPT);
    let mut command = user.command(&["run", "--json", "--model", &model, "start"]);
    command.env("SUBTEND_TOOLS_MINION_ENABLED", "true");
    let done = super::call::RunningCommand::start(command, "").done();
    assert_eq!(done.code, Some(0), "{done:?}");
    let id = user.json(&["sessions", "--json"])[0]["id"].as_str().expect("an id").to_owned();
    let shown = user.json(&["show", &id, "--json"]);
    let answer = shown["entries"].as_array().expect("entries").iter().find(|entry| entry["type"] == "answer");
    let call = &answer.expect("an answer")["calls"][0];
    let listed = &call["minion"]["activity"]["groups"][1]["blocks"][1]["content"];
    assert!(listed.is_string(), "{call:#}");
    let at = |turn: u32| json!({ "turn": turn, "ix": 0 });
    let expected = json!({
        "minionChatId": call["transcript"]["short"],
        "minionResponse": "nothing",
        "minionUsedReturnTool": true,
        "activity": { "turns": 2, "groups": [
            { "category": "text", "blocks": [ { "type": "text", "text": "Let me see." } ] },
            { "category": "backstage", "blocks": [
                { "type": "tool_use", "call": at(1), "tool": "list", "args": r#"{"path":"."}"# },
                { "type": "tool_result", "call": at(1), "error": false, "content": listed },
            ] },
            { "category": "text", "blocks": [ { "type": "text", "text": "Found it." } ] },
            { "category": "backstage", "blocks": [
                { "type": "tool_use", "call": at(2), "tool": "return", "args": r#"{"result":"nothing"}"# },
                { "type": "tool_result", "call": at(2), "error": false, "content": "Returned." },
            ] },
        ] },
    });
    assert_eq!(call["minion"], expected);
}

#[test]
fn b15_tokens_of_a_run_and_its_subagents_are_separate() {
    let user = User::new();
    let model = user.script(
        r#"{ "rules": [
            { "agent": "general", "steps": [
                { "calls": [{ "tool": "task", "args": { "subagent_type": "explore", "prompt": "Look." } }], "usage": { "in": 100, "out": 10 } },
                { "text": "Done.", "usage": { "in": 100, "out": 10 } },
                { "text": "Again.", "usage": { "in": 300, "out": 30 } } ] },
            { "agent": "explore", "steps": [ { "text": "Seen.", "usage": { "in": 40, "out": 2 } } ] } ] }"#,
    );
    assert_eq!(user.call(&["run", "--quiet", "--model", &model, "Go."]).code, Some(0));
    let id = user.json(&["sessions", "--json"])[0]["id"].as_str().expect("an id").to_owned();
    assert_eq!(user.call(&["send", "--quiet", "--model", &model, &id, "More."]).code, Some(0));
    let shown = user.call(&["show", &id]).out;
    let ends: Vec<&str> = shown.lines().filter(|line| line.starts_with("✓ run")).collect();
    let figures: Vec<&str> =
        ends.iter().filter_map(|line| Some(line.split_once("  ")?.1.rsplit_once(" · ")?.0)).collect();
    let expected = ["2 turns · 220 tokens · 262 tokens with subagents", "1 turn · 330 tokens"];
    assert_eq!(figures, expected, "{shown}");
    let tree = user.call(&["tree", &id]).out;
    // On a busy machine a working time may follow.
    let line = tree.lines().next().expect("a line");
    assert!(line.contains("2 runs · 3 turns · 550 tokens") && line.ends_with("  Go."), "{tree}");
    assert!(tree.contains("2 sessions, 592 tokens in all"), "{tree}");
}
