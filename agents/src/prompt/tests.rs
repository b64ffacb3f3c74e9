use std::collections::BTreeMap;

use serde_json::json;

use super::*;
use crate::dialect::Dialects;
use crate::instructions::Instructions;
use crate::manifest::AgentMode;
use crate::profile::Profiles;

fn text(name: &str, text: &str) -> FileText {
    FileText { name: name.into(), text: Ok(text.into()) }
}

fn missing(name: &str) -> FileText {
    FileText { name: name.into(), text: Err("no such file".into()) }
}

fn system(parts: &Parts) -> String {
    assemble(parts).system.to_string()
}

fn first(parts: &Parts) -> String {
    assemble(parts).first.unwrap().to_string()
}

fn read(path: &str) -> Result<String, String> {
    match path {
        "AGENTS.md" => Ok("House rules.\n".into()),
        "SOUL.md" => Ok("You are kind.\n".into()),
        "RESEARCHER.md" => Ok("\nLook things up.\n\n".into()),
        _ => Err("no such file".into()),
    }
}

fn no_instructions() -> (&'static Instructions, &'static Authority) {
    static NONE: std::sync::LazyLock<(Instructions, Authority)> =
        std::sync::LazyLock::new(|| (Instructions::default(), Authority::allow_all()));
    (&NONE.0, &NONE.1)
}

fn profiles(of: serde_json::Value) -> Dialects {
    let of: BTreeMap<Text, Profile> = serde_json::from_value(of).unwrap();
    Dialects { profiles: Profiles::load(of, &read).unwrap(), offered: Dialect::ALL.to_vec(), ..Dialects::default() }
}

#[test]
fn s3_prompt_parts_appear_in_their_order() {
    let parts = Parts {
        body: Some("Agent.".into()),
        bootstrap: vec![text("AGENTS.md", "House rules.\n"), missing("ENVIRONMENT.md")],
        prompt_file: Some(text("F.md", "\nFile.\n\n")),
        inline: Some("Inline.".into()),
        parameter: Some("Call.".into()),
        started_by: Some(Dialect::Spawn),
        offered: vec![Dialect::Spawn],
        profiles: vec![ListedProfile { name: "a".into(), about: "A.".into(), tools: vec![] }],
        caller: true,
        task: Some("Do it.".into()),
        ..Parts::default()
    };
    let system = "Agent.\n\nHouse rules.\n\nFile.\n\nInline.\n\nCall.\n\nWhen to hand work to other agents:\n\n\
                  - Several long pieces of work at the same time: start each with `spawn`, continue meanwhile, and collect them \
                  with `spawn_await`.\n\n\
                  <available_spawn_profiles>\n  <profile name=\"a\">A. Tools: none.</profile>\n\
                  </available_spawn_profiles>\n\n\
                  Your caller is another agent; return structured output.";
    let expected = Assembled {
        system: system.into(),
        first: Some("Do it.".into()),
        warnings: vec!["the bootstrap file `ENVIRONMENT.md` is left out: no such file".into()],
    };
    assert_eq!(assemble(&parts), expected);
}

#[test]
fn empty_parts_give_an_empty_prompt() {
    assert_eq!(assemble(&Parts::default()), Assembled { system: "".into(), first: None, warnings: vec![] });
    let blank = Parts { body: Some("\n \n".into()), inline: Some("".into()), ..Parts::default() };
    assert_eq!(system(&blank), "");
}

#[test]
fn s3_profile_adds_bootstrap_files_its_file_and_its_text() {
    let dialects = profiles(json!({"researcher": {
        "bootstrap_files": ["SOUL.md", "GONE.md", "AGENTS.md"],
        "system_prompt_file": "RESEARCHER.md",
        "system_prompt": "Focus on academic sources.",
    }}));
    let caller = Manifest::new("general", AgentMode::All, "You do everything.");
    let parts =
        Parts::of_spawn(dialects.profiles.get("researcher").map(|p| &**p), (&caller, None), no_instructions(), &read);
    let parts = Parts { parameter: Some("In French.".into()), ..parts };
    let expected = Assembled {
        system: "You are kind.\n\nHouse rules.\n\nLook things up.\n\nFocus on academic sources.\n\nIn French.".into(),
        first: None,
        warnings: vec!["the bootstrap file `GONE.md` is left out: no such file".into()],
    };
    assert_eq!(assemble(&parts), expected);
}

#[test]
fn s3_without_profile_uses_caller_prompt_and_default_files() {
    let caller = Manifest::new("general", AgentMode::All, "You do everything.");
    let assembled = assemble(&Parts::of_spawn(None, (&caller, None), no_instructions(), &read));
    let warning = "the bootstrap file `ENVIRONMENT.md` is left out: no such file".to_owned();
    let system = "You do everything.\n\nHouse rules.".into();
    assert_eq!(assembled, Assembled { system, first: None, warnings: vec![warning] });
}

#[test]
fn s3_profile_may_inherit_and_name_an_agent() {
    let dialects = profiles(json!({
        "both": {"prompt": "inherit", "agent": "critic", "bootstrap_files": ["SOUL.md"]},
        "named": {"agent": "critic", "bootstrap_files": ["SOUL.md"]},
    }));
    let caller = Manifest { caller: true, ..Manifest::new("general", AgentMode::All, "You do everything.\n") };
    let critic = Manifest::new("critic", AgentMode::Subagent, "Criticise.\n");
    let of = |name: &str, agent| {
        let profile = dialects.profiles.get(name).map(|profile| &**profile);
        system(&Parts::of_spawn(profile, (&caller, agent), no_instructions(), &read))
    };
    assert_eq!(of("both", Some(&critic)), "You do everything.\n\nCriticise.\n\nYou are kind.");
    assert_eq!(of("named", Some(&critic)), "Criticise.\n\nYou are kind.");
    let line = "Your caller is another agent; return structured output.";
    assert_eq!(of("named", None), format!("You are kind.\n\n{line}"));
}

#[test]
fn s3_bootstrap_file_outside_the_workspace_is_never_read() {
    let read = |path: &str| panic!("{path} was read");
    let outside = FileText::read(&"../secret.md".into(), &read);
    let why = "it leads out of the workspace by `..`: name a file in it";
    assert_eq!(outside, FileText { name: "../secret.md".into(), text: Err(why.into()) });
}

#[test]
fn k11_system_prompt_of_a_call_is_appended() {
    let parts = Parts { body: Some("Agent.".into()), parameter: Some("Call.".into()), ..Parts::default() };
    assert_eq!(system(&parts), "Agent.\n\nCall.");
}

#[test]
fn b7_subagent_prompt_has_agent_prompt_then_instructions() {
    let critic = Manifest::new("critic", AgentMode::Subagent, "Criticise.\n");
    let shown = Parts { started_by: Some(Dialect::Subagent), ..Parts::of_agent(&critic) };
    let full = system(&Parts { discovers: true, ..shown.clone() });
    let bullet = include_str!("../dialect/discovery.md");
    assert_eq!(system(&shown), full.replace(bullet, ""), "the paragraph on hidden tools is absent without them");
    assert_eq!(
        full,
        "Criticise.\n\nYou were given one task by another agent, and you do it alone.\n\n- No user can answer \
         questions while you work. Where the task leaves something open, take the most sensible reading,\n  and say \
         in your answer which one you took.\n- You may have more tools than you see: `get_tools` lists what else you \
         may use, and `use_tool` calls it. Look there\n  before you conclude that something cannot be done.\n- Be \
         thorough in what the task needs and spend nothing on what it does not. Your turns are limited, so put \
         independent\n  calls into one answer.\n- You finish by answering in text without calling a tool. That answer \
         is all that is handed back: it must hold the\n  result itself, not an announcement of it."
    );
}

#[test]
fn r10_spawn_task_prompt_names_its_reader_and_limits() {
    let parts = Parts { started_by: Some(Dialect::SpawnTask), only_reads: true, ..Parts::default() };
    let full = system(&parts);
    let writes = system(&Parts { only_reads: false, ..parts });
    assert_eq!(writes, full.replace("- You only read. Do not create, change or delete anything.\n", ""));
    assert_eq!(
        full,
        "You work in the background on one task that another agent gave you.\n\n- Your reader is that agent, not a \
         person. Leave out greetings, offers and explanations of the obvious; every line\n  should carry a fact that \
         it can use: paths with line numbers, names, figures, quotations.\n- You only read. Do not create, change or \
         delete anything.\n- Do not send messages and do not schedule anything, whatever tools you may see for it.\n- \
         Stay with the task. What else you notice gets one line at the end, if it matters.\n\nAnswer in this form: a \
         summary of a few sentences that already answers the task, then the findings in detail, then\nwhat you could \
         not find out."
    );
}

#[test]
fn k15_children_of_other_dialects_get_no_instructions() {
    for dialect in [Dialect::Task, Dialect::Spawn, Dialect::Minion] {
        let parts = Parts { body: Some("Agent.".into()), started_by: Some(dialect), ..Parts::default() };
        assert_eq!(system(&parts), "Agent.", "{dialect:?}");
    }
}

#[test]
fn g10_caller_line_appears_once_and_last() {
    let critic = Manifest { caller: true, ..Manifest::new("critic", AgentMode::Subagent, "Criticise.\n") };
    let alone = "Criticise.\n\nYour caller is another agent; return structured output.";
    assert_eq!(system(&Parts::of_agent(&critic)), alone);
    let silent = Manifest { caller: false, ..critic };
    assert_eq!(system(&Parts::of_agent(&silent)), "Criticise.");
}

#[test]
fn r11_each_offered_dialect_has_its_hint() {
    let hints = |offered: &[Dialect]| system(&Parts { offered: offered.to_vec(), ..Parts::default() });
    assert_eq!(hints(&[]), "");
    assert_eq!(
        hints(&Dialect::ALL),
        "When to hand work to other agents:\n\n\
         - A separable job that an agent can finish alone: `subagent`. One that ran out of turns continues with its \
         `continueBranchId`.\n\
         - Work that needs much reading for a short conclusion, or independent parts that can run in parallel: hand each \
         to an agent with `task`.\n\
         - Several long pieces of work at the same time: start each with `spawn`, continue meanwhile, and collect them with \
         `spawn_await`.\n\
         - Code to explore, documentation to look up, a change to plan: `spawn_task`, then `check_task` when you need the \
         result; `cancel_task` when you no longer do. Independent questions: one task each, then check them all.\n\
         - A step whose details you do not need in front of you: give it to a `minion` with only the tools that it needs, \
         and take its result."
    );
}

#[test]
fn s5_profiles_are_listed_escaped_with_their_tools() {
    let named = |name: &str, about: &str, tools: &[&str]| ListedProfile {
        name: name.into(),
        about: about.split_whitespace().collect::<Vec<_>>().join(" "),
        tools: tools.iter().map(|tool| (*tool).into()).collect(),
    };
    let profiles = || {
        vec![
            named("odd", "</profile> & \"more\"\n<x a='1'>", &["read_file"]),
            named("plain", "", &[]),
            named("researcher", "Research specialist", &["web_search", "read_file"]),
        ]
    };
    let block = "<available_spawn_profiles>\n  \
                 <profile name=\"odd\">&lt;/profile&gt; &amp; &quot;more&quot; &lt;x a=&apos;1&apos;&gt;. Tools: \
                 read_file.</profile>\n  \
                 <profile name=\"plain\">Tools: none.</profile>\n  \
                 <profile name=\"researcher\">Research specialist. Tools: web_search, read_file.</profile>\n\
                 </available_spawn_profiles>";
    let offering = |offered: &[Dialect]| Parts::default().offering(offered, profiles).profiles;
    assert_eq!(profile_block(&offering(&[Dialect::Spawn])).as_deref(), Some(block));
    assert_eq!(profile_block(&offering(&[Dialect::Task, Dialect::SpawnTask])), None);
    assert_eq!(profile_block(&[]), None);
}

/// The control: profiles within the bound are all listed.
#[test]
fn list_of_profiles_in_a_prompt_is_bounded() {
    let list = |count: usize| {
        let one = |n| ListedProfile { name: format!("p{n:03}").into(), about: "<".repeat(1_000), tools: vec![] };
        let block = profile_block(&(0..count).map(one).collect::<Vec<_>>()).expect("a list");
        (block.lines().filter(|line| line.starts_with("  <profile ")).count(), block)
    };
    let (listed, block) = list(500);
    assert!(block.len() <= MAX_PROFILE_BYTES + 100, "{}", block.len());
    assert!(block.ends_with(&format!("  ({} more are left out)\n{PROFILES_END}", 500 - listed)), "{listed}");
    assert_eq!((list(listed).0, list(listed).1.contains("left out")), (listed, false));
    // The list is replaced like one of a few profiles.
    let offered = with_offers(&"You work.".into(), Some(&format!("{HEADING}- a\n\n{block}")));
    assert_eq!(&*with_offers(&offered, None), "You work.");
}

#[test]
fn r11_offers_are_replaced_in_place_and_nothing_else_changes() {
    let one = vec![ListedProfile { name: "a".into(), about: "A.".into(), tools: vec!["look".into()] }];
    let [old, new] = [offers(&[Dialect::Task], &[]), offers(&[Dialect::Spawn, Dialect::Minion], &one)];
    let made = |caller: bool, offered: &[Dialect], profiles: &[ListedProfile]| {
        let (body, offered, profiles) = (Some("Agent.\n\n- A list.".into()), offered.to_vec(), profiles.to_vec());
        assemble(&Parts { body, offered, profiles, caller, ..Parts::default() }).system
    };
    for caller in [false, true] {
        let none = made(caller, &[], &[]);
        let (task, more) =
            (made(caller, &[Dialect::Task], &[]), made(caller, &[Dialect::Spawn, Dialect::Minion], &one));
        for from in [&none, &task, &more] {
            assert_eq!(with_offers(from, None), none);
            assert_eq!(with_offers(from, old.as_deref()), task);
            assert_eq!(with_offers(from, new.as_deref()), more);
        }
    }
    let blank: Text = "".into();
    assert_eq!(with_offers(&with_offers(&blank, old.as_deref()), None), blank);
    let quoted: Text = "Never write \"When to hand work to other agents:\n\n- x\".".into();
    assert_eq!(with_offers(&quoted, None), quoted);
}

#[test]
fn b7_context_and_files_precede_the_task_under_headings() {
    let parts = Parts {
        task: Some("Find the bug.".into()),
        context: Some("It fails on Mondays.\n".into()),
        files: vec![text("src/a.rs", "fn a() {}\n"), missing("src/gone.rs"), text("notes.md", "```\ncode\n```")],
        ..Parts::default()
    };
    assert_eq!(
        first(&parts),
        "## Context\n\nIt fails on Mondays.\n\n## Files\n\n### src/a.rs\n\n```\nfn a() {}\n```\n\n### src/gone.rs\n\n(This \
         file could not be read: no such file.)\n\n### notes.md\n\n````\n```\ncode\n```\n````\n\n## Task\n\nFind the bug."
    );
    assert_eq!(assemble(&parts).warnings, [""; 0], "a file that cannot be read is marked in its place");
    let named = Parts { files: vec![text("a\n## Task\nb", "")], ..Parts::default() };
    assert_eq!(first(&named), "## Files\n\n### a ## Task b\n\n```\n```");
}

#[test]
fn b8_tool_schemas_come_with_the_task_and_restrict_nothing() {
    let tool = ToolSpec {
        name: "search".into(),
        description: "Finds text. ".into(),
        schema: Arc::new(json!({"type": "object", "required": ["pattern"]})),
    };
    let silent = ToolSpec { name: "list".into(), description: "".into(), schema: Arc::new(json!({})) };
    let parts = Parts { task: Some("Find it.".into()), tools: vec![tool, silent], ..Parts::default() };
    let says = first(&parts);
    let (before, rest) = says.split_once("```json\n").unwrap();
    assert_eq!(
        before,
        "## Tools for this task\n\nThese are likely to be needed; others that you have can be used as well.\n\n### \
         search\n\nFinds text.\n\nParameters:\n\n"
    );
    let (schema, rest) = rest.split_once("\n```").unwrap();
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(schema).unwrap(),
        json!({"type": "object", "required": ["pattern"]})
    );
    assert_eq!(rest, "\n\n### list\n\nParameters:\n\n```json\n{}\n```\n\n## Task\n\nFind it.");
}

/// A prompt has a file as often as its profile names it. The control: the files within the limit are in the prompt.
#[test]
fn bootstrap_files_of_a_prompt_are_limited_in_total() {
    let long = "x".repeat(256 << 10);
    let fits = MAX_BOOTSTRAP_BYTES / long.len();
    let dialects = profiles(json!({"researcher": {"bootstrap_files": vec!["LONG.md"; fits + 1]}}));
    let caller = Manifest::new("general", AgentMode::All, "");
    let profile = dialects.profiles.get("researcher").map(|profile| &**profile);
    let parts = Parts::of_spawn(profile, (&caller, None), no_instructions(), &|_| Ok(long.clone()));
    let expected = Assembled {
        system: vec![&*long; fits].join("\n\n").into(),
        first: None,
        warnings: vec![
            "the bootstrap file `LONG.md` is left out: bootstrap files may have 1048576 bytes in total".into(),
        ],
    };
    assert_eq!(assemble(&parts), expected);
}
