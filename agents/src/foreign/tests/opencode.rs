use super::*;

fn opencode(fields: &str) -> Result<Parsed, String> {
    super::read(Product::OpenCode, &format!("---\n{fields}\n---\nDo it.\n"))
}

fn agent(fields: &str) -> Manifest {
    opencode(fields).unwrap().manifest
}

fn runs(fields: &str, commands: &[&str]) -> Vec<Verdict> {
    let accesses: Vec<_> = commands.iter().map(|command| ("shell.run", *command)).collect();
    verdicts(&agent(fields), &accesses)
}

#[test]
fn opencode_file_gets_the_defaults_of_its_product() {
    let parsed = super::read(Product::OpenCode, "Review it.\n").unwrap();
    let manifest = &parsed.manifest;
    assert_eq!((&*manifest.name, manifest.mode, &*manifest.description), ("review-sec", AgentMode::All, "Review it."));
    assert_eq!(parsed.warnings, ["`review/sec` is called `review-sec` here"]);
    assert_eq!(of_actions(manifest), [Allow; 6]);
    let accesses = [
        ("fs.read", ".env"),
        ("fs.read", "a/b.env"),
        ("fs.read", "a/.env.local"),
        ("fs.read", ".env.example"),
        ("fs.write", ".env"),
    ];
    assert_eq!(verdicts(manifest, &accesses), [Ask, Ask, Ask, Allow, Allow]);
}

#[test]
fn opencode_fields_of_both_generations_are_taken() {
    let first = "name: sec\ndescription: d\nmode: subagent\nmodel: anthropic/m\ntemperature: 0.5\ntop_p: 0.9\nsteps: 9\nmaxSteps: 4\nhidden: true\ncolor: \"#fff\"\nvariant: high\noptions: {a: 1}\nmaxTokens: 100";
    let manifest = agent(first);
    assert_eq!(
        (&*manifest.name, manifest.mode, manifest.model.as_deref()),
        ("sec", AgentMode::Subagent, Some("anthropic/m"))
    );
    assert_eq!(
        (manifest.settings.temperature, manifest.settings.top_p, manifest.settings.output_tokens),
        (Some(0.5), Some(0.9), Some(100))
    );
    assert_eq!((manifest.turns, manifest.hidden), (Some(4), true));
    let second = super::read(
        Product::OpenCode,
        "---\nsystem: Be brief.\ndescription: d\nmode: primary\nrequest: {temperature: 1}\n---\n",
    )
    .unwrap();
    assert_eq!((&*second.manifest.body, second.manifest.mode), ("Be brief.", AgentMode::Primary));
    assert_eq!(of_actions(&second.manifest), [Ask; 6], "no rule matches");
    let prompted = super::read(Product::OpenCode, "---\nprompt: Be brief.\n---\n").unwrap();
    assert_eq!(&*prompted.manifest.body, "Be brief.");
}

#[test]
fn opencode_permissions_become_authority() {
    for (fields, verdicts) in [
        ("permission: deny", [Deny; 6]),
        ("permission: ask", [Ask; 6]),
        ("permission: {edit: deny}", [Allow, Deny, Allow, Allow, Allow, Allow]),
        ("permission: {edit: ask, bash: deny, webfetch: deny, task: deny}", [Allow, Ask, Deny, Deny, Deny, Allow]),
        ("permission: {\"*\": deny, read: allow}", [Allow, Deny, Deny, Deny, Deny, Deny]),
        ("permission: {read: allow, \"*\": deny}", [Deny; 6]),
        ("permission: {\"*\": ask, bash: allow}", [Ask, Ask, Allow, Ask, Ask, Ask]),
        ("permission: {\"github_*\": deny}", [Allow, Allow, Allow, Allow, Allow, Deny]),
        ("permission: {github_get_issue: ask}", [Allow, Allow, Allow, Allow, Allow, Ask]),
        ("permission: {\"*_get_issue\": deny}", [Allow, Allow, Allow, Allow, Allow, Deny]),
        ("permission: {\"*\": deny, \"github_*\": allow}", [Deny, Deny, Deny, Deny, Deny, Allow]),
        ("permission: {\"*\": deny, github_get_issue: ask}", [Deny, Deny, Deny, Deny, Deny, Ask]),
        ("permission: {\"*\": deny, \"github_*\": allow, github_get_issue: deny}", [Deny; 6]),
        ("permission: {\"*\": deny, \"jira_*\": allow}", [Deny; 6]),
        ("permission: {\"*\": {x: deny}}", [Allow, Allow, Allow, Allow, Allow, Deny]),
        ("permission: {task: {\"*\": deny, \"ex*\": allow}}", [Allow; 6]),
        ("permission: {task: {\"*\": allow, \"ex?lore\": deny}}", [Allow, Allow, Allow, Allow, Deny, Allow]),
        ("tools: {bash: false, write: false}", [Allow, Deny, Deny, Allow, Allow, Allow]),
        ("tools: {\"*\": false, read: true}", [Allow, Deny, Deny, Deny, Deny, Deny]),
        ("tools: {write: false}\npermission: {edit: allow}", [Allow; 6]),
        ("permission: {write: deny}", [Allow, Deny, Allow, Allow, Allow, Allow]),
        ("permission: {Bash: deny, fetch: ask}", [Allow, Allow, Deny, Ask, Allow, Allow]),
        ("permission: {\"*\": deny, Read: allow, shell: allow}", [Deny; 6]),
        ("readonly: true", [Ask; 6]),
        ("permissions: []", [Ask; 6]),
        (
            "permissions: [{action: \"*\", resource: \"*\", effect: allow}, {action: edit, resource: \"*\", effect: deny}]",
            [Allow, Deny, Allow, Allow, Allow, Allow],
        ),
        (
            "permissions: [{action: shell, resource: \"*\", effect: deny}, {action: \"*\", resource: \"*\", effect: allow}]",
            [Allow; 6],
        ),
        ("permissions: [{action: shell, effect: deny}]", [Ask, Ask, Deny, Ask, Ask, Ask]),
    ] {
        assert_eq!(of_actions(&agent(fields)), verdicts, "{fields}");
    }
}

#[test]
fn opencode_commands_follow_the_last_match() {
    let commands = [
        "git status",
        "git push",
        "git push -f",
        "rm x",
        "ls",
        "ls; rm x",
        "sudo rm x",
        "a && rm x",
        "sudo\trm x",
        "rm",
    ];
    let denies = "permission: {bash: {\"*\": allow, \"rm *\": deny, \"git push *\": ask}}";
    assert_eq!(runs(denies, &commands), [Allow, Ask, Ask, Deny, Allow, Deny, Deny, Deny, Ask, Deny]);
    let allows = "permission: {bash: {\"*\": deny, \"git *\": allow, \"git push*\": deny}}";
    assert_eq!(runs(allows, &commands), [Allow, Deny, Deny, Deny, Deny, Deny, Deny, Deny, Deny, Deny]);
    // A later broad rule overrides an earlier allow.
    let taken = "permission: {bash: {\"git status\": allow, \"git *\": deny, \"l?\": allow}}";
    assert_eq!(runs(taken, &["git status", "ls", "cd"]), [Deny, Allow, Allow]);
    let reset = "permission: {bash: {\"git *\": deny, \"*\": allow}}";
    assert_eq!(runs(reset, &["git status", "a && b"]), [Allow, Allow]);
    let second = "permissions: [{action: shell, resource: \"*\", effect: deny}, {action: shell, resource: \"git *\", effect: allow}]";
    assert_eq!(runs(second, &["git", "git x", "gitk", "git x\nrm y"]), [Allow, Allow, Deny, Deny]);
}

#[test]
fn opencode_path_rules_apply_at_every_depth() {
    let accesses = [
        ("fs.read", "secret/a/b"),
        ("fs.read", "src/key.pem"),
        ("fs.read", "src/a.rs"),
        ("fs.write", "docs/a/b.md"),
        ("fs.write", "src/a.rs"),
        ("fs.read", "keyA/x"),
    ];
    let fields = "permission: {read: {\"secret/*\": deny, \"*.pem\": deny, \"key?/*\": deny}, edit: {\"*\": deny, \"docs/*.md\": allow}}";
    assert_eq!(verdicts(&agent(fields), &accesses), [Deny, Deny, Allow, Allow, Deny, Deny]);
    let absolute = "permission: {read: {\"/home/me/work/secret/*\": deny, \"/etc/*\": deny}}";
    assert_eq!(verdicts(&agent(absolute), &accesses[..3]), [Deny, Allow, Allow]);
    assert_eq!(verdicts(&agent("permission: {read: {\"~/*\": deny}}"), &accesses[..3]), [Deny, Deny, Deny]);
    assert_eq!(verdicts(&agent("permission: {read: {\"a\\\\b\": deny}}"), &accesses[..1]), [Deny]);
}

#[test]
fn opencode_tool_that_differs_from_its_action_is_withheld() {
    let manifest = agent("permission: {grep: deny, read: allow}");
    let offered = tools(&manifest).unwrap();
    assert!(!offered.contains(&"search") && offered.contains(&"read"), "{offered:?}");
    assert_eq!(tools(&agent("permission: {grep: deny, read: deny}")), None);
    let asked_paths =
        tools(&agent("permission: {list: {\"*\": allow, \"a*\": ask}}")).map(|tools| tools.contains(&"list"));
    assert_eq!(asked_paths, Some(false));
}

#[test]
fn broken_opencode_files_are_refused_with_their_reason() {
    for (fields, says) in [
        ("mode: boss", "`mode` must be primary, subagent or all, not \"boss\""),
        ("disable: true", "`disable` is true: the agent is switched off"),
        ("disabled: true", "`disabled` is true: the agent is switched off"),
        ("permission: 5", "`permission` must be allow, ask, deny, or a map, not 5"),
        ("permission: never", "`permission` must be allow, ask or deny, not \"never\""),
        ("permission: {bash: {\"rm *\": never}}", "`permission.bash.rm *` must be allow, ask or deny, not \"never\""),
        ("permission: {bash: [deny]}", "`permission.bash` must be allow, ask or deny, not [\"deny\"]"),
        ("tools: [bash]", "`tools` must be a map of tools to true or false, not [\"bash\"]"),
        ("tools: {bash: off}", "`tools.bash` must be true or false, not \"off\""),
        (
            "permissions: {edit: deny}",
            "`permissions` must be a list of {action, resource, effect}, not {\"edit\":\"deny\"}",
        ),
        (
            "permissions: [{resource: x, effect: deny}]",
            "`permissions[0]` has no `action`: {\"resource\":\"x\",\"effect\":\"deny\"}",
        ),
        ("permissions: [{action: edit}]", "`permissions[0]` has no `effect`: {\"action\":\"edit\"}"),
        (
            "permissions: [{action: edit, resource: [a], effect: deny}]",
            "`permissions[0].resource` must be a pattern, not [\"a\"]",
        ),
        (
            "permissions: []\npermission: deny",
            "`permission` is of the first generation and cannot be combined with `permissions`, `system`, `disabled` or `request`",
        ),
        ("steps: -1", "`steps` must be a whole number of at least 1, not -1"),
    ] {
        assert_eq!(opencode(fields).map(|parsed| parsed.manifest.name), Err(says.to_owned()), "{fields}");
    }
    let many: String = (0..400).map(|n| format!("    \"cmd{n} *\": deny\n")).collect();
    let says = "`permission` becomes more than 300 rules: write fewer patterns";
    assert_eq!(opencode(&format!("permission:\n  bash:\n{many}")).unwrap_err(), says);
    let empty = super::read(Product::OpenCode, "---\nmode: all\n---\n");
    assert_eq!(empty.unwrap_err(), "has no prompt: write it below the front matter");
}

#[test]
fn a1_permission_for_an_unknown_tool_is_a_warning() {
    let warnings = |fields: &str| opencode(fields).unwrap().warnings;
    let none = |key: &str| format!("permission of \"{key}\": no tool here has this name, so it restricts none");
    for (fields, expected) in [
        ("permission: {reed: deny}", vec![none("reed")]),
        ("permission: {reed: {\"a/*\": ask}}", vec![none("reed")]),
        ("tools: {raed: false, bash: false}", vec![none("raed")]),
        ("permissions: [{action: reed, effect: deny}]", vec![none("reed")]),
        // A key that allows nothing is not reported: it may name a tool of a server that is not started yet.
        ("permission: {reed: allow, read: deny, todowrite: deny, \"my_*\": deny, server_tool: deny}", vec![]),
    ] {
        let found = warnings(fields);
        let about: Vec<_> = found.into_iter().filter(|text| text.contains("no tool here")).collect();
        assert_eq!(about, expected, "{fields}");
    }
}

#[test]
fn opencode_web_search_and_fetch_are_separate_permissions() {
    let accesses = [("net.fetch", "https://example.org/a"), ("net.search", "words")];
    for (fields, expected) in [
        ("permission: {webfetch: deny}", [Deny, Allow]),
        ("permission: {websearch: deny}", [Allow, Deny]),
        ("permission: {\"*\": deny, websearch: ask}", [Deny, Ask]),
        ("permission: {webfetch: {\"*\": deny, \"https://example.org/*\": allow}, websearch: ask}", [Allow, Ask]),
    ] {
        let manifest = agent(fields);
        assert_eq!((verdicts(&manifest, &accesses), tools(&manifest)), (expected.to_vec(), None), "{fields}");
    }
}
