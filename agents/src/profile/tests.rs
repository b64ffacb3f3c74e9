use serde_json::json;

use super::*;
use crate::instructions::BOOTSTRAP;

fn read(path: &str) -> Result<String, String> {
    match path {
        "RESEARCHER.md" => Ok("Look everything up twice. Then say it.\n".into()),
        _ => Err("no such file".into()),
    }
}

fn load(profiles: serde_json::Value) -> Result<Profiles, BadProfile> {
    Profiles::load(serde_json::from_value(profiles).unwrap(), &read)
}

fn load_error(profile: serde_json::Value) -> String {
    load(json!({"researcher": profile})).map_or_else(|error| error.to_string(), |found| format!("loaded: {found:?}"))
}

#[test]
fn s5_all_fields_of_a_profile_are_read() {
    let profiles = load(json!({
        "researcher": {
            "bootstrap_files": ["SOUL.md", "AGENTS.md"],
            "system_prompt_file": "RESEARCHER.md",
            "system_prompt": "Focus on academic sources.",
            "tools": ["web_search", "shell", "read_file"],
            "pool": "smart",
        },
        "coder": {"agent": "build", "prompt": "inherit", "description": "Writes\ncode.", "pool": "", "system_prompt": ""},
    }))
    .unwrap();
    let researcher = Profile {
        name: "researcher".into(),
        description: "".into(),
        agent: None,
        bootstrap_files: vec!["SOUL.md".into(), "AGENTS.md".into()],
        system_prompt_file: Some("RESEARCHER.md".into()),
        system_prompt: Some("Focus on academic sources.".into()),
        prompt: Inherit::Own,
        tools: vec!["web_search".into(), "shell".into(), "read_file".into()],
        pool: Some("smart".into()),
        file_text: Some("Look everything up twice. Then say it.\n".into()),
    };
    let coder = Profile {
        name: "coder".into(),
        description: "Writes\ncode.".into(),
        agent: Some("build".into()),
        prompt: Inherit::Inherit,
        ..Profile::default()
    };
    assert_eq!(profiles.all().map(|profile| (**profile).clone()).collect::<Vec<_>>(), [coder, researcher]);
    assert_eq!(profiles.names(), ["coder".into(), "researcher".into()] as [Text; 2]);
}

#[test]
fn s5_purpose_falls_back_to_the_first_prompt_sentence() {
    let about = |profile| load(json!({"researcher": profile})).unwrap().get("researcher").unwrap().about();
    assert_eq!(about(json!({"description": "Reads\n  papers.", "system_prompt": "Read."})), "Reads papers.");
    assert_eq!(about(json!({"system_prompt": "Read papers. Quote them."})), "Read papers.");
    assert_eq!(about(json!({"system_prompt_file": "RESEARCHER.md"})), "Look everything up twice.");
    assert_eq!(about(json!({})), "");
}

/// Each prompt has the purposes of all profiles. The control: one of the longest length is whole.
#[test]
fn long_purpose_of_a_profile_is_truncated() {
    let about = |profile| load(json!({"researcher": profile})).unwrap().get("researcher").unwrap().about();
    let (whole, start) = ("é".repeat(500), format!("{}…", "é".repeat(500)));
    assert_eq!(about(json!({"description": whole})), whole);
    assert_eq!(about(json!({"description": format!("{whole}x")})), start);
}

#[test]
fn s3_default_bootstrap_files_are_used_when_none_are_named() {
    let bootstrap = |profile| {
        let profiles = load(json!({"researcher": profile})).unwrap();
        Profile::bootstrap(profiles.get("researcher").map(|profile| &**profile), &Instructions::default())
    };
    assert_eq!(bootstrap(json!({"bootstrap_files": []})), BOOTSTRAP.map(Text::from));
    assert_eq!(bootstrap(json!({"bootstrap_files": ["SOUL.md"]})), [Text::from("SOUL.md")]);
}

#[test]
fn s3_missing_prompt_file_names_file_and_profile() {
    assert_eq!(
        load_error(json!({"system_prompt_file": "GONE.md"})),
        "the profile `researcher` cannot be used: its `system_prompt_file` `GONE.md` cannot be read: no such file"
    );
}

#[test]
fn s3_profile_files_outside_the_workspace_are_refused() {
    for (path, why) in [
        ("/etc/passwd", "is not relative: paths start at the workspace"),
        ("~/notes.md", "is not relative: paths start at the workspace"),
        ("C:\\notes.md", "is not relative: paths start at the workspace"),
        ("docs/../../x.md", "leads out of the workspace by `..`: name a file in it"),
        ("..", "leads out of the workspace by `..`: name a file in it"),
    ] {
        let says =
            |key: &str| format!("the profile `researcher` cannot be used: its `{key}` names `{path}`, which {why}");
        assert_eq!(load_error(json!({"system_prompt_file": path})), says("system_prompt_file"));
        assert_eq!(load_error(json!({"bootstrap_files": ["AGENTS.md", path]})), says("bootstrap_files"));
    }
    assert_eq!(check_confined(" "), Err("is not a path: name a file of the workspace"));
    assert_eq!(check_confined("docs/..hidden/a.md"), Ok(()));
}

#[test]
fn names_of_profiles_agents_and_tools_are_checked() {
    assert_eq!(
        load(json!({"Re searcher": {}})).unwrap_err().to_string(),
        "the profile `Re searcher` cannot be used: a name has 1 to 64 of a-z, 0-9, `-` and `_`, and begins with a letter or \
         a digit"
    );
    assert_eq!(
        load_error(json!({"tools": ["read", "no tool"]})),
        "the profile `researcher` cannot be used: its `tools` name \"no tool\", which is not a valid name of a tool: 1 to 64 of \
         a-z, A-Z, 0-9, `-` and `_`, or 320 if they begin with `mcp__`"
    );
    assert!(
        load_error(json!({"agent": "No body!"}))
            .starts_with("the profile `researcher` cannot be used: its `agent`: `No body!` is not an agent's name: ")
    );
}

/// Each profile keeps a copy of its prompt file. The control: as many as the limit allows are loaded.
#[test]
fn prompt_files_of_all_profiles_are_limited_in_total() {
    let most = MAX_PROMPT_FILES / (256 << 10);
    let load = |count: usize| {
        let profile = Profile { system_prompt_file: Some("LONG.md".into()), ..Profile::default() };
        let profiles = (0..count).map(|n| (format!("p{n:02}").into(), profile.clone())).collect();
        Profiles::load(profiles, &|_| Ok("x".repeat(256 << 10))).map(|loaded| loaded.names().len())
    };
    let refused = BadProfile {
        profile: format!("p{most:02}").into(),
        why: "the `system_prompt_file` of all profiles may have 4194304 bytes in total".into(),
    };
    assert_eq!((load(most), load(most + 1)), (Ok(most), Err(refused)));
}

/// Each file is read for each child, also one that is named again. The control: as many as the limit allows are loaded.
#[test]
fn bootstrap_files_of_a_profile_are_limited() {
    let load = |count: usize| load_error(json!({"bootstrap_files": vec!["AGENTS.md"; count]}));
    assert!(load(MAX_BOOTSTRAP_FILES).starts_with("loaded: "));
    let refused = "the profile `researcher` cannot be used: its `bootstrap_files` name more than 64 files";
    assert_eq!(load(MAX_BOOTSTRAP_FILES + 1), refused);
}
