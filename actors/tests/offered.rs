//! Offered tools and their texts name only what a session has (features G2, K16, R3, R10, R11, S3, S5, M8).

use crate::support::talk::{converse, converse_in, found, offering, parsed};
use crate::support::*;
use subtend_agents::dialect::hint;

/// Returns a policy that allows everything except `rules`.
fn allowing(rules: &[(&str, Verdict)]) -> RuleSet {
    let rule = |(action, verdict): &(&str, Verdict)| Rule {
        action: (*action).into(),
        resource: "*".into(),
        verdict: *verdict,
    };
    RuleSet { default: Verdict::Allow, rules: rules.iter().map(rule).collect() }
}

async fn spawned(journal: &Journal, session: &SessionHandle) -> Vec<Value> {
    let all = records(journal, session.id()).await;
    let spawned = |record: &Record| match record {
        Record::ChildSpawned(spawned) => serde_json::to_value(spawned).ok(),
        _ => None,
    };
    all.iter().filter_map(spawned).collect()
}

#[tokio::test(start_paused = true)]
async fn g2_task_uses_its_description_as_label_and_title() {
    let root = |_: &Request, at: usize| {
        let named = json!({"subagent_type": "worker", "prompt": "Count them.", "description": "Count\n files"});
        if at == 0 {
            calls([("task", named), crate::support::task("Look around.\nThen rest.", false)])
        } else {
            text("done")
        }
    };
    let (journal, runtime, session, last) = converse(&[Dialect::Task], root, found).await;
    assert_eq!(results(&last), ["Count them. found", "Look around.\nThen rest. found"]);
    let labels: Vec<_> = spawned(&journal, &session).await.iter().map(|spawned| spawned["label"].clone()).collect();
    assert_eq!(labels, ["Count files", "Look around."]);
    let tree = session.tree().await.expect("a tree");
    let Record::SessionCreated(created) = &records(&journal, tree.children[0].id).await[0] else {
        panic!("not a creation")
    };
    assert_eq!(created.title.as_deref(), Some("Count files"));
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn r3_check_and_cancel_take_a_session_id() {
    let root = |request: &Request, at: usize| {
        let id = |at: usize| parsed(&results(request)[at])["session_id"].clone();
        match at {
            0 => calls([crate::support::task("quick", true), crate::support::task("slow", true)]),
            1 => calls([
                ("check_task", json!({"session_id": id(0)})),
                ("cancel_task", json!({"sessionId": id(1)})),
                ("check_task", json!({"session_id": id(1), "wait": false})),
            ]),
            _ => text("done"),
        }
    };
    let (_, runtime, _, last) = converse(&[Dialect::Task], root, found).await;
    let received = results(&last);
    let (quick, slow) = (parsed(&received[0])["session_id"].clone(), parsed(&received[1])["session_id"].clone());
    assert!(received[2].contains(quick.as_str().unwrap()) && received[2].contains("quick found"), "{}", received[2]);
    assert_eq!(parsed(&received[3]), json!({"session_id": slow, "status": "cancelling"}));
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn k16_errors_list_only_tools_and_agents_that_are_offered() {
    let root = |_: &Request, at: usize| match at {
        0 => calls([
            ("lokup", json!({})),
            ("task", json!({"subagent_type": "wroker", "prompt": "p"})),
            ("task", json!({"prompt": "p"})),
            ("minion", json!({"message": "m", "enableWeb": false, "enabledTools": ["lokup"]})),
        ]),
        _ => text("done"),
    };
    let journal = journal();
    let policy = allowing(&[("tool:write", Verdict::Ask), ("task:worker", Verdict::Ask)]);
    let noop = |name: &str| {
        let access = format!("tool:{name}");
        tool(name, ToolEffect::ReadOnly, |_| async { Ok(ToolOutput::text("looked")) }).access(move |_| {
            vec![subtend_session::authority::Access { action: access.as_str().into(), resource: ".".into() }]
        })
    };
    let builder = offering(&journal, &[Dialect::Task, Dialect::Minion]);
    let builder = builder.policy(policy).tools(tools([noop("lookup"), noop("write")]));
    let (runtime, _, last) = converse_in(builder, root, found).await;
    assert_eq!(offered(&last), ["lookup", "task", "check_task", "cancel_task", "minion"]);
    let agents = "explore, general, plan, research";
    let expected = [
        "no tool is named `lokup`. Did you mean `lookup`? Available: lookup, task, check_task, cancel_task, minion."
            .to_owned(),
        format!("no agent `wroker` can be started by task. Valid: {agents}."),
        format!(
            "subagent_type is missing: name the agent that does the work ({agents}), or a task of yours to continue by session_id"
        ),
        "Minion error: enabledTools names tools that are not available: lokup. Did you mean `lookup`? Valid: lookup."
            .to_owned(),
    ];
    assert_eq!(results(&last), expected);
    shut(runtime).await;
}

/// Without an approver the task tool is not offered if every agent needs an approval; then no hint names it.
#[tokio::test(start_paused = true)]
async fn r11_hints_name_only_offered_tools() {
    for (rules, expected) in [
        (&[("task:*", Verdict::Ask)][..], vec![]),
        (&[("task:*", Verdict::Deny)][..], vec![]),
        (&[][..], vec![Dialect::Task, Dialect::SpawnTask]),
    ] {
        let builder = offering(&journal(), &[Dialect::Task, Dialect::SpawnTask]).policy(allowing(rules));
        let (runtime, _, last) = converse_in(builder, |_: &Request, _| text("done"), found).await;
        let hints: Vec<Dialect> = Dialect::ALL.into_iter().filter(|it| last.system.contains(hint(*it))).collect();
        assert_eq!(hints.len(), expected.len(), "{}", last.system);
        assert!(expected.iter().all(|dialect| hints.contains(dialect)), "{}", last.system);
        let tools = offered(&last);
        assert!(hints.iter().all(|dialect| tools.iter().any(|tool| tool == dialect.name())), "{tools:?}");
        shut(runtime).await;
    }
}

/// Sends one message to a session in a host that offers `dialects`; returns the model's request.
async fn asked_in(memory: &Memory, dialects: Dialects, session: Option<SessionId>, seed: u64) -> (SessionId, Request) {
    let journal = reopen(memory);
    let last = Arc::new(Mutex::new(None));
    let seen = Arc::clone(&last);
    let answering = model(move |request| {
        *seen.lock().unwrap() = Some(request);
        async { Ok(text("done")) }
    });
    let options = subtend_actors::Options { seed: Some(seed), ..Default::default() };
    let runtime = offering(&journal, &[]).dialects(dialects).options(options).model(answering).start().await;
    let runtime = runtime.expect("the runtime starts");
    let handle = match session {
        Some(id) => runtime.session(id).expect("readable").expect("the session exists"),
        None => open(&runtime),
    };
    let receipt = handle.send("go").await.expect("accepted");
    handle.run_ended(receipt.run).await.expect("the run ends");
    let id = handle.id();
    shut(runtime).await;
    let request = last.lock().unwrap().take().expect("a model call");
    (id, request)
}

#[tokio::test(start_paused = true)]
async fn r11_hints_follow_the_current_setting() {
    let memory = Memory::new();
    let today = |offered: &[Dialect]| {
        let profile = Profile { system_prompt: Some("You code.".into()), ..Profile::default() };
        let profiles = Profiles::load([("coder".into(), profile)].into(), &|_| Err("no".into())).expect("profiles");
        Dialects { offered: offered.to_vec(), profiles, ..Dialects::default() }
    };
    let (id, request) = asked_in(&memory, today(&[Dialect::Task]), None, 1).await;
    let received = |dialects: &[Dialect]| {
        let hints: Vec<&str> = dialects.iter().map(|dialect| hint(*dialect)).collect();
        format!("You are a worker.\n\nWhen to hand work to other agents:\n\n{}", hints.join("\n"))
    };
    assert_eq!(*request.system, received(&[Dialect::Task]));
    let (_, spawns) = asked_in(&memory, today(&[Dialect::Spawn, Dialect::Minion]), Some(id), 2).await;
    let block = "<available_spawn_profiles>\n  <profile name=\"coder\">You code. Tools: lookup, write.</profile>\n\
                 </available_spawn_profiles>";
    assert_eq!(*spawns.system, format!("{}\n\n{block}", received(&[Dialect::Spawn, Dialect::Minion])));
    let (_, none) = asked_in(&memory, Dialects { enabled: false, ..Dialects::default() }, Some(id), 3).await;
    assert_eq!(&*none.system, "You are a worker.");
    let (_, again) = asked_in(&memory, today(&[Dialect::Task]), Some(id), 4).await;
    assert_eq!(*again.system, received(&[Dialect::Task]));
}

#[tokio::test(start_paused = true)]
async fn s5_profile_block_lists_the_tools_of_its_jobs() {
    let profile = |tools: &[&str], agent: Option<&str>| Profile {
        description: "A tool.".into(),
        tools: tools.iter().map(|name| (*name).into()).collect(),
        agent: agent.map(Into::into),
        ..Profile::default()
    };
    let profiles = [
        ("all".into(), profile(&[], None)),
        ("lookups".into(), profile(&["lookup", "secret", "spawn", "nonesuch"], None)),
        ("none_may".into(), profile(&[], Some("none_may"))),
        ("reads".into(), profile(&[], Some("reader"))),
    ];
    let profiles = Profiles::load(profiles.into(), &|_| Err("no".into())).expect("profiles");
    let dialects = Dialects { offered: vec![Dialect::Spawn], profiles, ..Dialects::default() };
    let mut catalog = Catalog::builtin();
    catalog.insert(Manifest::new("worker", AgentMode::All, "You are a worker."));
    let listed = Some(vec!["lookup".into()]);
    catalog.insert(Manifest { tools: listed, ..Manifest::new("reader", AgentMode::Subagent, "You read.") });
    let named = |name: &str, what: &str| {
        let access = format!("tool:{what}");
        tool(name, ToolEffect::ReadOnly, |_| async { Ok(ToolOutput::text("looked")) }).access(move |_| {
            vec![subtend_session::authority::Access { action: access.as_str().into(), resource: ".".into() }]
        })
    };
    let builder = builder(&journal())
        .catalog(catalog)
        .dialects(dialects)
        .policy(allowing(&[("tool:secret", Verdict::Deny)]))
        .tools(tools([named("lookup", "lookup"), named("write", "write"), named("secret", "secret")]));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&seen);
    let root = |_: &Request, at: usize| match at {
        0 => calls(["all", "lookups", "reads"].map(|name| ("spawn", json!({"task": name, "profile": name})))),
        1 => calls([("spawn_await", json!({"job_ids": "*"}))]),
        _ => text("done"),
    };
    let child = move |request: &Request, _: usize| {
        kept.lock().unwrap().push((crate::support::prompt(request), offered(request).join(", ")));
        Ok(text("found"))
    };
    let (runtime, _, last) = converse_in(builder, root, child).await;
    let line = |name: &str, tools: &str| format!("  <profile name=\"{name}\">A tool. Tools: {tools}.</profile>\n");
    let lines =
        [line("all", "lookup, write"), line("lookups", "lookup"), line("none_may", "none"), line("reads", "lookup")];
    let block = format!("<available_spawn_profiles>\n{}</available_spawn_profiles>", lines.concat());
    assert!(last.system.ends_with(&block), "{}", last.system);
    let mut got = seen.lock().unwrap().clone();
    got.sort();
    let expected = [("all", "lookup, write"), ("lookups", "lookup"), ("reads", "lookup")];
    assert_eq!(got, expected.map(|(name, tools)| (name.to_owned(), tools.to_owned())));
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn r10_spawn_task_tells_only_read_only_types_not_to_write() {
    let mut catalog = Catalog::builtin();
    catalog.insert(Manifest::new("worker", AgentMode::All, "You are a worker."));
    let writes = tool("write", ToolEffect::SideEffect, |_| async { Ok(ToolOutput::text("written")) });
    let writes =
        writes.access(|_| vec![subtend_session::authority::Access { action: "fs.write".into(), resource: "a".into() }]);
    let builder: Builder = offering(&journal(), &[Dialect::SpawnTask]).catalog(catalog).tools(tools([writes]));
    let received = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&received);
    let root = |_: &Request, at: usize| match at {
        0 => calls(
            ["worker", "explore"]
                .map(|agent| ("spawn_task", json!({"type": agent, "prompt": agent, "description": agent}))),
        ),
        _ => text("done"),
    };
    let child = move |request: &Request, _: usize| {
        let forbids = request.system.contains("Do not create, change or delete anything");
        kept.lock().unwrap().push((crate::support::prompt(request), forbids));
        Ok(text("found"))
    };
    let (runtime, _, _) = converse_in(builder, root, child).await;
    let mut received = received.lock().unwrap().clone();
    received.sort();
    assert_eq!(received, [("explore".to_owned(), true), ("worker".to_owned(), false)]);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn m8_minion_errors_use_the_term_minion() {
    let minion = |message: &str| ("minion", json!({"message": message, "enableWeb": false, "enabledTools": []}));
    let policy = allowing(&[("task:worker", Verdict::Ask)]);
    let journal = journal();
    let root = move |_: &Request, at: usize| if at == 0 { calls([minion(" "), minion("m")]) } else { text("done") };
    let builder = offering(&journal, &[Dialect::Minion]).policy(policy);
    let (runtime, _, last) = converse_in(builder, root, found).await;
    let received = results(&last);
    assert_eq!(
        received[0],
        "Minion error: the message is empty: the minion sees nothing else, so include everything that it needs"
    );
    assert!(received[1].starts_with("Minion error: Not allowed: task:worker on ."), "{}", received[1]);
    shut(runtime).await;

    let journal = crate::support::journal();
    let limits = subtend_session::limits::Limits { max_depth: 0, ..Default::default() };
    let root = move |_: &Request, at: usize| if at == 0 { calls([minion("m")]) } else { text("done") };
    let (runtime, _, last) = converse_in(offering(&journal, &[Dialect::Minion]).limits(limits), root, found).await;
    let deep = "Minion error: Not started: the limit of 0 levels of child sessions is reached (this session is at level 0, 0 \
                levels remain). Do the work yourself.";
    assert_eq!(results(&last), [deep]);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn s3_missing_bootstrap_file_is_a_recorded_warning() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("AGENTS.md"), "House rules.\n").expect("a file");
    let root = |_: &Request, at: usize| match at {
        0 => calls([("spawn", json!({"task": "a"}))]),
        _ => text("done"),
    };
    let journal = journal();
    let builder = offering(&journal, &[Dialect::Spawn]);
    let builder = builder.workspace(Arc::new(Workspace::open(dir.path()).expect("a workspace")));
    let (runtime, session, last) = converse_in(builder, root, found).await;
    assert_eq!(answers(&last), 2);
    let children = spawned(&journal, &session).await;
    let warnings: Vec<&str> =
        children[0]["warnings"].as_array().expect("warnings").iter().filter_map(Value::as_str).collect();
    assert_eq!(warnings.len(), 1, "{children:?}");
    assert!(warnings[0].starts_with("the bootstrap file `ENVIRONMENT.md` is left out: "), "{warnings:?}");
    shut(runtime).await;
}
