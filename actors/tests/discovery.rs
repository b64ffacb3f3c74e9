//! Tools that a subagent discovers, and calls from an MCP client (features B7, B8, B10).

use crate::support::*;
use subtend_actors::audit::{Decided, DecidedBy};
use subtend_agents::dialect::SubagentOptions;
use subtend_session::place::Source;

type ChildRequests = Arc<Mutex<Vec<Request>>>;

/// Returns two tools: `lookup` reads; `make` returns its argument if `make.thing` allows it, and counts its calls.
fn toolbox(ran: &Arc<AtomicUsize>) -> [FnTool; 2] {
    let ran = Arc::clone(ran);
    let make = tool("make", ToolEffect::SideEffect, move |call| {
        ran.fetch_add(1, Ordering::Relaxed);
        async move { Ok(ToolOutput::text(format!("made {}", call.args["what"].as_str().unwrap_or("nothing")))) }
    });
    let make = make.access(|args| {
        let what = args.and_then(|args| args["what"].as_str()).unwrap_or("*");
        vec![Access { action: "make.thing".into(), resource: what.into() }]
    });
    [tool("lookup", ToolEffect::ReadOnly, |_| async { Ok(ToolOutput::text("looked")) }), make]
}

/// Returns a host that offers `subagent` and shows a subagent at most `in_full` tools.
fn host(journal: &Journal, in_full: u32, ran: &Arc<AtomicUsize>) -> Builder {
    let dialects = Dialects {
        offered: vec![Dialect::Subagent, Dialect::Task],
        subagent: SubagentOptions { tools_in_full: in_full },
        ..Dialects::default()
    };
    builder(journal).dialects(dialects).tools(tools(toolbox(ran)))
}

/// Returns a model whose root starts a subagent with `arguments`, which makes the calls `steps` in turn.
fn subagent(arguments: Value, steps: Vec<(&'static str, Value)>, seen: &ChildRequests) -> Arc<dyn Model> {
    let seen = Arc::clone(seen);
    model(move |request| {
        let answer = match (&*prompt(&request), answers(&request)) {
            ("go", 0) => calls([("subagent", arguments.clone())]),
            ("go", _) => text("done"),
            (_, at) => {
                seen.lock().unwrap().push(request);
                steps.get(at).map_or_else(|| text("found"), |step| calls([step.clone()]))
            }
        };
        async move { Ok(answer) }
    })
}

fn received(seen: &ChildRequests) -> Vec<String> {
    results(seen.lock().unwrap().last().expect("a model call of the subagent"))
}

async fn child(session: &SessionHandle) -> subtend_session::ids::SessionId {
    session.tree().await.expect("a tree").children[0].id
}

#[tokio::test(start_paused = true)]
async fn b8_subagent_finds_and_uses_tools_not_shown_to_it() {
    let (journal, seen, ran) = (journal(), ChildRequests::default(), Arc::default());
    let arguments = json!({"task": "a", "tools": {"workspace": ["lookup"]}});
    let steps = vec![
        ("get_tools", json!({})),
        ("get_tools", json!({"tools": ["make", "nonesuch"]})),
        ("use_tool", json!({"tool": "make", "args": {"what": "cake"}})),
        ("make", json!({"what": "tea"})),
    ];
    let answering = subagent(arguments, steps, &seen);
    let runtime = host(&journal, 1, &ran).model(answering).start().await.expect("the runtime starts");
    let (session, _) = ask(&runtime, "go").await;
    let first = seen.lock().unwrap()[0].clone();
    assert_eq!(offered(&first), ["lookup", "get_tools", "use_tool"]);
    assert!(prompt(&first).contains("### lookup\n"), "{}", prompt(&first));
    assert!(
        first.system.contains("`get_tools` lists what else you may use, and `use_tool` calls it."),
        "{}",
        first.system
    );
    let make = json!({"name": "make", "description": "a tool of a test"});
    let described = json!({"name": "make", "description": "a tool of a test", "parameters": {"type": "object"}});
    assert_eq!(
        received(&seen),
        [
            json!({"tools": [make]}).to_string(),
            json!({"tools": [described], "unknown": ["nonesuch"]}).to_string(),
            "made cake".to_owned(),
            // A discovered tool can also be called by its own name: discovery does not narrow the tools.
            "made tea".to_owned(),
        ]
    );
    // The effect is that of the tool behind `use_tool`: it waits for its intent record and is never repeated silently.
    let started = |record: &Record| match record {
        Record::CallStarted { kind, access, .. } => Some((CallKind::clone(kind), access.as_deref().cloned())),
        _ => None,
    };
    let of = |resource: &str| Some(Access { action: "make.thing".into(), resource: resource.into() });
    let begun: Vec<_> = records(&journal, child(&session).await).await.iter().filter_map(started).collect();
    let (read, write) = (CallKind::Local(ToolEffect::ReadOnly), CallKind::Local(ToolEffect::SideEffect));
    assert_eq!(begun, [(read.clone(), None), (read, None), (write.clone(), of("cake")), (write, of("tea"))]);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn b7_b8_few_tools_are_all_shown_without_discovery() {
    let (journal, seen, ran) = (journal(), ChildRequests::default(), Arc::default());
    let steps = vec![("use_tool", json!({"tool": "lookup"}))];
    let answering = subagent(json!({"task": "a", "tools": {"workspace": ["lookup"]}}), steps, &seen);
    let runtime = host(&journal, 2, &ran).model(answering).start().await.expect("the runtime starts");
    ask(&runtime, "go").await;
    let first = seen.lock().unwrap()[0].clone();
    assert_eq!(offered(&first), ["lookup", "make"]);
    for text in [&*first.system, &*prompt(&first)] {
        assert!(!text.contains("get_tools") && !text.contains("use_tool") && !text.contains("{discovery}"), "{text}");
    }
    assert!(received(&seen)[0].starts_with("no tool is named `use_tool`. "), "{:?}", received(&seen));
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn b8_unknown_slugs_are_skipped_and_noted_in_events() {
    let (journal, seen, ran) = (journal(), ChildRequests::default(), Arc::default());
    let long = "x".repeat(500);
    let unseen = "re\u{202e}ad\n"; // an import refuses such a name
    let arguments =
        json!({"task": "a", "tools": {"workspace": ["lookup", "nonesuch", unseen], "other": [long, "make"]}});
    let answering = subagent(arguments, Vec::new(), &seen);
    let runtime = host(&journal, 16, &ran).model(answering).start().await.expect("the runtime starts");
    let mut events = runtime.subscribe(None);
    ask(&runtime, "go").await;
    let mut skipped = Vec::new();
    while let Some(next) = events.try_next() {
        if let Next::Event(event) = next
            && let EventKind::Record { record, .. } = event.what
            && let Record::ChildSpawned(spawned) = &*record
        {
            skipped.push(spawned.skipped.clone());
        }
    }
    assert_eq!(skipped, [["nonesuch".into(), "re<U+202E>ad<U+000A>".into(), "x".repeat(64).into()]]);
    let first = seen.lock().unwrap()[0].clone();
    assert_eq!(offered(&first), ["lookup", "make"]);
    assert!(prompt(&first).contains("### lookup\n") && !prompt(&first).contains("nonesuch"), "{}", prompt(&first));
    shut(runtime).await;
}

/// A hook that denies `spite`, by the tool's own name and arguments.
struct NoSpite(Mutex<Vec<(String, Value)>>);

impl Hooks for NoSpite {
    fn before_tool(&self, call: ToolAsked) -> BoxFuture<'_, BeforeTool> {
        let spite = &*call.tool == "make" && call.args["what"] == "spite";
        self.0.lock().unwrap().push((call.tool.to_string(), call.args));
        Box::pin(async move { if spite { BeforeTool::Deny("no".into()) } else { BeforeTool::Proceed } })
    }
}

/// Returns rules that allow, ask for and deny resources of `make.thing`.
fn policy() -> RuleSet {
    let rule = |resource: &str, verdict| Rule { action: "make.thing".into(), resource: resource.into(), verdict };
    RuleSet { default: Verdict::Allow, rules: vec![rule("fuss", Verdict::Ask), rule("harm", Verdict::Deny)] }
}

#[tokio::test(start_paused = true)]
async fn b8_use_tool_obeys_rules_approvals_and_hooks() {
    let made = |what: &str| json!({"what": what});
    let named = |tool: &str, args: Value| ("use_tool", json!({"tool": tool, "args": args}));
    let mut results = Vec::new();
    for through in [true, false] {
        let call = |what: &str| if through { named("make", made(what)) } else { ("make", made(what)) };
        let (journal, seen, ran) = (journal(), ChildRequests::default(), Arc::new(AtomicUsize::new(0)));
        let steps = ["harm", "fuss", "spite", "cake"].map(call).to_vec();
        let answering = subagent(json!({"task": "a"}), steps, &seen);
        let hook = Arc::new(NoSpite(Mutex::default()));
        let builder = host(&journal, 0, &ran).policy(policy()).hooks(Arc::clone(&hook) as Arc<dyn Hooks>);
        let runtime = builder.model(answering).start().await.expect("the runtime starts");
        let mut approver = runtime.approver();
        let (session, receipt) = sent(&runtime, "go").await;
        let approval = approver.next().await;
        assert_eq!((&*approval.tool, &*approval.action, &*approval.resource), ("make", "make.thing", "fuss"));
        assert_eq!(asked(&runtime).await, std::slice::from_ref(&approval));
        approver.answer(&approval, AskVerdict::Deny).await.expect("answered");
        session.run_ended(receipt.run).await.expect("the run ends");
        assert_eq!(ran.load(Ordering::Relaxed), 1, "expected only cake to be made");
        let hooked = std::mem::take(&mut *hook.0.lock().unwrap());
        assert_eq!(hooked, [("make".to_owned(), made("spite")), ("make".to_owned(), made("cake"))]);
        let child = runtime.session(child(&session).await).expect("readable").expect("the session exists");
        let decisions = child.audit().await.expect("decisions");
        let brief: Vec<_> = decisions
            .iter()
            .map(|it| {
                (it.tool.to_string(), it.access.as_ref().map(|access| access.resource.to_string()), it.verdict, it.by)
            })
            .collect();
        results.push((received(&seen), brief));
    }
    // A direct call gives the same result, since the rules apply to the tool and its arguments.
    assert_eq!(results[0], results[1]);
    let decided: Vec<_> = results[0].1.iter().map(|(tool, _, verdict, by)| (&**tool, *verdict, *by)).collect();
    assert_eq!(decided.len(), 5, "{decided:?}");
    assert!(decided.iter().all(|(tool, ..)| *tool == "make"), "{decided:?}");
    assert_eq!(decided[0], ("make", Decided::Denied, DecidedBy::Rules));
}

#[tokio::test(start_paused = true)]
async fn b8_spawn_tools_are_not_called_through_use_tool() {
    let (journal, seen, ran) = (journal(), ChildRequests::default(), Arc::default());
    let steps = vec![
        ("use_tool", json!({"tool": "use_tool", "args": {"tool": "lookup"}})),
        ("use_tool", json!({"tool": "task", "args": {"subagent_type": "worker", "prompt": "p"}})),
        ("use_tool", json!({"tool": "subagent", "args": {"task": "b"}})),
        ("use_tool", json!({"tool": "nonesuch"})),
        ("use_tool", json!({"tool": "make", "args": [1]})),
        ("use_tool", json!({})),
    ];
    let answering = subagent(json!({"task": "a"}), steps, &seen);
    let runtime = host(&journal, 0, &ran).model(answering).start().await.expect("the runtime starts");
    let (session, _) = ask(&runtime, "go").await;
    let received = received(&seen);
    assert!(received[0].starts_with("use_tool cannot be called by use_tool: "), "{}", received[0]);
    assert!(received[1].starts_with("task cannot be called by use_tool: "), "{}", received[1]);
    let nested: Value = serde_json::from_str(&received[2]).expect("an object");
    assert_eq!((&nested["success"], &nested["error"]), (&json!(false), &json!("NESTED_SUBAGENT_NOT_ALLOWED")));
    assert!(received[3].starts_with("no tool is named `nonesuch`. "), "{}", received[3]);
    assert!(received[4].starts_with("the arguments of make are an array, not an object"), "{}", received[4]);
    assert!(received[5].contains("missing field `tool`"), "{}", received[5]);
    let tree = session.tree().await.expect("a tree");
    assert_eq!((tree.children.len(), tree.children[0].children.len()), (1, 0));
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn b8_removed_tool_cannot_be_found_or_used() {
    let (journal, seen, ran) = (journal(), ChildRequests::default(), Arc::new(AtomicUsize::new(0)));
    let steps = vec![
        ("get_tools", json!({"tools": ["make", "lookup"]})),
        ("use_tool", json!({"tool": "make", "args": {"what": "cake"}})),
    ];
    let answering = subagent(json!({"task": "a", "tools": {"any": ["make"]}}), steps, &seen);
    let deny = Rule { action: "make.thing".into(), resource: "*".into(), verdict: Verdict::Deny };
    let builder = host(&journal, 0, &ran).policy(RuleSet { default: Verdict::Allow, rules: vec![deny] });
    let runtime = builder.model(answering).start().await.expect("the runtime starts");
    ask(&runtime, "go").await;
    let first = seen.lock().unwrap()[0].clone();
    assert_eq!(offered(&first), ["get_tools", "use_tool"]);
    let lookup = json!({"name": "lookup", "description": "a tool of a test", "parameters": {"type": "object"}});
    assert_eq!(received(&seen)[0], json!({"tools": [lookup], "unknown": ["make"]}).to_string());
    assert!(received(&seen)[1].contains("make") && ran.load(Ordering::Relaxed) == 0, "{}", received(&seen)[1]);
    shut(runtime).await;
}

/// Restarts the host while a tool of `effect` runs. Returns the number of tool runs, and the subagent's results.
async fn restarted(effect: ToolEffect) -> (usize, Vec<String>) {
    let (memory, seen, ran) = (Memory::new(), ChildRequests::default(), Arc::new(AtomicUsize::new(0)));
    let host = |seed: u64| {
        let journal = reopen(&memory);
        let count = Arc::clone(&ran);
        let slow = tool("slow", effect, move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            async {
                seconds(60).await;
                Ok(ToolOutput::text("slowly done"))
            }
        });
        let mut catalog = Catalog::builtin();
        let worker = Manifest::new("worker", AgentMode::All, "You are a worker.");
        catalog.insert(Manifest { on_restart: Some(OnRestart::Resume), ..worker });
        let dialects = Dialects {
            offered: vec![Dialect::Subagent],
            subagent: SubagentOptions { tools_in_full: 0 },
            ..Dialects::default()
        };
        let steps = vec![("use_tool", json!({"tool": "slow"}))];
        let options = Options { seed: Some(seed), ..Options::default() };
        let builder = builder(&journal).catalog(catalog).dialects(dialects).tools(tools([slow])).options(options);
        builder.model(subagent(json!({"task": "a"}), steps, &seen)).start()
    };
    let runtime = host(7).await.expect("the runtime starts");
    let (session, receipt) = sent(&runtime, "go").await;
    seconds(5).await;
    let root = session.id();
    drop((session, runtime));

    let runtime = host(8).await.expect("the runtime starts");
    let session = runtime.session(root).expect("readable").expect("the session exists");
    session.run_ended(receipt.run).await.expect("the run ends");
    let found = (ran.load(Ordering::Relaxed), received(&seen));
    shut(runtime).await;
    found
}

#[tokio::test(start_paused = true)]
async fn b8_used_tool_keeps_its_effects_after_a_restart() {
    let unknown = "Interrupted: side effects unknown. Check before you call it again.".to_owned();
    assert_eq!(restarted(ToolEffect::SideEffect).await, (1, vec![unknown]));
    assert_eq!(restarted(ToolEffect::ReadOnly).await, (2, vec!["slowly done".to_owned()]));
}

/// Starts a runtime that offers everything, with a model that calls `subagent` in each session and `task` at the root.
async fn mcp(lifted: bool, source: Source) -> (Journal, Runtime, SessionHandle, Vec<Request>) {
    let (journal, seen) = (journal(), ChildRequests::default());
    let shown = Arc::clone(&seen);
    let answering = model(move |request| {
        shown.lock().unwrap().push(request.clone());
        let answer = match (&*prompt(&request), answers(&request)) {
            ("go", 0) => calls([
                ("subagent", json!({"no": "arguments that fit"})),
                ("task", json!({"subagent_type": "worker", "prompt": "below"})),
            ]),
            ("below", 0) => calls([("subagent", json!({"task": "b"}))]),
            _ => text("done"),
        };
        async move { Ok(answer) }
    });
    let ran = Arc::default();
    let options = Options { seed: Some(7), mcp_internal: lifted, ..Options::default() };
    let runtime = host(&journal, 16, &ran).options(options).model(answering).start().await.expect("the runtime starts");
    let session = runtime.open(OpenOptions { source, ..OpenOptions::agent("worker") }).expect("a session");
    let receipt = session.send("go").await.expect("accepted");
    session.run_ended(receipt.run).await.expect("the run ends");
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    (journal, runtime, session, seen)
}

#[tokio::test(start_paused = true)]
async fn b10_mcp_client_is_refused_subagent_before_other_errors() {
    let (journal, runtime, session, seen) = mcp(false, Source::Mcp).await;
    let refused = json!({
        "success": false,
        "subagentId": "",
        "branchId": "",
        "status": "error",
        "message": "Subagents can be started in an internal chat only, not by an MCP client.",
        "error": "MCP_NOT_SUPPORTED",
    });
    for prompt_text in ["go", "below"] {
        let last = seen.iter().rfind(|request| prompt(request) == prompt_text).expect("a model call");
        assert_eq!(serde_json::from_str::<Value>(&results(last)[0]).expect("an object"), refused, "{prompt_text}");
        assert!(!offered(last).iter().any(|tool| tool == "subagent"), "{:?}", offered(last));
        assert!(offered(last).iter().any(|tool| tool == "task"), "another tool is not offered");
        assert!(!last.system.contains("`subagent`") && last.system.contains("`task`"), "{}", last.system);
    }
    // The source is recorded, including for children, so that a restart knows it.
    for session in [session.id(), child(&session).await] {
        let stored = records(&journal, session).await;
        let Record::SessionCreated(created) = &stored[0] else { panic!("not a creation") };
        assert_eq!(created.source, Source::Mcp);
    }
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn b10_k24_internal_and_permitted_calls_are_not_refused() {
    for (lifted, source) in [(false, Source::Internal), (true, Source::Mcp)] {
        let (_, runtime, session, seen) = mcp(lifted, source).await;
        let last = seen.iter().rfind(|request| prompt(request) == "go").expect("a model call");
        assert!(results(last)[0].contains("INVALID_ARGUMENTS"), "{}", results(last)[0]);
        assert!(offered(last).iter().any(|tool| tool == "subagent"), "{:?}", offered(last));
        assert!(last.system.contains("`subagent`"), "{}", last.system);
        let tree = session.tree().await.expect("a tree");
        assert_eq!(tree.children[0].children.len(), 1, "the child of `task` started one");
        shut(runtime).await;
    }
}
