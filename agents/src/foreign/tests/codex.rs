use subtend_session::settings::Effort;

use super::*;

fn codex(fields: &str) -> Result<Parsed, String> {
    let text = format!("name = \"x\"\ndescription = \"Works.\"\n{fields}\ndeveloper_instructions = \"Do it.\"\n");
    super::read(Product::Codex, &text)
}

fn agent(fields: &str) -> Manifest {
    codex(fields).unwrap().manifest
}

#[test]
fn codex_file_defines_a_subagent() {
    let parsed =
        codex("model = \"gpt-5\"\nmodel_reasoning_effort = \"xhigh\"\nnickname_candidates = [\"Ada\"]").unwrap();
    let manifest = &parsed.manifest;
    assert_eq!(
        (&*manifest.name, manifest.mode, &*manifest.description, &*manifest.body),
        ("x", AgentMode::Subagent, "Works.", "Do it.")
    );
    assert_eq!((manifest.model.as_deref(), manifest.settings.effort), (Some("openai/gpt-5"), Some(Effort::High)));
    assert_eq!((of_actions(manifest), parsed.warnings), (vec![Allow; 6], vec![]));
    assert_eq!(manifest.extra.keys().collect::<Vec<_>>(), ["nickname_candidates"]);
}

#[test]
fn codex_sandbox_and_approvals_become_authority() {
    for (fields, verdicts) in [
        ("sandbox_mode = \"read-only\"", [Allow, Deny, Allow, Deny, Allow, Allow]),
        ("sandbox_mode = \"workspace-write\"", [Allow, Allow, Allow, Deny, Allow, Allow]),
        ("sandbox_mode = \"workspace-write\"\nsandbox_workspace_write = { network_access = true }", [Allow; 6]),
        ("sandbox_mode = \"danger-full-access\"", [Allow; 6]),
        ("approval_policy = \"untrusted\"", [Allow, Ask, Ask, Allow, Allow, Allow]),
        ("approval_policy = \"never\"", [Allow; 6]),
        ("approval_policy = \"on-request\"", [Allow; 6]),
        ("approval_policy = { granular = {} }", [Ask; 6]),
        ("web_search = \"disabled\"", [Allow, Allow, Allow, Deny, Allow, Allow]),
        ("disallowed = [\"shell\"]", [Ask; 6]),
        ("mcp_servers = { github = { enabled = false } }", [Allow, Allow, Allow, Allow, Allow, Deny]),
        ("mcp_servers = { github = { enabled_tools = [\"a\"] } }", [Allow, Allow, Allow, Allow, Allow, Deny]),
        ("mcp_servers = { github = { enabled_tools = [\"get_issue\"] } }", [Allow; 6]),
        ("mcp_servers = { github = { disabled_tools = [\"get_issue\"] } }", [Allow, Allow, Allow, Allow, Allow, Deny]),
        ("mcp_servers = { jira = { enabled_tools = [] } }", [Allow; 6]),
        ("mcp_servers = { github = { enabled = \"no\" } }", [Allow, Allow, Allow, Allow, Allow, Deny]),
        ("mcp_servers = { github = { enabled_tools = \"get_issue\" } }", [Allow, Allow, Allow, Allow, Allow, Deny]),
        ("mcp_servers = { github = { disabled_tools = [1] } }", [Allow, Allow, Allow, Allow, Allow, Deny]),
        ("mcp_servers = { github = { disabled_tools = [\"get issue\"] } }", [Allow, Allow, Allow, Allow, Allow, Deny]),
        ("mcp_servers = { github = { default_tools_approval_mode = \"approve\" } }", [Allow; 6]),
        (
            "mcp_servers = { github = { default_tools_approval_mode = \"prompt\" } }",
            [Allow, Allow, Allow, Allow, Allow, Ask],
        ),
        (
            "mcp_servers = { github = { tools = { get_issue = { approval_mode = \"prompt\" } } } }",
            [Allow, Allow, Allow, Allow, Allow, Ask],
        ),
        ("features = { shell_tool = false, unified_exec = false }", [Allow, Allow, Deny, Allow, Allow, Allow]),
        ("features = { shell_tool = true }", [Allow; 6]),
        ("features = { multi_agent = false }", [Allow, Allow, Allow, Allow, Deny, Allow]),
        ("tools = { web_search = false }", [Allow, Allow, Allow, Deny, Allow, Allow]),
        ("web_search = \"cached\"", [Allow, Allow, Allow, Ask, Allow, Allow]),
        ("web_search = \"live\"", [Allow; 6]),
    ] {
        assert_eq!(of_actions(&agent(fields)), verdicts, "{fields}");
    }
}

#[test]
fn codex_denies_apply_to_servers_with_sanitized_names() {
    let manifest = agent("mcp_servers = { \"my.srv\" = { enabled = false }, b = { disabled_tools = [\"get.it\"] } }");
    let accesses = [("mcp:my_srv:x", "*"), ("mcp:b:get_it", "*"), ("mcp:b:other", "*")];
    assert_eq!(verdicts(&manifest, &accesses), [Deny, Deny, Allow]);
    let parsed = codex("features = { shell_tool = false, x = true }\ntools = { view_image = false }").unwrap();
    let says = [
        "`features`: shell.run is denied, and the rest has no effect: features of Codex are not supported",
        "`tools` has no effect: tools of Codex are not supported",
    ];
    assert_eq!(parsed.warnings, says);
}

#[test]
fn codex_unknown_keys_are_kept_and_reported() {
    let parsed = codex("team = \"red\"\n[mcp_servers.x]\ncommand = \"run\"\n[extra]");
    // In TOML, a key after a table header belongs to that table. The file therefore lacks instructions.
    assert_eq!(parsed.unwrap_err(), "`developer_instructions` is missing or empty: Codex requires it");
    let parsed = codex("team = \"red\"\nmcp_servers = { x = { command = \"run\" } }").unwrap();
    assert_eq!(parsed.manifest.extra.keys().collect::<Vec<_>>(), ["mcp_servers", "team"]);
    let says = [
        "`mcp_servers` starts no server: define servers in `.mcp.json` or in your configuration (`mcp.servers`). Its deny and ask \
         rules apply to servers of the same names",
        "unknown key `team` of Codex is kept and has no effect",
    ];
    assert_eq!(parsed.warnings, says);
}

#[test]
fn broken_codex_files_are_refused_with_their_reason() {
    for (text, says) in [
        ("", "`name` is missing or empty: Codex requires it"),
        ("name = \"x\"\n", "`description` is missing or empty: Codex requires it"),
        ("name = \"x\"\ndescription = \" \"\n", "`description` is missing or empty: Codex requires it"),
        ("name = 5\n", "`name` must be a string, not 5"),
        (
            "name = \"x\"\ndescription = \"d\"\ndeveloper_instructions = \"i\"\nsandbox_mode = \"open\"\n",
            "`sandbox_mode` must be a mode of Codex, not \"open\"",
        ),
    ] {
        assert_eq!(
            super::read(Product::Codex, text).map(|parsed| parsed.manifest.name),
            Err(says.to_owned()),
            "{text:?}"
        );
    }
    let broken = super::read(Product::Codex, "name = \"x\"\ndescription = \n").unwrap_err();
    assert!(broken.starts_with("is not valid TOML: line 2: "), "{broken}");
    let front = super::read(Product::Codex, "---\nname: x\n---\nx\n").unwrap_err();
    assert!(front.starts_with("is not valid TOML: line 1: "), "{front}");
}

/// A part of a value takes hundreds of times its size in memory. The control: a value of few parts is kept whole.
#[test]
fn codex_values_of_many_parts_are_not_kept() {
    let kept = |count: usize| codex(&format!("x = [{}]", "{a=1},".repeat(count))).unwrap().manifest.extra["x"].clone();
    assert_eq!(kept(2), serde_json::json!([{"a": 1}, {"a": 1}]));
    assert_eq!(kept(200), serde_json::Value::Null);
}
