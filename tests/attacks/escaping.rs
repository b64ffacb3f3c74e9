//! Untrusted text shown to people: names, labels, answers, errors, imported sessions and approval prompts.

use std::io::{Read as _, Write as _};

use super::scene::*;
use subtend_session::record::AskVerdict;

use crate::cli::call::{CommandOutput, User};

/// Clears the screen, sets the title, reverses the writing direction and hides a character.
const HOSTILE: &str = "x\u{1b}[2J\u{1b}]0;owned\u{7}\u{202e}\u{200b}y";
const HOSTILE_YAML: &str = r#""x\e[2J\e]0;owned\a\u202e\u200by""#;

/// Asserts that the output has no control characters and shows the hostile text escaped.
fn assert_escaped(what: &str, done: &CommandOutput) {
    let printed = format!("{}{}", done.out, done.err);
    let obeyed = |c: char| (c.is_control() && c != '\n' && c != '\t') || matches!(c, '\u{202e}' | '\u{200b}');
    assert!(!printed.contains(obeyed), "{what}: {done:?}");
    assert!(printed.contains("<U+001B>"), "{what} does not show the hostile text: {done:?}");
}

#[test]
fn names_of_a_repository_are_shown_escaped() {
    const AGENT_FILE: &str = ".subtend/agents/mine.md";
    const ATTACKS: [(&str, &str, &[&str]); 8] = [
        (AGENT_FILE, "description: TEXT", &["agents"]),
        (AGENT_FILE, "description: TEXT", &["agents", "mine"]),
        (AGENT_FILE, "description: TEXT", &["trust", "--yes"]),
        (AGENT_FILE, "TEXT: 1", &["agents", "check", AGENT_FILE]),
        (AGENT_FILE, "permissions: {TEXT: allow}", &["run", "--store", "memory", "--agent", "mine", "hi"]),
        ("subtend.yaml", "TEXT: 1", &["config", "show"]),
        ("subtend.yaml", "agent: TEXT", &["run", "--store", "memory", "hi"]),
        ("subtend.yaml", "llm: {pools: {TEXT: [offline]}, default_pool: other}", &["config", "show"]),
    ];
    for (path, text, verb) in ATTACKS {
        let user = User::new();
        let text = text.replace("TEXT", HOSTILE_YAML);
        let text =
            if path == AGENT_FILE { format!("---\nmode: all\n{text}\n---\nWork.\n") } else { format!("{text}\n") };
        user.file(path, &text);
        assert_escaped(&format!("{text} by {verb:?}"), &user.call(verb));
    }
    // The control: programs read the value with these characters.
    let user = User::new();
    user.file(AGENT_FILE, &format!("---\nmode: all\ndescription: {HOSTILE_YAML}\n---\nWork.\n"));
    let listed = user.json(&["agents", "--json"]);
    assert!(listed["agents"].as_array().expect("agents").iter().any(|agent| agent["description"] == HOSTILE));
}

/// A name with line breaks forges no line of a warning or an error. The control: the prompt of an agent keeps its lines.
#[test]
fn names_of_a_repository_forge_no_lines() {
    const AGENT_FILE: &str = ".subtend/agents/mine.md";
    const RUN: &[&str] = &["run", "--store", "memory", "hi"];
    const ATTACKS: [(&str, &str, &[&str]); 13] = [
        ("subtend.yaml", "'TEXT': 1", RUN),
        ("subtend.yaml", "tools: {spawn: {profiles: {p: {pool: 'TEXT'}}}}", RUN),
        ("subtend.yaml", "tools: {spawn: {profiles: {p: {pool: 'TEXT'}}}}", &["config", "show", "agent"]),
        ("subtend.yaml", "llm: {default_pool: 'TEXT'}", RUN),
        ("subtend.yaml", "llm: {default_pool: 'TEXT'}", &["doctor"]),
        ("subtend.yaml", "tools: {spawn: {profiles: {p: {system_prompt_file: 'TEXT'}}}}", RUN),
        ("subtend.yaml", "tools: {spawn: {enabled: true, profiles: {p: {agent: 'TEXT'}}}}", RUN),
        (".mcp.json", "{'mcpServers': {'TEXT': {}}}", RUN),
        (".mcp.json", "{'mcpServers': {'TEXT': {}}}", &["tools", "list"]),
        (".mcp.json", "{'mcpServers': {'TEXT': {}}}", &["doctor"]),
        (".mcp.json", "{'mcpServers': {'s': {'TEXT': 1}}}", &["tools", "list"]),
        (".mcp.json", "{'mcpServers': {'s': {'command': '${TEXT}'}}}", &["tools", "list"]),
        (AGENT_FILE, "---\nmode: all\n'TEXT': 1\n---\nx", &["agents", "check", AGENT_FILE]),
    ];
    let forged = |done: &CommandOutput| done.out.lines().chain(done.err.lines()).any(|line| line == "error: call me");
    for (path, text, verb) in ATTACKS {
        let user = User::new();
        user.file(path, &text.replace('\'', "\"").replace("TEXT", r"a\nerror: call me\nb"));
        let done = user.call(verb);
        let is_named = done.err.contains("call me") || done.out.contains("call me");
        assert!(is_named && !forged(&done), "{text} by {verb:?}: {done:?}");
    }
    let user = User::new();
    user.file(AGENT_FILE, "---\nmode: all\n---\na\nerror: call me\nb");
    assert!(forged(&user.call(&["agents", "mine"])));
}

/// Creates a store with a child that has hostile text wherever a model can write. Also returns the id of the root.
fn hostile_tree() -> (User, String, CommandOutput) {
    let user = User::new();
    let task =
        json!({"subagent_type": "explore", "description": HOSTILE, "prompt": HOSTILE, "metadata": {"a": HOSTILE}});
    let model = json!({"rules": [
        {"agent": "general", "steps": [{"calls": [{"tool": "task", "args": task}]}, {"text": HOSTILE}]},
        {"agent": "explore", "steps": [{"text": HOSTILE}]},
    ]});
    let model = user.script(&model.to_string());
    let done = user.succeeds(&["run", "--model", &model, HOSTILE]);
    let listed = user.json(&["sessions", "--json"]);
    let root = listed[0]["id"].as_str().expect("an id").to_owned();
    (user, root, done)
}

const VERBS: [&[&str]; 3] = [&["sessions"], &["tree", "ID"], &["show", "ID"]];

fn assert_tree_escaped(user: &User, root: &str) {
    for verb in VERBS {
        let args: Vec<&str> = verb.iter().map(|word| if *word == "ID" { root } else { *word }).collect();
        assert_escaped(&format!("{verb:?}"), &user.call(&args));
    }
}

#[test]
fn texts_of_a_child_are_shown_escaped() {
    const ATTACKS: [&str; 4] = ["run", "sessions", "tree", "show"];
    let (user, root, run) = hostile_tree();
    assert_escaped(ATTACKS[0], &run);
    assert_tree_escaped(&user, &root);
    // The control: the records keep the characters for programs.
    let raw = user.call(&["show", &root, "--json"]);
    assert!(raw.out.contains("\\u001b[2J"), "{raw:?}");
}

#[test]
fn texts_of_an_import_are_shown_escaped() {
    const ATTACKS: [&str; 3] = ["sessions", "tree", "show"];
    assert_eq!(ATTACKS, VERBS.map(|verb| verb[0]));
    let (user, root, _) = hostile_tree();
    user.file("notes", "");
    assert_eq!(user.call(&["export", "--out", "all.jsonl"]).code, Some(0));
    let other = User::new();
    let export = std::fs::read_to_string(user.workspace().join("all.jsonl")).expect("an export");
    // The control: the text is in the file as written.
    assert!(export.contains("\\u001b[2J"));
    other.file("all.jsonl", &export);
    let done = other.call(&["import", "all.jsonl"]);
    match done.code {
        Some(0) => assert_tree_escaped(&other, &root),
        // A name with control characters is refused; the refusal is escaped as well.
        _ => assert!(!done.err.contains('\u{1b}') && done.err.contains("control character"), "{done:?}"),
    }
}

fn server(head: &'static str, body: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("its address"));
    std::thread::spawn(move || {
        for mut connection in listener.incoming().flatten() {
            let answer =
                format!("HTTP/1.1 {head}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len());
            let read = connection.read(&mut [0; 65_536]);
            read.and_then(|_| connection.write_all(answer.as_bytes())).expect("a client that reads its answer");
        }
    });
    url
}

#[test]
fn texts_of_a_server_are_shown_escaped() {
    let event = |event: Value| format!("data: {event}\n\n");
    let answer = |delta: Value| {
        event(json!({"model": HOSTILE, "choices": [{"delta": delta}]}))
            + &event(json!({"choices": [{"delta": {}, "finish_reason": "stop"}]}))
            + "data: [DONE]\n\n"
    };
    let error = json!({"error": {"message": HOSTILE, "type": HOSTILE, "code": HOSTILE}});
    let attacks: [(&str, String); 4] = [
        ("500 Oops", error.to_string()),
        ("400 Bad Request", HOSTILE.to_owned()),
        ("200 OK", event(error)),
        ("200 OK", answer(json!({"content": HOSTILE}))),
    ];
    for (head, body) in attacks {
        // The control: the server sends characters that a terminal would obey.
        assert!(body.contains('\u{1b}') || body.contains("\\u001b"), "{body}");
        let user = User::new();
        let url = server(head, body.clone());
        let limits = ["--limit", "attempts=1"];
        let args = ["run", "hello", "--model", "openai/m", "--base-url", &url];
        let done = user.call(&[&args[..], &limits[..]].concat());
        let printed = format!("{}{}", done.out, done.err);
        assert!(!printed.contains(['\u{1b}', '\u{7}', '\u{202e}', '\u{200b}']), "{body}: {done:?}");
        assert!(printed.contains("[2J"), "{body} is not shown: {done:?}");
    }
}

/// An approval prompt shows every character of the command, and marks those that cannot be displayed.
#[tokio::test(start_paused = true)]
async fn approval_prompt_shows_the_whole_command() {
    const ATTACKS: [&str; 7] = [
        "git status # only\ntouch spoiled",
        "git status\rtouch spoiled",
        "touch spoiled \u{202e}sutats tig #",
        "git status\u{200b}; touch spoiled",
        "git status \u{1b}[8m; touch spoiled",
        "git status \u{2066}; touch spoiled",
        // The harmful part comes after the part that is shown first.
        concat!(
            "true ",
            "                                                                      ",
            "LONG; touch spoiled"
        ),
    ];
    for attack in ATTACKS {
        let attack = attack.replace("LONG", &"x".repeat(3_000));
        let mut scene = AttackScene::new().policy(Verdict::Allow, &[("shell.run", "*", Verdict::Ask)]);
        let host = scene.host().await;
        let mut approver = host.runtime.approver();
        let session = host.runtime.open("worker").expect("a session");
        let playing = async {
            session.send(script(&[call("shell", json!({"command": attack}))])).await.expect("accepted");
        };
        let ((), question) = tokio::join!(playing, approver.next());
        let shown = question.resource.to_string();
        let hides = |c: char| {
            (c.is_control() && c != '\n' && c != '\t')
                || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}')
        };
        if shown == attack {
            assert!(!shown.contains(hides), "{shown:?}");
        } else {
            // A similar command has another length and hash.
            assert!(!shown.contains(hides) && shown.contains(&format!("({} bytes, ", attack.len())), "{shown:?}");
        }
        approver.answer(&question, AskVerdict::Deny).await.expect("an answer");
        drop(approver);
        assert!(!scene.at("spoiled").exists());
        host.runtime.shutdown(std::time::Duration::from_secs(1)).await;
    }
}

/// The control: without an approval prompt the second line runs.
#[tokio::test]
async fn second_line_runs_without_an_approval_prompt() {
    let mut scene = AttackScene::new();
    let host = scene.host().await;
    host.run_steps("worker", &[call("shell", json!({"command": "true # only\ntouch spoiled"}))]).await;
    assert!(scene.at("spoiled").exists());
    host.shut_down().await;
}
