//! Permissions and limits that cannot take effect are refused, not ignored.

use super::call::*;

const READS: &str = r#"{ "rules": [ { "agent": "*", "steps": [
    { "calls": [ { "tool": "read", "args": { "path": "secret/key.txt" } } ] },
    { "text": "read" } ] } ] }"#;

fn scene(permissions: &str) -> (User, String) {
    let user = User::new();
    let model = user.script(READS);
    user.file("secret/key.txt", "the-secret-text");
    user.file(".subtend/agents/general.md", &format!("---\nmode: all\npermissions:\n  {permissions}\n---\nWork.\n"));
    (user, model)
}

fn result(user: &User) -> Value {
    let id = user.json(&["sessions", "--json"])[0]["id"].as_str().expect("an id").to_owned();
    let shown = user.json(&["show", "--json", &id]);
    let entries = shown["entries"].as_array().expect("entries");
    entries.iter().find(|entry| entry["type"] == "answer").expect("an answer")["calls"][0]["result"].clone()
}

#[test]
fn a1_deny_takes_effect_or_the_file_is_refused() {
    for (permissions, expected) in [
        ("\"fs.read=secret/**\": deny", "nest the pattern below it: `fs.read: {\"secret/**\": deny}`"),
        ("\"fs.reed\": deny", "unknown action; did you mean `fs.read`?"),
        ("\"{workspace}/secret/**\": deny", "unknown placeholder `{workspace}`"),
        (
            "fs.read: {\"{workspace}/secret/**\": deny}",
            "unknown placeholder `{workspace}`; paths are relative to the workspace",
        ),
    ] {
        let (user, model) = scene(permissions);
        let checked = user.call(&["agents", "check", ".subtend/agents"]);
        assert_eq!(checked.code, Some(1), "{permissions}: {checked:?}");
        assert!(checked.err.contains(expected), "{permissions}: {checked:?}");
        let run = user.call(&["run", "--model", &model, "look"]);
        assert_eq!(run.code, Some(2), "{permissions}: {run:?}");
        assert!(run.err.contains("the agent `general` is refused") && run.err.contains(expected), "{run:?}");
        assert!(!user.data().exists(), "a store was created");
    }
    for permissions in [
        "read: deny",
        "read: {\"secret/**\": deny}",
        "fs.read: {secret/**: deny}",
        "fs.read: {secret: deny}",
        "fs.read: {./secret: ask}",
        "fs.*: deny",
    ] {
        let (user, model) = scene(permissions);
        assert_eq!(user.call(&["agents", "check", ".subtend/agents"]).code, Some(0), "{permissions}");
        user.call(&["run", "--quiet", "--model", &model, "look"]);
        let result = result(&user).to_string();
        assert!(!result.contains("the-secret-text") && result != "null", "{permissions}: {result}");
    }
}

#[test]
fn a1_options_and_files_have_one_parser() {
    let user = User::new();
    let model = user.script(READS);
    for (rule, expected) in [
        ("fs.reed", "unknown action; did you mean `fs.read`?"),
        (
            "fs.read={workspace}/**",
            "unknown placeholder `{workspace}`; paths are relative to the workspace: write `**`",
        ),
        ("tool:weather", "no tool needs `tool:weather`"),
    ] {
        for option in ["--allow", "--ask"] {
            let done = user.call(&["run", "--model", &model, option, rule, "hi"]);
            assert_eq!(done.code, Some(2), "{done:?}");
            assert!(done.err.contains(expected) && done.err.contains(option), "{done:?}");
        }
    }
    // As in an agent file, a rule for `message` is valid even if agents cannot send messages.
    let messages = ["--allow", "tool:message", "--ask", "tool:message=parent"];
    user.succeeds(&[&["run", "--quiet", "--model", &model], &messages[..], &["hi"]].concat());
    user.file("secret/key.txt", "the-secret-text");
    user.succeeds(&["run", "--quiet", "--model", &model, "--ask", "read=secret/**", "hi"]);
    assert!(!result(&user).to_string().contains("the-secret-text"));
}

#[test]
fn a1_unknown_restricting_keys_fail_check_and_run() {
    let (user, model) = scene("fs.write: deny\ndisallowedTools: [read]");
    let expected =
        "`disallowedTools` is an unknown key, and a restriction is never ignored: write `permissions: {ACTION: deny}`";
    let checked = user.call(&["agents", "check", ".subtend/agents"]);
    assert!(checked.code == Some(1) && checked.err.contains(expected), "{checked:?}");
    let run = user.call(&["run", "--model", &model, "look"]);
    assert!(run.code == Some(2) && run.err.contains(expected) && !user.data().exists(), "{run:?}");
}

#[test]
fn a1_rules_for_unknown_agents_are_refused() {
    let (user, model) = scene("task: {exlpore: deny}");
    let expected = "unknown agent `exlpore`; did you mean `explore`?";
    let checked = user.call(&["agents", "check", ".subtend/agents"]);
    assert!(checked.code == Some(1) && checked.err.contains(expected), "{checked:?}");
    let run = user.call(&["run", "--model", &model, "look"]);
    assert!(run.code == Some(2) && run.err.contains(expected) && !user.data().exists(), "{run:?}");
    std::fs::remove_file(user.workspace().join(".subtend/agents/general.md")).expect("a file");
    for rule in ["task=exlpore", "task:exlpore"] {
        for option in ["--ask", "--allow"] {
            let done = user.call(&["run", "--model", &model, option, rule, "hi"]);
            let expected = format!("error: {expected} ({option} {rule})\n");
            assert_eq!((done.code, &*done.err), (Some(2), &*expected));
        }
    }
    // Agents of the workspace are known too, and patterns are accepted.
    user.file(".subtend/agents/critic.md", "---\nmode: all\n---\nJudge.\n");
    let rules = ["--ask", "task=critic", "--ask", "task:r*"];
    assert_eq!(user.call(&[&["run", "--quiet", "--model", &model], &rules[..], &["hi"]].concat()).code, Some(0));
}

#[test]
fn a1_allow_of_a_directory_is_refused() {
    let user = User::new();
    let model = user.script_named("done", "done");
    user.file("src/a.rs", "");
    let done = user.call(&["run", "--model", &model, "--allow", "fs.write=./src", "hi"]);
    let expected = "error: `src` is a directory, and an allow rule covers only the exact path: write `src/**` (--allow \
                fs.write=./src)\n";
    assert_eq!((done.code, &*done.err), (Some(2), expected));
    assert_eq!(user.call(&["run", "--quiet", "--model", &model, "--ask", "fs.write=src", "hi"]).code, Some(0));
}

#[test]
fn a7_permissions_are_refused_for_an_existing_session() {
    let user = User::new();
    let writes = r#"{ "rules": [ { "agent": "*", "steps": [
        { "calls": [ { "tool": "write", "args": { "path": "made.txt", "content": "made" } } ] }, { "text": "done" },
        { "calls": [ { "tool": "write", "args": { "path": "more.txt", "content": "more" } } ] }, { "text": "done" } ] } ] }"#;
    let model = user.script(writes);
    assert_eq!(user.call(&["run", "--quiet", "--model", &model, "--allow", "fs.write", "hi"]).code, Some(0));
    let id = user.json(&["sessions", "--json"])[0]["id"].as_str().expect("an id").to_owned();
    for verb in [vec!["send", &id, "hi"], vec!["continue", &id], vec!["regenerate", &id], vec!["chat", &id]] {
        for option in ["--allow", "--ask"] {
            let done = user.call(&[&verb[..], &["--model", &model, option, "shell.run"]].concat());
            let expected = format!(
                "error: `{option} shell.run`: a session keeps the permissions that it was opened with; open another one with this rule \
                 (`subtend run {option} shell.run`)\n"
            );
            assert_eq!((done.code, &*done.err), (Some(2), &*expected), "{verb:?}");
        }
    }
    // The permissions that it was opened with still apply.
    assert_eq!(user.call(&["send", &id, "again", "--quiet", "--model", &model]).code, Some(0));
    assert!(user.workspace().join("more.txt").exists());
}

#[test]
fn a11_limit_above_the_slots_of_the_host_is_refused() {
    let user = User::new();
    let model = user.script_named("done", "done");
    let done = user.call(&["run", "--model", &model, "--limit", "live_runs=1000", "hi"]);
    assert_eq!(done.code, Some(2), "{done:?}");
    assert!(done.err.contains("the limit `live_runs` of 1000 is above `slots` of the host, 256"), "{done:?}");
    let raised =
        user.call(&["run", "--quiet", "--model", &model, "--limit", "live_runs=1000", "--host", "slots=1000", "hi"]);
    assert_eq!((raised.code, &*raised.err), (Some(0), ""), "{raised:?}");
    let id = user.json(&["sessions", "--json"])[0]["id"].as_str().expect("an id").to_owned();
    let sent = user.call(&["send", &id, "--model", &model, "hi"]);
    assert!(sent.err.contains("limit `live_runs` of 1000 is lowered to the host's `slots`, 256"), "{sent:?}");
    let own = user.config().join("subtend/subtend.yaml");
    std::fs::create_dir_all(own.parent().expect("a folder")).expect("a folder");
    std::fs::write(own, "host: {slots: 2000, inbox: 8, events: 100, idle_ms: 1000}\n").expect("a file");
    let configured = user.call(&["run", "--quiet", "--model", &model, "--limit", "live_runs=1500", "hi"]);
    assert_eq!((configured.code, &*configured.err), (Some(0), ""), "{configured:?}");
    let shown = user.json(&["config", "show", "host", "--json"]);
    let values: Vec<_> =
        shown["values"].as_array().expect("values").iter().map(|one| (&one["key"], &one["value"])).collect();
    let expected = [("host.slots", 2000), ("host.inbox", 8), ("host.events", 100), ("host.idle_ms", 1000)];
    for (key, value) in expected {
        assert!(values.contains(&(&json!(key), &json!(value))), "{key}: {values:?}");
    }
}

#[test]
fn unknown_tools_cause_warnings_in_every_list() {
    let user = User::new();
    let model = user.script_named("done", "done");
    user.file(".subtend/agents/critic.md", "---\nmode: all\ntools: [raed, search, task]\n---\nJudge.\n");
    user.file(
        "subtend.yaml",
        "tools: {spawn: {enabled: true, profiles: {writer: {system_prompt: Write., tools: [wirte]}}}, \
         minion: {templates: {finder: {enabledTools: [serch]}}}}\n",
    );
    let of_agent = "`tools`: unknown tool `raed`; did you mean `read`?; it is not offered";
    let of_profile =
        "`tools.spawn.profiles.writer.tools`: unknown tool `wirte`; did you mean `write`?; it is not offered";
    let of_template = "`tools.minion.templates.finder.enabledTools`: unknown tool `serch`; did you mean `search`?";
    for verb in [&["agents"][..], &["run", "--model", &model, "hi"]] {
        let done = user.succeeds(verb);
        assert!(done.err.contains(of_agent) && done.err.contains(of_profile), "{verb:?}: {done:?}");
        assert!(done.err.contains(of_template), "{verb:?}: {done:?}");
    }
    assert!(user.call(&["agents", "check", ".subtend/agents"]).err.contains(of_agent));
    let doctor = user.json(&["doctor", "--json"]);
    let findings = doctor["findings"].as_array().expect("findings");
    let agents = findings.iter().find(|finding| finding["check"] == "agents").expect("a finding");
    assert_eq!(agents["grade"], json!("note"));
    assert!(agents["found"].as_str().expect("words").contains(of_agent), "{agents}");
}

#[test]
fn m3_required_option_cannot_be_emptied() {
    let user = User::new();
    let set = |key: &str, value: &str| user.call(&["config", "set", key, value]);
    user.file("subtend.yaml", "llm:\n  model: ollama/small\n");
    assert_eq!(set("tools.minion.enabled", "true").code, Some(0));
    let before = std::fs::read_to_string(user.workspace().join("subtend.yaml")).expect("a file");
    let done = set("tools.minion.options.model", "");
    assert_eq!(done.code, Some(2), "{done:?}");
    assert!(done.err.contains("`tools.minion.options.model` cannot be empty"), "{done:?}");
    for (key, value) in [
        ("tools.minion.options", "{}"),
        ("tools.minion.options", "{systemPrompt: Be brief.}"),
        ("tools.minion", "{enabled: true}"),
        ("tools", "{}"),
    ] {
        let done = set(key, value);
        // Without the key `enabled` the tool is off and needs no model.
        if key == "tools" {
            assert_eq!(done.code, Some(0), "{done:?}");
            continue;
        }
        assert!(done.code == Some(2) && done.err.contains("would leave `minion` without its model"), "{key}: {done:?}");
        assert_eq!(std::fs::read_to_string(user.workspace().join("subtend.yaml")).expect("a file"), before);
    }
    user.file("subtend.yaml", "tools: {minion: {enabled: true, options: {model: \"\"}}}\n");
    let by_hand = user.call(&["run", "hi"]);
    assert_eq!(by_hand.code, Some(2), "{by_hand:?}");
    assert!(
        by_hand.err.contains("`tools.minion.options.model`: is empty, and required while `minion` is enabled"),
        "{by_hand:?}"
    );
}
