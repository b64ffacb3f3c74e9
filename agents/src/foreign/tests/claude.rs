use subtend_session::settings::Effort;

use super::*;

fn claude(fields: &str) -> Result<Parsed, String> {
    super::read(Product::Claude, &format!("---\nname: x\ndescription: Works.\n{fields}\n---\nDo it.\n"))
}

fn agent(fields: &str) -> Manifest {
    claude(fields).unwrap().manifest
}

fn notes(fields: &str) -> Vec<String> {
    claude(fields).unwrap().warnings
}

#[test]
fn claude_file_without_tools_keeps_its_callers_authority() {
    let parsed = claude("model: inherit\ncolor: red").unwrap();
    let manifest = &parsed.manifest;
    assert_eq!(
        (&*manifest.name, manifest.mode, &*manifest.description, &*manifest.body),
        ("x", AgentMode::All, "Works.", "Do it.\n")
    );
    assert_eq!((manifest.model.clone(), manifest.pool.clone(), tools(manifest)), (None, None, None));
    assert_eq!((manifest.rules.clone(), manifest.bounds.len(), parsed.warnings), (None, 0, vec![]));
    assert_eq!(manifest.extra.keys().collect::<Vec<_>>(), ["color"]);
}

#[test]
fn claude_tools_allow_only_what_they_need() {
    for (line, offered, verdicts) in [
        ("tools: Read, Grep, Glob", &["list", "read", "search"][..], [Allow, Deny, Deny, Deny, Deny, Deny]),
        ("tools: [Read, Edit]", &["edit", "read"], [Allow, Allow, Deny, Deny, Deny, Deny]),
        ("tools: Bash", &["shell"], [Allow, Allow, Allow, Allow, Deny, Deny]),
        ("tools: WebFetch", &["fetch"], [Deny, Deny, Deny, Allow, Deny, Deny]),
        (
            "tools: Task, TodoWrite",
            &["minion", "spawn", "spawn_task", "subagent", "task"],
            [Deny, Deny, Deny, Deny, Allow, Deny],
        ),
        ("tools: mcp__github__get_issue", &["mcp__github__get_issue"], [Deny, Deny, Deny, Deny, Deny, Allow]),
        ("tools: mcp__github", &["mcp__github"], [Deny, Deny, Deny, Deny, Deny, Allow]),
        ("tools: mcp__jira__*", &["mcp__jira__*"], [Deny; 6]),
        ("tools: mcp__github__get_*", &["mcp__github__get_*"], [Deny, Deny, Deny, Deny, Deny, Allow]),
        ("tools: []", &[], [Deny; 6]),
        ("tools: Read, Write\ndisallowedTools: Write", &["read"], [Allow, Deny, Deny, Deny, Deny, Deny]),
        ("tools: Bash\ndisallowedTools: Write, Edit", &["shell"], [Allow, Deny, Allow, Allow, Deny, Deny]),
        ("tools: Teleport", &[], [Deny; 6]),
    ] {
        let manifest = agent(line);
        assert_eq!((tools(&manifest).as_deref(), &*of_actions(&manifest)), (Some(offered), &verdicts[..]), "{line}");
    }
    let (tool, action) = (format!("mcp__github__{}", "x".repeat(80)), format!("mcp:github:{}", "x".repeat(80)));
    let manifest = agent(&format!("tools: {tool}"));
    assert_eq!(tools(&manifest).as_deref(), Some(&[&*tool][..]));
    assert_eq!(verdicts(&manifest, &[(&action, "*"), ("mcp:github:x", "*")]), [Allow, Deny]);
    assert_eq!(notes("tools: Read, Teleport"), ["`tools`: there is no Teleport here"]);
    assert_eq!(tools(&agent("tools: \"*\"")), None);
    assert_eq!(agent("tools:").rules, None, "an empty key is left out");
}

/// Each tool is compared with each denied one. The control: a list of hundreds is used.
#[test]
fn very_long_lists_of_tools_are_refused() {
    let refusal = |fields: String| claude(&fields).err();
    let long = |key: &str| format!("{key}: {}", "a,".repeat(2_000));
    assert_eq!(refusal(format!("tools: {}Read\ndisallowedTools: {}Write", "a,".repeat(900), "b,".repeat(900))), None);
    let attacks: [String; 3] =
        [long("tools"), long("disallowedTools"), format!("disallowedTools: \"*{}b\"", "a".repeat(40_000))];
    for fields in attacks {
        let (key, _) = fields.split_once(':').unwrap();
        let why = "names too many tools: their names may have 32768 bytes together, and each counts 16 more";
        assert_eq!(refusal(fields.clone()), Some(format!("`{key}` {why}")));
    }
    let servers =
        agent(&format!("tools: Read\nmcpServers: [{}]", (0..100).map(|n| format!("s{n:02},")).collect::<String>()));
    let tools: Vec<_> = (0..64).map(|n| format!("mcp__s{n:02}")).chain(["read".to_owned()]).collect();
    assert_eq!(tools, self::tools(&servers).unwrap());
}

#[test]
fn claude_parentheses_narrow_what_a_tool_may_do() {
    let runs = |line: &str, commands: &[&str]| {
        let accesses: Vec<_> = commands.iter().map(|command| ("shell.run", *command)).collect();
        verdicts(&agent(line), &accesses)
    };
    let commands =
        ["git log", "git log -1", "git push", "git", "git log; rm x", "git log -1 | sh", "git log $(rm x)", "rm x"];
    let expected = [Allow, Allow, Deny, Deny, Deny, Deny, Deny, Deny];
    assert_eq!(runs("tools: Bash(git log *)", &commands), expected);
    assert_eq!(runs("tools: Bash(git log:*)", &commands), expected);
    assert_eq!(runs("tools: Bash(*)", &commands[..1]), [Allow]);
    let manifest = agent("tools: Agent(explore, Code Reviewer), Read(docs/**), WebFetch(domain:example.org)");
    let accesses = [
        ("task:explore", "*"),
        ("task:code-reviewer", "*"),
        ("task:build", "*"),
        ("fs.read", "docs/a"),
        ("fs.read", "src/a"),
        ("net.fetch", "https://example.org/a"),
        ("net.fetch", "https://example.org.evil.net/a"),
    ];
    assert_eq!(verdicts(&manifest, &accesses), [Allow, Allow, Deny, Allow, Deny, Allow, Deny]);
}

/// A domain pattern allows nothing, because it would match paths of other hosts.
#[test]
fn claude_web_search_and_fetch_are_separate_permissions() {
    let accesses = [
        ("net.fetch", "https://example.org/a"),
        ("net.fetch", "https://evil.net/x.example.org/a"),
        ("net.fetch", "http://example.org/a"),
        ("net.search", "words"),
    ];
    for (line, verdicts_of) in [
        ("tools: WebSearch", [Deny, Deny, Deny, Allow]),
        ("tools: WebFetch(domain:example.org), WebSearch", [Allow, Deny, Deny, Allow]),
        ("tools: WebFetch(domain:*.example.org)", [Deny; 4]),
        ("disallowedTools: WebSearch", [Allow, Allow, Allow, Deny]),
        ("disallowedTools: WebFetch", [Deny, Deny, Deny, Allow]),
    ] {
        assert_eq!(verdicts(&agent(line), &accesses), verdicts_of, "{line}");
    }
    let note = "`WebFetch(domain:*.example.org)` is not allowed: a domain pattern has no equivalent here";
    assert_eq!(notes("tools: WebFetch(domain:*.example.org)"), [note]);
}

#[test]
fn claude_disallowed_tools_deny_their_action() {
    for (line, verdicts) in [
        ("disallowedTools: Bash", [Allow, Allow, Deny, Allow, Allow, Allow]),
        ("disallowedTools: Bash(git push *)", [Allow, Allow, Deny, Allow, Allow, Allow]),
        ("disallowedTools: [Write, Edit]", [Allow, Deny, Allow, Allow, Allow, Allow]),
        ("disallowedTools: Read, Grep, Glob, LS", [Deny, Allow, Allow, Allow, Allow, Allow]),
        ("disallowedTools: WebFetch, WebSearch", [Allow, Allow, Allow, Deny, Allow, Allow]),
        ("disallowedTools: Task", [Allow, Allow, Allow, Allow, Deny, Allow]),
        ("disallowedTools: mcp__github", [Allow, Allow, Allow, Allow, Allow, Deny]),
        ("disallowedTools: mcp__*", [Allow, Allow, Allow, Allow, Allow, Deny]),
        ("disallowedTools: \"mcp__git hub__x\"", [Allow, Allow, Allow, Allow, Allow, Deny]),
        ("disallowedTools: \"*\"", [Deny; 6]),
        ("disallowedTools: Bash*", [Allow, Allow, Deny, Allow, Allow, Allow]),
        ("disallowedTools: \"*Fetch, *Search\"", [Allow, Allow, Allow, Deny, Allow, Deny]),
        ("disallowedTools: Web*, T*k", [Allow, Allow, Allow, Deny, Deny, Allow]),
        ("disallowedTools: \"*edit, W*e\"", [Allow, Deny, Allow, Allow, Allow, Deny]),
        ("disallowedTools: Nothing*", [Allow; 6]),
    ] {
        assert_eq!(of_actions(&agent(line)), verdicts, "{line}");
    }
    assert_eq!(notes("disallowedTools: Nothing*"), ["`disallowedTools`: no tool here matches \"Nothing*\""]);
    let hooks = format!("hooks: {{PreToolUse: [{{matcher: \"{}Edit\"}}]}}", "Bash|".repeat(100));
    let asked = "`hooks`: fs.write, shell.run requires approval, since a hook may refuse it";
    assert_eq!(notes(&hooks)[1..], [asked], "each action is named once");
    let servers = "`disallowedTools`: \"*Fetch\" may match tools of servers, so all of these are denied";
    assert_eq!(notes("disallowedTools: \"*Fetch\""), [servers]);
    let without_skills = agent("disallowedTools: Skill");
    assert_eq!(of_actions(&without_skills), [Allow; 6], "skills are files, which other tools read");
    let offered = tools(&without_skills).unwrap();
    assert!(offered.contains(&"read") && !offered.contains(&"skill"), "{offered:?}");
    let manifest = agent("disallowedTools: Write");
    assert_eq!(of_actions(&manifest), [Allow; 6], "`edit` needs the same action");
    let offered = tools(&manifest).unwrap();
    assert!(offered.contains(&"edit") && offered.contains(&"task") && !offered.contains(&"write"), "{offered:?}");
}

#[test]
fn claude_modes_hooks_and_worktrees_only_lower_authority() {
    let asks = [Ask; 6];
    for (line, verdicts) in [
        ("permissionMode: default", [Allow; 6]),
        ("permissionMode: bypassPermissions", [Allow; 6]),
        ("permissionMode: dontAsk", [Allow; 6]),
        ("permissionMode: plan", [Allow, Deny, Deny, Allow, Allow, Allow]),
        ("isolation: worktree", [Allow; 6]),
        (
            "hooks: {PreToolUse: [{matcher: Bash, hooks: [{type: command, command: ./check}]}]}",
            [Allow, Allow, Ask, Allow, Allow, Allow],
        ),
        ("hooks: {PreToolUse: [{matcher: \"Edit|Write\", hooks: []}]}", [Allow, Ask, Allow, Allow, Allow, Allow]),
        ("hooks: {PreToolUse: [{hooks: []}]}", asks),
        ("hooks: {PreToolUse: [{matcher: \".*\"}]}", asks),
        ("hooks: {PreToolUse: run}", asks),
        ("hooks: {Stop: [{hooks: []}]}", [Allow; 6]),
        ("readonly: true", asks),
        ("readonly: false", [Allow; 6]),
        ("permission: {edit: deny}", asks),
    ] {
        assert_eq!(of_actions(&agent(line)), verdicts, "{line}");
    }
}

#[test]
fn claude_model_is_a_pool_a_name_or_the_callers_model() {
    let model = |line: &str| {
        let manifest = agent(line);
        (manifest.model.map(|model| model.to_string()), manifest.pool.map(|pool| pool.to_string()))
    };
    assert_eq!(model("model: sonnet"), (None, Some("sonnet".into())));
    assert_eq!(model("model: inherit"), (None, None));
    assert_eq!(model("model: claude-opus-4-1"), (Some("anthropic/claude-opus-4-1".into()), None));
    assert_eq!(model("model: openai/gpt-5"), (Some("openai/gpt-5".into()), None));
}

/// Named servers add their tools to a list of tools, and take nothing from an agent without a list.
#[test]
fn claude_named_servers_add_their_tools_to_a_list() {
    let both = |fields: &str| {
        let manifest = agent(fields);
        let verdicts = verdicts(
            &manifest,
            &[("mcp:github:get_issue", "*"), ("mcp:github:delete", "*"), ("mcp:jira:x", "*"), ("fs.read", "a")],
        );
        let offered = tools(&manifest).map(|tools| tools.iter().map(|tool| (*tool).to_owned()).collect::<Vec<_>>());
        (offered, verdicts, crate::catalog::Catalog::server_names(&manifest))
    };
    for (fields, offered, verdicts, named) in [
        (
            "tools: Read\nmcpServers: [github]",
            Some(&["mcp__github", "read"][..]),
            [Allow, Allow, Deny, Allow],
            &["github"][..],
        ),
        ("tools: Read\nmcpServers: github", Some(&["mcp__github", "read"]), [Allow, Allow, Deny, Allow], &["github"]),
        ("tools: Read", Some(&["read"]), [Deny, Deny, Deny, Allow], &[]),
        ("mcpServers: [github]", None, [Allow; 4], &["github"]),
        (
            "tools: Read\nmcpServers: [github]\ndisallowedTools: mcp__github",
            Some(&["read"]),
            [Deny, Deny, Deny, Allow],
            &["github"],
        ),
        (
            "tools: Read\nmcpServers: [github]\ndisallowedTools: mcp__github__delete",
            Some(&["mcp__github", "read"]),
            [Allow, Deny, Deny, Allow],
            &["github"],
        ),
        // The name of a server can neither match the tools of another server nor match all servers.
        ("tools: Read\nmcpServers: [github__delete, \"*\", \"git*\"]", Some(&["read"]), [Deny, Deny, Deny, Allow], &[]),
        ("tools: Read\nmcpServers: [{github: {command: run}}]", Some(&["read"]), [Deny, Deny, Deny, Allow], &[]),
    ] {
        let offered = offered.map(|tools| tools.iter().map(|tool| (*tool).to_owned()).collect());
        let named = named.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(both(fields), (offered, verdicts.to_vec(), named), "{fields}");
    }
}

#[test]
fn claude_servers_that_a_file_defines_are_reported() {
    let defined = |name: &str| {
        format!(
            "`mcpServers`: the server `{name}` is not started, because the file of an agent defines it: define it in `.mcp.json` or in \
             your configuration (`mcp.servers`), and name it here"
        )
    };
    let parsed = claude("mcpServers: [{browser: {command: npx}}, github, {a: {url: \"https://x\"}, b: null}]").unwrap();
    assert_eq!(parsed.warnings, [defined("browser"), defined("a"), defined("b")]);
    assert_eq!(parsed.manifest.extra.keys().collect::<Vec<_>>(), ["mcpServers"]);
    assert_eq!(notes("mcpServers: {browser: {command: npx}}"), [defined("browser")]);
    assert_eq!(
        notes("mcpServers: [7, a__b]"),
        [
            "`mcpServers`: 7 has no effect: give the names of servers",
            "`mcpServers`: `a__b` is not a server name: use letters, digits, `-` and single `_`",
        ]
    );
    assert_eq!(notes("mcpServers: [github]"), Vec::<String>::new());
}

#[test]
fn claude_limits_and_settings_are_taken() {
    let manifest = agent("maxTurns: 7\neffort: max\nskills: [a, b]\nmemory: project\nmcpServers: [x]");
    assert_eq!((manifest.turns, manifest.settings.effort), (Some(7), Some(Effort::High)));
    assert_eq!(manifest.skills.iter().map(|name| &**name).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(manifest.extra.keys().collect::<Vec<_>>(), ["mcpServers", "memory"]);
    assert_eq!(agent("skills: a, b").skills, manifest.skills);
    assert_eq!(notes("skills: 7"), ["`skills` must be a list of names, not 7"]);
    for (memory, folder, import, file) in [
        ("user", "~/.claude/agent-memory", "@agent-memory", "~/.claude/CLAUDE.md"),
        ("project", ".claude/agent-memory", "@.claude/agent-memory", "CLAUDE.md"),
        ("local", ".claude/agent-memory-local", "@.claude/agent-memory-local", "CLAUDE.local.md"),
    ] {
        let says = format!(
            "`memory` has no effect: agents do not write `{folder}/x/MEMORY.md` here, and no prompt contains it. To add it to \
             all prompts, import it: `{import}/x/MEMORY.md` in `{file}`"
        );
        assert_eq!(notes(&format!("memory: {memory}")), [says]);
    }
    let odd = "`memory` must be user, project or local, not true: it has no effect";
    assert_eq!(notes("memory: true"), [odd]);
    assert_eq!(agent("maxTurns: \"7\"").turns, Some(7));
    assert_eq!(agent("effort: vast").settings.effort, None);
}

#[test]
fn claude_unknown_keys_are_kept_and_reported() {
    let parsed = claude("team: red\ncategory: {a: 1}").unwrap();
    assert_eq!(parsed.manifest.extra.keys().collect::<Vec<_>>(), ["category", "team"]);
    let says = |key: &str| format!("unknown key `{key}` of Claude Code is kept and has no effect");
    assert_eq!(parsed.warnings, [says("team"), says("category")]);
}

#[test]
fn claude_values_with_colons_are_read_as_text() {
    let text = "---\nname: helper\ndescription: Use it so. Examples: <example>Context: a user: \"hi\"</example>\ntools: Read\nmodel: opus\n---\nHelp.\n";
    let parsed = super::read(Product::Claude, text).unwrap();
    assert_eq!(&*parsed.manifest.description, "Use it so. Examples: <example>Context: a user: \"hi\"</example>");
    assert_eq!(of_actions(&parsed.manifest), [Allow, Deny, Deny, Deny, Deny, Deny]);
    assert_eq!(parsed.warnings, ["the front matter is not valid YAML: values with `: ` in them are read as text"]);
}

#[test]
fn broken_claude_files_are_refused_with_their_reason() {
    let documentation =
        |key: &str| format!("`{key}` is missing: Claude Code treats such a file as documentation, not as an agent");
    for (text, says) in [
        ("", documentation("name")),
        ("# Readme\n", documentation("name")),
        ("---\ndescription: d\n---\nx", documentation("name")),
        ("---\nname: x\n---\nx", documentation("description")),
        ("---\nname: x\ndescription: d\n---\n \n", "has no prompt: write it below the front matter".into()),
        ("---\nname: x\ndescription: d\n", "the front matter has no end: close it with a line `---`".into()),
        (
            "---\nname: 日本\ndescription: d\n---\nx",
            "`` is not an agent's name: use 1 to 64 of a-z, 0-9, `-` and `_`, and begin with a letter or a digit"
                .into(),
        ),
        ("---\nname: x\ndescription: d\ntools: 7\n---\nx", "`tools` must be a list of names, not 7".into()),
        (
            "---\nname: x\ndescription: d\ntools: {Read: true}\n---\nx",
            "`tools` must be a list of names, not {\"Read\":true}".into(),
        ),
        (
            "---\nname: x\ndescription: d\nmaxTurns: many\n---\nx",
            "`maxTurns` must be a whole number of at least 1, not \"many\"".into(),
        ),
        (
            "---\nname: x\ndescription: d\nmaxTurns: 0\n---\nx",
            "`maxTurns` must be a whole number of at least 1, not 0".into(),
        ),
        (
            "---\nname: x\ndescription: d\npermissionMode: careful\n---\nx",
            "`permissionMode` must be a mode of Claude Code, not \"careful\"".into(),
        ),
        ("---\nname: [x]\ndescription: d\n---\nx", "`name` must be a string, not [\"x\"]".into()),
    ] {
        assert_eq!(super::read(Product::Claude, text).map(|parsed| parsed.manifest.name), Err(says), "{text:?}");
    }
    let broken = super::read(Product::Claude, "---\nname: x\n  bad:\n - [\n---\nx").unwrap_err();
    assert!(broken.starts_with("the front matter is not valid YAML: "), "{broken}");
}
