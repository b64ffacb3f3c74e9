//! A cloned repository: its files must not choose models, permissions or files of the user.

use serde_json::json;

use crate::cli::call::{CommandOutput, User};

/// The answer of a script in the repository.
const PLAYED: &str = "played by the repository";

/// A workspace whose script `notes.json` answers.
fn cloned() -> User {
    let user = User::new();
    let script = json!({"rules": [{"agent": "*", "steps": [{"text": PLAYED, "repeat": true}]}]});
    user.file("notes.json", &script.to_string());
    user
}

fn run(user: &User, more: &[&str]) -> CommandOutput {
    user.call(&[&["run", "--store", "memory", "hi"], more].concat())
}

fn with(user: &User, variable: (&str, &str), args: &[&str]) -> CommandOutput {
    let mut command = user.command(args);
    command.env(variable.0, variable.1);
    crate::cli::call::Under::start(command, "").done()
}

/// The script of a repository is refused wherever a file names it; the same script answers once the person names it.
#[test]
fn script_of_the_repository_answers_no_call() {
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
        let says = "`scripted:notes.json` is a script, which only the command line can name";
        assert!(done.err.contains(says), "{text}: {done:?}");
    }
    let control = run(&cloned(), &["--model", "scripted:notes.json"]);
    assert_eq!((control.code, control.out.trim()), (Some(0), PLAYED), "{control:?}");
}

/// A built-in agent that the repository replaces starts a child whose file names the script: the child's run fails.
#[test]
fn a_script_answers_for_no_child() {
    let user = cloned();
    user.file(".subtend/agents/sub.md", "---\nmode: all\ndescription: x\nmodel: scripted:notes.json\n---\nx\n");
    let call = json!({"tool": "task", "args": {"subagent_type": "sub", "prompt": "go"}});
    let steps = json!({"rules": [{"agent": "general", "steps": [{"calls": [call]}, {"text": "{last}"}]}]});
    let model = user.script(&steps.to_string());
    let done = run(&user, &["--model", &model]);
    assert!(
        !done.out.contains(PLAYED) && done.out.contains("is a script, which only the command line can name"),
        "{done:?}"
    );
    user.file(".subtend/agents/sub.md", "---\nmode: all\ndescription: x\n---\nx\n");
    let both = json!({"rules": [
        {"agent": "general", "steps": [{"calls": [call]}, {"text": "{last}"}]},
        {"agent": "sub", "steps": [{"text": PLAYED}]},
    ]});
    let control = run(&user, &["--model", &user.script(&both.to_string())]);
    assert!(control.out.contains(PLAYED), "{control:?}");
}

#[test]
fn a_variable_names_no_script() {
    let user = cloned();
    let done = with(&user, ("SUBTEND_MODEL", "scripted:notes.json"), &["run", "--store", "memory", "hi"]);
    assert_eq!((done.code, &*done.out), (Some(2), ""), "{done:?}");
    assert!(done.err.contains("is a script, which only the command line can name"), "{done:?}");
    let control = with(&user, ("SUBTEND_MODEL", "offline"), &["run", "--store", "memory", "hi"]);
    assert_eq!(control.code, Some(0), "{control:?}");
}

/// A pipe would let another process answer while the session works.
#[cfg(unix)]
#[test]
fn a_script_is_a_regular_file() {
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
fn the_repository_chooses_among_enabled_providers_only() {
    let user = cloned();
    user.file("subtend.yaml", "llm: {model: ollama/small}\n");
    let refused = run(&user, &[]);
    assert_eq!((refused.code, &*refused.out), (Some(2), ""), "{refused:?}");
    assert!(refused.err.contains("`ollama/small` belongs to a provider that is not enabled"), "{refused:?}");
    // Enabled by the user, it is called: nothing listens here.
    let enabled =
        with(&user, ("OLLAMA_HOST", "127.0.0.1:1"), &["run", "--store", "memory", "--limit", "attempts=1", "hi"]);
    assert_eq!(enabled.code, Some(1), "{enabled:?}");
    assert!(enabled.err.contains("model: ollama/small (`llm.model` in "), "{enabled:?}");
}

/// Bounds of the process, prices and spending limits are the person's own; no key says where calls go.
#[test]
fn the_repository_lifts_no_bound_and_names_no_server() {
    let user = cloned();
    std::fs::create_dir_all(user.config().join("subtend")).expect("a folder");
    std::fs::write(user.config().join("subtend/subtend.yaml"), "limits: {tokens: 1000}\n").expect("a file");
    let attacks: [(&str, &str); 4] = [
        ("host: {slots: 4000}\n", "`host.slots`: a workspace cannot set it"),
        ("prices: {x: {input: 0, output: 0}}\n", "`prices.x`: a workspace cannot set it"),
        ("limits: {tokens: none}\n", "`limits.tokens`: a workspace can only lower it, and your own file sets 1000"),
        ("limits: {tokens: 1001}\n", "`limits.tokens`: a workspace can only lower it, and your own file sets 1000"),
    ];
    for (text, says) in attacks {
        user.file("subtend.yaml", text);
        let done = run(&user, &[]);
        assert_eq!((done.code, done.err.contains(says)), (Some(2), true), "{text}: {done:?}");
    }
    user.file("subtend.yaml", "limits: {tokens: 999}\nllm: {base_url: 'http://127.0.0.1:1', api_key: x}\n");
    let control = run(&user, &[]);
    assert!(control.err.contains("unknown key `llm.base_url` has no effect"), "{control:?}");
    let shown = user.json(&["config", "show", "limits.tokens", "--json"]);
    assert_eq!(shown["values"][0]["value"], json!(999));
}

/// One line on stderr names the model and where it was chosen; `--quiet` omits it.
#[test]
fn the_model_in_use_is_printed_with_its_origin() {
    let user = cloned();
    let model = |done: &CommandOutput| done.err.lines().find(|line| line.starts_with("model: ")).map(str::to_owned);
    let option = run(&user, &["--model", "scripted:notes.json"]);
    assert_eq!(model(&option).as_deref(), Some("model: scripted:notes.json (--model)"), "{option:?}");
    assert_eq!(option.out.trim(), PLAYED);
    assert_eq!(model(&run(&user, &["--model", "scripted:notes.json", "--quiet"])), None);
    user.file(".subtend/agents/mine.md", "---\nmode: all\nmodel: offline\n---\nx\n");
    let agent = model(&run(&user, &["--agent", "mine"])).expect("a line");
    assert!(agent.starts_with("model: offline (") && agent.ends_with(".subtend/agents/mine.md)"), "{agent}");
    user.file("subtend.yaml", "llm: {model: offline}\n");
    let file = model(&run(&user, &[])).expect("a line");
    assert!(file.starts_with("model: offline (`llm.model` in ") && file.ends_with("workspace/subtend.yaml)"), "{file}");
}
