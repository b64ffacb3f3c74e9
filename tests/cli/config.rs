//! Configured values, their sources, and which ones apply.

use super::call::*;

fn settings_of(user: &User) -> Vec<(String, Value, String)> {
    let shown = user.json(&["config", "show", "--json"]);
    let row = |value: &Value| {
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        (text(&value["key"]), value["value"].clone(), text(&value["origin"]["kind"]))
    };
    let values = shown["values"].as_array().expect("values");
    values.iter().map(row).filter(|(_, _, kind)| kind != "default").collect()
}

fn user_file(user: &User, text: &str) {
    std::fs::create_dir_all(user.config().join("subtend")).expect("a folder");
    std::fs::write(user.config().join("subtend/subtend.yaml"), text).expect("a file");
}

/// Each process reads all answers and writes all of them.
#[test]
fn answers_of_processes_at_the_same_time_are_kept() {
    let user = User::new();
    let dirs: Vec<String> = (0..16).map(|number| format!("dir{number}")).collect();
    dirs.iter().for_each(|dir| user.file(&format!("{dir}/subtend.yaml"), "limits: {turns: 7}\n"));
    let trusting = |dir: &String| RunningCommand::start(user.command(&["trust", "--yes", dir]), "");
    let running: Vec<_> = dirs.iter().map(trusting).collect();
    let codes: Vec<_> = running.into_iter().map(|command| command.done().code).collect();
    assert_eq!(codes, [Some(0); 16]);
    let listed = user.call(&["trust", "--list"]).out;
    assert_eq!(listed.lines().filter(|line| line.starts_with("trusted ")).count(), 16, "{listed}");
}

#[test]
fn every_value_is_shown_with_its_source() {
    let user = User::new();
    user_file(&user, "limits: {turns: 1, spawns: 1}\n");
    user.file("subtend.yaml", "limits: {turns: 2}\nllm: {pools: {cheap: [offline]}}\nlmits: {}\n");
    let row = |key: &str, value: Value, kind: &str| (key.to_owned(), value, kind.to_owned());
    let expected = [
        row("limits.spawns", json!(1), "user"),
        row("limits.turns", json!(2), "project"),
        row("llm.pools.cheap", json!(["offline"]), "project"),
    ];
    assert_eq!(settings_of(&user), expected);

    let mut command = user.command(&["config", "show"]);
    command.env("SUBTEND_TIMEOUT_MS", "9000");
    let done = super::call::RunningCommand::start(command, "").done();
    assert_eq!(done.code, Some(0), "{done:?}");
    let line = |key: &str| done.out.lines().find(|line| line.starts_with(&format!("{key} "))).expect(key).to_owned();
    let words = |key: &str| line(key).split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words("limits.run_ms"), ["limits.run_ms", "9000", "$SUBTEND_TIMEOUT_MS"]);
    assert_eq!(words("tools.spawn.enabled"), ["tools.spawn.enabled", "false", "default"], "S8");
    assert_eq!(words("subagents.enabled"), ["subagents.enabled", "true", "default"], "R8");
    assert!(line("limits.turns").ends_with("workspace/subtend.yaml"), "{}", line("limits.turns"));
    assert!(done.err.contains("unknown key `lmits` has no effect; did you mean `limits`?"), "{}", done.err);
}

#[test]
fn config_show_prints_the_source_and_refuses_unknown_keys() {
    let user = User::new();
    user_file(&user, "limits: {turns: 1}\nprices: {small: {input: 3, output: 4}}\n");
    user.file("subtend.yaml", "llm: {pools: {cheap: [offline]}}\n");
    let shown = |key: &str| {
        let done = user.call(&["config", "show", key]);
        assert_eq!((done.code, &*done.err), (Some(0), ""), "{done:?}");
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        done.out.lines().map(|line| words(line)[..2].join(" ")).collect::<Vec<_>>()
    };
    let file = |path: std::path::PathBuf| path.canonicalize().expect("a file").display().to_string();
    let done = user.call(&["config", "show", "limits.turns"]);
    let own = user.config().join("subtend/subtend.yaml").display().to_string();
    assert_eq!((done.code, &*done.out, &*done.err), (Some(0), &*format!("limits.turns  1  {own}\n"), ""));
    let one = user.json(&["config", "show", "llm.pools.cheap", "--json"]);
    let origin = json!({ "kind": "project", "path": file(user.workspace().join("subtend.yaml")) });
    let value = json!({ "key": "llm.pools.cheap", "value": ["offline"], "origin": origin, "variable": null });
    assert_eq!(one, json!({ "values": [value], "warnings": [] }));
    assert_eq!(shown("llm.pools.dear"), ["llm.pools.dear none"], "a known key without a value");
    assert_eq!(shown("prices.small.input"), ["prices.small.input 3.0"], "a part of a value that is set as a whole");
    assert!(shown("limits").len() > 5 && shown("limits").iter().all(|row| row.starts_with("limits.")));
    for (key, expected) in [
        ("limits.truns", "error: unknown key `limits.truns`: did you mean `turns`?\n"),
        ("limts", "error: unknown key `limts`: did you mean `limits`?\n"),
        (
            "limits.turns.more",
            "error: unknown key `limits.turns.more`: its parent is a whole number from 1 to 4294967295\n",
        ),
        ("limits..turns", "error: unknown key `limits..turns`: a name is missing before or after a dot\n"),
    ] {
        let done = user.call(&["config", "show", key]);
        assert_eq!((done.code, &*done.out, &*done.err), (Some(2), "", expected), "{key}");
    }
}

#[test]
fn set_value_keeps_existing_comments() {
    let user = User::new();
    user.file("subtend.yaml", "# local\nlimits:\n  turns: 5 # few\n");
    let done = user.call(&["config", "set", "limits.turns", "9"]);
    assert_eq!((done.code, done.out.as_str()), (Some(0), ""), "{done:?}");
    assert_eq!(user.call(&["config", "set", "llm.pools.cheap", "[offline]"]).code, Some(0));
    let text = std::fs::read_to_string(user.workspace().join("subtend.yaml")).expect("the file");
    assert_eq!(text, "# local\nlimits:\n  turns: 9 # few\nllm:\n  pools:\n    cheap: [offline]\n");
    assert_eq!(user.call(&["config", "set", "--user", "agent", "plan"]).code, Some(0));
    let text = std::fs::read_to_string(user.config().join("subtend/subtend.yaml")).expect("the user's file");
    assert_eq!(text, "agent: plan\n");
    assert_eq!(std::fs::read_dir(user.workspace()).expect("the workspace").count(), 1, "temporary files remain");
}

#[test]
fn forbidden_key_is_refused_and_nothing_is_written() {
    let user = User::new();
    user.file("subtend.yaml", "limits: {turns: 5}\n");
    for (args, expected) in [
        (["limits.truns", "9"], "unknown key `limits.truns`: did you mean `turns`?"),
        (["limits.turns", "many"], "`limits.turns` is \"many\", and must be a whole number from 1 to 4294967295"),
        (["llm.default_pool", "smart"], "unknown pool `smart`; pools under `llm.pools`: none"),
    ] {
        let done = user.call(&["config", "set", args[0], args[1]]);
        assert_eq!(done.code, Some(2), "{done:?}");
        assert!(done.err.contains(expected), "{}", done.err);
    }
    let by_hand = user.call(&["config", "set", "limits.spawns", "9"]);
    assert_eq!(by_hand.code, Some(1), "{by_hand:?}");
    assert!(by_hand.err.contains("Write `limits.spawns: 9` there by hand"), "{}", by_hand.err);
    let text = std::fs::read_to_string(user.workspace().join("subtend.yaml")).expect("the file");
    assert_eq!(text, "limits: {turns: 5}\n");
}

#[test]
fn configuration_errors_name_key_value_and_position() {
    let user = User::new();
    let negative = user.call(&["config", "set", "limits.turns", "-3"]);
    let says = "error: `limits.turns` is \"-3\", and must be a whole number from 1 to 4294967295\n";
    assert_eq!((negative.code, negative.err.as_str()), (Some(2), says));
    for (text, says) in [
        (
            "agent: plan\nagent: build\n",
            "is not valid YAML: duplicate mapping key `agent` is not allowed here at line 2, column 1\n",
        ),
        (
            "---\nagent: plan\n---\nagent: build\n",
            "is not valid YAML: only single YAML document expected but multiple found at line 4",
        ),
    ] {
        user.file("subtend.yaml", text);
        let done = user.call(&["config", "show"]);
        assert_eq!((done.code, done.out.as_str()), (Some(2), ""), "{done:?}");
        assert!(done.err.contains(says), "{}", done.err);
    }
}

#[test]
fn m3_enabling_minion_fills_its_model_once_from_the_sessions() {
    let user = User::new();
    user.file("subtend.yaml", "llm:\n  model: offline\n");
    assert_eq!(user.call(&["config", "set", "tools.minion.enabled", "true"]).code, Some(0));
    let rows =
        || settings_of(&user).into_iter().filter(|(key, ..)| key.starts_with("tools.minion")).collect::<Vec<_>>();
    let row = |key: &str, value: Value| (format!("tools.minion.{key}"), value, "project".to_owned());
    assert_eq!(rows(), [row("enabled", json!(true)), row("options.model", json!("offline"))]);
    assert_eq!(user.call(&["config", "set", "tools.minion.options.model", "ollama/x"]).code, Some(0));
    assert_eq!(user.call(&["config", "set", "tools.minion.enabled", "false"]).code, Some(0));
    assert_eq!(user.call(&["config", "set", "tools.minion.enabled", "true"]).code, Some(0));
    assert_eq!(
        rows(),
        [row("enabled", json!(true)), row("options.model", json!("ollama/x"))],
        "the existing model was replaced"
    );
}

#[test]
fn run_takes_configured_values_unless_an_option_overrides() {
    let user = User::new();
    let model = user.script(
        r#"{ "rules": [ { "agent": "poet", "steps": [ { "text": "A poem." } ] },
                        { "agent": "general", "steps": [ { "calls": [ { "tool": "list", "args": {} } ] }, { "text": "A list." } ] } ] }"#,
    );
    user.file(".subtend/agents/poet.md", "---\nmode: primary\n---\nYou write poems.\n");
    user.file("subtend.yaml", "agent: poet\nllm: {model: offline}\nlimits: {turns: 1}\n");
    let by_file = user.call(&["run", "hi"]);
    assert!(by_file.err.contains("model: offline (`llm.model` in "), "{}", by_file.err);
    let done = user.call(&["run", "--model", &model, "hi"]);
    assert_eq!((done.code, done.out.as_str()), (Some(0), "A poem.\n"), "{done:?}");
    let bounded = user.call(&["run", "--model", &model, "--agent", "general", "hi"]);
    assert_eq!(bounded.code, Some(4), "the turn limit had no effect: {bounded:?}");
    let free = user.call(&["run", "--model", &model, "--agent", "general", "--limit", "turns=5", "hi"]);
    assert_eq!((free.code, free.out.as_str()), (Some(0), "A list.\n"), "{free:?}");
}

#[test]
fn invalid_configuration_stops_the_run_before_it_begins() {
    let user = User::new();
    for (text, expected) in [
        ("limits: {turns: 0}", "subtend.yaml: `limits.turns` is 0, and must be a whole number from 1 to 4294967295"),
        ("a: [", "subtend.yaml is not valid YAML"),
        (
            "tools: {spawn: {profiles: {r: {system_prompt_file: GONE.md}}}}",
            "the profile `r` cannot be used: its `system_prompt_file` `GONE.md` cannot be read: no such file",
        ),
    ] {
        user.file("subtend.yaml", text);
        let done = user.call(&["run", "hi"]);
        assert_eq!((done.code, done.out.as_str()), (Some(2), ""), "{done:?}");
        assert!(done.err.contains(expected), "{}", done.err);
        assert!(!user.data().exists(), "a store was created");
    }
}

#[cfg(unix)]
#[test]
fn configuration_links_out_of_the_workspace_are_refused() {
    let user = User::new();
    std::fs::write(user.workspace().join("../secret.md"), "secret").expect("a file");
    std::os::unix::fs::symlink("../secret.md", user.workspace().join("P.md")).expect("a link");
    user.file("subtend.yaml", "tools: {spawn: {profiles: {r: {system_prompt_file: P.md}}}}");
    let done = user.call(&["agents"]);
    assert_eq!(done.code, Some(2), "{done:?}");
    assert!(done.err.contains("`P.md` cannot be read: a link in the path leads out of the workspace"), "{}", done.err);
    std::fs::remove_file(user.workspace().join("subtend.yaml")).expect("removed");
    std::os::unix::fs::symlink("../secret.md", user.workspace().join("subtend.yaml")).expect("a link");
    let done = user.call(&["config", "show"]);
    assert_eq!((done.code, done.out.contains("secret")), (Some(0), false), "{done:?}");
    assert!(done.err.contains("subtend.yaml: ignored: it is a symbolic link, which is not followed"), "{}", done.err);
}

#[test]
fn shipped_schemas_equal_the_printed_ones() {
    let user = User::new();
    for (of, file) in [("config", "subtend.schema.json"), ("agent", "agent.schema.json")] {
        let shipped = std::fs::read_to_string(format!("docs/schemas/{file}")).unwrap_or_default();
        let printed = user.call(&["config", "schema", of]);
        let again = format!("cargo run -- config schema {of} > docs/schemas/{file}");
        let value = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
        assert_eq!(value(&shipped), value(&printed.out), "the schema is out of date; generate it with: {again}");
    }
}

#[test]
fn m3_unknown_tool_options_are_refused_by_set_and_in_files() {
    let user = User::new();
    let refused = |key: &str| {
        let done = user.call(&["config", "set", key, "true"]);
        assert_eq!(done.code, Some(2), "{done:?}");
        done.err
    };
    let unknown = refused("tools.options.digest.images");
    assert!(unknown.contains("the tool `digest` has no options; tools with options: `minion` under"), "{unknown}");
    assert!(refused("tools.options.minion.model").contains("are under `tools.minion.options`"));
    let whole = user.call(&["config", "set", "tools.options.digest", "{images: true}"]);
    assert!(whole.err.contains("a tool is not an option: write the key as tools.options.TOOL.OPTION"), "{whole:?}");
    assert!(!user.workspace().join("subtend.yaml").exists());
    // A configuration file with the option is reported when a run begins.
    user.file("subtend.yaml", "tools: {options: {digest: {images: true}}}\n");
    let done = user.call(&["run", "hello"]);
    assert_eq!(done.code, Some(2), "{done:?}");
    assert!(done.err.contains("the tool `digest` has no options"), "{}", done.err);
}
