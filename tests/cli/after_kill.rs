//! Approvals and runs that a kill left pending, at a terminal.

use super::call::*;
use super::terminal::{MODEL, TerminalSession, kill, screen_text};

fn newest(user: &User) -> String {
    user.json(&["sessions", "--json"])[0]["id"].as_str().expect("an id").to_owned()
}

/// Kills a resumable run once its output contains `until`; returns the user, the session and the model.
fn killed_session(prompt: &str, until: &str) -> (User, String, String) {
    let user = User::new();
    user.resumable_agent("steady", "primary");
    let model = user.script(MODEL);
    let args = ["run", prompt, "--agent", "steady", "--model", &model, "--ask", "fs.write"];
    let mut run = TerminalSession::at_terminal(&user, &args);
    run.until(until);
    kill(&user);
    run.wait_for_exit();
    let id = newest(&user);
    (user, id, model)
}

/// The resumed run asks during the start, before the session learns that an approver is attached.
#[test]
fn ask_left_by_a_kill_is_repeated_when_the_run_resumes() {
    let (user, id, model) = killed_session("please write", "allow?");
    let works = ["--model", &model];
    let mut on = TerminalSession::at_terminal(&user, &[&["continue", &id][..], &works].concat());
    on.until("allow?");
    on.types("y\n");
    let (code, shown) = on.wait_for_exit();
    assert_eq!((code, user.workspace().join("a.txt").exists()), (Some(0), true), "{shown}");
}

#[test]
fn text_typed_before_a_repeated_ask_does_not_answer_it() {
    let (user, id, model) = killed_session("please write", "allow?");
    let works = ["--model", &model];
    let gate = user.data().join("gate");
    assert!(Command::new("mkfifo").arg(&gate).status().expect("mkfifo runs").success());
    let call = screen_text(&user, &[&["continue", &id][..], &works].concat());
    let mut on = TerminalSession::shell(&user, &format!("cat '{}'; {call}", gate.display()));
    on.types("y\n");
    on.until("y"); // typed before the process that asks has started
    std::fs::write(&gate, "").expect("the gate opens");
    on.until("allow?");
    on.types("n\n");
    let (code, shown) = on.wait_for_exit();
    assert_eq!((code, user.workspace().join("a.txt").exists()), (Some(0), false), "{shown}");
}

/// At a terminal without cursor control a chat reads lines as messages and asks no questions.
#[test]
fn chat_without_approver_denies_repeated_asks_at_once() {
    let (user, id, model) = killed_session("please write", "allow?");
    let works = ["--model", &model];
    let call = screen_text(&user, &[&["chat", &id][..], &works].concat());
    let mut chat = TerminalSession::shell(&user, &format!("TERM=dumb {call}"));
    chat.types("hello\n");
    chat.until("heard: hello");
    chat.types("\u{4}");
    assert_eq!(chat.wait_for_exit().0, Some(0));
    let approvals = user.json(&["approvals", "--json", "--all", &id]);
    assert_eq!(
        (&approvals[0]["verdict"], &approvals[0]["by"]),
        (&json!("deny"), &json!("no_approver")),
        "{approvals:#}"
    );
}

/// A run that resumes after a kill is active in the chat: a line steers it, and Ctrl-C cancels it.
#[test]
fn resumed_run_is_active_in_the_chat() {
    let (user, id, model) = killed_session("hang", "thinking");
    let mut chat = TerminalSession::at_terminal(&user, &["chat", &id, "--model", &model]);
    chat.until("resuming run 1 of an earlier process");
    chat.types("and this\r");
    chat.types("\u{3}");
    chat.until("run 1 cancelled by a person");
    chat.until("heard: and this");
    chat.until("✓");
    chat.types("\u{4}");
    assert_eq!(chat.wait_for_exit().0, Some(0));
    assert_eq!(user.json(&["tree", "--json", &id])["outcome"], json!("completed"));
}

/// The answer arrives either during the start, before a client is connected, or later.
#[test]
fn chat_shows_the_answer_of_an_earlier_process_once() {
    for latency_ms in [0, 3000] {
        let (user, id, model) = killed_session("hang", "thinking");
        let steps = json!([{ "text": "back again", "latency_ms": latency_ms, "repeat": true }]);
        user.script(&json!({ "rules": [ { "agent": "*", "steps": steps } ] }).to_string());
        let mut chat = TerminalSession::at_terminal(&user, &["chat", &id, "--model", &model]);
        chat.until("/help lists the commands");
        let before = chat.until("back again");
        assert_eq!(before.contains("resuming run 1 of an earlier process"), latency_ms > 0, "{before}");
        // The live tree shows the answer until the run ends.
        chat.until("✓");
        chat.types("\u{4}");
        let (code, rest) = chat.wait_for_exit();
        assert_eq!((code, rest.contains("back again")), (Some(0), false), "{rest}");
    }
}

/// The start ends a run that does not resume, and takes the next queued input: the new run is active in the chat.
#[test]
fn run_opened_at_the_start_is_active_in_the_chat() {
    let user = User::new();
    let model = user.script(MODEL);
    let mut chat = TerminalSession::at_terminal(&user, &["chat", "--model", &model]);
    chat.until("/help lists the commands");
    chat.types("hang\r");
    chat.until("thinking");
    chat.types("/queue hang on\r");
    chat.until("> hang on");
    kill(&user);
    chat.wait_for_exit();
    let id = newest(&user);
    let mut chat = TerminalSession::at_terminal(&user, &["chat", &id, "--model", &model]);
    chat.until("run 1 lost");
    chat.types("\u{3}");
    chat.until("run 2 cancelled by a person");
    chat.types("\u{4}");
    assert_eq!(chat.wait_for_exit().0, Some(0));
    assert_eq!(user.json(&["tree", "--json", &id])["outcome"], json!({"cancelled": {"by": "person"}}));
}
