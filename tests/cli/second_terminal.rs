//! Commands in a second terminal, while another process hosts the store.

use super::call::*;
use super::terminal::{MODEL, TerminalSession};

/// The agent hangs after some text, asks for approval of a command, or starts two children that hang.
const SCRIPT: &str = r#"{ "rules": [
    { "agent": "general", "steps": [
        { "fan_out": { "n": 2, "agent": "explore", "background": true, "prompt": "Look at part {n}." } },
        { "text": "waiting", "repeat": true } ] },
    { "agent": "*", "steps": [ { "text": "so far", "hang": true } ] } ] }"#;
pub(crate) const ALWAYS: &str =
    r#"{ "rules": [ { "agent": "*", "steps": [ { "text": "Hello.", "repeat": true } ] } ] }"#;
pub(crate) const HANG: &str = r#"{ "rules": [ { "agent": "*", "steps": [ { "text": "so far", "hang": true } ] } ] }"#;

/// Starts a run that hangs; returns it with the id of its session.
fn hanging(user: &User, script: &str) -> (RunningCommand, String) {
    let model = user.script(script);
    let run = user.start(&["run", "--json", "--model", &model, "hang"]);
    let event = run.until(|event| event["record"]["turn_started"].is_object());
    let id = event["session"].as_str().expect("an id").to_owned();
    (run, id)
}

#[test]
fn h1_reading_commands_show_runs_of_another_process() {
    let user = User::new();
    let (run, id) = hanging(&user, HANG);
    let sessions = user.json(&["sessions", "--json"]);
    assert_eq!((&sessions[0]["id"], &sessions[0]["state"]), (&json!(id), &json!("working")));
    assert_eq!(user.json(&["tree", &id, "--json"])["state"], json!("working"));
    for args in [
        vec!["show", &id],
        vec!["usage", &id],
        vec!["tasks"],
        vec!["approvals"],
        vec!["queue", &id],
        vec!["metadata", &id],
        vec!["verify"],
    ] {
        let done = user.call(&args);
        assert_eq!(done.code, Some(0), "{args:?}: {done:?}");
    }
    for verb in ["tree", "show"] {
        assert!(
            !user.call(&[verb, &id]).out.contains("last process"),
            "the run is reported as left by the last process"
        );
    }
    let doctor = user.call(&["doctor"]).out;
    assert!(doctor.contains(&format!("process {} hosts the store", run.pid())), "{doctor}");
    run.signal("INT");
    assert_eq!(run.done().code, Some(130));
}

#[test]
fn h1_reading_through_a_host_equals_reading_the_store() {
    let user = User::new();
    let model = user.script_named("hello", "Hello.");
    assert_eq!(user.call(&["run", "--model", &model, "first"]).code, Some(0));
    assert_eq!(user.call(&["run", "--model", &model, "second"]).code, Some(0));
    let id = user.json(&["sessions", "--json"])[0]["id"].as_str().expect("an id").to_owned();
    let read = || {
        let forms: [&[&str]; 9] = [
            &["sessions", "--json"],
            &["tree", &id, "--json"],
            &["show", &id, "--json"],
            &["show", &id, "--full"],
            &["usage", &id, "--json"],
            &["tasks", "--json"],
            &["approvals", "--all", "--json"],
            &["queue", &id, "--json"],
            &["metadata", &id],
        ];
        forms.map(|args| {
            let done = user.call(args);
            (args.join(" "), done.code, done.out)
        })
    };
    let alone = read();
    let host = user.start(&["serve", "--json", "--listen", "none"]);
    host.line().expect("the first line of the host");
    assert_eq!(read(), alone);
    host.stops();
    assert_eq!(read(), alone, "reading changed the store");
}

#[test]
fn h9_another_terminal_cancels_one_child_and_then_the_tree() {
    let user = User::new();
    let model = user.script(SCRIPT);
    let run = user.start(&["run", "--json", "--model", &model, "start two"]);
    let root =
        run.until(|event| event["record"]["child_spawned"].is_object())["session"].as_str().expect("an id").to_owned();
    let child = run.until(|event| event["record"]["turn_started"].is_object() && event["session"] != json!(root));
    let child = child["session"].as_str().expect("an id").to_owned();
    let cancelled = user.succeeds(&["cancel", &child]);
    assert!(cancelled.out.contains("run 1 is cancelled"), "{cancelled:?}");
    let ended = run.until(|event| event["session"] == json!(child) && event["record"]["run_ended"].is_object());
    assert_eq!(ended["record"]["run_ended"]["outcome"], json!({"cancelled": {"by": "person"}}));
    user.succeeds(&["cancel", &root, "--tree"]);
    assert_eq!(run.done().code, Some(130));
    assert_eq!(user.call(&["verify"]).code, Some(0));
}

#[test]
fn b16_another_terminal_sends_and_follows_a_run() {
    let user = User::new();
    let host = user.start(&["serve", "--json", "--listen", "none", "--model", &user.script(ALWAYS)]);
    host.line().expect("the first line of the host");
    let first = user.succeeds(&["run", "--json", "one"]);
    let end = last_event(&first.out);
    assert_eq!((&end["answer"], &end["outcome"]), (&json!("Hello."), &json!("completed")), "{first:?}");
    let id = end["session"].as_str().expect("an id").to_owned();
    let sent = user.call(&["send", &id, "two"]);
    assert_eq!((sent.code, sent.out.trim()), (Some(0), "Hello."), "{sent:?}");
    user.succeeds(&["regenerate", &id]);
    for args in [
        &["metadata", &id, "ticket=7"][..],
        &["summary", &id],
        &["branch", &id],
        &["switch", &id, "previous"],
        &["queue", &id, "clear"],
        &["interrupt", &id],
        &["close", &id],
        &["continue", &id],
        &["delete", &id, "--yes"],
    ] {
        let done = user.call(args);
        assert_eq!(done.code, Some(0), "{args:?}: {done:?}");
    }
    let gone = user.call(&["send", &id, "three"]);
    assert_eq!(gone.code, Some(1), "{gone:?}");
    host.stops();
    assert_eq!(user.call(&["verify"]).code, Some(0));
}

/// A process that hosts a store for its own run exits after that run, even while other clients follow it.
#[test]
fn h9_follower_gets_the_end_of_a_run_of_a_killed_host() {
    let user = User::new();
    let (run, id) = hanging(&user, HANG);
    let follower = user.start(&["attach", "--json", &id]);
    let follows = |event: &Value| event["type"] == json!("delta") && event["text"] == json!("so far");
    follower.until(follows);
    follower.signal("STOP");
    run.signal("INT");
    assert_eq!(run.done().code, Some(130));
    follower.signal("CONT");
    let done = follower.done();
    assert_eq!(done.code, Some(130), "{done:?}");
    assert_eq!(last_event(&done.out)["outcome"], json!({"cancelled": {"by": "person"}}), "{done:?}");

    let (run, id) = hanging(&user, HANG);
    let follower = user.start(&["attach", "--json", &id]);
    follower.until(follows);
    run.signal("KILL");
    run.done();
    let done = follower.done();
    assert_eq!(done.code, Some(3), "{done:?}");
    assert!(done.err.contains("the host of the store ended before the run:"), "{done:?}");
}

#[test]
fn options_of_the_host_are_refused_in_another_terminal() {
    let user = User::new();
    let (run, id) = hanging(&user, HANG);
    for args in [
        &["run", "--host", "slots=3", "x"][..],
        &["run", "--calls", "3", "x"],
        &["send", &id, "--model", "offline", "x"],
        &["send", &id, "--here", "x"],
        &["chat", &id, "--here"],
        &["summary", &id, "--model", "offline"],
        &["close", &id, "--model", "offline"],
        &["run", "--limit", "truns=3", "x"],
        &["run", "--allow", "shell.rum", "x"],
    ] {
        let refused = user.call(args);
        assert_eq!((refused.code, refused.out.as_str()), (Some(2), ""), "{args:?}: {refused:?}");
    }
    for args in [["compact"], ["recover"]] {
        let refused = user.call(&args);
        assert_eq!(refused.code, Some(3), "{args:?}: {refused:?}");
        assert!(refused.err.contains(&run.pid().to_string()), "{args:?}: {refused:?}");
    }
    run.signal("INT");
    assert_eq!(run.done().code, Some(130));
}

/// Ctrl-C cancels the run of its own terminal. Runs of other terminals continue in the process until they end.
#[test]
fn h1_ctrl_c_does_not_cancel_runs_of_other_terminals() {
    let user = User::new();
    let (run, _) = hanging(&user, HANG);
    let other = user.start(&["run", "--json", "--model", &user.script(HANG), "hang too"]);
    let event = other.until(|event| event["record"]["turn_started"].is_object());
    let second = event["session"].as_str().expect("an id").to_owned();
    run.signal("INT");
    run.until(|event| event["type"] == json!("run_ended"));
    assert_eq!(user.json(&["tree", &second, "--json"])["state"], json!("working"), "the other run continues");
    assert_eq!(user.call(&["cancel", &second]).code, Some(0));
    let ended = other.done();
    assert_eq!(last_event(&ended.out)["outcome"], json!({"cancelled": {"by": "person"}}), "{ended:?}");
    let done = run.done();
    assert_eq!(done.code, Some(130), "{done:?}");
    assert!(done.err.contains("waiting for 1 run hosted by this process"), "{done:?}");
}

/// The control is `partial_output_of_a_cancelled_run_is_kept`, where SIGTERM cancels a run that does not resume.
#[test]
fn h1_terminated_foreground_host_leaves_runs_that_resume() {
    for signal in ["TERM", "HUP"] {
        let user = User::new();
        user.resumable_agent("steady", "primary");
        let run = user.start(&["run", "--json", "--agent", "steady", "--model", &user.script(HANG), "hang"]);
        let event = run.until(|event| event["record"]["turn_started"].is_object());
        let id = event["session"].as_str().expect("an id").to_owned();
        run.signal(signal);
        let done = run.done();
        assert_eq!(done.code, Some(3), "{done:?}");
        assert!(
            done.err.contains("this process was asked to end") && done.err.contains("`subtend continue "),
            "{done:?}"
        );
        assert_eq!(user.json(&["tree", &id, "--json"])["state"], json!("working"), "{signal}");
        assert_eq!(user.call(&["cancel", &id]).code, Some(0));
        assert_eq!(user.json(&["tree", &id, "--json"])["outcome"], json!({"cancelled": {"by": "person"}}), "{signal}");
    }
}

#[test]
fn h2_detached_run_continues_and_can_be_attached() {
    let user = User::new();
    let model = user.script(HANG);
    let left = user.succeeds(&["run", "--detach", "--model", &model, "hang"]);
    let id = left.out.trim().to_owned();
    assert_eq!(user.json(&["tree", &id, "--json"])["state"], json!("working"));
    let attached = user.start(&["attach", &id, "--json"]);
    attached.until(|event| event["type"] == json!("delta") && event["text"] == json!("so far"));
    // Closing a terminal does not stop the run.
    attached.signal("HUP");
    attached.done();
    assert_eq!(user.json(&["tree", &id, "--json"])["state"], json!("working"));
    let again = user.start(&["attach", &id, "--json"]);
    again.until(|event| event["type"] == json!("delta"));
    assert_eq!(user.call(&["cancel", &id]).code, Some(0));
    let done = again.done();
    assert_eq!(
        (done.code, &last_event(&done.out)["outcome"]),
        (Some(130), &json!({"cancelled": {"by": "person"}})),
        "{done:?}"
    );
    user.succeeds(&["run", "--detach", "--model", &user.script_named("hello", "Hello."), "hi"]);
}

#[test]
fn h1_call_is_approved_from_another_terminal() {
    let user = User::new();
    let writes = r#"{ "rules": [ { "agent": "*", "steps": [
        { "calls": [ { "tool": "write", "args": { "path": "made.txt", "content": "made" } } ] }, { "text": "wrote" } ] } ] }"#;
    let host = user.start(&["serve", "--json", "--listen", "none"]);
    host.line().expect("the first line of the host");
    let run = user.start(&["run", "--json", "--model", &user.script(writes), "--ask", "fs.write", "write"]);
    let args = run.until(|event| event["record"]["ask_opened"].is_object());
    let id = args["session"].as_str().expect("an id").to_owned();
    let open = user.json(&["approvals", &id, "--json"]);
    let (turn, ix) = (&open[0]["call"]["turn"], &open[0]["call"]["ix"]);
    let call = format!("{turn}.{ix}");
    let wrong = user.call(&["approvals", &id, "--allow", "9.9"]);
    assert_eq!(wrong.code, Some(1), "{wrong:?}");
    assert!(!user.workspace().join("made.txt").exists());
    let digest = open[0]["digest"].as_str().expect("a digest");
    let listed = user.call(&["approvals", &id]);
    let named = format!("{call}:{}", &digest[..12]);
    assert!(listed.out.contains(&named) && listed.out.contains("\"content\":\"made\""), "{listed:?}");
    assert!(listed.out.contains(" left  general: write\n"), "no time left, agent and title: {listed:?}");
    let allowed = user.json(&["approvals", &id, "--json", "--allow", &named]);
    assert_eq!(allowed, json!({"session": id, "call": call, "verdict": "allow"}));
    let done = run.done();
    assert_eq!((done.code, &last_event(&done.out)["answer"]), (Some(0), &json!("wrote")), "{done:?}");
    assert_eq!(std::fs::read_to_string(user.workspace().join("made.txt")).expect("the file"), "made");
    host.stops();
}

#[test]
fn h1_foreground_host_stays_until_runs_of_others_end() {
    let user = User::new();
    let (run, id) = hanging(&user, HANG);
    let other = user.start(&["run", "--json", "--model", &user.script(HANG), "hang too"]);
    let event = other.until(|event| event["record"]["turn_started"].is_object());
    let second = event["session"].as_str().expect("an id").to_owned();
    assert_eq!(user.call(&["cancel", &id]).code, Some(0));
    run.until(|event| event["type"] == json!("run_ended"));
    assert_eq!(user.json(&["tree", &second, "--json"])["state"], json!("working"), "the other run does not continue");
    assert_eq!(user.call(&["cancel", &second]).code, Some(0));
    assert_eq!(other.done().code, Some(130));
    let done = run.done();
    assert_eq!(done.code, Some(130), "{done:?}");
    assert!(done.err.contains("waiting for 1 run hosted by this process"), "{done:?}");
}

#[test]
fn h2_chat_through_a_host_sends_lines() {
    let user = User::new();
    let host = user.start(&["serve", "--json", "--listen", "none", "--model", &user.script(ALWAYS)]);
    host.line().expect("the first line of the host");
    let output = user.call_with(&["chat"], "one\ntwo\n");
    assert_eq!((output.code, output.out.as_str()), (Some(0), "Hello.\nHello.\n"), "{output:?}");
    let sessions = user.json(&["sessions", "--json"]);
    assert_eq!(sessions.as_array().map(Vec::len), Some(1));
    let id = sessions[0]["id"].as_str().expect("an id");
    let more = user.call_with(&["chat", id], "three\n");
    assert_eq!((more.code, more.out.as_str()), (Some(0), "Hello.\n"), "{more:?}");
    host.stops();
}

/// The permissions of the host's command line do not apply to sessions that other terminals open in other directories.
#[test]
fn permissions_of_a_host_apply_only_in_its_directory() {
    let user = User::new();
    let host =
        user.start(&["serve", "--json", "--listen", "none", "--allow", "fs.write", "--model", &user.script(ALWAYS)]);
    host.line().expect("the first line of the host");
    let other = user.data().with_file_name("other");
    std::fs::create_dir(&other).expect("a directory");
    let opened = |directory: &std::path::Path, more: &[&str]| {
        let mut command = user.command(&[&["run", "--json", "hello"], more].concat());
        command.current_dir(directory);
        let done = RunningCommand::start(command, "").done();
        assert_eq!(done.code, Some(0), "{done:?}");
        let id = last_event(&done.out)["session"].as_str().expect("an id").to_owned();
        user.json(&["show", "--json", &id])["rights"]["fs.write"].clone()
    };
    let rights = [opened(&other, &[]), opened(&other, &["--allow", "fs.write"]), opened(&user.workspace(), &[])];
    assert_eq!(rights, [json!("ask"), json!("allow"), json!("allow")]);
    host.stops();
}

/// The author of an export must not choose the directory of its sessions, so a host refuses input for them.
#[test]
fn imported_session_refuses_input_in_a_host() {
    let (author, user) = (User::new(), User::new());
    author.succeeds(&["run", "--model", &author.script(ALWAYS), "hello"]);
    let file = user.data().with_file_name("all.jsonl");
    let file = file.to_str().expect("a path");
    assert_eq!(author.call(&["export", "--out", file]).code, Some(0));
    assert_eq!(user.call(&["import", file]).code, Some(0));
    let id = user.json(&["sessions", "--json"])[0]["id"].as_str().expect("an id").to_owned();
    let host = user.start(&["serve", "--json", "--listen", "none", "--model", &user.script(ALWAYS)]);
    host.line().expect("the first line of the host");
    let refused = user.call(&["send", &id, "and now?"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.err.contains("the session was imported"), "{refused:?}");
    // The control: a session that this user opened.
    assert_eq!(user.call(&["run", "hello"]).code, Some(0));
    host.stops();
}

#[test]
fn h1_run_in_another_terminal_asks_you_there() {
    let user = User::new();
    let host = user.start(&["serve", "--json", "--listen", "none"]);
    host.line().expect("the first line of the host");
    let mut run = TerminalSession::at_terminal(
        &user,
        &["run", "please write", "--model", &user.script(MODEL), "--ask", "fs.write"],
    );
    run.until("allow?");
    run.types("y\n");
    let (code, shown) = run.wait_for_exit();
    assert_eq!(code, Some(0), "{shown}");
    assert_eq!(std::fs::read_to_string(user.workspace().join("a.txt")).expect("the file"), "hi");
    host.stops();
}

#[test]
fn h1_chat_in_another_terminal_has_asks_and_commands() {
    let user = User::new();
    let host = user.start(&["serve", "--json", "--listen", "none"]);
    host.line().expect("the first line of the host");
    let mut chat = TerminalSession::at_terminal(&user, &["chat", "--model", &user.script(MODEL), "--ask", "fs.write"]);
    chat.until("/help lists the commands");
    chat.types("please write\r");
    chat.until("allow?");
    chat.types("y\r");
    for (line, expected) in [
        ("hello", "heard: hello"),
        ("/queue", "the queue is empty"),
        ("/usage", "tokens for the session"),
        ("/condense", "not compacted"),
        ("/condense undo", "no compaction to undo"),
        ("/agent nosuch", "unknown agent nosuch"),
        ("/agent plan", "plan answers from the next line on"),
        ("/interrupt", "no run is in flight"),
        ("/regenerate", "heard: hello"),
        ("/previous", "alternative 0 of the last answer"),
    ] {
        chat.types(&format!("{line}\r"));
        chat.until(expected);
    }
    chat.types("/quit\r");
    let (code, shown) = chat.wait_for_exit();
    assert_eq!(code, Some(0), "{shown}");
    host.stops();
    assert_eq!(user.call(&["verify"]).code, Some(0));
}

#[test]
fn h2_leaving_a_chat_does_not_stop_the_host() {
    let user = User::new();
    let host = user.start(&["serve", "--json", "--listen", "none"]);
    host.line().expect("the first line of the host");
    let mut chat = TerminalSession::at_terminal(&user, &["chat", "--model", &user.script(HANG)]);
    chat.until("/help lists the commands");
    chat.types("hang\r");
    chat.until("so far");
    chat.types("/quit\r");
    let (code, shown) = chat.wait_for_exit();
    assert_eq!(code, Some(0), "{shown}");
    let sessions = user.json(&["sessions", "--json"]);
    assert_eq!(sessions[0]["state"], json!("working"), "{shown}");
    let id = sessions[0]["id"].as_str().expect("an id").to_owned();
    // A client that returns finds the run in flight, and Ctrl-C cancels it.
    let mut again = TerminalSession::at_terminal(&user, &["chat", &id]);
    again.until("> hang");
    again.until("is in flight in the process that hosts the store");
    again.types("\u{3}");
    again.until("cancelled by a person");
    again.types("\u{4}");
    assert_eq!(again.wait_for_exit().0, Some(0));
    host.stops();
}

/// A command that starts at the same time as another waits until the other listens, and uses it as the host.
#[test]
fn h1_commands_that_start_at_the_same_time_share_one_host() {
    let user = User::new();
    let model = user.script(ALWAYS);
    // Each command may host the store for its own run, and may exit just before another sends it a request.
    let runs: Vec<_> = (0..8).map(|_| user.start(&["run", "--json", "--model", &model, "hello"])).collect();
    for run in runs {
        let done = run.done();
        assert_eq!(done.code, Some(0), "{done:?}");
        assert_eq!(last_event(&done.out)["answer"], json!("Hello."), "{done:?}");
    }
    assert_eq!(user.json(&["sessions", "--json"]).as_array().map(Vec::len), Some(8));
    assert_eq!(user.call(&["verify"]).code, Some(0));
}

/// The path of the socket is longer than a Unix socket address (107 bytes).
#[test]
fn h1_store_at_a_long_path_is_shared() {
    let user = User::new();
    let deep = user.data().join("d".repeat(90)).join("e".repeat(90));
    let data = deep.to_str().expect("text");
    let model = user.script(HANG);
    // First a foreground run hosts the store, then `subtend serve`.
    let run = user.start(&["run", "--json", "--data", data, "--model", &model, "hang"]);
    let event = run.until(|event| event["record"]["turn_started"].is_object());
    let id = event["session"].as_str().expect("an id").to_owned();
    user.succeeds(&["cancel", "--data", data, &id]);
    let done = run.done();
    assert_eq!((done.code, done.err.contains("no other terminal")), (Some(130), false), "{done:?}");
    let host = user.start(&["serve", "--json", "--listen", "none", "--data", data]);
    let ready: Value = serde_json::from_str(&host.line().expect("the first line of the host")).expect("json");
    assert_eq!(ready["socket"], json!(deep.join("host/host.sock")));
    let ran = user.call(&["run", "--json", "--data", data, "--model", &user.script(ALWAYS), "hello"]);
    assert_eq!((ran.code, &last_event(&ran.out)["answer"]), (Some(0), &json!("Hello.")), "{ran:?}");
    assert_eq!(user.json(&["sessions", "--json", "--data", data]).as_array().map(Vec::len), Some(2));
    host.stops();
    assert!(!deep.join("host/host.sock").exists(), "the socket remains");
}
