//! Reading commands change nothing, whatever a killed process left.

use super::call::User;
use super::terminal::{MODEL, TerminalSession, kill};

/// Creates two sessions that kills left in flight: one whose call waits for approval, and one with two queued inputs.
fn killed_sessions() -> (User, String, String) {
    let user = User::new();
    user.resumable_agent("steady", "primary");
    let model = user.script(MODEL);
    let asks = ["run", "please write", "--agent", "steady", "--model", &model, "--ask", "fs.write"];
    let mut run = TerminalSession::at_terminal(&user, &asks);
    run.until("allow?");
    kill(&user);
    run.wait_for_exit();
    let mut chat = TerminalSession::at_terminal(&user, &["chat", "--model", &model]);
    chat.until("/help lists the commands");
    chat.types("hang\r");
    chat.until("thinking");
    for text in ["first", "second"] {
        chat.types(&format!("/queue {text}\r"));
        chat.until(&format!("> {text}"));
    }
    chat.types("and this\r");
    chat.until("> and this");
    // Text on the screen may not be durable yet, but text that another process can read is.
    let queue = || user.call(&["queue", &session(&user, 0)]).out.lines().count();
    assert!((0..100).any(|_| queue() == 3), "the queue lacks the typed lines");
    kill(&user);
    chat.wait_for_exit();
    let ids = (session(&user, 1), session(&user, 0));
    (user, ids.0, ids.1)
}

fn session(user: &User, place: usize) -> String {
    user.json(&["sessions", "--json"])[place]["id"].as_str().expect("an id").to_owned()
}

fn records(user: &User) -> String {
    let done = user.succeeds(&["export"]);
    done.out
}

#[test]
fn reading_commands_change_no_record() {
    let (user, asks, queued) = killed_sessions();
    let before = records(&user);
    for of in [&*asks, &*queued] {
        let commands: [&[&str]; 9] = [
            &["queue", of],
            &["queue", of, "list", "--json"],
            &["show", of],
            &["show", "--full", of],
            &["tree", of],
            &["usage", of],
            &["metadata", of],
            &["approvals", of],
            &["tasks", "--parent", of],
        ];
        for command in commands {
            let done = user.call(command);
            assert_eq!((done.code, records(&user) == before), (Some(0), true), "{command:?}: {done:?}");
        }
    }
    let commands: [&[&str]; 9] = [
        &["sessions"],
        &["sessions", "--all", "--json"],
        &["tasks"],
        &["approvals", "--all"],
        &["verify"],
        &["doctor"],
        &["agents"],
        &["prompt", "general"],
        &["config", "show"],
    ];
    for command in commands {
        let done = user.call(command);
        assert_eq!((done.code, records(&user) == before), (Some(0), true), "{command:?}: {done:?}");
    }
    // The control: a command that changes the store ends the remaining runs.
    assert_eq!(user.call(&["recover"]).code, Some(0));
    assert_ne!(records(&user), before);
}

#[test]
fn b11_queue_is_listed_in_the_order_of_its_runs() {
    let (user, _, queued) = killed_sessions();
    let done = user.call(&["queue", &queued]);
    let lines: Vec<_> = done.out.lines().map(|line| line.split_once("  ").expect("an id").1).collect();
    let ends = |line: &str, what: &str, text: &str| line.starts_with(what) && line.ends_with(text);
    let expected = [
        ("user, by the next run", "  first"),
        ("user, steers, by the next run", "  and this"),
        ("user, at a rest point", "  second"),
    ];
    assert_eq!(lines.len(), expected.len(), "{done:?}");
    for (line, (what, text)) in lines.iter().zip(expected) {
        assert!(ends(line, what, text), "{line}");
    }
}

#[test]
fn marks_and_times_after_a_kill_are_correct() {
    let (user, asks, queued) = killed_sessions();
    let shown = |of: &str| user.call(&["show", of]).out;
    assert!(shown(&asks).contains("◆ waits for approval"), "{}", shown(&asks));
    for listed in [user.call(&["tree", &asks]).out, user.call(&["sessions"]).out] {
        assert!(listed.contains("◆") && listed.contains("waits for approval") && !listed.contains('■'), "{listed}");
    }
    assert_eq!(user.call(&["recover"]).code, Some(0));
    // The model had not answered once.
    let lost = shown(&queued);
    assert!(lost.contains("run 1 lost") && lost.contains("working time unknown"), "{lost}");
    assert!(!lost.contains("0.0s of work"), "{lost}");
}
