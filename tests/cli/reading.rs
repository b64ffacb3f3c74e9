use serde_json::{Value, json};

use super::call::User;

const GREETER: &str = r#"{ "rules": [
    { "agent": "general", "steps": [
        { "fan_out": { "n": 2, "agent": "explore", "background": false, "prompt": "Look at part {n}." } },
        { "text": "Both looked." } ] },
    { "agent": "explore", "steps": [
        { "calls": [ { "tool": "list", "args": { "path": "." } }, { "tool": "read", "args": { "path": "none.txt" } } ] },
        { "text": "Seen." } ] } ] }"#;

/// A user with one finished run; gives its session.
fn with_a_run() -> (User, String) {
    let user = User::new();
    let model = user.script(GREETER);
    let done = user.call(&["run", "--json", "--model", &model, "greet"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let end: Value = serde_json::from_str(done.out.lines().last().expect("a line")).expect("json");
    (user, end["session"].as_str().expect("an id").to_owned())
}

#[test]
fn an_empty_store_is_told_and_not_made() {
    let user = User::new();
    let done = user.call(&["sessions"]);
    assert_eq!((done.code, done.out.as_str()), (Some(0), ""), "{done:?}");
    assert!(done.err.contains("no sessions yet"), "{done:?}");
    assert_eq!(user.json(&["sessions", "--json"]), json!([]));
    for args in [["tree", "root"], ["show", "root"]] {
        let done = user.call(&args);
        assert_eq!(done.code, Some(1), "{done:?}");
        assert!(done.err.contains("there is no store") && done.err.contains("--data DIR"), "{done:?}");
    }
    assert!(!user.data().exists());
}

#[test]
fn sessions_are_listed_with_their_outcome() {
    let (user, id) = with_a_run();
    let rows = user.json(&["sessions", "--json"]);
    let rows = rows.as_array().expect("rows");
    assert_eq!(rows.len(), 1);
    let row = &rows[0];
    assert_eq!((&row["id"], &row["outcome"], &row["title"]), (&json!(id), &json!("completed"), &json!("greet")));
    assert_eq!(user.json(&["sessions", "--all", "--json"]).as_array().map(Vec::len), Some(3));
    let text = user.call(&["sessions"]);
    assert!(text.out.starts_with(&id) && text.out.contains("completed") && text.out.contains("greet"), "{text:?}");
}

#[test]
fn sessions_are_found_by_part_short_name_and_path() {
    let (user, id) = with_a_run();
    let whole = user.json(&["tree", &id, "--json"]);
    for name in [&id[id.len() - 12..], "root"] {
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
fn a_tree_is_drawn() {
    let (user, id) = with_a_run();
    let done = user.call(&["tree", &id]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let lines: Vec<_> = done.out.lines().collect();
    assert_eq!(lines.len(), 4, "{}", done.out);
    for (line, start) in lines.iter().zip(["✓ general ", "├─ ✓ explore ", "└─ ✓ explore ", "3 sessions, "])
    {
        assert!(line.starts_with(start), "{line}");
    }
}

#[test]
fn a_transcript_shows_what_was_said_and_done() {
    let (user, id) = with_a_run();
    let root = user.call(&["show", &id]);
    assert_eq!(root.code, Some(0), "{root:?}");
    for part in [
        "system prompt",
        "lines more (--full)",
        "input of a person",
        "\n  greet\n",
        "task",
        "Both looked.",
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
fn agents_are_listed_with_what_is_wrong_with_their_files() {
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
fn a_store_that_was_written_in_order_is_sound() {
    let (user, _) = with_a_run();
    let report = user.json(&["verify", "--json"]);
    assert_eq!((&report["sound"], &report["sessions"], &report["problems"]), (&json!(true), &json!(3), &json!([])));
    let text = user.call(&["verify"]);
    assert!(text.out.contains("everything holds"), "{text:?}");
}
