//! Checks that the schemas accept and refuse the same files as the command.

use std::path::Path;

use serde_json::Value;
use subtend::agents::instructions::Unread;
use subtend::agents::{Catalog, front_matter, lint};
use subtend::config::{Layer, Loaded, Origin, schema};

/// Configurations that the command accepts.
const GOOD: [&str; 7] = [
    "",
    "agent: plan",
    "llm: {model: offline}",
    "llm:\n  default_pool: smart\n  pools: {smart: [offline, anthropic/x], cheap: [offline]}",
    "subagents: {enabled: false}\nlimits: {live_runs: 8, run_ms: none, tokens: 100}",
    "prices:\n  \"gpt-4.1*\": {input: 2, output: 8.5, cache_read: 0.5}",
    "tools:\n  task: {enabled: false}\n  spawn:\n    enabled: true\n    profiles:\n      researcher:\n        \
     bootstrap_files: [SOUL.md, AGENTS.md]\n        system_prompt_file: RESEARCHER.md\n        system_prompt: Focus.\n        \
     prompt: inherit\n        tools: [web_search]\n        pool: \"\"\n  minion: {enabled: true, options: {systemPrompt: \"\", model: \
     offline}}",
];

/// Configurations that the command refuses.
const BAD: [&str; 9] = [
    "agent: 7",
    "llm: {pools: {smart: offline}}",
    "subagents: {enabled: \"yes\"}",
    "limits: {turns: 0}",
    "limits: {queue_ms: none}",
    "limits: {run_ms: soon}",
    "prices: {m: {input: 1}}",
    "prices: {m: {input: -1, output: 1}}",
    "tools: {spawn: {profiles: {p: {prompt: mine}}}}",
];

fn yaml(text: &str) -> Value {
    match subtend_agents::yaml::parse(text).expect("YAML") {
        Value::Null => Value::Object(serde_json::Map::new()),
        value => value,
    }
}

fn load_config(text: &str) -> Result<Vec<String>, String> {
    let layer = Layer::file(Origin::User("subtend.yaml".into()), text).map_err(|error| error.to_string())?;
    let loaded = Loaded::of([layer]).map_err(|error| error.to_string())?;
    Ok(loaded.warnings.iter().map(ToString::to_string).collect())
}

#[test]
fn configuration_schema_accepts_the_same_as_the_command() {
    let checker = jsonschema::validator_for(&schema()).expect("a schema");
    for text in GOOD {
        let errors: Vec<_> = checker.iter_errors(&yaml(text)).map(|error| error.to_string()).collect();
        assert_eq!((errors, load_config(text)), (vec![], Ok(vec![])), "{text}");
    }
    for text in BAD {
        assert!(!checker.is_valid(&yaml(text)), "{text} is valid");
        assert!(load_config(text).is_err(), "{text} is accepted");
    }
    // Unknown keys cause a warning, and editors mark them.
    let typo = "limits: {truns: 1}";
    assert_eq!((checker.is_valid(&yaml(typo)), load_config(typo).map(|warnings| warnings.len())), (false, Ok(1)));
}

const GOOD_AGENTS: [&str; 4] = [
    "mode: all",
    "mode: subagent\nname: critic\ntools: read, search\neffort: none\ntemperature: 0.2\nturns: 3\ncaller: agent",
    "mode: primary\ntools: []\npermissions: {\"*\": deny, fs.read: allow, fs.write: {docs/**: ask}}\non_restart: resume\nplan_exit: true",
    "mode: primary\ncolour: blue",
];

const BAD_AGENTS: [&str; 8] = [
    "description: which mode?",
    "mode: never",
    "mode: all\nname: A B",
    "mode: all\nturns: 0",
    "mode: all\ntop_p: 2",
    "mode: all\npermissions: deny",
    "mode: all\npermissions: {fs.read: {a: never}}",
    "mode: all\ncaller: person",
];

#[test]
fn agent_schema_accepts_the_same_as_the_command() {
    let checker = jsonschema::validator_for(&front_matter()).expect("a schema");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("stem.md");
    let refused = |text: &str| {
        std::fs::write(&path, format!("---\n{text}\n---\nDo it.\n")).expect("a file");
        lint(std::slice::from_ref(&path), None, &Catalog::builtin(), &|_, _| Err(Unread::Missing))[0].is_refused()
    };
    for text in GOOD_AGENTS {
        assert_eq!((checker.is_valid(&yaml(text)), refused(text)), (true, false), "{text}");
    }
    for text in BAD_AGENTS {
        assert_eq!((checker.is_valid(&yaml(text)), refused(text)), (false, true), "{text}");
    }
}

#[test]
fn examples_of_the_guide_are_accepted() {
    let guide = std::fs::read_to_string(Path::new("src/guide/configuration.md")).expect("the page");
    let checker = jsonschema::validator_for(&schema()).expect("a schema");
    let blocks: Vec<&str> = guide.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(!blocks.is_empty());
    for text in blocks {
        let errors: Vec<_> = checker.iter_errors(&yaml(text)).map(|error| error.to_string()).collect();
        assert_eq!((errors, load_config(text)), (vec![], Ok(vec![])), "{text}");
    }
}
