//! System prompts as `subtend agents prompt` prints them.

use super::call::User;

const HINT: &str = "When to hand work to other agents:\n\n- Work that needs much reading for a short conclusion, or \
                    independent parts that can run in parallel: hand each to an agent with `task`.";

fn file(user: &User) {
    user.file(".subtend/agents/poet.md", "---\nmode: primary\ncaller: agent\n---\nYou write poems.\n");
    user.file(".subtend/agents/mute.md", "---\nmode: primary\ntools: [read]\n---\nYou read.\n");
}

fn prompt(user: &User, args: &[&str]) -> (String, String) {
    let done = user.succeeds(&[&["agents", "prompt"], args].concat());
    (done.out, done.err)
}

#[test]
fn g10_r11_prompt_ends_with_hint_and_caller_line() {
    let user = User::new();
    file(&user);
    let line = "Your caller is another agent; return structured output.";
    assert_eq!(prompt(&user, &["poet"]), (format!("You write poems.\n\n{HINT}\n\n{line}\n"), String::new()));
    assert_eq!(prompt(&user, &["mute"]), ("You read.\n".to_owned(), String::new()));
    let json = user.json(&["agents", "prompt", "mute", "--json"]);
    assert_eq!(json, serde_json::json!({"agent": "mute", "profile": null, "system": "You read.", "warnings": []}));
}

#[test]
fn r8_prompts_omit_subagents_when_switched_off() {
    let user = User::new();
    file(&user);
    user.file("subtend.yaml", "subagents: {enabled: false}\ntools: {spawn: {enabled: true, profiles: {a: {}}}}\n");
    let line = "Your caller is another agent; return structured output.";
    assert_eq!(prompt(&user, &["poet"]).0, format!("You write poems.\n\n{line}\n"));
}

#[test]
fn s5_profiles_are_listed_when_spawn_is_offered() {
    let user = User::new();
    user.file(".subtend/agents/chief.md", "---\nmode: primary\ntools: [spawn, spawn_await, read]\n---\nYou lead.\n");
    let profiles = "profiles: {researcher: {description: Looks <things> up, tools: [read, search]}}";
    user.file("subtend.yaml", &format!("tools: {{spawn: {{enabled: true, {profiles}}}}}\n"));
    let block = "<available_spawn_profiles>\n  <profile name=\"researcher\">Looks &lt;things&gt; up. Tools: \
                 read.</profile>\n</available_spawn_profiles>";
    let hint = "When to hand work to other agents:\n\n- Several long pieces of work at the same time: start each with \
                `spawn`, continue meanwhile, and collect them with `spawn_await`.";
    assert_eq!(prompt(&user, &["chief"]).0, format!("You lead.\n\n{hint}\n\n{block}\n"));
}

#[test]
fn s8_spawn_is_offered_only_when_enabled() {
    let user = User::new();
    user.file(
        ".subtend/agents/chief.md",
        "---\nmode: primary\ntools: [spawn, spawn_await, read, search]\n---\nYou lead.\n",
    );
    user.file("subtend.yaml", "tools: {spawn: {profiles: {writer: {system_prompt: You write.}}}}\n");
    assert_eq!(prompt(&user, &["chief"]).0, "You lead.\n");
    assert_eq!(
        user.call(&["config", "set", "tools.spawn.enabled", "true"]).code,
        Some(1),
        "a value on one line cannot be set"
    );
    user.file("subtend.yaml", "tools:\n  spawn:\n    profiles: {writer: {system_prompt: You write.}}\n");
    assert_eq!(user.call(&["config", "set", "tools.spawn.enabled", "true"]).code, Some(0));
    let hint = "When to hand work to other agents:\n\n- Several long pieces of work at the same time: start each with \
                `spawn`, continue meanwhile, and collect them with `spawn_await`.";
    let block = "<available_spawn_profiles>\n  <profile name=\"writer\">You write. Tools: read, search.</profile>\n\
                 </available_spawn_profiles>";
    assert_eq!(prompt(&user, &["chief"]).0, format!("You lead.\n\n{hint}\n\n{block}\n"));
}

#[test]
fn s3_child_prompt_joins_bootstrap_prompt_file_and_text() {
    let user = User::new();
    file(&user);
    user.file("AGENTS.md", "House rules.\n");
    user.file("docs/RESEARCHER.md", "Look things up.\n");
    user.file(
        "subtend.yaml",
        "tools:
  spawn:
    profiles:
      plain: {}
      researcher:
        bootstrap_files: [AGENTS.md, ../outside.md]
        system_prompt_file: docs/RESEARCHER.md
        system_prompt: Quote.
        prompt: inherit
",
    );
    let refused = user.call(&["agents", "prompt", "poet", "--profile", "researcher"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(
        refused.err.contains("`bootstrap_files` names `../outside.md`, which leads out of the workspace"),
        "{refused:?}"
    );
    let text = std::fs::read_to_string(user.workspace().join("subtend.yaml")).expect("the file");
    user.file("subtend.yaml", &text.replace("../outside.md", "GONE.md"));
    let line = "Your caller is another agent; return structured output.";
    let (out, err) = prompt(&user, &["poet", "--profile", "researcher"]);
    assert_eq!(out, format!("You write poems.\n\nHouse rules.\n\nLook things up.\n\nQuote.\n\n{line}\n"));
    assert_eq!(err, "warning: the bootstrap file `GONE.md` is left out: no such file\n");
    let (out, err) = prompt(&user, &["mute", "--profile", "plain"]);
    assert!(out.ends_with("\n\n<instructions file=\"AGENTS.md\">\nHouse rules.\n</instructions>\n"), "{out}");
    assert_eq!(err, "warning: the bootstrap file `ENVIRONMENT.md` is left out: no such file\n");
}

#[test]
fn prompt_of_an_unknown_agent_lists_the_agents() {
    let user = User::new();
    for (args, expected) in [
        (
            &["agents", "prompt", "nosuch"][..],
            "unknown agent `nosuch`; known agents: build, compaction, explore, general, plan,",
        ),
        (&["agents", "prompt", "general", "--profile", "x"], "unknown profile `x`; known profiles: none"),
    ] {
        let done = user.call(args);
        assert_eq!((done.code, done.out.as_str()), (Some(2), ""), "{done:?}");
        assert!(done.err.contains(expected), "{}", done.err);
    }
    user.file("subtend.yaml", "tools: {spawn: {profiles: {x: {agent: nosuch}}}}\n");
    let done = user.call(&["agents", "prompt", "general", "--profile", "x"]);
    let expected =
        "error: the profile `x` names an agent that cannot be used: unknown agent `nosuch`; known agents: build,";
    assert!(done.code == Some(2) && done.err.starts_with(expected), "{done:?}");
}

#[test]
fn s5_profile_of_an_unknown_agent_is_refused() {
    let user = User::new();
    let model = user.script_named("done", "done");
    let profiles = |enabled: bool| {
        let text = format!("tools: {{spawn: {{enabled: {enabled}, profiles: {{scout: {{agent: exlpore}}}}}}}}\n");
        user.file("subtend.yaml", &text);
    };
    profiles(true);
    let expected = "`tools.spawn.profiles.scout.agent`: unknown agent `exlpore`; did you mean `explore`?";
    let run = user.call(&["run", "--model", &model, "hi"]);
    assert!(run.code == Some(2) && run.err.contains(expected) && !user.data().exists(), "{run:?}");
    // If `spawn` is not enabled, nothing uses the profile: it is a warning.
    profiles(false);
    for verb in [&["agents"][..], &["run", "--model", &model, "hi"]] {
        let done = user.call(verb);
        assert!(done.code == Some(0) && done.err.contains(expected), "{done:?}");
    }
    let doctor = user.call(&["doctor"]);
    assert!(doctor.code == Some(1) && doctor.out.contains(expected), "{doctor:?}");
}

#[test]
fn s3_missing_bootstrap_file_is_a_warning_in_the_run() {
    let user = User::new();
    user.file("subtend.yaml", "tools: {spawn: {enabled: true, profiles: {scout: {agent: explore}}}}\n");
    user.file("AGENTS.md", "House rules.\n");
    let start = r#"{"tool": "spawn", "args": {"task": "scan", "profile": "scout"}}"#;
    let model = user.script(&format!(
        r#"{{"rules": [
            {{"agent": "general", "steps": [{{"calls": [{start}, {start}]}}, {{"text": "done", "repeat": true}}]}},
            {{"agent": "*", "steps": [{{"text": "found", "repeat": true}}]}}]}}"#
    ));
    let done = user.succeeds(&["run", "--model", &model, "begin"]);
    let warning = "warning: the bootstrap file `ENVIRONMENT.md` is left out: no such file";
    assert_eq!(done.err.matches(warning).count(), 1, "{}", done.err);
    assert!(!done.err.contains("`AGENTS.md`"), "{}", done.err);
    let quiet = user.call(&["run", "--quiet", "--model", &model, "begin"]);
    assert_eq!((quiet.code, quiet.err.as_str()), (Some(0), ""), "{quiet:?}");
}

#[test]
fn old_name_of_agents_prompt_warns_and_prints_the_same() {
    let user = User::new();
    file(&user);
    let (old, new) = (user.call(&["prompt", "mute"]), user.call(&["agents", "prompt", "mute"]));
    let notice = "warning: `subtend prompt` is deprecated; use `subtend agents prompt`\n";
    assert_eq!((old.code, &*old.out, &*old.err), (Some(0), &*new.out, notice), "{old:?}");
    assert_eq!((new.code, &*new.out, &*new.err), (Some(0), "You read.\n", ""), "{new:?}");
    assert!(!user.call(&["--help"]).out.contains("\n  prompt "), "the old name is listed");
}
