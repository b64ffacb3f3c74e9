use std::collections::BTreeMap;

use serde_json::json;
use subtend_session::authority::{Rule, RuleSet, Verdict};
use subtend_session::place::{Isolation, OnRestart};
use subtend_session::settings::{Effort, Settings};

use super::*;
use crate::manifest::AgentMode;

fn read(text: &str) -> Result<Parsed, BadManifest> {
    parse(text, "stem", Source::Host)
}

fn refused(text: &str) -> String {
    read(text).map_or_else(|error| error.to_string(), |parsed| format!("accepted: {parsed:?}"))
}

#[test]
fn all_fields_of_an_agent_file_are_read() {
    let text = "---
name: reviewer
mode: all
description: Reviews changes.
model: small
temperature: 0.2
top_p: 1
output_tokens: 4000
effort: none
tools: [read, search]
permissions:
  \"*\": deny
  fs.read:
    src/**: allow
inspectable: true
caller: agent
turns: 12
detached: true
on_restart: resume
hidden: true
plan_exit: true
isolation: worktree
instructions: false
colour: {shade: blue}
---

Review the change.
";
    let manifest = Manifest {
        name: "reviewer".into(),
        mode: AgentMode::All,
        description: "Reviews changes.".into(),
        model: Some("small".into()),
        pool: None,
        settings: Settings {
            output_tokens: Some(4000),
            temperature: Some(0.2),
            top_p: Some(1.0),
            effort: Some(Effort::None),
        },
        tools: Some(vec!["read".into(), "search".into()]),
        rules: Some(RuleSet {
            default: Verdict::Deny,
            rules: vec![Rule { action: "fs.read".into(), resource: "src/**".into(), verdict: Verdict::Allow }],
        }),
        bounds: vec![],
        inspectable: true,
        caller: true,
        turns: Some(12),
        detached: true,
        on_restart: Some(OnRestart::Resume),
        body: "Review the change.\n".into(),
        hidden: true,
        plan_exit: true,
        skills: Vec::new(),
        isolation: Isolation::Worktree,
        instructions: false,
        extra: BTreeMap::from([("colour".to_owned(), json!({"shade": "blue"}))]),
        source: Source::Host,
    };
    let warning = "unknown key `colour` is kept without effect; the keys are name, mode, \
                   description, model, pool, temperature, top_p, output_tokens, effort, tools, permissions, inspectable, caller, turns, detached, isolation, on_restart, hidden, plan_exit, instructions";
    assert_eq!(read(text), Ok(Parsed { manifest, warnings: vec![warning.to_owned()] }));
}

#[test]
fn mode_and_prompt_suffice() {
    let manifest = Manifest::new("stem", AgentMode::Subagent, "Read it. Then say so.");
    assert_eq!(&*manifest.description, "Read it.");
    for text in [
        "---\nmode: subagent\n---\nRead it. Then say so.",
        "\u{feff}---\r\nmode: subagent\r\n---\r\n\r\nRead it. Then say so.",
        "---\nmode: subagent\nname:\n---\nRead it. Then say so.",
    ] {
        assert_eq!(read(text), Ok(Parsed { manifest: manifest.clone(), warnings: Vec::new() }), "{text:?}");
    }
}

#[test]
fn dashes_below_the_front_matter_belong_to_the_prompt() {
    let body = read("---\nmode: all\n---\nOne\n---\nTwo\n").map(|parsed| parsed.manifest.body);
    assert_eq!(body.as_deref(), Ok("One\n---\nTwo\n"));
}

#[test]
fn tools_accept_a_list_or_text_and_empty_means_none() {
    let tools = |line: &str| read(&format!("---\nmode: all\n{line}\n---\nx")).map(|parsed| parsed.manifest.tools);
    assert_eq!(tools("description: y"), Ok(None));
    assert_eq!(tools("tools: []"), Ok(Some(Vec::new())));
    assert_eq!(tools("tools: read, list"), Ok(Some(vec!["read".into(), "list".into()])));
    assert_eq!(
        tools("tools: [read, 7]").map_err(|error| error.to_string()),
        Err("`tools` must list tools by name (1 to 64 of a-z, A-Z, 0-9, `-` and `_`, or 320 if they begin with `mcp__`), not \
             [\"read\",7]"
            .into())
    );
}

/// Each session of an agent keeps its list, and each missing tool is a warning. The control: as many as the limit, each twice.
#[test]
fn tools_of_an_agent_are_limited_and_kept_once() {
    let listed = |number: usize| {
        let names: Vec<String> = (0..number).map(|n| format!("t{n}")).collect();
        let text = format!("---\nmode: all\ndescription: y\ntools: [{0}, {0}]\n---\nx", names.join(", "));
        read(&text).map(|parsed| parsed.manifest.tools.map(|tools| tools.len())).map_err(|error| error.to_string())
    };
    assert_eq!(listed(MAX_TOOLS), Ok(Some(MAX_TOOLS)));
    assert_eq!(listed(MAX_TOOLS + 1), Err("`tools` lists 257 tools; the limit is 256".to_owned()));
}

#[test]
fn refusals_name_the_error_and_its_fix() {
    for (text, says) in [
        ("", "has no front matter: begin the file with a line `---`, then YAML, then another line `---`"),
        (
            "Just text\n---\n",
            "has no front matter: begin the file with a line `---`, then YAML, then another line `---`",
        ),
        ("---\nmode: all\n", "the front matter has no end: close it with a line `---`"),
        ("---\n---\nx", "has no `mode`: add `mode: primary`, `mode: subagent` or `mode: all`"),
        ("---\nname: a\n---\nx", "has no `mode`: add `mode: primary`, `mode: subagent` or `mode: all`"),
        ("---\nmode: both\n---\nx", "`mode` must be primary, subagent or all, not \"both\""),
        ("---\nmode: all\n---\n \n", "has no prompt: write it below the front matter"),
        (
            "---\n- mode\n---\nx",
            "the front matter is not valid YAML: it must be a map of keys to values, not [\"mode\"]",
        ),
        ("---\nmode: all\ninspectable: maybe\n---\nx", "`inspectable` must be true or false, not \"maybe\""),
        ("---\nmode: all\ncaller: person\n---\nx", "`caller` must be agent, not \"person\""),
        ("---\nmode: all\non_restart: retry\n---\nx", "`on_restart` must be fail or resume, not \"retry\""),
        ("---\nmode: all\nturns: 0\n---\nx", "`turns` must be a whole number from 1 to 4294967295, not 0"),
        (
            "---\nmode: all\nturns: 5000000000\n---\nx",
            "`turns` must be a whole number from 1 to 4294967295, not 5000000000",
        ),
        ("---\nmode: all\ndescription: [a]\n---\nx", "`description` must be a string, not [\"a\"]"),
        ("---\nmode: all\npermissions: {a: b}\n---\nx", "`permissions` `a`: must be allow, ask or deny, not \"b\""),
        (
            "---\nmode: all\nname: A b\n---\nx",
            "`A b` is not an agent's name: use 1 to 64 of a-z, 0-9, `-` and `_`, and begin with a letter or a digit",
        ),
    ] {
        assert_eq!(refused(text), says, "{text:?}");
    }
}

#[test]
fn invalid_settings_are_refused_with_the_allowed_range() {
    let says = |line: &str| refused(&format!("---\nmode: all\n{line}\n---\nx"));
    for (line, expected) in [
        ("temperature: -0.1", "`temperature` must be a number of at least 0, not -0.1"),
        ("temperature: hot", "`temperature` must be a number of at least 0, not \"hot\""),
        (
            "temperature: .nan",
            "the front matter is not valid YAML: value `.nan` is not a finite number at line 3, column 14",
        ),
        ("top_p: 1.1", "`top_p` must be a number from 0 to 1, not 1.1"),
        (
            "top_p: -.inf",
            "the front matter is not valid YAML: value `-.inf` is not a finite number at line 3, column 8",
        ),
        ("output_tokens: 0", "`output_tokens` must be a whole number of at least 1, not 0"),
        ("output_tokens: 1.5", "`output_tokens` must be a whole number of at least 1, not 1.5"),
        ("effort: maximal", "`effort` must be none, low, medium or high, not \"maximal\""),
        ("pool: [a]", "`pool` must be a string, not [\"a\"]"),
        (
            "model: small\npool: cheap",
            "`pool` cannot be combined with `model` (small): a pool names its own models. Remove one of the two.",
        ),
    ] {
        assert_eq!(says(line), expected, "{line}");
    }
}

#[test]
fn settings_may_be_empty_and_a_pool_needs_no_model() {
    let manifest = read("---\nmode: all\npool: cheap\ntemperature:\neffort: high\n---\nx").unwrap().manifest;
    let settings = Settings { effort: Some(Effort::High), ..Settings::default() };
    assert_eq!((manifest.pool.as_deref(), manifest.model, manifest.settings), (Some("cheap"), None, settings));
}

#[test]
fn yaml_errors_are_one_line_and_name_the_line_of_the_file() {
    for text in
        ["---\nmode: all\nname: [a\n---\nx", "---\nmode: all\n*: deny\n---\nx", "---\nmode: all\nmode: all\n---\nx"]
    {
        let says = refused(text);
        assert!(says.starts_with("the front matter is not valid YAML: "), "{says}");
        assert!(!says.contains('\n'), "{says}");
        assert!(says.contains("line 3") || says.contains("line 4"), "{says}");
    }
}

#[test]
fn permissions_that_only_allow_give_a_warning() {
    let warnings = read("---\nmode: all\npermissions: {fs.read: allow}\n---\nx").map(|parsed| parsed.warnings);
    let expected = "`permissions` only allows, which changes nothing: add `\"*\": deny` to deny the rest";
    assert_eq!(warnings, Ok(vec![expected.to_owned()]));
}

#[test]
fn a1_unknown_key_that_restricts_refuses_the_file() {
    let never = "is an unknown key, and a restriction is never ignored: ";
    let says = |line: &str| refused(&format!("---\nmode: all\n{line}\n---\nx"));
    let form = |at: usize| {
        [
            "write `permissions: {ACTION: deny}` (or `ask`), such as `permissions: {fs.write: deny, shell.run: ask}`",
            "write `tools: [NAME]` to limit the agent to these tools, or `permissions: {\"*\": deny, ACTION: allow}`",
            "write `permissions: {fs.write: deny, shell.run: deny}`",
            "write `turns: N` or `output_tokens: N`, or set `limits` in subtend.yaml",
            "write `mode: primary` or `mode: subagent` to limit who may start it, or delete the file",
        ][at]
    };
    for (key, value, at) in [
        ("perms", "{read: deny}", 0),
        ("permission", "{edit: deny}", 0),
        ("Permissions", "{edit: deny}", 0),
        ("deny", "[shell]", 0),
        ("disallowedTools", "[Bash]", 0),
        ("disallowed-tools", "Bash", 0),
        ("excludeTools", "[run_shell_command]", 0),
        ("permissionMode", "plan", 0),
        ("ask", "[shell]", 0),
        ("approval_policy", "on-request", 0),
        ("allowed-tools", "Read", 1),
        ("allow", "[read]", 1),
        ("readonly", "true", 2),
        ("readOnly", "true", 2),
        ("sandbox_mode", "read-only", 2),
        ("maxTurns", "4", 3),
        ("max_tokens", "400", 3),
        ("steps", "4", 3),
        ("timeout_mins", "5", 3),
        ("disable", "true", 4),
        ("user-invocable", "false", 4),
    ] {
        assert_eq!(says(&format!("{key}: {value}")), format!("`{key}` {never}{}", form(at)), "{key}");
    }
    for (key, known) in [
        ("permisions", "permissions"),
        ("tool", "tools"),
        ("trun", "turns"),
        ("turn", "turns"),
        ("outputTokens", "output_tokens"),
        ("modle", "model"),
        ("hiden", "hidden"),
    ] {
        assert_eq!(says(&format!("{key}: x")), format!("`{key}` is an unknown key; did you mean `{known}`?"), "{key}");
    }
}

#[test]
fn a1_unknown_keys_that_restrict_nothing_give_a_warning() {
    for line in [
        "color: blue",
        "hooks: {PreToolUse: [x]}",
        "skills: [a]",
        "memory: project",
        "mcpServers: {a: b}",
        "handoffs: [build]",
        "alwaysApply: true",
        "globs: \"*.rs\"",
        "top_k: 40",
        "background: true",
        "permissionMode: acceptEdits",
        "disallowedTools: []",
        "readonly: false",
        "disable: false",
        "user-invocable: true",
    ] {
        let warnings = read(&format!("---\nmode: all\n{line}\n---\nx")).map(|parsed| parsed.warnings);
        let key = line.split_once(':').map(|(key, _)| key).unwrap();
        let says =
            warnings.as_ref().map(|warnings| warnings.iter().map(|one| one.split(';').next().unwrap()).collect());
        assert_eq!(says, Ok(vec![&*format!("unknown key `{key}` is kept without effect")]), "{line}");
    }
}

/// Sessions record the model: one would keep the whole store from an import. The control: a long, visible name.
#[test]
fn model_name_that_no_import_takes_is_refused() {
    let of =
        |model: &str| read(&format!("---\nmode: all\nmodel: \"{model}\"\n---\nx")).map(|parsed| parsed.manifest.model);
    let long = format!("ollama/{}", "x".repeat(505));
    assert_eq!(of(&long), Ok(Some(long.as_str().into())));
    let why = "must have at most 512 bytes, and no control or invisible characters".to_owned();
    for model in [format!("{long}x"), "ollama/\u{202e}x".to_owned(), "ollama/x\\ey".to_owned()] {
        assert_eq!(of(&model), Err(BadManifest::Field { key: "model".to_owned(), why: why.clone() }), "{model:?}");
    }
}

/// Aliases repeat what a short file says once. The control: a part of a few nodes is repeated.
#[test]
fn aliases_repeat_a_bounded_part_of_a_file() {
    let text = |yaml: &str| format!("---\nmode: all\n{yaml}\n---\nx");
    assert_eq!(read(&text("a: &a [1, 2]\nb: [*a, *a]")).unwrap().manifest.extra["b"], json!([[1, 2], [1, 2]]));
    let nested = |levels: usize| {
        let level = |n: usize| format!("a{n}: &a{n} [{}]\n", format!("*a{},", n - 1).repeat(10));
        format!("a0: &a0 x\n{}", (1..=levels).map(level).collect::<String>())
    };
    assert!(read(&text(&nested(2))).is_ok());
    let attacks: [String; 2] = [nested(5), format!("a: &a {}\nb: [{}]", "x".repeat(10_000), "*a,".repeat(500))];
    for yaml in attacks {
        let refusal = refused(&text(&yaml));
        assert!(refusal.starts_with("the front matter is not valid YAML: "), "{refusal:.200}");
    }
}
