//! Output of a conversation at a terminal: streamed answers, calls, approvals and earlier messages.

use super::call::*;
use super::terminal::{MODEL, TerminalSession, screen_text};

/// An answer of three lines that takes seconds to arrive.
const SLOW: &str = r#"{ "rules": [ { "agent": "*", "steps": [
    { "chunk_ms": 1500, "text": "The first line, which is longer than one piece of it.\nThe second line, which is as long as the first one is.\nend", "repeat": true } ] } ] }"#;

/// A model that edits a file, then runs a command of two lines, then answers.
const EDITOR: &str = r#"{ "rules": [ { "agent": "*", "steps": [
    { "text": "I edit it.", "calls": [ { "tool": "edit", "args": { "path": "a.txt", "old": "two\nthree", "new": "2\n2.5\nthree" } } ] },
    { "calls": [ { "tool": "shell", "args": { "command": "echo first\necho second" } } ] },
    { "text": "done" } ] } ] }"#;

/// Leaves a chat whose run has ended; returns the last output.
fn leave(mut chat: TerminalSession) -> String {
    chat.types("\u{4}");
    let (code, last) = chat.wait_for_exit();
    assert_eq!(code, Some(0), "{last}");
    last
}

#[test]
fn u1_chat_shows_an_answer_while_it_arrives() {
    let user = User::new();
    let model = user.script(SLOW);
    let mut chat = TerminalSession::at_terminal(&user, &["chat", "--model", &model]);
    chat.until("/help lists the commands");
    chat.types("go\r");
    chat.until("The first line");
    let before = chat.until("The second line");
    assert!(before.contains("writing") && !before.contains('✓'), "{before}");
    chat.until("✓");
    leave(chat);
}

#[test]
fn u1_run_prints_a_streamed_answer_once() {
    let user = User::new();
    let model = user.script(SLOW);
    let mut run = TerminalSession::at_terminal(&user, &["run", "go", "--model", &model]);
    run.until("The first line, which is longer than one piece of it.\r\n");
    let before = run.until("The second line, which is as long as the first one is.\r\n");
    assert!(!before.contains('✓'), "{before}");
    let (code, rest) = run.wait_for_exit();
    assert_eq!((code, rest.matches("The ").count()), (Some(0), 0), "{rest}");
    // If stdout is a pipe, the answer is written only there.
    let line = format!("{} | sed s/^/out:/", screen_text(&user, &["run", "go", "--model", &model]));
    let (code, shown) = TerminalSession::shell(&user, &line).wait_for_exit();
    assert_eq!((code, shown.matches("The first line").count()), (Some(0), 1), "{shown}");
    assert!(shown.contains("out:The first line"), "{shown}");
}

#[test]
fn u5_many_lines_are_one_message() {
    let user = User::new();
    let model = user.script(MODEL);
    let mut chat = TerminalSession::at_terminal(&user, &["chat", "--model", &model]);
    chat.until("/help lists the commands");
    chat.types("\u{1b}[200~one\rtwo\r\r/usr\u{1b}[201~\r");
    chat.until("/usr");
    chat.until("✓");
    chat.types("three\u{1b}\rfour\r");
    chat.until("four");
    chat.until("✓");
    leave(chat);
    let id = user.json(&["sessions", "--json"])[0]["id"].as_str().expect("an id").to_owned();
    let shown = user.json(&["show", "--json", &id]);
    let inputs = shown["entries"].as_array().expect("entries").iter().filter(|entry| entry["type"] == "input");
    let inputs: Vec<_> = inputs.map(|entry| entry["text"].clone()).collect();
    assert_eq!(inputs, [json!("one\ntwo\n\n/usr"), json!("three\nfour")]);
}

#[test]
fn u2_u4_asks_are_shown_whole_and_calls_leave_lines() {
    let user = User::new();
    user.file("a.txt", "one\ntwo\nthree\n");
    let model = user.script(EDITOR);
    let args = ["chat", "--model", &model, "--ask", "fs.write", "--ask", "shell.run"];
    let mut chat = TerminalSession::at_terminal(&user, &args);
    chat.until("/help lists the commands");
    chat.types("go\r");
    let diff = chat.until("allow?").replace('\r', "");
    assert!(diff.contains("| a.txt\n| -two\n| +2\n| +2.5\n|  three\n\n"), "{diff}");
    chat.types("y\r");
    let command = chat.until("allow?").replace('\r', "");
    assert!(command.contains("  edit a.txt (+2 -1)"), "{command}");
    assert!(command.contains("| echo first\n| echo second\n\n"), "{command}");
    chat.types("n\r");
    let denied = chat.until("done");
    assert!(denied.contains("  shell echo first echo second") && denied.contains("denied: "), "{denied}");
    chat.until("✓");
    leave(chat);
}

#[test]
fn h2_chat_shows_the_earlier_conversation() {
    let user = User::new();
    let model = user.script(MODEL);
    let mut chat = TerminalSession::at_terminal(&user, &["chat", "--model", &model]);
    chat.until("/help lists the commands");
    chat.types("hello\r");
    chat.until("heard: hello");
    chat.until("✓");
    let last = leave(chat);
    let id = user.json(&["sessions", "--json"])[0]["id"].as_str().expect("an id").to_owned();
    let back = last.split_once("return to it: subtend chat ").expect("the command to return").1;
    let name: String = back.chars().take_while(char::is_ascii_hexdigit).collect();
    assert!(name.len() >= 6 && id.ends_with(&name), "{name} is not the end of {id}");
    // A branch shows the conversation that it inherits.
    let branch = user.call(&["branch", &id]).out;
    for session in [&*name, branch.trim()] {
        let mut chat = TerminalSession::at_terminal(&user, &["chat", session, "--model", &model]);
        let shown = chat.until("/help lists the commands");
        assert!(shown.contains("> hello") && shown.contains("heard: hello"), "{shown}");
        leave(chat);
    }
}
