//! The command at a terminal that `script` creates.
#![expect(clippy::disallowed_methods, reason = "the command under test runs in real time, and so does the test")]

use std::io::{Read as _, Write as _};
use std::process::{Child, ChildStdin};
use std::time::Instant;

use super::call::*;

/// A model that writes or hangs on request, and repeats everything else.
pub(crate) const MODEL: &str = r#"{ "rules": [ { "agent": "*", "steps": [ [
    { "when": { "last_contains": "please write" }, "latency_ms": 300, "repeat": true,
      "calls": [ { "tool": "write", "args": { "path": "a.txt", "content": "hi" } } ] },
    { "when": { "last_contains": "hang" }, "hang": true, "repeat": true },
    { "text": "heard: {last}", "repeat": true } ] ] } ] }"#;

/// Time limit for a text to appear.
const LONG: Duration = Duration::from_secs(60);

/// A running call whose stdin stays open.
pub(crate) struct TerminalSession {
    child: Child,
    stdin: Option<ChildStdin>,
    out: mpsc::Receiver<Vec<u8>>,
    shown: String,
}

impl TerminalSession {
    fn begin(mut command: Command) -> Self {
        let forking = no_forks();
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the command starts");
        drop(forking);
        let stdin = child.stdin.take();
        let mut stdout = child.stdout.take().expect("stdout");
        let (sender, out) = mpsc::channel();
        thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(1..) = stdout.read(&mut piece).map(|n| sender.send(piece[..n].to_vec()).map_or(0, |()| n)) {}
        });
        Self { child, stdin, out, shown: String::new() }
    }

    pub(crate) fn at_terminal(user: &User, args: &[&str]) -> Self {
        Self::shell(user, &screen_text(user, args))
    }

    pub(crate) fn shell(user: &User, line: &str) -> Self {
        let mut command = Command::new("script");
        command.args(["-qefc", line, "/dev/null"]).current_dir(user.workspace());
        command.env("SUBTEND_DATA", user.data()).env("TERM", "xterm").env_remove("RUST_BACKTRACE");
        command.env("XDG_CONFIG_HOME", user.config()).env("SUBTEND_TRUST", "1");
        Self::begin(command)
    }

    pub(crate) fn types(&mut self, text: &str) {
        self.stdin.as_mut().expect("stdin").write_all(text.as_bytes()).expect("write to stdin");
    }

    /// Waits until a text appears; returns the output before it.
    pub(crate) fn until(&mut self, text: &str) -> String {
        let begun = Instant::now();
        loop {
            if let Some(at) = self.shown.find(text) {
                let rest = self.shown.split_off(at);
                let before = std::mem::replace(&mut self.shown, rest[text.len()..].to_owned());
                return before;
            }
            let piece = self.out.recv_timeout(LONG.saturating_sub(begun.elapsed()));
            let piece = piece.unwrap_or_else(|_| panic!("`{text}` did not appear after: {}", self.shown));
            self.shown.push_str(&String::from_utf8_lossy(&piece));
        }
    }

    /// Waits for the exit with stdin open; returns the exit code and the last output.
    pub(crate) fn wait_for_exit(mut self) -> (Option<i32>, String) {
        let begun = Instant::now();
        loop {
            match self.out.recv_timeout(LONG.saturating_sub(begun.elapsed())) {
                Ok(piece) => self.shown.push_str(&String::from_utf8_lossy(&piece)),
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    panic!("the command did not exit; its last output: {}", self.shown)
                }
            }
        }
        let code = self.child.wait().expect("wait for the end").code();
        drop(self.stdin.take());
        (code, std::mem::take(&mut self.shown))
    }
}

pub(crate) fn screen_text(user: &User, args: &[&str]) -> String {
    let plain = user.command(args);
    let command_line = std::iter::once(plain.get_program()).chain(plain.get_args());
    command_line.map(|word| format!("'{}'", word.to_string_lossy())).collect::<Vec<_>>().join(" ")
}

impl Drop for TerminalSession {
    fn drop(&mut self) {
        // After a failed test, the process would wait for a line forever.
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

#[test]
fn closed_ask_does_not_take_the_next_line() {
    let user = User::new();
    let model = user.script(MODEL);
    let mut chat = TerminalSession::at_terminal(&user, &["chat", "--model", &model, "--ask", "fs.write"]);
    chat.until("/help lists the commands");
    chat.types("please write\r");
    chat.until("allow?");
    chat.types("/waiting\r");
    chat.until("the queue is empty"); // commands are accepted while a question is open
    chat.types("\u{3}");
    chat.until("the question was closed");
    chat.until("cancelled by a person");
    chat.types("hello\r");
    let before = chat.until("heard: hello");
    assert!(!before.contains("allow?"), "{before}");
    chat.until("✓"); // until the run ends, Ctrl-C cancels it and keeps the line
    chat.types("half a line\u{3}\u{4}"); // Ctrl-C discards the line, Ctrl-D exits
    let (code, last) = chat.wait_for_exit();
    assert_eq!(code, Some(0), "{last}");
    assert!(last.contains("general") && !last.contains("✓ ?"), "the tree does not name the agent: {last}");
    assert!(!user.workspace().join("a.txt").exists());
}

#[test]
fn b11_queue_names_the_kind_of_each_entry() {
    let user = User::new();
    let model = user.script(r#"{ "rules": [ { "agent": "*", "steps": [ { "text": "so far", "hang": true } ] } ] }"#);
    let mut chat = TerminalSession::at_terminal(&user, &["chat", "--model", &model]);
    chat.until("/help lists the commands");
    chat.types("hold\r");
    chat.until("so far");
    chat.types("/queue later on\r");
    chat.until("> later on");
    chat.types("/waiting\r");
    chat.until("user, at a rest point  later on");
    chat.types("\u{4}");
    assert_eq!(chat.wait_for_exit().0, Some(0));
}

#[test]
fn approver_is_attached_before_the_prompt_is_sent() {
    let user = User::new();
    let model = user.script(&MODEL.replace("300", "0"));
    let mut run = TerminalSession::at_terminal(&user, &["run", "please write", "--model", &model, "--ask", "fs.write"]);
    run.until("allow?");
    run.types("y\n");
    let (code, shown) = run.wait_for_exit();
    assert_eq!((code, user.workspace().join("a.txt").exists()), (Some(0), true), "{shown}");
}

/// Kills the process that `script` started and that holds the store, and not `script` itself.
pub(crate) fn kill(user: &User) {
    let refused = user.call(&["compact"]).err;
    let (_, pid) = refused.split_once("is in use by process ").expect("the process that has the store");
    let pid: String = pid.chars().take_while(char::is_ascii_digit).collect();
    let killed = Command::new("kill").args(["-KILL", &pid]).status();
    assert!(killed.expect("kill runs").success());
}

#[test]
fn open_ask_remains_in_the_store_after_a_crash() {
    let user = User::new();
    let model = user.script(MODEL);
    let mut run = TerminalSession::at_terminal(&user, &["run", "please write", "--model", &model, "--ask", "fs.write"]);
    run.until("allow?");
    kill(&user);
    run.wait_for_exit();
    let waiting = user.json(&["approvals", "--json"]);
    let row = |at: usize, part: &str| waiting[at][part].clone();
    assert_eq!(waiting.as_array().map(Vec::len), Some(1), "{waiting:#}");
    assert_eq!((row(0, "action"), row(0, "verdict")), (json!("fs.write"), Value::Null), "{waiting:#}");
    let id = row(0, "session");
    assert_eq!(user.json(&["approvals", "--json", id.as_str().expect("an id")]), waiting);
    assert_eq!(user.json(&["approvals", "--json", "--all"]), waiting);
}

/// A planner that proposes a plan, and an agent that executes it.
const PLAN: &str = r##"{ "rules": [
    { "agent": "plan", "steps": [ [
        { "when": { "last_contains": "not approved" }, "repeat": true, "calls": [ { "tool": "plan_exit", "args": { "plan": "# Better\n\n1. Write `a.txt`." } } ] },
        { "repeat": true, "calls": [ { "tool": "plan_exit", "args": { "plan": "# Rough" } } ] } ] ] },
    { "agent": "build", "steps": [ [
        { "when": { "last_contains": "approved" }, "repeat": true, "calls": [ { "tool": "write", "args": { "path": "a.txt", "content": "hi" } } ] },
        { "text": "carried out", "repeat": true } ] ] } ] }"##;

/// A command whose second line hides behind a comment, with characters that reverse and hide text.
const FOLDED: &str = r##"{ "rules": [ { "agent": "*", "steps": [
    { "calls": [ { "tool": "shell", "args": { "command": "git status # scan only\u202e\u200b\ntouch PWNED" } } ] },
    { "text": "done\u001b[2J\u202e\u200bend" } ] } ] }"##;

#[test]
fn u4_approval_prompt_hides_no_line_or_character() {
    let user = User::new();
    let model = user.script(FOLDED);
    let mut run = TerminalSession::at_terminal(&user, &["run", "--model", &model, "--ask", "shell.run", "go"]);
    let requested = run.until("allow?").replace('\r', "");
    let lines = "(and 1 more line) (shell)\n\n| git status # scan only<U+202E><U+200B>\n| touch PWNED\n\n";
    assert!(requested.contains(lines), "{requested}");
    run.types("n\r");
    run.until("done<U+001B>[2J<U+202E><U+200B>end");
    run.wait_for_exit();
    assert!(!user.workspace().join("PWNED").exists());
    let listed = user.call(&["approvals", "--all"]).out;
    assert!(listed.contains("scan only<U+202E><U+200B> (and 1 more line)"), "{listed}");
    assert!(listed.contains("\n    touch PWNED"), "{listed}");
}

#[test]
fn u4_output_is_escaped_unless_it_is_raw() {
    let user = User::new();
    let model = user.script(FOLDED);
    let run = |more: &[&str]| user.call(&[&["run", "--quiet", "--model", &model, "go"], more].concat());
    assert_eq!(run(&[]).out, "done<U+001B>[2J<U+202E><U+200B>end\n");
    // The control: without the guard the characters arrive unchanged.
    assert_eq!(run(&["--raw"]).out, "done\u{1b}[2J\u{202e}\u{200b}end\n");
    assert_eq!(run(&["--raw", "--json"]).code, Some(2));
    let mut raw = TerminalSession::at_terminal(&user, &["run", "--raw", "--model", &model, "go"]);
    raw.until("redirect the output");
    assert_eq!(raw.wait_for_exit().0, Some(2));
}

#[test]
fn g12_plan_is_executed_after_approval_at_the_terminal() {
    let user = User::new();
    let model = user.script(PLAN);
    let mut chat =
        TerminalSession::at_terminal(&user, &["chat", "--agent", "plan", "--model", &model, "--allow", "fs.write"]);
    chat.until("/help lists the commands");
    chat.types("plan it\r");
    let shown = chat.until("let build carry it out?");
    assert!(shown.contains("has a plan:") && shown.contains("# Rough"), "{shown}");
    chat.types("n\r");
    let shown = chat.until("let build carry it out?");
    assert!(shown.contains("# Better") && shown.contains("1. Write `a.txt`."), "{shown}");
    assert!(!user.workspace().join("a.txt").exists());
    chat.types("y\r");
    chat.until("carried out");
    chat.until("✓");
    chat.types("\u{4}");
    let (code, last) = chat.wait_for_exit();
    assert_eq!((code, user.workspace().join("a.txt").exists()), (Some(0), true), "{last}");
    let approvals = user.json(&["approvals", "--json", "--all"]);
    let row = |at: usize| (approvals[at]["plan"].clone(), approvals[at]["verdict"].clone());
    assert_eq!(
        [row(0), row(1)],
        [(json!("# Rough"), json!("deny")), (json!("# Better\n\n1. Write `a.txt`."), json!("allow")),]
    );
    let listed = user.call(&["approvals", "--all"]).out;
    assert!(
        listed.contains("plan_exit on build  allowed  plan: plan it\n    # Better\n\n    1. Write `a.txt`.\n"),
        "{listed}"
    );
    // From here on, the agent `build` answers in the session, even in another process.
    let id = user.json(&["sessions", "--json"])[0]["id"].as_str().expect("an id").to_owned();
    let sent = user.call(&["send", &id, "and now", "--quiet", "--model", &model]);
    assert_eq!(sent.out.trim(), "carried out", "{sent:?}");
    let shown = user.json(&["show", "--json", &id]);
    let answers = shown["entries"].as_array().expect("entries").iter().filter(|entry| entry["type"] == "answer");
    let agents: Vec<_> = answers.map(|answer| answer["agent"].clone()).collect();
    assert_eq!(agents[..2], ["plan", "plan"], "{shown}");
    assert!(agents.len() > 2 && agents[2..].iter().all(|agent| agent == "build"), "{agents:?}");
}

#[test]
fn text_typed_before_an_ask_does_not_answer_it() {
    let user = User::new();
    let model = user.script(MODEL);
    let mut run = TerminalSession::at_terminal(&user, &["run", "please write", "--model", &model, "--ask", "fs.write"]);
    run.until("thinking");
    run.types("y\n");
    run.until("allow?");
    run.types("n\n");
    let (code, shown) = run.wait_for_exit();
    assert_eq!((code, user.workspace().join("a.txt").exists()), (Some(0), false), "{shown}");
}

#[test]
fn leaving_a_chat_cancels_its_run_and_resets_the_terminal() {
    let user = User::new();
    let model = user.script(MODEL);
    let mut chat = TerminalSession::at_terminal(&user, &["chat", "--model", &model]);
    chat.until("/help lists the commands");
    chat.types("hang\r");
    chat.until("thinking");
    chat.types("/quit\r");
    let (code, last) = chat.wait_for_exit();
    assert_eq!(code, Some(0), "{last}");
    let left = last.rfind("> ").map(|at| &last[at..]).expect("a prompt line");
    let drawn = left.contains("cancelled") && left.matches('■').count() == 1;
    assert!(
        drawn && !left.replace("\r\n", "").contains('\n'),
        "the chat must leave the tree once, at the left edge: {left:?}"
    );
    assert_eq!(user.json(&["sessions", "--json"])[0]["outcome"], json!("cancelled"));
}

#[test]
fn controls_and_lines_apply_to_the_regenerated_answer() {
    let user = User::new();
    let model = user.script(r#"{ "rules": [ { "agent": "*", "steps": [ { "text": "as it was" } ] } ] }"#);
    user.succeeds(&["run", "--quiet", "--model", &model, "please hang"]);
    let id = user.json(&["sessions", "--json"])[0]["id"].as_str().expect("an id").to_owned();
    let model = user.script(MODEL);
    let mut chat = TerminalSession::at_terminal(&user, &["chat", &id, "--model", &model]);
    chat.until("/help lists the commands");
    chat.types("\u{1b}");
    chat.until("no run is in flight");
    for stop in ["/interrupt\r", "\u{3}"] {
        chat.types("/regenerate\r");
        chat.until("thinking");
        chat.types("/regenerate\r");
        chat.until("already being regenerated");
        chat.types("hello\r");
        chat.until("wait until it is complete");
        chat.until("> hello"); // the refused line can be edited
        if stop.starts_with('/') {
            chat.types("\u{15}");
        }
        chat.types(stop);
        chat.until("cancelled by a person");
    }
    chat.types("\r");
    chat.until("heard: hello");
    chat.until("✓");
    chat.types("/cancel tree\r");
    chat.until("no run is in flight");
    chat.types("\u{4}");
    let (code, last) = chat.wait_for_exit();
    assert_eq!(code, Some(0), "{last}");
    let tree = user.json(&["tree", "--json", &id]);
    let outcomes: Vec<_> = tree["children"]
        .as_array()
        .expect("children")
        .iter()
        .map(|child| &child["outcome"]["cancelled"]["by"])
        .collect();
    assert_eq!(outcomes, [&json!("person"), &json!("person")], "{tree:#}");
}

#[test]
fn chat_checks_a_picked_agent_and_keeps_refused_lines() {
    let user = User::new();
    user.file(".subtend/agents/poet.md", "---\nmode: primary\n---\nYou write poems.\n");
    let model = user.script(
        r#"{ "rules": [
            { "agent": "poet", "steps": [ { "text": "a poem", "repeat": true } ] },
            { "agent": "*", "steps": [ { "text": "plain", "repeat": true } ] } ] }"#,
    );
    let mut chat = TerminalSession::at_terminal(&user, &["chat", "--model", &model, "--limit", "input_bytes=12"]);
    chat.until("/help lists the commands");
    for nosuch in ["nosuch", "explore"] {
        chat.types(&format!("/agent {nosuch}\r"));
        chat.until(&format!("unknown agent {nosuch}; agents that can answer: "));
        chat.until("general");
    }
    chat.types("/agent poet\r");
    chat.until("poet answers from the next line on");
    chat.types("a line too long\r");
    chat.until("the limit is 12");
    chat.until("> a line too long");
    chat.types("\u{15}short\r");
    chat.until("a poem");
    chat.until("✓");
    chat.types("\u{4}");
    let (code, last) = chat.wait_for_exit();
    assert_eq!(code, Some(0), "{last}");
}

#[test]
fn chat_waiting_for_a_line_obeys_a_signal() {
    let user = User::new();
    let model = user.script(MODEL);
    let mut chat = TerminalSession::begin(user.command(&["chat", "--quiet", "--model", &model]));
    chat.types("one\n");
    chat.until("heard: one\n");
    let killed = Command::new("kill").args(["-TERM", &chat.child.id().to_string()]).status();
    assert!(killed.expect("kill runs").success());
    assert_eq!(chat.wait_for_exit().0, Some(130));
}

#[test]
fn a8_delete_shows_what_it_deletes_and_asks() {
    let user = User::new();
    let model = user.script(MODEL);
    user.succeeds(&["run", "--quiet", "--model", &model, "find the tests"]);
    let id = user.json(&["sessions", "--json"])[0]["id"].as_str().expect("an id").to_owned();
    for (answer, text) in [("\n", "nothing is deleted"), ("n\n", "nothing is deleted"), ("y\n", "deleted 1 session;")] {
        assert_eq!(user.json(&["sessions", "--json"]).as_array().expect("rows").len(), 1, "before {answer:?}");
        let mut typing = TerminalSession::at_terminal(&user, &["delete", &id]);
        let shown = typing.until("Delete? [y/N]");
        assert!(shown.contains("This deletes 1 session, ") && shown.contains("find the tests"), "{shown}");
        typing.types(answer);
        typing.until(text);
        // The process holds the store until it exits.
        typing.wait_for_exit();
    }
    assert_eq!(user.json(&["sessions", "--json"]), json!([]));
}

/// An unknown id is reported first, even if there is no terminal to confirm the deletion.
#[test]
fn a8_delete_of_an_unknown_id_names_it_first() {
    let user = User::new();
    let model = user.script(MODEL);
    user.succeeds(&["run", "--quiet", "--model", &model, "find the tests"]);
    for args in [&["delete", "zzz"][..], &["delete", "zzz", "--yes"], &["delete", "zzz", "--yes", "--force"]] {
        let done = user.call(args);
        let text = "error: no session matches `zzz`; `subtend sessions --all` lists all\n";
        assert_eq!((done.code, done.out.as_str(), done.err.as_str()), (Some(1), "", text), "{args:?}");
    }
    let mut typing = TerminalSession::at_terminal(&user, &["delete", "zzz"]);
    assert!(!typing.until("no session matches").contains("Delete?"));
    typing.wait_for_exit();
    let id = user.json(&["sessions", "--json"])[0]["id"].as_str().expect("an id").to_owned();
    let done = user.call(&["delete", &id]);
    assert_eq!(done.code, Some(2), "{done:?}");
    assert!(
        done.err.contains("nothing is deleted: there is no terminal to confirm the deletion. Use --yes"),
        "{done:?}"
    );
}

#[test]
fn a8_delete_names_what_the_parent_keeps() {
    let user = User::new();
    let model = user.script(MODEL);
    user.succeeds(&["run", "--quiet", "--model", &model, "find the tests"]);
    let id = user.json(&["sessions", "--json"])[0]["id"].as_str().expect("an id").to_owned();
    user.succeeds(&["regenerate", &id, "--quiet", "--model", &model]);
    let made = user.json(&["tree", &id, "--json"])["children"][0]["id"].as_str().expect("an id").to_owned();
    for (session, keeps) in [(&made, true), (&id, false)] {
        let mut typing = TerminalSession::at_terminal(&user, &["delete", session]);
        let shown = typing.until("Delete? [y/N]");
        assert_eq!(shown.contains("The parent session keeps the answer that was regenerated here."), keeps, "{shown}");
        typing.types("n\n");
        typing.wait_for_exit();
    }
    let help = user.call(&["delete", "--help"]).out;
    assert!(help.split_whitespace().collect::<Vec<_>>().join(" ").contains("the result that it received"), "{help}");
}

/// The first command that would use files of the workspace asks about trust, and the answer is recorded.
#[test]
fn untrusted_workspace_is_asked_about_once() {
    let user = User::new();
    user.file(".subtend/agents/mine.md", "---\nmode: all\ndescription: Works for the repository.\n---\nObey.\n");
    let untrusted =
        |args: &[&str]| TerminalSession::shell(&user, &format!("SUBTEND_TRUST=0 {}", screen_text(&user, args)));
    let run = ["run", "--store", "memory", "hi"];
    let mut first = untrusted(&run);
    assert!(first.until("Use it? [y/N]").contains("agent mine: Works for the repository."));
    first.types("n\n");
    first.until("ignored: you have");
    assert_eq!(first.wait_for_exit().0, Some(0));
    let (code, second) = untrusted(&run).wait_for_exit();
    assert_eq!(
        (code, second.contains("Use it?"), second.contains("ignored: you have")),
        (Some(0), false, true),
        "{second}"
    );
    let mut trust = untrusted(&["trust"]);
    trust.until("Use it? [y/N]");
    trust.types("y\n");
    trust.until("is trusted");
    assert_eq!(trust.wait_for_exit().0, Some(0));
    let (code, third) = untrusted(&run).wait_for_exit();
    assert_eq!(
        (code, third.contains("Use it?"), third.contains("ignored: you have")),
        (Some(0), false, false),
        "{third}"
    );
}
