//! Runs that do not complete: the cause as the command prints it.

use super::super::page::Page;

fn every_agent(steps: &str) -> String {
    format!(r#"{{ "rules": [ {{ "agent": "*", "steps": [ {steps} ] }} ] }}"#)
}

#[test]
fn causes_of_runs_match_their_snapshot() {
    let mut page = Page::new();
    page.quiet("config set --user sessions.titles false", "");
    let list = r#"{ "text": "so far", "calls": [ { "tool": "list", "args": {} } ], "repeat": true }"#;
    for (what, options, steps) in [
        ("refused", "", r#"{ "refuse": true }"#.to_owned()),
        ("empty", "", r#"{ "empty": true }, { "empty": true }"#.to_owned()),
        ("truncated", "", r#"{ "text": "a", "truncated": true }, { "text": "b", "truncated": true }"#.to_owned()),
        ("garbage", "", r#"{ "garbage": "<<", "repeat": true }"#.to_owned()),
        ("panic", "", r#"{ "panic": "index out of bounds", "repeat": true }"#.to_owned()),
        ("turns", "--limit turns=1", list.to_owned()),
        ("recorded bytes", "--limit recorded_bytes=1", list.to_owned()),
        ("tokens", "--limit tokens=1", list.to_owned()),
        ("money", "--limit cost_micro=1 --price '*=100000,100000'", list.to_owned()),
        ("wall clock", "--limit wall_ms=1", r#"{ "hang": true }"#.to_owned()),
        ("silence", "--limit first_byte_ms=1 --limit attempts=1", r#"{ "hang": true }"#.to_owned()),
    ] {
        let model = page.user.script(&every_agent(&steps));
        let done = page.quiet(&format!("run {options} --model {model} hi"), "");
        let last = done.err.lines().find(|line| line.contains("general  ") && line.contains(['✗', '■', '◷', '?']));
        let code = done.code.unwrap_or(-1);
        page.note(
            &format!("run {}   # {what}", format!("{options} hi").trim_start()),
            &format!("exit {code}"),
            last.unwrap_or(&done.err),
        );
    }
    page.heading("Errors of the provider");
    for kind in [
        "auth",
        "credit",
        "access",
        "rate",
        "unavailable",
        "bad_answer",
        "context_overflow",
        "invalid_request",
        "dropped",
    ] {
        let step =
            format!(r#"{{ "error": {{ "kind": "{kind}", "message": "what the server said" }}, "repeat": true }}"#);
        let model = page.user.script(&every_agent(&step));
        let done = page.quiet(&format!("run --limit attempts=1 --model {model} hi"), "");
        let last = done.err.lines().find(|line| line.contains("general  ") && line.contains(['✗', '■', '◷', '?']));
        let code = done.code.unwrap_or(-1);
        page.note(&format!("run hi   # {kind}"), &format!("exit {code}"), last.unwrap_or(&done.err));
    }
    page.check("causes_of_runs");
}
