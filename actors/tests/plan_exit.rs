//! `plan_exit`: a planner proposes, a person decides, and the executing agent continues the session (G12, K14).

use crate::support::*;

type PlannerRequests = Arc<Mutex<Vec<(String, Vec<String>)>>>;

fn writing() -> FnTool {
    tool("write", ToolEffect::SideEffect, |_| async { Ok(ToolOutput::text("written")) })
        .access(|_| vec![Access { action: "fs.write".into(), resource: "a".into() }])
}

fn exit(plan: &str) -> (&'static str, Value) {
    ("plan_exit", json!({"plan": plan}))
}

/// Returns a builder with the tool `write`, whose models answer by `say`.
fn start(
    journal: &Journal,
    seen: &PlannerRequests,
    say: impl Fn(&Request, usize) -> Answer + Send + Sync + 'static,
) -> Builder {
    let seen = Arc::clone(seen);
    let answering = model(move |request| {
        let offered = request.tools.iter().map(|tool| tool.name.to_string()).collect();
        seen.lock().unwrap().push((request.agent.to_string(), offered));
        let answer = say(&request, answers(&request));
        async move { Ok(answer) }
    });
    builder(journal).tools(tools([writing()])).model(answering)
}

/// Plans, then writes once as `build`, then answers with the results of the calls.
fn plans_and_builds(request: &Request, at: usize) -> Answer {
    match (&*request.agent, at) {
        ("plan", 0) => calls([exit("1. Write `a`.")]),
        ("build", 1) => calls([("write", json!({}))]),
        _ => text(&results(request).join(" | ")),
    }
}

fn open(runtime: &Runtime, agent: &str) -> SessionHandle {
    runtime.open(OpenOptions { agent: agent.into(), ..OpenOptions::default() }).expect("a session")
}

async fn ended(session: &SessionHandle, run: u32) -> (Outcome, String) {
    let ended = tokio::time::timeout(Duration::from_secs(7200), session.run_ended(RunNo(run))).await;
    let ended = ended.expect("the run ends").expect("the runtime is running");
    (ended.outcome, ended.text.map(|text| text.to_string()).unwrap_or_default())
}

fn agents(seen: &PlannerRequests) -> Vec<String> {
    seen.lock().unwrap().iter().map(|(agent, _)| agent.clone()).collect()
}

fn was_shown(seen: &PlannerRequests, at: usize, tool: &str) -> bool {
    seen.lock().unwrap()[at].1.iter().any(|name| name == tool)
}

#[tokio::test(start_paused = true)]
async fn approved_plan_runs_as_build_in_the_same_session() {
    let memory = Memory::new();
    let (journal, seen) = (reopen(&memory), PlannerRequests::default());
    let runtime = start(&journal, &seen, plans_and_builds).start().await.expect("the runtime starts");
    let mut approver = runtime.approver();
    let session = open(&runtime, "plan");
    session.send("go").await.expect("accepted");
    let approval = approver.next().await;
    assert_eq!((&*approval.tool, &*approval.action, &*approval.resource), ("plan_exit", "plan_exit", "build"));
    assert_eq!(approval.plan.as_deref(), Some("1. Write `a`."), "the approval does not have the whole plan");
    assert_eq!(asked(&runtime).await, std::slice::from_ref(&approval));
    approver.answer(&approval, AskVerdict::Allow).await.expect("answered");
    let (outcome, received) = ended(&session, 1).await;
    assert_eq!(outcome, Outcome::Completed);
    assert!(received.starts_with("The plan is approved.") && received.ends_with("| written"), "{received}");
    assert_eq!(agents(&seen), ["plan", "build", "build"]);
    assert!(was_shown(&seen, 0, "plan_exit") && !was_shown(&seen, 0, "write"), "a planner was offered `write`");
    assert!(!was_shown(&seen, 1, "plan_exit") && was_shown(&seen, 1, "write"));
    assert_eq!(
        &*journal.head(session.id()).expect("a store").expect("a head").agent,
        "plan",
        "the agent in the index changed"
    );
    let id = session.id();
    drop((session, approver));
    runtime.shutdown(Duration::from_secs(1)).await;

    let (journal, seen) = (reopen(&memory), PlannerRequests::default());
    let runtime = start(&journal, &seen, |_, _| text("more")).start().await.expect("the runtime starts");
    let session = runtime.session(id).expect("a store").expect("a session");
    session.send("and now").await.expect("accepted");
    assert_eq!(ended(&session, 2).await, (Outcome::Completed, "more".to_owned()));
    assert_eq!(agents(&seen), ["build"]);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn rejected_plan_leaves_the_planner_until_one_is_approved() {
    let (journal, seen) = (journal(), PlannerRequests::default());
    let runtime = start(&journal, &seen, |request, at| match (&*request.agent, at) {
        ("plan", 0) => calls([exit("rough")]),
        ("plan", 1) => calls([exit("")]),
        ("plan", 2) => calls([exit("better")]),
        _ => text(&results(request).join("\n")),
    });
    let runtime = runtime.start().await.expect("the runtime starts");
    let mut approver = runtime.approver();
    let session = open(&runtime, "plan");
    session.send("go").await.expect("accepted");
    for (plan, verdict) in [("rough", AskVerdict::Deny), ("better", AskVerdict::Always)] {
        let approval = approver.next().await;
        assert_eq!(approval.plan.as_deref(), Some(plan));
        approver.answer(&approval, verdict).await.expect("answered");
    }
    let (_, received) = ended(&session, 1).await;
    let lines: Vec<&str> = received.lines().collect();
    assert!(
        lines[0].starts_with("The plan is not approved: the approver rejected it. Continue planning"),
        "{received}"
    );
    assert_eq!(lines[1], "the plan is empty: the user approves or rejects it by its text, so include all of it");
    assert!(lines[2].starts_with("The plan is approved."), "{received}");
    assert_eq!(agents(&seen), ["plan", "plan", "plan", "build"]);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn plan_exit_is_hidden_and_denied_without_an_approver() {
    let (journal, seen) = (journal(), PlannerRequests::default());
    let runtime = start(&journal, &seen, plans_and_builds).start().await.expect("the runtime starts");
    let session = open(&runtime, "plan");
    session.send("go").await.expect("accepted");
    let (_, received) = ended(&session, 1).await;
    assert!(received.starts_with("The plan is not approved: no approver is attached."), "{received}");
    assert!(!was_shown(&seen, 0, "plan_exit"));
    let by = records(&journal, session.id()).await.into_iter().find_map(|record| match record {
        Record::AskAnswered { verdict, by, .. } => Some((verdict, by)),
        _ => None,
    });
    assert_eq!(by, Some((AskVerdict::Deny, AnsweredBy::NoApprover)));
    shut(runtime).await;
}

/// Opens a session of `agent` with an approver attached. Returns for each answering agent whether it was offered
/// `plan_exit`, and the result of calling it.
async fn offered_in(policy: RuleSet, agent: &str) -> (Vec<(String, bool)>, String) {
    let (journal, seen) = (journal(), PlannerRequests::default());
    let say = |request: &Request, at: usize| match (&*prompt(request), at) {
        ("go", 0) if &*request.agent == "general" => {
            calls([("task", json!({"subagent_type": "plan", "prompt": "plan"}))])
        }
        (_, 0) => calls([exit("all")]),
        _ => text(&results(request).join("|")),
    };
    let runtime = start(&journal, &seen, say).policy(policy).start().await.expect("the runtime starts");
    let approver = runtime.approver();
    let session = open(&runtime, agent);
    session.send("go").await.expect("accepted");
    let (_, received) = ended(&session, 1).await;
    drop(approver);
    shut(runtime).await;
    let seen = seen.lock().unwrap().clone();
    (seen.into_iter().map(|(agent, tools)| (agent, tools.contains(&"plan_exit".to_owned()))).collect(), received)
}

#[tokio::test(start_paused = true)]
async fn k14_plan_exit_is_offered_only_to_a_root_planner() {
    let all = || RuleSet { default: Verdict::Allow, rules: Vec::new() };
    let (seen, received) = offered_in(all(), "general").await;
    let not = |agent: &str| (agent.to_owned(), false);
    assert_eq!(seen, [not("general"), not("plan"), not("plan"), not("general")]);
    assert!(received.contains("no tool is named `plan_exit`"), "{received}");
    let deny = Rule { action: "plan_exit".into(), resource: "*".into(), verdict: Verdict::Deny };
    let (seen, received) = offered_in(RuleSet { rules: vec![deny], ..all() }, "plan").await;
    assert_eq!(seen, [not("plan"), not("plan")], "`plan_exit` was offered although the host forbids it");
    assert!(received.contains("no tool is named `plan_exit`"), "{received}");
}

#[tokio::test(start_paused = true)]
async fn children_of_plan_may_not_write_and_children_of_build_may() {
    let (journal, seen) = (journal(), PlannerRequests::default());
    let say = |request: &Request, at: usize| match (&*request.agent, at) {
        ("plan", 0) => calls([("task", json!({"subagent_type": "explore", "prompt": "read"}))]),
        ("plan", 1) => calls([exit("all")]),
        ("build", 2) => calls([("task", json!({"subagent_type": "worker", "prompt": "write"}))]),
        ("explore" | "worker", 0) => calls([("write", json!({}))]),
        _ => text(results(request).last().map_or("", String::as_str)),
    };
    let runtime = start(&journal, &seen, say).start().await.expect("the runtime starts");
    let mut approver = runtime.approver();
    let session = open(&runtime, "plan");
    session.send("go").await.expect("accepted");
    let approval = approver.next().await;
    approver.answer(&approval, AskVerdict::Allow).await.expect("answered");
    let (_, received) = ended(&session, 1).await;
    assert_eq!(received, "written", "a child of build could not write");
    let wrote = |id: SessionId| {
        let journal = journal.clone();
        async move {
            let started = records(&journal, id).await.into_iter().any(|record| match record {
                Record::CallStarted { access: Some(access), .. } => *access.action == *"fs.write",
                _ => false,
            });
            (journal.head(id).expect("a store").expect("a head").agent.to_string(), started)
        }
    };
    let mut writes_by_agent = Vec::new();
    for child in journal.children(session.id()).expect("a store") {
        writes_by_agent.push(wrote(child).await);
    }
    writes_by_agent.sort();
    assert_eq!(writes_by_agent, [("explore".to_owned(), false), ("worker".to_owned(), true)]);
    // A person's branch is not a root session, so a planner in it cannot hand over to the executing agent.
    let branch =
        session.branch(subtend_actors::BranchOptions { agent: Some("plan".into()), ..Default::default() }).await;
    let branch = branch.expect("a branch");
    let head = journal.head(branch.id()).expect("a store").expect("a head");
    assert_eq!(head.kind, Some(BranchKind::Human));
    branch.send("go").await.expect("accepted");
    ended(&branch, 1).await;
    let last = seen.lock().unwrap().len() - 1;
    assert_eq!(agents(&seen)[last], "plan");
    assert!(!was_shown(&seen, last, "plan_exit") && !was_shown(&seen, last, "write"));
    shut(runtime).await;
}
