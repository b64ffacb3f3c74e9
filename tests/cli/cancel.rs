use super::call::*;

/// A root with two children in the background; all of them hang after some text.
const FAMILY: &str = r#"{ "rules": [
    { "agent": "general", "steps": [
        { "fan_out": { "n": 2, "agent": "explore", "background": true, "prompt": "Look at part {n}." } },
        { "text": "waiting" } ] },
    { "agent": "*", "steps": [ { "text": "so far", "hang": true } ] } ] }"#;

#[test]
fn ctrl_c_cancels_the_whole_tree_and_shuts_down_in_order() {
    let user = User::new();
    let model = user.script(FAMILY);
    let run = user.start(&["run", "--json", "--model", &model, "hang"]);
    let root = run.until(|event| event["record"]["child_spawned"].is_object());
    let root = root["session"].as_str().expect("an id").to_owned();
    run.until(|event| event["record"]["turn_started"].is_object() && event["session"] != json!(root));
    run.signal("INT");
    let done = run.done();
    assert_eq!(done.code, Some(130), "{done:?}");
    let end = last_event(&done.out);
    assert_eq!((&end["type"], &end["outcome"]), (&json!("run_ended"), &json!({"cancelled": {"by": "person"}})));
    assert!(done.err.contains("cancelling the run and its children"), "{done:?}");

    let tree = user.json(&["tree", &root, "--json"]);
    for child in tree["children"].as_array().expect("children") {
        assert_eq!(child["outcome"], json!({"cancelled": {"by": {"owner": {"outcome": "cancelled"}}}}), "{tree:#}");
    }
    assert_eq!(user.call(&["verify"]).code, Some(0));
}

#[test]
fn partial_output_of_a_cancelled_run_is_kept() {
    let user = User::new();
    let steps = r#"{ "text": "so far", "calls": [ { "tool": "list" } ] }, { "hang": true }"#;
    let model = user.script(&format!(r#"{{ "rules": [ {{ "agent": "*", "steps": [ {steps} ] }} ] }}"#));
    let run = user.start(&["run", "--json", "--model", &model, "hang"]);
    run.until(|event| event["record"]["turn_started"]["turn"] == json!(2));
    run.signal("TERM");
    let done = run.done();
    assert_eq!(done.code, Some(130), "{done:?}");
    let end = last_event(&done.out);
    assert_eq!((&end["answer"], &end["partial"]), (&Value::Null, &json!("so far")), "{end:#}");
}

#[test]
fn second_ctrl_c_exits_at_once() {
    let user = User::new();
    let model = user.script(FAMILY);
    let run = user.start(&["run", "--json", "--model", &model, "hang"]);
    run.until(|event| event["record"]["child_spawned"].is_object());
    run.signal("INT");
    run.signal("INT");
    let done = run.done();
    assert_eq!(done.code, Some(130), "{done:?}");
}

#[test]
fn run_ends_when_the_reader_of_its_events_disconnects() {
    let user = User::new();
    let steps = r#"{ "latency_ms": 20, "calls": [ { "tool": "list" } ], "repeat": true }"#;
    let model = user.script(&format!(r#"{{ "rules": [ {{ "agent": "*", "steps": [ {steps} ] }} ] }}"#));
    let mut run = user.start(&["run", "--json", "--model", &model, "work"]);
    run.until(|event| event["record"]["turn_started"].is_object());
    run.close_stdout();
    let done = run.done();
    assert_eq!(done.code, Some(130), "{done:?}");
    assert!(done.err.contains("stdout is closed"), "{done:?}");
}

/// A process without a model cancels runs that would resume after a kill. It must wait until every session has handled
/// the cancel, or the others would end as lost when it exits.
#[test]
fn cancel_reaches_owned_runs_of_a_resumed_run() {
    let user = User::new();
    user.resumable_agent("steady", "primary");
    user.resumable_agent("hand", "subagent");
    let model = user.script(
        r#"{ "rules": [
            { "agent": "steady", "steps": [
                { "fan_out": { "n": 3, "agent": "hand", "background": true, "prompt": "Look at part {n}." } },
                { "hang": true } ] },
            { "agent": "*", "steps": [ { "hang": true } ] } ] }"#,
    );
    let killed = user.start(&["run", "--json", "--agent", "steady", "--model", &model, "hang"]);
    let root = killed.until(|event| event["record"]["turn_started"]["turn"] == json!(2));
    killed.signal("KILL");
    assert_eq!(killed.done().code, None);
    let id = root["session"].as_str().expect("an id");
    let done = user.call(&["cancel", id]);
    assert!(done.code == Some(0) && done.out.ends_with("run 1 is cancelled\n"), "{done:?}");
    let tree = user.json(&["tree", id, "--json"]);
    assert_eq!(tree["outcome"], json!({"cancelled": {"by": "person"}}), "{tree:#}");
    let ends: Vec<_> = tree["children"].as_array().expect("children").iter().map(|child| &child["outcome"]).collect();
    assert_eq!(ends, vec![&json!({"cancelled": {"by": {"owner": {"outcome": "cancelled"}}}}); 3], "{tree:#}");
    assert_eq!(user.call(&["verify"]).code, Some(0));
}

/// The command also waits for runs that no cancelled run owns, such as a run on a branch.
#[test]
fn cancel_reaches_the_whole_tree_of_a_resumed_run() {
    let user = User::new();
    user.resumable_agent("steady", "primary");
    let model = user.script(r#"{ "rules": [ { "agent": "*", "steps": [ { "hang": true, "repeat": true } ] } ] }"#);
    let killed = |args: &[&str]| {
        let killed = user.start(&[args, &["--json", "--model", &model]].concat());
        let event = killed.until(|event| event["record"]["turn_started"].is_object());
        killed.signal("KILL");
        assert_eq!(killed.done().code, None);
        event["session"].as_str().expect("an id").to_owned()
    };
    let root = killed(&["run", "--agent", "steady", "hang"]);
    let branch = user.call(&["branch", &root]).out;
    let branch = killed(&["send", branch.trim(), "hang"]);
    let done = user.call(&["cancel", &root, "--tree"]);
    assert_eq!((done.code, &*done.out), (Some(0), "cancelled 2 runs in the tree\n"), "{done:?}");
    let (tree, person) = (user.json(&["tree", &root, "--json"]), json!({"cancelled": {"by": "person"}}));
    assert_eq!((&tree["outcome"], &tree["children"][0]["outcome"]), (&person, &person), "{branch}: {tree:#}");
    assert_eq!(user.call(&["verify"]).code, Some(0));
}

/// The control is `partial_output_of_a_cancelled_run_is_kept`, where SIGTERM cancels a run that is not parked.
#[test]
fn x13_terminated_host_leaves_its_parked_run() {
    let user = User::new();
    let limit = json!({"kind": "rate", "message": "the weekly limit is reached", "retry_after_ms": 3_600_000});
    let script = json!({"rules": [{"agent": "*", "steps": [{"error": limit, "repeat": true}]}]}).to_string();
    let run = user.start(&["run", "--json", "--model", &user.script(&script), "go"]);
    let event = run.until(|event| event["record"]["run_parked"].is_object());
    let id = event["session"].as_str().expect("an id").to_owned();
    run.signal("TERM");
    let done = run.done();
    assert_eq!(done.code, Some(3), "{done:?}");
    assert!(done.err.contains("continues with the next one"), "{done:?}");
    let tree = user.json(&["tree", &id, "--json"]);
    assert_eq!((&tree["state"], tree["limited_until"].is_i64()), (&json!("waiting_mid_turn"), true), "{tree}");
    assert_eq!(user.json(&["sessions", "--json"])[0]["limited_until"], tree["limited_until"]);
    let listed = user.call(&["sessions"]);
    assert!(listed.out.contains("waits for the provider's limit until"), "{listed:?}");
}

/// As above, for `subtend serve`.
#[test]
fn x13_terminated_serve_leaves_its_parked_run() {
    let user = User::new();
    let limit = json!({"kind": "rate", "message": "the weekly limit is reached", "retry_after_ms": 3_600_000});
    let script = json!({"rules": [{"agent": "*", "steps": [{"error": limit, "repeat": true}]}]}).to_string();
    let host = user.start(&["serve", "--json", "--listen", "none", "--model", &user.script(&script)]);
    host.line().expect("the first line of the host");
    assert_eq!(user.call(&["run", "--detach", "go"]).code, Some(0));
    let parked = || user.json(&["sessions", "--json"])[0]["limited_until"].clone();
    (0..2_000).take_while(|_| parked().is_null()).for_each(|_| std::thread::sleep(Duration::from_millis(5)));
    let until = parked();
    host.signal("TERM");
    assert_eq!(host.done().code, Some(0));
    assert!(until.is_i64() && parked() == until, "{until}: {}", parked());
    assert_eq!(user.call(&["verify"]).code, Some(0));
}
