//! Agents: one shown in full, and agent files checked before use.

use super::call::*;

#[test]
fn r12_file_replacing_a_built_in_agent_is_marked() {
    let user = User::new();
    user.file(".subtend/agents/explore.md", "---\nmode: subagent\nturns: 5\ncolour: blue\n---\nLook around.\n");
    let shown = user.json(&["agents", "explore", "--json"]);
    let fields = ["body", "turns", "replaces_builtin", "spawnable"].map(|name| shown[name].clone());
    assert_eq!(fields, [json!("Look around.\n"), json!(5), json!(true), json!(true)]);
    let messages: Vec<_> = shown["warnings"].as_array().expect("warnings").iter().map(|one| &one["message"]).collect();
    assert!(messages.contains(&&json!("replaces the built-in agent `explore`")), "{messages:?}");
    assert_eq!(messages.len(), 2, "the unknown key is not reported");

    let done = user.succeeds(&["agents", "explore"]);
    let path = user.workspace().join(".subtend/agents/explore.md");
    let head =
        format!("explore  subagent  ({}, instead of the built-in one)\nLook around.\nturns: 5\n", path.display());
    assert_eq!(done.out, format!("{head}\nLook around.\n"));
    assert!(
        done.err.contains("replaces the built-in agent `explore`") && done.err.contains("`colour`"),
        "{}",
        done.err
    );

    let listed = user.json(&["agents", "--json"]);
    let replacing: Vec<_> = rows(&listed, "agents", |row| row["replaces_builtin"] == true);
    assert_eq!(replacing, ["explore"]);
    assert!(user.call(&["agents"]).out.contains("instead of the built-in one"));
}

#[test]
fn missing_model_of_an_agent_is_reported_with_its_substitute() {
    let user = User::new();
    let model = user.script(r#"{ "rules": [ { "agent": "*", "steps": [ { "text": "done", "repeat": true } ] } ] }"#);
    user.file(
        ".subtend/agents/brief.md",
        "---\nmode: primary\ndescription: Is brief.\nmodel: claude-x\n---\nBe brief.\n",
    );
    user.file(
        ".subtend/agents/sound.md",
        "---\nmode: primary\ndescription: Is.\nmodel: ollama/small\n---\nBe sound.\n",
    );
    let path = user.workspace().join(".subtend/agents/brief.md").canonicalize().expect("a file");
    let expected = |what: &str| {
        format!(
            "warning: {}: `model`: {what}, since unknown model `claude-x`: did you mean \
             `anthropic/claude-x`? use `offline` (rules, no network), `scripted:FILE` (answers from a file), or a provider's model: \
             `anthropic/MODEL`, `openai/MODEL`, `openai-responses/MODEL`, `gemini/MODEL`, `ollama/MODEL`\n",
            path.display()
        )
    };
    for verb in [&["agents"][..], &["agents", "brief"]] {
        let done = user.call(verb);
        assert_eq!((done.code, &*done.err), (Some(0), &*expected("its runs fail")), "{verb:?}");
    }
    assert_eq!(user.call(&["agents", "sound"]).err, "");
    let listed = user.json(&["agents", "--json"]);
    let warnings = listed["warnings"].as_array().expect("warnings");
    assert_eq!((warnings.len(), &warnings[0]["refused"]), (1, &json!(false)), "{listed:#}");
    let done = user.call(&["run", "--agent", "brief", "--model", &model, "hi"]);
    assert_eq!((done.code, &*done.out), (Some(0), "done\n"), "{done:?}");
    assert_eq!(done.err.matches("warning: ").count(), 1, "once: {done:?}");
    assert!(done.err.contains(&expected(&format!("the default one, `{model}`, answers instead"))), "{done:?}");
    let alone = user.call(&["run", "--agent", "brief", "hi"]);
    assert_eq!(alone.code, Some(1), "a named model answered: {alone:?}");
    assert!(alone.err.contains("unknown model `claude-x`"), "{alone:?}");
    let quiet = user.call(&["run", "--agent", "brief", "--model", &model, "--quiet", "hi"]);
    assert_eq!((quiet.code, &*quiet.err), (Some(0), ""), "{quiet:?}");
}

fn rows(listing: &Value, of: &str, wanted: impl Fn(&Value) -> bool) -> Vec<String> {
    let rows = listing[of].as_array().expect("rows").iter().filter(|row| wanted(row));
    rows.map(|row| row["name"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn g1_built_in_agents_and_profiles_are_listed() {
    let user = User::new();
    user.file("subtend.yaml", "tools: {spawn: {profiles: {writer: {system_prompt: Writes well. Always.}}}}\n");
    let listed = user.json(&["agents", "--json"]);
    assert_eq!(rows(&listed, "agents", |row| row["pickable"] == true), ["build", "general", "plan"]);
    assert_eq!(rows(&listed, "agents", |row| row["spawnable"] == true), ["explore", "general", "plan", "research"]);
    assert_eq!(rows(&listed, "agents", |row| row["hidden"] == true), ["compaction", "summary", "title"]);
    assert_eq!(rows(&listed, "profiles", |row| row["description"] == "Writes well."), ["writer"]);
    let done = user.call(&["agents"]);
    let line = done.out.lines().find(|line| line.starts_with("writer")).expect("the profile").to_owned();
    assert!(line.contains("profile") && line.contains("Writes well.") && line.contains("subtend.yaml"), "{line}");
}

#[test]
fn built_in_agent_is_shown_whole() {
    let user = User::new();
    let done = user.call(&["agents", "research"]);
    assert_eq!((done.code, done.err.as_str()), (Some(0), ""), "{done:?}");
    assert!(done.out.starts_with("research  subagent  (built in)\n"), "{}", done.out);
    assert!(done.out.contains("\npermissions: allow fs.read, allow net.*, else deny\nturns: 40\n"), "{}", done.out);
    let nosuch = user.call(&["agents", "nosuch"]);
    assert_eq!(nosuch.code, Some(2), "{nosuch:?}");
    assert!(nosuch.err.contains("unknown agent `nosuch`; known agents: build,"), "{}", nosuch.err);
}

#[test]
fn agent_files_are_checked_in_any_directory() {
    let user = User::new();
    user.file("drafts/good.md", "---\nmode: all\n---\nGood.\n");
    user.file("drafts/odd.md", "---\nmode: all\ncolour: blue\n---\nOdd.\n");
    let sound = user.succeeds(&["agents", "check", "drafts"]);
    assert_eq!(sound.out, "✓ good (drafts/good.md)\n✓ odd (drafts/odd.md)\n");
    assert!(
        sound.err.starts_with("warning: drafts/odd.md: unknown key `colour` is kept without effect"),
        "{}",
        sound.err
    );
    assert!(sound.err.ends_with("2 files checked, 0 refused\n"), "{}", sound.err);

    // A file that is not an agent is skipped in a folder, and refused by its own name.
    user.file("drafts/README.md", "# Drafts\n");
    let skipped = user.call(&["agents", "check", "drafts"]);
    assert_eq!((skipped.code, skipped.out), (Some(0), sound.out));
    let named = user.call(&["agents", "check", "drafts/README.md"]);
    assert!(
        named.code == Some(1) && named.err.starts_with("refused: drafts/README.md: has no front matter"),
        "{named:?}"
    );

    user.file("drafts/bad.md", "---\nmode: never\n---\nBad.\n");
    let bad = user.call(&["agents", "check", "drafts/good.md", "drafts/bad.md", "drafts/gone.md"]);
    assert_eq!((bad.code, bad.out.as_str()), (Some(1), "✓ good (drafts/good.md)\n"), "{bad:?}");
    let says = "refused: drafts/bad.md: `mode` must be primary, subagent or all, not \"never\"\nrefused: drafts/gone.md: cannot be \
                read: ";
    assert!(bad.err.starts_with(says), "{}", bad.err);
    assert!(bad.err.ends_with("3 files checked, 2 refused\n"), "{}", bad.err);
    let json = user.call(&["agents", "check", "drafts/bad.md", "--json"]);
    let problem = json!({"path": "drafts/bad.md", "refused": true, "message": "`mode` must be primary, subagent or all, not \"never\""});
    let file = json!({"path": "drafts/bad.md", "gives": null, "agent": null, "name": null, "imports": [], "problems": [problem]});
    let expected = json!({"sound": false, "files": [file]});
    assert_eq!((json.code, serde_json::from_str::<Value>(&json.out).expect("JSON")), (Some(1), expected));
}

#[test]
fn refused_agent_file_is_named_with_its_error() {
    let user = User::new();
    user.file(".subtend/agents/poet.md", "---\nmode: all\nmode: all\n---\nYou write.\n");
    let path = user.workspace().join(".subtend/agents/poet.md");
    for args in [&["agents", "poet"][..], &["agents", "prompt", "poet"]] {
        let done = user.call(args);
        assert_eq!((done.code, done.out.as_str()), (Some(2), ""), "{done:?}");
        let expected =
            format!("error: the agent `poet` is refused: {}: the front matter is not valid YAML: ", path.display());
        assert!(
            done.err.starts_with(&expected)
                && done.err.contains("duplicate mapping key `mode` is not allowed here at line 3"),
            "{}",
            done.err
        );
        assert!(!done.err.contains("Options"), "{}", done.err);
    }
}

/// Opaque children have no rows in listings, but trees show them; inspectable children have rows.
#[test]
fn g9_only_inspectable_children_are_listed_and_trees_show_all() {
    let user = User::new();
    user.file(".subtend/agents/lead.md", "---\nmode: primary\n---\nYou lead.\n");
    user.file(".subtend/agents/hid.md", "---\nmode: subagent\n---\nYou scan.\n");
    user.file(".subtend/agents/open.md", "---\nmode: subagent\ninspectable: true\n---\nYou scan too.\n");
    let call = |agent: &str| json!({"tool": "task", "args": {"subagent_type": agent, "prompt": "scan"}});
    let steps = json!([{"calls": [call("hid"), call("open")]}, {"text": "done"}]);
    let rules = json!({"rules": [{"agent": "lead", "steps": steps}, {"agent": "*", "steps": [{"text": "found"}]}]});
    user.succeeds(&["run", "--model", &user.script(&rules.to_string()), "--agent", "lead", "go"]);
    let listed = |args: &[&str]| {
        let listing = user.json(&[&["sessions", "--json"], args].concat());
        let rows = listing.as_array().expect("rows").iter();
        rows.map(|row| row["agent"].as_str().expect("an agent").to_owned()).collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(listed(&[]), ["lead", "open"].map(str::to_owned).into());
    assert_eq!(listed(&["--all"]), ["hid", "lead", "open"].map(str::to_owned).into());
    let root = user
        .json(&["sessions", "--json"])
        .as_array()
        .expect("rows")
        .iter()
        .find_map(|row| (row["agent"] == "lead").then(|| row["id"].as_str().expect("an id").to_owned()));
    let tree = user.call(&["tree", &root.expect("a root")]);
    assert!(tree.out.contains("hid ") && tree.out.contains("open "), "{tree:?}");
}

/// Returns the names of a dialect's tools, and whether each is a tool of the child.
fn tools(listing: &Value) -> Vec<(&str, bool)> {
    let rows = listing["tools"].as_array().expect("tools").iter();
    rows.map(|tool| (tool["name"].as_str().expect("a name"), tool["of_child"] == true)).collect()
}

#[test]
fn schema_of_each_dialect_lists_its_tools() {
    let user = User::new();
    for (dialect, enabled, expected) in [
        ("task", true, &[("task", false), ("check_task", false), ("cancel_task", false)][..]),
        ("spawn", false, &[("spawn", false), ("spawn_await", false)]),
        ("spawn_task", false, &[("spawn_task", false), ("check_task", false), ("cancel_task", false)]),
        ("minion", false, &[("minion", false), ("return", true)]),
        ("subagent", false, &[("subagent", false), ("get_tools", true), ("use_tool", true)]),
    ] {
        let listing = user.json(&["agents", "schema", dialect, "--json"]);
        assert_eq!((&listing["dialect"], &listing["enabled"]), (&json!(dialect), &json!(enabled)), "{listing:#}");
        assert_eq!(tools(&listing), expected, "{listing:#}");
        for tool in listing["tools"].as_array().expect("tools") {
            assert_eq!(tool["schema"]["type"], "object", "{tool:#}");
            jsonschema::validator_for(&tool["schema"]).unwrap_or_else(|error| panic!("{error}: {tool:#}"));
        }
    }
}

#[test]
fn schema_names_agents_profiles_and_templates() {
    let user = User::new();
    user.file(".subtend/agents/critic.md", "---\nmode: subagent\ndescription: Judges.\n---\nYou judge.\n");
    let templates = "minion: {templates: {reviewer: {message: \"Review {path}.\"}}}";
    user.file(
        "subtend.yaml",
        &format!("tools: {{spawn: {{enabled: true, profiles: {{scout: {{}}}}}}, {templates}}}\n"),
    );
    let schema = |dialect: &str| user.json(&["agents", "schema", dialect, "--json"])["tools"][0]["schema"].clone();
    let agents = json!(["critic", "explore", "general", "plan", "research"]);
    assert_eq!(schema("task")["properties"]["subagent_type"]["enum"], agents);
    assert_eq!(schema("spawn_task")["properties"]["type"]["enum"], agents);
    assert_eq!(schema("spawn")["properties"]["profile"]["enum"], json!(["scout"]));
    assert_eq!(schema("minion")["properties"]["template"]["enum"], json!(["reviewer"]));
}

#[test]
fn schema_is_printed_below_the_name_of_its_tool() {
    let user = User::new();
    let done = user.call(&["agents", "schema", "spawn"]);
    let note = "note: `spawn` is not enabled here; `subtend config set tools.spawn.enabled true` enables it\n";
    assert_eq!((done.code, &*done.err), (Some(0), note), "{done:?}");
    assert!(done.out.starts_with("spawn\n\n") && done.out.contains("\n\nspawn_await\n\n"), "{}", done.out);
    let (_, json) = done.out.split_once("\n{").expect("a schema");
    let (json, _) = json.split_once("\n}\n").expect("its end");
    let schema: Value = serde_json::from_str(&format!("{{{json}}}")).expect("JSON");
    assert_eq!(schema["required"], json!(["task"]), "{schema:#}");
    assert_eq!(user.call(&["agents", "schema", "task"]).err, "");
}

#[test]
fn unknown_dialect_is_refused_with_a_suggestion() {
    let user = User::new();
    let done = user.call(&["agents", "schema", "spwan"]);
    assert_eq!((done.code, &*done.out), (Some(2), ""), "{done:?}");
    assert!(done.err.contains("[possible values: subagent, task, spawn, spawn_task, minion]"), "{}", done.err);
    assert!(done.err.contains("a similar value exists: 'spawn'"), "{}", done.err);
    let script = user.call(&["completions", "bash"]).out;
    assert!(script.contains("subagent task spawn spawn_task minion"), "dialects are not completed");
}

#[test]
fn guide_page_of_each_dialect_names_its_parameters() {
    let user = User::new();
    user.file("subtend.yaml", "tools: {minion: {templates: {reviewer: {message: \"Review {path}.\"}}}}\n");
    for dialect in ["task", "spawn", "spawn_task", "minion", "subagent"] {
        let path = format!("{}/src/guide/dialects/{dialect}.md", env!("CARGO_MANIFEST_DIR"));
        let page = std::fs::read_to_string(path).expect("a page");
        let listing = user.json(&["agents", "schema", dialect, "--json"]);
        for tool in listing["tools"].as_array().expect("tools") {
            let names = tool["schema"]["properties"].as_object().expect("properties").keys().map(String::as_str);
            for name in names.chain(tool["name"].as_str()) {
                assert!(page.contains(&format!("`{name}`")), "the page of {dialect} does not name `{name}`");
            }
        }
    }
}

#[test]
fn x7_rules_and_tools_of_unknown_servers_are_reported() {
    let user = User::new();
    user.file(".mcp.json", r#"{"mcpServers": {"files": {"command": "true"}}}"#);
    let rules = "permissions: {\"mcp:jira:*\": ask, \"mcp:files:*\": ask, \"mcp:*\": ask}";
    user.file(".subtend/agents/one.md", &format!("---\nmode: all\n{rules}\ntools: [mcp__wiki__read]\n---\nWork.\n"));
    user.file(".opencode/agent/two.md", "---\npermission: {\"jira_*\": deny}\n---\nWork.\n");
    let listed = user.json(&["agents", "--json"]);
    let message_of = |warning: &Value| warning["message"].as_str().expect("a text").to_owned();
    let warnings: Vec<String> = listed["warnings"].as_array().expect("rows").iter().map(message_of).collect();
    assert_eq!(
        warnings,
        [
            "`tools`: `mcp__wiki__read` is not offered: no MCP server is called `wiki`",
            "`permissions`: `mcp:jira:*` matches no tool: no MCP server is called `jira`",
        ]
    );
}

/// The prompt of an agent has the texts of its skills that it may read; a session of it is opened with the same prompt.
#[test]
fn x7_skills_of_an_agent_are_in_its_prompt() {
    let user = User::new();
    for name in ["pdf", "secret", "other"] {
        let text = format!("---\ndescription: About {name}.\n---\nThe body of {name}.\n");
        user.file(&format!(".claude/skills/{name}/SKILL.md"), &text);
    }
    let agent = |tools: &str| {
        let fields = format!("name: reviewer\ndescription: Reviews.\nskills: [pdf, secret, none]\ntools: {tools}");
        user.file(".claude/agents/reviewer.md", &format!("---\n{fields}\n---\nReview.\n"));
    };
    agent("Read, Task");
    let done = user.call(&["agents", "prompt", "reviewer"]);
    let bodies = ["pdf", "secret", "other"].map(|name| done.out.contains(&format!("The body of {name}.")));
    assert_eq!(bodies, [true, true, false], "{done:?}");
    let listed = user.call(&["agents"]);
    let warning = "`skills`: \"none\" is not in the prompt: no skill has this name: `subtend agents skills` lists them";
    assert!(listed.err.contains(warning), "{listed:?}");

    // The body of a skill that its rules deny is not in the prompt.
    agent("Read(.claude/skills/pdf/**)");
    let model = user.script(r#"{ "rules": [ { "agent": "*", "steps": [ { "text": "done", "repeat": true } ] } ] }"#);
    user.succeeds(&["run", "--model", &model, "--agent", "reviewer", "hi"]);
    let sessions = user.json(&["sessions", "--json"]);
    let shown = user.json(&["show", "--json", sessions[0]["id"].as_str().expect("an id")]);
    let system = shown["system"].as_str().expect("a prompt");
    let bodies = ["pdf", "secret", "other"].map(|name| system.contains(&format!("The body of {name}.")));
    assert_eq!(bodies, [true, false, false], "{system}");
}
