//! Rules that the dialects share, where their specifications disagree or leave a choice; tests have the rules' ids.

use crate::support::talk::{converse, converse_in, found, notices, offering, parsed};
use crate::support::*;
use subtend_agents::dialect::{hint, instructions};
use subtend_agents::profile::Inherit;

fn start(dialect: Dialect, prompt: &str) -> (&'static str, Value) {
    match dialect {
        Dialect::Task => ("task", json!({"subagent_type": "worker", "prompt": prompt})),
        Dialect::Minion => ("minion", json!({"message": prompt, "enableWeb": false, "enabledTools": ["lookup"]})),
        Dialect::Spawn => ("spawn", json!({"task": prompt})),
        Dialect::SpawnTask => ("spawn_task", json!({"type": "worker", "prompt": prompt, "description": prompt})),
        Dialect::Subagent => ("subagent", json!({"task": prompt})),
    }
}

type DescendantRequests = Arc<Mutex<Vec<Request>>>;

/// Runs a root that makes `tool_calls` first; children answer `found`. Returns its last request, and theirs.
async fn below(
    builder: Builder,
    tool_calls: Vec<(&'static str, Value)>,
) -> (Runtime, SessionHandle, Request, Vec<Request>) {
    let seen = DescendantRequests::default();
    let kept = Arc::clone(&seen);
    let root = move |_: &Request, at: usize| if at == 0 { calls(tool_calls.clone()) } else { text("done") };
    let child = move |request: &Request, _: usize| {
        kept.lock().unwrap().push(request.clone());
        Ok(text("found"))
    };
    let (runtime, session, last) = converse_in(builder, root, child).await;
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    (runtime, session, last, seen)
}

/// Returns a worker's system prompt with the instructions of `received`, and the hints for `offered`.
fn prompted(received: Option<Dialect>, offered: &[Dialect]) -> String {
    let mut parts = vec!["You are a worker.".to_owned()];
    parts.extend(
        received.and_then(|dialect| instructions(dialect, false, true)).map(|received| received.trim_end().to_owned()),
    );
    let hints: Vec<&str> = offered.iter().map(|dialect| hint(*dialect)).collect();
    if !hints.is_empty() {
        parts.push(format!("When to hand work to other agents:\n\n{}", hints.join("\n")));
    }
    parts.join("\n\n")
}

#[tokio::test(start_paused = true)]
async fn g2_k16_s1_unknown_agent_or_profile_is_an_error() {
    let calls = vec![
        ("task", json!({"subagent_type": "wroker", "prompt": "p"})),
        ("task", json!({"subagent_type": "build", "prompt": "p"})),
        ("spawn_task", json!({"type": "unknown", "prompt": "p", "description": "d"})),
        ("subagent", json!({"task": "p", "agent": "unknown"})),
        ("spawn", json!({"task": "p", "profile": "unknown"})),
    ];
    let (runtime, session, last, _) = below(offering(&journal(), &Dialect::ALL), calls).await;
    let no = |agent: &str, tool: &str, suggestion: &str| {
        format!(
            "no agent `{agent}` can be started by {tool}.{suggestion} Valid: explore, general, plan, research, worker."
        )
    };
    let refused = json!({
        "success": false, "subagentId": "", "branchId": "", "status": "error", "message": no("unknown", "subagent", ""),
        "error": "INVALID_ARGUMENTS",
    });
    let expected = [
        no("wroker", "task", " Did you mean `worker`?"),
        no("build", "task", ""), // a primary agent
        no("unknown", "spawn_task", ""),
        refused.to_string(),
        "no profile `unknown`: no profiles exist here, so leave profile out".to_owned(),
    ];
    assert_eq!(results(&last), expected);
    assert_eq!(session.tree().await.expect("a tree").children.len(), 0);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn k18_only_children_of_task_and_spawn_task_may_spawn() {
    let all = "lookup write task spawn_task check_task cancel_task spawn spawn_await minion subagent";
    for (dialect, expected) in [
        (Dialect::Task, all),
        (Dialect::SpawnTask, all),
        (Dialect::Spawn, "lookup write"),
        (Dialect::Subagent, "lookup write"),
        (Dialect::Minion, "lookup return"),
    ] {
        let (runtime, _, last, seen) = below(offering(&journal(), &Dialect::ALL), vec![start(dialect, "p")]).await;
        assert_eq!((offered(&last).join(" "), offered(&seen[0]).join(" ")), (all.to_owned(), expected.to_owned()));
        shut(runtime).await;
    }
}

#[tokio::test(start_paused = true)]
async fn k20_each_dialect_interprets_tool_lists_its_own_way() {
    let calls = vec![
        ("subagent", json!({"task": "a", "tools": {"workspace": ["lookup"]}})), // does not limit the tools
        ("spawn", json!({"task": "b", "tools": "lookup"})),
        ("spawn", json!({"task": "c", "profile": "any"})),
        ("spawn", json!({"task": "d", "tools": "write", "profile": "looks"})),
        ("spawn", json!({"task": "e", "profile": "looks"})),
        ("minion", json!({"message": "f", "enableWeb": false, "enabledTools": []})),
        ("minion", json!({"message": "g", "enableWeb": false, "enabledTools": ["lookup", "minion"]})),
    ];
    let looks = Profile { tools: vec!["lookup".into()], system_prompt: Some("L".into()), ..Profile::default() };
    let profiles = [("looks".into(), looks), ("any".into(), Profile::default())].into();
    let profiles = Profiles::load(profiles, &|_| Err("no".into())).expect("profiles");
    let dialects = Dialects { offered: Dialect::ALL.to_vec(), profiles, ..Dialects::default() };
    let (runtime, _, _, seen) = below(offering(&journal(), &[]).dialects(dialects), calls).await;
    let mut shown: Vec<_> = seen.iter().map(|one| (prompt(one).pop(), offered(one).join(" "))).collect();
    shown.sort();
    let expected = [
        ('a', "lookup write"),
        ('b', "lookup"),
        ('c', "lookup write"),
        ('d', "write"),
        ('e', "lookup"),
        ('f', "return"),
        ('g', "lookup return"),
    ];
    assert_eq!(shown, expected.map(|(task, tools)| (Some(task), tools.to_owned())));
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn k21_b6_turns_come_from_call_then_manifest_then_dialect() {
    let root = |request: &Request, at: usize| match at {
        0 => calls([
            ("subagent", json!({"task": "a", "maxIterations": 3.0})),
            ("subagent", json!({"task": "b"})),
            ("subagent", json!({"task": "c", "agent": "explore"})),
            ("subagent", json!({"task": "d", "agent": "explore", "max_iterations": 4})),
            ("spawn_task", json!({"type": "explore", "prompt": "e", "description": "e"})),
            ("spawn_task", json!({"type": "research", "prompt": "f", "description": "f"})),
            ("spawn_task", json!({"type": "plan", "prompt": "g", "description": "g"})),
        ]),
        1 => text("waiting"),
        2 => {
            let received = results(request);
            let branch = |at: usize| parsed(&received[at])["branchId"].clone();
            calls([
                ("subagent", json!({"continueBranchId": branch(0)})),
                ("subagent", json!({"continueBranchId": branch(2)})),
                ("subagent", json!({"continueBranchId": branch(3), "maxIterations": 6})),
            ])
        }
        _ => text("done"),
    };
    let journal = journal();
    let builder = offering(&journal, &[Dialect::Subagent, Dialect::SpawnTask]);
    let builder = builder.limits(Limits { live_runs: 8, ..Limits::default() });
    let (runtime, session, _) = converse_in(builder, root, found).await;
    let mut turns = Vec::new();
    for child in &session.tree().await.expect("a tree").children {
        let runs = records(&journal, child.id).await.into_iter();
        let of = |record| if let Record::RunOpened(opened) = record { Some(opened.max_turns) } else { None };
        turns.push(runs.filter_map(of).collect::<Vec<_>>());
    }
    let continued = [vec![3, 10], vec![10], vec![30, 30], vec![4, 6]];
    assert_eq!(turns, [&continued[..], &[vec![30], vec![40], vec![50]]].concat());
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn k25_s8_task_alone_is_offered_and_callable_by_default() {
    let others = Dialect::ALL.into_iter().filter(|dialect| *dialect != Dialect::Task);
    let calls = others.clone().map(|dialect| start(dialect, "p")).collect();
    let (runtime, session, last, _) = below(crate::support::builder(&journal()), calls).await;
    assert_eq!(offered(&last), ["task", "check_task", "cancel_task"]);
    let no = |dialect: Dialect| {
        let suggestion = if dialect == Dialect::SpawnTask { " Did you mean `task`?" } else { "" };
        format!("no tool is named `{}`.{suggestion} Available: task, check_task, cancel_task.", dialect.name())
    };
    assert_eq!(results(&last), others.map(no).collect::<Vec<_>>());
    assert_eq!(session.tree().await.expect("a tree").children.len(), 0);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn r8_switched_off_spawns_are_refused_and_tasks_readable() {
    let memory = Memory::new();
    let tool_calls = vec![start(Dialect::SpawnTask, "p")];
    let (runtime, session, last, _) = below(offering(&reopen(&memory), &[Dialect::SpawnTask]), tool_calls).await;
    let (task, id) = (parsed(&results(&last)[0])["taskId"].clone(), session.id());
    shut(runtime).await;
    let seen = DescendantRequests::default();
    let shown = Arc::clone(&seen);
    let answering = model(move |request| {
        let again = [start(Dialect::SpawnTask, "q"), ("check_task", json!({"taskId": task}))];
        let answer = if results(&request).len() == 1 { calls(again) } else { text("done") };
        shown.lock().unwrap().push(request);
        async move { Ok(answer) }
    });
    let off = Dialects { enabled: false, offered: Dialect::ALL.to_vec(), ..Dialects::default() };
    let builder = offering(&reopen(&memory), &[]).dialects(off).model(answering);
    let runtime = builder.start().await.expect("the runtime starts");
    let session = runtime.session(id).expect("readable").expect("a session");
    let receipt = session.send("more").await.expect("accepted");
    session.run_ended(receipt.run).await.expect("the run ends");
    let last = seen.lock().unwrap().pop().expect("a model call");
    assert_eq!(offered(&last), ["lookup", "write"]);
    let no = |tool: &str| format!("no tool is named `{tool}`. Available: lookup, write.");
    assert_eq!(results(&last)[1..], [no("spawn_task"), no("check_task")]);
    let tasks = runtime.tasks(TaskFilter::default()).await.expect("the journal is read");
    let read: Vec<_> = tasks.iter().map(|task| (task.prompt.as_deref(), task.result.as_deref())).collect();
    assert_eq!(read, [(Some("p"), Some("found"))]);
    let below = session.spawn_task(BranchOptions::default(), "q").await.expect_err("switched off");
    let alone = runtime.spawn_task("worker", "q").await.expect_err("switched off");
    let off = "subagents are switched off: set `subagents.enabled` to start tasks";
    assert_eq!([below.to_string(), alone.to_string()], [off, off]);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn k15_r10_r11_prompt_has_the_instructions_of_each_dialect() {
    for dialect in Dialect::ALL {
        let nested = if dialect.allows_nesting() { vec![dialect] } else { Vec::new() };
        let in_child_prompt = matches!(dialect, Dialect::Subagent | Dialect::SpawnTask);
        let (runtime, _, last, seen) = below(offering(&journal(), &[dialect]), vec![start(dialect, "p")]).await;
        assert_eq!(*last.system, prompted(None, &[dialect]));
        assert_eq!(*seen[0].system, prompted(in_child_prompt.then_some(dialect), &nested));
        shut(runtime).await;
    }
}

#[tokio::test(start_paused = true)]
async fn k9_task_result_names_inspectable_children_by_id() {
    let journal = journal();
    let mut catalog = Catalog::builtin();
    catalog.insert(Manifest::new("worker", AgentMode::All, "You are a worker."));
    catalog.insert(Manifest { inspectable: true, ..Manifest::new("seen", AgentMode::All, "You are seen.") });
    let call = |agent: &str, prompt: &str, background: bool| {
        ("task", json!({"subagentType": agent, "prompt": prompt, "background": background}))
    };
    let calls =
        vec![call("worker", "a", false), call("seen", "b", false), call("worker", "c", true), call("seen", "d", true)];
    let builder = offering(&journal, &[Dialect::Task]).catalog(catalog);
    let (runtime, session, last, _) = below(builder, calls).await;
    let tree = session.tree().await.expect("a tree");
    let id = |at: usize| (tree.children[at].id.to_string(), tree.children[at].short.to_string());
    let [(b, b_short), (_, c_short), (d, d_short)] = [1, 2, 3].map(id);
    let expected = [
        "found".to_owned(),
        format!("found\n\n[session_id: {b}, short: {b_short}]"),
        json!({"session_id": c_short, "status": "started"}).to_string(),
        json!({"session_id": d, "short": d_short, "status": "started"}).to_string(),
    ];
    assert_eq!(results(&last), expected);
    let received = notices(&last).concat();
    for (short, agent, task) in [(c_short, "worker", "c"), (d_short, "seen", "d")] {
        let block = format!("\n[{short} ({agent})] completed:\nIts task: {task}\n```\nfound\n```\n");
        assert_eq!(received.matches(&block).count(), 1, "{received}");
    }
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn k9_task_id_works_only_for_the_session_that_got_it() {
    let ids = Arc::new(Mutex::new(String::new()));
    let given = Arc::clone(&ids);
    let root = |_: &Request, at: usize| match at {
        0 => calls([("task", json!({"subagent_type": "worker", "prompt": "first"}))]),
        1 => calls([("task", json!({"subagent_type": "worker", "prompt": "second"}))]),
        _ => text("done"),
    };
    let child = move |request: &Request, at: usize| {
        let start = ("task", json!({"subagent_type": "worker", "prompt": "below", "background": true}));
        Ok(match (&*prompt(request), at) {
            ("first", 0) => calls([start]),
            ("first", _) => {
                *given.lock().unwrap() = parsed(&results(request)[0])["session_id"].as_str().expect("an id").to_owned();
                text("first done")
            }
            ("second", 0) => {
                let id = given.lock().unwrap().clone();
                calls([
                    ("task", json!({"prompt": "more", "sessionId": id})),
                    ("check_task", json!({"task_id": id, "timeout_ms": 5})),
                    ("cancel_task", json!({"task_id": id})),
                ])
            }
            ("second", _) => text(&results(request).join("\n")),
            _ => text("below done"),
        })
    };
    let (_, runtime, _, last) = converse(&[Dialect::Task], root, child).await;
    let no = format!("Unknown task `{}`: no earlier answer of yours started one.", ids.lock().unwrap());
    assert_eq!(results(&last), ["first done".to_owned(), [no.as_str(); 3].join("\n")]);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn k13_r7_reading_agents_write_only_by_a_manifest() {
    let dir = tempfile::tempdir().expect("a directory");
    let listed = ["list", "read", "search", "shell"].map(Into::into).to_vec();
    let shelled = Manifest { tools: Some(listed), ..Manifest::new("explore", AgentMode::Subagent, "You survey.") };
    let denied = RuleSet {
        default: Verdict::Allow,
        rules: vec![Rule { action: "shell.run".into(), resource: "*".into(), verdict: Verdict::Deny }],
    };
    let allowed = RuleSet { default: Verdict::Allow, rules: Vec::new() };
    for (agent, replaced, policy, expected) in [
        ("explore", None, &allowed, "list read search"),
        ("research", None, &allowed, "list read search"),
        ("plan", None, &allowed, "list read search spawn_task check_task cancel_task"),
        ("explore", Some(&shelled), &allowed, "list read search shell"),
        ("explore", Some(&shelled), &denied, "list read search"),
    ] {
        let mut catalog = Catalog::builtin();
        catalog.insert(Manifest::new("worker", AgentMode::All, "You are a worker."));
        if let Some(manifest) = replaced {
            catalog.insert(manifest.clone());
        }
        let builder = offering(&journal(), &[Dialect::SpawnTask])
            .catalog(catalog)
            .policy(policy.clone())
            .workspace(Arc::new(Workspace::open(dir.path()).expect("a workspace")))
            .tools(Registry::builder().tools(Registry::workspace_tools(None)).expect("names").build());
        let calls = vec![("spawn_task", json!({"type": agent, "prompt": "p", "description": "d"}))];
        let (runtime, _, _, seen) = below(builder, calls).await;
        assert_eq!(offered(&seen[0]).join(" "), expected, "{agent}");
        shut(runtime).await;
    }
}

/// The parts come in their order, with workspace files. Without a profile the caller's own prompt comes first.
#[tokio::test(start_paused = true)]
async fn s3_k11_job_prompt_has_files_profile_and_parameter() {
    let dir = tempfile::tempdir().expect("a directory");
    for (name, content) in
        [("AGENTS.md", "House rules.\n"), ("SOUL.md", "You are kind.\n"), ("R.md", "Look things up.\n")]
    {
        std::fs::write(dir.path().join(name), content).expect("a file");
    }
    let profile = |bootstrap: &[&str], prompt: Inherit| Profile {
        bootstrap_files: bootstrap.iter().map(|name| (*name).into()).collect(),
        system_prompt_file: Some("R.md".into()),
        system_prompt: Some("Quote.".into()),
        prompt,
        ..Profile::default()
    };
    let profiles = [
        ("own".into(), profile(&["SOUL.md", "GONE.md", "AGENTS.md"], Inherit::Own)),
        ("heir".into(), profile(&[], Inherit::Inherit)),
    ];
    let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).map_err(|error| error.to_string());
    let profiles = Profiles::load(profiles.into(), &read).expect("profiles");
    let dialects = Dialects { offered: vec![Dialect::Spawn], profiles, ..Dialects::default() };
    let calls = vec![
        ("spawn", json!({"task": "a", "profile": "own", "systemPrompt": "By the call."})),
        ("spawn", json!({"task": "b", "profile": "heir"})),
        ("spawn", json!({"task": "c", "system_prompt": "By the call.", "context": "Known already."})),
    ];
    let builder = offering(&journal(), &[]).dialects(dialects);
    let builder = builder.workspace(Arc::new(Workspace::open(dir.path()).expect("a workspace")));
    let (runtime, _, _, seen) = below(builder, calls).await;
    let mut received: Vec<_> = seen.iter().map(|one| (prompt(one), one.system.to_string())).collect();
    received.sort();
    let expected = [
        ("## Context\n\nKnown already.\n\n## Task\n\nc", "You are a worker.\n\nHouse rules.\n\nBy the call."),
        ("a", "You are kind.\n\nHouse rules.\n\nLook things up.\n\nQuote.\n\nBy the call."),
        ("b", "You are a worker.\n\nHouse rules.\n\nLook things up.\n\nQuote."),
    ];
    assert_eq!(received, expected.map(|(prompt, system)| (prompt.to_owned(), system.to_owned())));
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn s7_job_text_never_enters_its_callers_answer() {
    let root = |_: &Request, at: usize| match at {
        0 => Answer { text: Some("Starting.".into()), ..calls([start(Dialect::Spawn, "p")]) },
        1 => calls([("spawn_await", json!({"job_ids": "*"}))]),
        _ => text("All is done."),
    };
    let (journal, runtime, session, _) = converse(&[Dialect::Spawn], root, found).await;
    let errors: Vec<_> = records(&journal, session.id())
        .await
        .into_iter()
        .filter_map(|record| if let Record::TurnAnswered(turn) = record { turn.text } else { None })
        .collect();
    assert_eq!(errors, ["Starting.".into(), "All is done.".into()] as [Text; 2]);
    let ended = session.run_ended(RunNo(1)).await.expect("the run ended");
    assert_eq!(ended.text.as_deref(), Some("All is done."));
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn m8_minion_errors_have_one_format() {
    let minion = |message: &str| ("minion", json!({"message": message, "enableWeb": false, "enabledTools": []}));
    let chat = json!({"message": "m", "minion_chat_id": "x", "enable_web": false, "enabled_tools": []});
    let calls = vec![minion(" "), ("minion", chat), ("minion", json!({"message": "m"}))];
    let (runtime, _, last, _) = below(offering(&journal(), &[Dialect::Minion]), calls).await;
    let expected = [
        "Minion error: the message is empty: the minion sees nothing else, so include everything that it needs",
        "Minion error: Unknown minion chat `x`: no earlier answer of yours started one.",
        "Minion error: the arguments of minion do not fit: missing field `enableWeb`; it takes message, \
         minionChatId, enableWeb and enabledTools",
    ];
    assert_eq!(results(&last), expected);
    shut(runtime).await;
}

/// A queued or running task is cancelled at once; an ended one does not change.
#[tokio::test(start_paused = true)]
async fn r3_cancel_task_returns_the_outcome_of_the_task() {
    let root = |request: &Request, at: usize| {
        let id = |at: usize| parsed(&results(request)[at])["taskId"].clone();
        let cancel = |at: usize| ("cancel_task", json!({"taskId": id(at)}));
        let check = |at: usize| ("check_task", json!({"taskId": id(at)}));
        match at {
            0 => calls(["quick", "slow one", "slow two"].map(|prompt| start(Dialect::SpawnTask, prompt))),
            1 => calls([check(0)]),
            2 => calls([cancel(0), cancel(1), cancel(2), ("cancel_task", json!({"taskId": "task_0"}))]),
            3 => calls([check(0), check(1), check(2)]),
            _ => text("done"),
        }
    };
    let limits = Limits { live_runs: 1, ..Limits::default() };
    let builder = offering(&journal(), &[Dialect::SpawnTask]).limits(limits);
    let (runtime, _, last) = converse_in(builder, root, found).await;
    let received = results(&last);
    let ids: Vec<_> = (0..3).map(|at| parsed(&received[at])["taskId"].as_str().expect("an id").to_owned()).collect();
    let cancelled = |at: usize| json!({"taskId": ids[at], "status": "cancelled"}).to_string();
    let end =
        |at: usize| format!("Task {} was cancelled by your own call, before its first turn was answered.", ids[at]);
    let expected = [
        "quick found".to_owned(),
        format!("Not cancelled: task {} has no active run that you started.", ids[0]),
        cancelled(1),
        cancelled(2),
        format!("Unknown task `task_0`. Yours: {} (worker), {} (worker), {} (worker).", ids[2], ids[1], ids[0]),
        "quick found".to_owned(),
        end(1),
        end(2),
    ];
    assert_eq!(received[3..], expected);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn m10_cost_of_children_counts_for_their_parent() {
    let costing = |answer: Answer| Answer { usage: Usage { input: 10, output: 1, ..Usage::default() }, ..answer };
    let root = move |_: &Request, at: usize| {
        costing(match at {
            0 => calls(Dialect::ALL.map(|dialect| start(dialect, "p"))),
            _ => text("done"),
        })
    };
    let child = move |_: &Request, _: usize| Ok(costing(text("found")));
    let (_, runtime, session, _) = converse(&Dialect::ALL, root, child).await;
    let usage = session.usage().await.expect("readable");
    let cost = |times: u64| Usage { input: 10 * times, output: times, ..Usage::default() };
    // The ends of jobs get a turn of their own after the rest point (K2).
    assert_eq!((usage.own, usage.owned, usage.tree), (cost(3), cost(5), cost(8)));
    let children: Vec<_> = usage.children.iter().map(|child| (&*child.agent, child.own)).collect();
    assert_eq!(children, [("worker", cost(1)); 5]);
    shut(runtime).await;
}
