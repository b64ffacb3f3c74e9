//! A cloned repository, whose files must not choose models, permissions or files of the user.

use super::scene::*;
use crate::cli::call::{CommandOutput, User};

const SCRIPT_ANSWER: &str = "played by the repository";

/// A workspace with a script, `notes.json`.
fn cloned() -> User {
    let user = User::new();
    let script = json!({"rules": [{"agent": "*", "steps": [{"text": SCRIPT_ANSWER, "repeat": true}]}]});
    user.file("notes.json", &script.to_string());
    user
}

fn run(user: &User, more: &[&str]) -> CommandOutput {
    user.call(&[&["run", "--store", "memory", "hi"], more].concat())
}

fn run_with_variable(user: &User, variable: (&str, &str), args: &[&str]) -> CommandOutput {
    let mut command = user.command(args);
    command.env(variable.0, variable.1);
    crate::cli::call::RunningCommand::start(command, "").done()
}

/// The script of a repository is refused wherever a file names it. The control: it answers when the user names it.
#[test]
fn script_of_a_repository_cannot_be_the_model() {
    let attacks: [(&str, &str, &[&str]); 5] = [
        ("subtend.yaml", "llm: {model: 'scripted:notes.json'}\n", &[]),
        ("subtend.yaml", "llm: {default_pool: p, pools: {p: [offline, 'scripted:notes.json']}}\n", &[]),
        ("subtend.yaml", "tools: {minion: {enabled: true, options: {model: 'scripted:notes.json'}}}\n", &[]),
        ("subtend.yaml", "tools: {options: {digest: {model: 'scripted:notes.json'}}}\n", &[]),
        (".subtend/agents/mine.md", "---\nmode: all\nmodel: scripted:notes.json\n---\nx\n", &["--agent", "mine"]),
    ];
    for (path, text, more) in attacks {
        let user = cloned();
        user.file(path, text);
        let done = run(&user, more);
        assert_eq!((done.code, &*done.out), (Some(2), ""), "{text}: {done:?}");
        let expected = "`scripted:notes.json` is a script, which only the command line can name";
        assert!(done.err.contains(expected), "{text}: {done:?}");
    }
    let control = run(&cloned(), &["--model", "scripted:notes.json"]);
    assert_eq!((control.code, control.out.trim()), (Some(0), SCRIPT_ANSWER), "{control:?}");
}

/// The repository replaces a built-in agent, which starts a child whose file names the script. The child's run fails.
#[test]
fn script_of_a_repository_cannot_answer_for_a_child() {
    let user = cloned();
    user.file(".subtend/agents/sub.md", "---\nmode: all\ndescription: x\nmodel: scripted:notes.json\n---\nx\n");
    let call = json!({"tool": "task", "args": {"subagent_type": "sub", "prompt": "go"}});
    let steps = json!({"rules": [{"agent": "general", "steps": [{"calls": [call]}, {"text": "{last}"}]}]});
    let model = user.script(&steps.to_string());
    let done = run(&user, &["--model", &model]);
    assert!(
        !done.out.contains(SCRIPT_ANSWER) && done.out.contains("is a script, which only the command line can name"),
        "{done:?}"
    );
    user.file(".subtend/agents/sub.md", "---\nmode: all\ndescription: x\n---\nx\n");
    let both = json!({"rules": [
        {"agent": "general", "steps": [{"calls": [call]}, {"text": "{last}"}]},
        {"agent": "sub", "steps": [{"text": SCRIPT_ANSWER}]},
    ]});
    let control = run(&user, &["--model", &user.script(&both.to_string())]);
    assert!(control.out.contains(SCRIPT_ANSWER), "{control:?}");
}

#[test]
fn variable_cannot_name_a_script() {
    let user = cloned();
    let done = run_with_variable(&user, ("SUBTEND_MODEL", "scripted:notes.json"), &["run", "--store", "memory", "hi"]);
    assert_eq!((done.code, &*done.out), (Some(2), ""), "{done:?}");
    assert!(done.err.contains("is a script, which only the command line can name"), "{done:?}");
    let control = run_with_variable(&user, ("SUBTEND_MODEL", "offline"), &["run", "--store", "memory", "hi"]);
    assert_eq!(control.code, Some(0), "{control:?}");
}

/// Another process could answer through a pipe while the session runs.
#[cfg(unix)]
#[test]
fn script_must_be_a_regular_file() {
    let user = cloned();
    let pipe = user.workspace().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
    const ATTACKS: [&str; 3] = ["scripted:pipe", "scripted:/dev/stdin", "scripted:."];
    for model in ATTACKS {
        let done = run(&user, &["--model", model]);
        assert_eq!((done.code, &*done.out), (Some(2), ""), "{model}: {done:?}");
        assert!(done.err.contains("it is not a regular file"), "{model}: {done:?}");
    }
    assert_eq!(run(&user, &["--model", "scripted:notes.json"]).code, Some(0));
}

/// A session must not send anything to a server that only the repository names.
#[test]
fn repository_can_name_only_enabled_providers() {
    let user = cloned();
    user.file("subtend.yaml", "llm: {model: ollama/small}\n");
    let refused = run(&user, &[]);
    assert_eq!((refused.code, &*refused.out), (Some(2), ""), "{refused:?}");
    assert!(refused.err.contains("`ollama/small` belongs to a provider that is not enabled"), "{refused:?}");
    // The control: once the user enables the provider, it is called; no server listens there.
    let enabled = run_with_variable(
        &user,
        ("OLLAMA_HOST", "127.0.0.1:1"),
        &["run", "--store", "memory", "--limit", "attempts=1", "hi"],
    );
    assert_eq!(enabled.code, Some(1), "{enabled:?}");
    assert!(enabled.err.contains("model: ollama/small (`llm.model` in "), "{enabled:?}");
}

/// Limits of the process, prices and spending limits belong to the user; no configuration key names a server.
#[test]
fn repository_cannot_raise_limits_or_name_servers() {
    let user = cloned();
    std::fs::create_dir_all(user.config().join("subtend")).expect("a folder");
    std::fs::write(user.config().join("subtend/subtend.yaml"), "limits: {tokens: 1000}\n").expect("a file");
    let attacks: [(&str, &str); 7] = [
        ("limits: {live_runs: 200}\n", "`limits.live_runs`: a workspace can only lower it, from 3"),
        ("limits: {recorded_bytes: 100000000000}\n", "`limits.recorded_bytes`: a workspace can only lower it"),
        ("limits: {calls_per_answer: 2000}\n", "`limits.calls_per_answer`: a workspace can only lower it"),
        ("host: {slots: 4000}\n", "`host.slots`: a workspace cannot set it"),
        ("prices: {x: {input: 0, output: 0}}\n", "`prices.x`: a workspace cannot set it"),
        ("limits: {tokens: none}\n", "`limits.tokens`: a workspace can only lower it, from 1000"),
        ("limits: {tokens: 1001}\n", "`limits.tokens`: a workspace can only lower it, from 1000"),
    ];
    for (text, expected) in attacks {
        user.file("subtend.yaml", text);
        let done = run(&user, &[]);
        assert_eq!((done.code, done.err.contains(expected)), (Some(2), true), "{text}: {done:?}");
    }
    user.file("subtend.yaml", "limits: {tokens: 999}\nllm: {base_url: 'http://127.0.0.1:1', api_key: x}\n");
    let control = run(&user, &[]);
    assert!(control.err.contains("unknown key `llm.base_url` has no effect"), "{control:?}");
    let shown = user.json(&["config", "show", "limits.tokens", "--json"]);
    assert_eq!(shown["values"][0]["value"], json!(999));
}

/// One line on stderr names the model and its origin; `--quiet` omits it.
#[test]
fn model_in_use_is_printed_with_its_origin() {
    let user = cloned();
    let model = |done: &CommandOutput| done.err.lines().find(|line| line.starts_with("model: ")).map(str::to_owned);
    let option = run(&user, &["--model", "scripted:notes.json"]);
    assert_eq!(model(&option).as_deref(), Some("model: scripted:notes.json (--model)"), "{option:?}");
    assert_eq!(option.out.trim(), SCRIPT_ANSWER);
    assert_eq!(model(&run(&user, &["--model", "scripted:notes.json", "--quiet"])), None);
    user.file(".subtend/agents/mine.md", "---\nmode: all\nmodel: offline\n---\nx\n");
    let agent = model(&run(&user, &["--agent", "mine"])).expect("a line");
    assert!(agent.starts_with("model: offline (") && agent.ends_with(".subtend/agents/mine.md)"), "{agent}");
    user.file("subtend.yaml", "llm: {model: offline}\n");
    let file = model(&run(&user, &[])).expect("a line");
    assert!(file.starts_with("model: offline (`llm.model` in ") && file.ends_with("workspace/subtend.yaml)"), "{file}");
}
