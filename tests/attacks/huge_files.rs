//! Small workspace files with thousands of parts, which are read before the user trusts them.

use serde_json::{Value, json};
use subtend::config::{Layer, Loaded, Origin};
#[cfg(unix)]
use subtend_agents::catalog::AgentProblem;
use subtend_agents::catalog::Catalog;
use subtend_agents::form::schema_mismatches;
#[cfg(unix)]
use subtend_agents::skill::Skills;
#[cfg(unix)]
use subtend_agents::slash::SlashCommands;

fn loaded(text: &str) -> Result<Loaded, String> {
    let layer = Layer::file(Origin::Project("subtend.yaml".into()), text).map_err(|error| error.to_string())?;
    Loaded::of([layer]).map_err(|error| error.to_string())
}

/// A list of wrong items is reported once, with the start of its text: a short report. The control: one wrong item.
#[test]
fn list_of_wrong_items_is_reported_once() {
    let schema = json!({"type": "object", "properties": {"names": {"type": "array", "items": {"type": "string"}}}});
    for items in [1, 16_000] {
        let found = schema_mismatches(&schema, &json!({"names": vec![1; items]})).expect("a schema");
        assert_eq!(found.len(), 1, "{items} items");
        assert!(format!("{found:?}").len() < 300, "{found:?}");
    }
    let refused = loaded(&format!("agent: {}", json!(vec![1; 16_000]))).expect_err("no list");
    assert!(refused.len() < 400, "{refused}");
}

/// Thousands of profiles and keys cause a bounded number of warnings. The control: each of a few keys is named.
#[test]
fn warnings_about_a_huge_configuration_are_bounded() {
    let profiles = |count: usize| {
        let all = (0..count).map(|n| format!("    p{n:05}: {{pool: missing}}\n")).collect::<String>();
        format!("tools:\n  spawn:\n   profiles:\n{all}")
    };
    let keys = |count: usize| (0..count).map(|n| format!("key{n:05}: 1\n")).collect::<String>();
    let attacks: [&dyn Fn(usize) -> String; 2] = [&profiles, &keys];
    for text in attacks {
        let counts = [3, 9_000].map(|count| loaded(&text(count)).expect("a configuration").warnings.len());
        assert_eq!(counts, [3, 65]);
    }
    // A name as long as the file is not compared with known names.
    assert_eq!(loaded(&format!("? {}\n: 1\n", "k".repeat(900_000))).expect("a configuration").warnings.len(), 1);
}

/// Aliases repeat a text of the file in each profile. The control: a short text, and that of a small file.
#[test]
fn aliases_of_a_configuration_repeat_a_bounded_part() {
    let profiles = |text: &str, count: usize| {
        let one = |n: usize| match n {
            0 => format!("p0: {{description: &a '{text}'}}, "),
            n => format!("p{n}: {{description: *a}}, "),
        };
        format!("tools: {{spawn: {{profiles: {{{}}}}}}}", (0..count).map(one).collect::<String>())
    };
    let read =
        |text: &str, count| loaded(&profiles(text, count)).map(|loaded| loaded.config.tools.spawn.profiles.len());
    assert_eq!([read("word", 90), read(&"x".repeat(2_000), 8)], [Ok(90), Ok(8)]);
    let attacks: [(&str, usize); 2] = [("x", 1_002), (&"<".repeat(620_000), 107)];
    for (text, count) in attacks {
        let refused = read(text, count).expect_err("an error");
        assert!(refused.starts_with("subtend.yaml is not valid YAML: ") && refused.len() < 400, "{refused:.200}");
    }
}

/// The control: each of a few keys is named.
#[test]
fn unknown_keys_of_an_agent_file_are_named_up_to_a_limit() {
    let attacks: [(&str, &str); 2] = [(".subtend/agents/a.md", "mode: all\n"), (".claude/agents/a.md", "name: a\n")];
    for (path, head) in attacks {
        let problems = |count: usize| {
            let dir = tempfile::tempdir().expect("a directory");
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            let keys = (0..count).map(|n| format!("key{n:05}: 1\n")).collect::<String>();
            std::fs::write(&path, format!("---\n{head}description: d\n{keys}---\nWork.\n")).expect("a file");
            Catalog::load(dir.path()).problems().len()
        };
        assert_eq!([3, 10_000].map(problems), [3, 17], "{path}");
    }
}

/// Folders of thousands of links give a bounded number of problems. The control: a few are all reported.
#[cfg(unix)]
#[test]
fn links_in_agent_folders_are_reported_up_to_a_limit() {
    let attacks: [&str; 3] = [".claude/agents", ".claude/skills", ".claude/commands"];
    for folder in attacks {
        let problems = |count: usize| {
            let dir = tempfile::tempdir().expect("a directory");
            let folder = dir.path().join(folder);
            std::fs::create_dir_all(&folder).expect("a folder");
            (0..count).for_each(|n| std::os::unix::fs::symlink("/", folder.join(format!("{n}.md"))).expect("a link"));
            let (agents, skills, commands) =
                (Catalog::load(dir.path()), Skills::load(dir.path()), SlashCommands::load(dir.path()));
            let all: [&[AgentProblem]; 3] = [agents.problems(), skills.problems(), commands.problems()];
            all.map(<[_]>::len).iter().sum::<usize>()
        };
        assert_eq!([3, 2_500].map(problems), [3, 1_001], "{folder}");
    }
}

#[test]
fn long_values_are_shown_truncated() {
    let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}});
    let deep = (0..100).fold(json!(1), |deep, _| json!([deep]));
    let attacks: [Value; 3] = [json!({"a": "x".repeat(1 << 20)}), deep, json!(["ä".repeat(1 << 20)])];
    for value in attacks {
        let found = format!("{:?}", schema_mismatches(&schema, &json!({"name": value})).expect("a schema"));
        assert!(found.len() < 400 && found.contains('…'), "{found}");
    }
    // The control: a short value is shown whole.
    assert!(format!("{:?}", schema_mismatches(&schema, &json!({"name": [7]})).expect("a schema")).contains("\"[7]\""));
}
