//! Names of sessions and messages, and errors caused by the state of a session.

use super::super::page::Page;

const ECHO: &str = r#"{ "rules": [ { "agent": "*", "steps": [ { "text": "heard: {prompt}", "repeat": true } ] } ] }"#;

#[test]
fn errors_of_names_match_their_snapshot() {
    let mut page = Page::new();
    let model = page.user.script(ECHO);
    page.quiet("config set --user sessions.titles false", "");
    page.heading("Without a store");
    for verb in [
        "sessions",
        "tasks",
        "approvals",
        "tree a",
        "show a",
        "usage a",
        "queue a",
        "metadata a",
        "send a hi",
        "continue a",
        "branch a",
        "regenerate a",
        "switch a next",
        "rollback a",
        "interrupt a",
        "cancel a",
        "attach a",
        "close a",
        "summary a",
        "delete a --yes",
        "compact",
        "verify",
        "recover",
        "export",
        "export a",
        "token list",
    ] {
        page.call(verb);
    }
    page.heading("In memory");
    for verb in ["show a --store memory", "send a hi --store memory", "sessions --store memory"] {
        page.call(verb);
    }
    page.heading("Unknown sessions");
    page.quiet(&format!("run --quiet --model {model} one"), "");
    page.quiet(&format!("run --quiet --model {model} two"), "");
    page.name_sessions();
    for verb in [
        "tree nosuch",
        "show nosuch",
        "usage nosuch",
        "queue nosuch",
        "metadata nosuch",
        "metadata nosuch a=1",
        "send nosuch hi",
        "continue nosuch",
        "branch nosuch",
        "branch nosuch:1",
        "regenerate nosuch",
        "switch nosuch next",
        "rollback nosuch",
        "interrupt nosuch",
        "cancel nosuch",
        "attach nosuch",
        "approvals nosuch --allow 3.0",
        "close nosuch",
        "summary nosuch --model openai/a",
        "delete nosuch --yes",
        "export nosuch",
        "tasks --parent nosuch",
        "approvals nosuch",
        "chat nosuch",
        "show ''",
        "show 0192f0c1-2d3e-7abc-8def-0123456789ab",
        "show task_0192f0c12d3e7abc8def0123456789ab",
        "show root/aaaaaa/b",
    ] {
        page.call(verb);
    }
    page.heading("Ambiguous names");
    let listed = page.user.json(&["sessions", "--json"]);
    let [one, two] = [0, 1].map(|at| listed[at]["id"].as_str().expect("an id").to_owned());
    let same: String = one.chars().zip(two.chars()).take_while(|(one, two)| one == two).map(|(one, _)| one).collect();
    let same = same.trim_end_matches('-');
    page.name(same, "<start>");
    page.call(&format!("show {same}"));
    page.check("errors_names");
}

#[test]
fn errors_of_a_quiet_session_match_their_snapshot() {
    let mut page = Page::new();
    let model = page.user.script(ECHO);
    page.quiet("config set --user sessions.titles false", "");
    page.quiet(&format!("run --quiet --model {model} one"), "");
    let id = page.name_sessions();
    page.heading("Messages");
    for line in [
        format!("branch {id}:999"),
        format!("branch {id}:x"),
        format!("branch {id}:1"),
        format!("branch {id} --agent nosuch"),
        format!("regenerate {id}:1 --model {model}"),
        format!("regenerate {id}:999 --model {model}"),
        format!("switch {id} next"),
        format!("switch {id} 7"),
        format!("switch {id} odd"),
        format!("switch {id}:1 next"),
    ] {
        page.call(&line);
    }
    page.heading("Runs");
    for line in [
        format!("rollback {id}"),
        format!("rollback {id} --run 7"),
        format!("interrupt {id}"),
        format!("cancel {id}"),
        format!("cancel {id} --tree"),
        format!("queue {id}"),
        format!("queue {id} remove odd"),
        format!("queue {id} remove 0192f0c1-2d3e-7abc-8def-0123456789ab"),
        format!("queue {id} clear"),
        format!("metadata {id} =7"),
        format!("delete {id}"),
        format!("close {id}"),
        format!("close {id}"),
        format!("condense {id}"),
        format!("condense {id} --undo"),
        format!("summary {id}"),
        format!("condense {id} --model offline"),
        format!("summary {id} --model offline"),
        format!("summary {id} --model sonnet"),
    ] {
        page.call(&line);
    }
    page.heading("Options of sessions that exist");
    for line in [
        format!("send {id} '' --model {model}"),
        format!("send {id} hi --limit turns=5 --model {model}"),
        format!("send {id} hi --allow fs.write --model {model}"),
        format!("send {id} hi --ask fs.write --model {model}"),
        format!("send {id} hi --agent nosuch --model {model}"),
        format!("send {id} hi --agent explore --model {model}"),
        format!("send {id} hi --model sonnet"),
        format!("send {id} hi"),
        format!("send {id} hi --workspace .. --model {model}"),
        format!("continue {id} --turns 0 --model {model}"),
        format!("chat {id} --agent nosuch --model {model}"),
    ] {
        page.call(&line);
    }
    page.heading("Deleted sessions");
    page.call(&format!("delete {id} --yes"));
    page.call(&format!("show {id}"));
    page.call(&format!("send {id} hi --model {model}"));
    page.check("errors_sessions");
}

#[test]
fn errors_of_models_of_sessions_match_their_snapshot() {
    let mut page = Page::new();
    page.quiet("config set --user sessions.titles false", "");
    page.heading("A session with a cost limit");
    page.quiet("run --quiet --model offline --limit cost_micro=5 --price offline=1,1 one", "");
    let id = page.name_sessions();
    page.call(&format!("continue {id} more --quiet --model ollama/small"));
    page.heading("A session whose server cannot be used");
    page.variable("OLLAMA_HOST", "http://127.0.0.1:9");
    page.quiet("run --quiet --limit attempts=1 --model ollama/small two", "");
    let id = page.name_sessions();
    page.variable("OLLAMA_HOST", "not a host");
    page.call(&format!("continue {id} more --quiet"));
    page.variable("OLLAMA_HOST", "");
    page.heading("An imported session with a server of its own");
    page.quiet("run --quiet --limit attempts=1 --model openai/gpt --base-url http://127.0.0.1:9 three", "");
    let id = page.name_sessions();
    page.quiet(&format!("export {id} --out one.jsonl"), "");
    page.quiet("import one.jsonl --data other", "");
    page.variable("OPENAI_API_KEY", "k");
    page.call(&format!("continue {id} more --quiet --data other"));
    page.heading("An agent whose model is a script");
    page.user.file(".subtend/agents/player.md", "---\nmode: all\nmodel: scripted:a.json\n---\nYou play.\n");
    page.call("run --quiet --agent player --store memory four");
    page.check("errors_models_of_sessions");
}

/// A killed process left queued inputs and a run, which the verbs report.
#[test]
fn errors_of_a_killed_session_match_their_snapshot() {
    let mut page = Page::new();
    let model =
        page.user.script(r#"{ "rules": [ { "agent": "*", "steps": [ { "text": "so far", "hang": true } ] } ] }"#);
    page.user.resumable_agent("steady", "primary");
    let call = page.user.start(&["run", "--json", "--agent", "steady", "--model", &model, "hang"]);
    call.until(|event| event["record"]["turn_started"].is_object());
    let id = page.name_sessions();
    let lines =
        [format!("switch {id} next"), format!("rollback {id}"), format!("close {id}"), format!("delete {id} --yes")];
    page.heading("While its process runs");
    for line in &lines {
        page.call(line);
    }
    call.signal("KILL");
    assert_eq!(call.done().code, None);
    page.heading("After its process was killed");
    for line in &lines {
        page.call(line);
    }
    page.check("errors_killed_sessions");
}

#[cfg(unix)]
#[test]
fn errors_of_worktrees_match_their_snapshot() {
    use serde_json::json;

    use crate::cli::worktree::{delegating_model, isolated, repository, run, writes};

    let mut page = Page::new();
    page.call("worktree list");
    page.call("worktree diff root");
    page.user.file("a.txt", "a\n");
    let steps = [writes("a.txt", "b\n"), json!({"text": "done"})];
    run(&page.user, &delegating_model(&page.user, &json!({}), &steps));
    page.name_sessions();
    page.call("worktree list");
    page.call("worktree diff root");
    page.user.file("a.txt", "a\n");
    repository(&page.user);
    run(&page.user, &delegating_model(&page.user, &isolated(), &steps));
    let child = page.user.json(&["worktree", "list", "--json"])[0]["session"].as_str().expect("an id").to_owned();
    page.name(&child, "<child>");
    page.call(&format!("worktree merge {child}"));
    page.call(&format!("worktree discard {child}"));
    page.user.file("a.txt", "c\n");
    page.call(&format!("worktree merge {child} --yes"));
    page.check("errors_worktrees");
}

#[cfg(unix)]
#[test]
fn errors_of_restores_match_their_snapshot() {
    use serde_json::json;

    use crate::cli::worktree::writes;

    let mut page = Page::new();
    page.user.file("a.txt", "a\n");
    let steps = [writes("a.txt", "b\n"), writes("b.txt", "b\n"), json!({"text": "no", "refuse": true})];
    let model = page.user.script(&json!({"rules": [{"agent": "*", "steps": steps}]}).to_string());
    page.user.call(&["run", "--quiet", "--model", &model, "go", "--allow", "fs.*"]);
    page.name_sessions();
    page.call("rollback root --files");
    page.call("branch root:1 --files");
    page.call("rollback root --yes");
    page.call("rollback root --files --print c.txt");
    page.user.file("a.txt", "c\n");
    page.call("rollback root --files --yes");
    page.call("rollback root");
    page.user.file("a.txt", "b\n");
    page.call("rollback root --files --yes");
    page.check("errors_restores");
}
