//! Agent overrides: another agent answers from one message on (G12).

use crate::support::*;
use subtend_actors::Input;
use subtend_session::settings::Settings;

/// Fields of model requests: agent, model, system prompt, tools, temperature.
type OverrideRequests = Arc<Mutex<Vec<(String, String, String, Vec<String>, Option<f64>)>>>;

fn acting(name: &str) -> FnTool {
    let action: Arc<str> = format!("do.{name}").into();
    tool(name, ToolEffect::ReadOnly, |_| async { Ok(ToolOutput::text("done")) })
        .access(move |_| vec![Access { action: Arc::clone(&action), resource: "x".into() }])
}

/// Returns a catalog: `worker` may do everything but `forbid`; `plan` may not write, and its manifest allows what the session forbids.
fn catalog() -> Catalog {
    let rule = |action: &str, verdict| Rule { action: action.into(), resource: "*".into(), verdict };
    let mut catalog = Catalog::builtin();
    let mut worker = Manifest::new("worker", AgentMode::All, "You are a worker.");
    worker.rules = Some(RuleSet { default: Verdict::Allow, rules: vec![rule("do.forbid", Verdict::Deny)] });
    catalog.insert(worker);
    let mut plan = Manifest::new("planner", AgentMode::Primary, "You plan.");
    plan.rules = Some(RuleSet { default: Verdict::Allow, rules: vec![rule("do.write", Verdict::Deny)] });
    plan.model = Some("deep".into());
    plan.settings = Settings { temperature: Some(0.5), ..Settings::default() };
    catalog.insert(plan);
    catalog.insert(Manifest::new("helper", AgentMode::Subagent, "You help."));
    catalog
}

fn watching(seen: &OverrideRequests) -> Arc<dyn Model> {
    let seen = Arc::clone(seen);
    model(move |request| {
        let tools =
            request.tools.iter().map(|tool| tool.name.to_string()).filter(|name| !name.contains("task")).collect();
        // The hints about delegation are not part of the agent's prompt.
        let own = request.system.split("\n\nWhen to hand").next().unwrap_or_default().to_owned();
        let at = (request.agent.to_string(), request.model.to_string(), own);
        seen.lock().unwrap().push((at.0, at.1, at.2, tools, request.settings.temperature));
        async move { Ok(text("fine")) }
    })
}

fn start(journal: &Journal, answering: Arc<dyn Model>, seed: u64) -> subtend_actors::Builder {
    builder(journal)
        .catalog(catalog())
        .options(Options { seed: Some(seed), ..Options::default() })
        .tools(tools([acting("read"), acting("write"), acting("forbid")]))
        .model(answering)
}

async fn say(session: &SessionHandle, text: &str, agent: Option<&str>) {
    let input = session.input(text);
    let input = if let Some(agent) = agent { input.agent(agent) } else { input };
    input.send().await.expect("accepted").answer().await.expect("an answer");
}

fn worker() -> (String, String, String, Vec<String>, Option<f64>) {
    let tools = vec!["read".into(), "write".into()];
    ("worker".into(), "test".into(), "You are a worker.".into(), tools, None)
}

fn planner() -> (String, String, String, Vec<String>, Option<f64>) {
    ("planner".into(), "deep".into(), "You plan.".into(), vec!["read".into()], Some(0.5))
}

#[tokio::test(start_paused = true)]
async fn override_applies_from_its_message_under_the_ceiling() {
    let memory = Memory::new();
    let seen: OverrideRequests = Arc::default();
    let journal = reopen(&memory);
    let runtime = start(&journal, watching(&seen), 7).start().await.expect("the runtime starts");
    let session = open(&runtime);
    say(&session, "one", None).await;
    say(&session, "two", Some("planner")).await;
    say(&session, "three", None).await;
    assert_eq!(std::mem::take(&mut *seen.lock().unwrap()), [worker(), planner(), planner()]);
    assert_eq!(
        journal.head(session.id()).expect("a store").expect("a head").agent.as_ref(),
        "worker",
        "the agent in the index changed"
    );
    let id = session.id();
    drop(session);
    runtime.shutdown(Duration::from_secs(1)).await;

    let journal = reopen(&memory);
    let runtime = start(&journal, watching(&seen), 8).start().await.expect("the runtime starts");
    let session = runtime.session(id).expect("a store").expect("a session");
    say(&session, "four", None).await;
    say(&session, "five", Some("worker")).await;
    assert_eq!(std::mem::take(&mut *seen.lock().unwrap()), [planner(), worker()]);
    let recorded: Vec<_> = records(&journal, id)
        .await
        .into_iter()
        .filter_map(|record| match record {
            Record::InputAccepted(input) => input.agent_override.clone(),
            _ => None,
        })
        .map(|other| (other.agent.to_string(), other.model.to_string(), other.system.to_string()))
        .collect();
    // R11: the prompt includes the hints for agents that may delegate.
    let hint = "\n\nWhen to hand work to other agents:\n\n- Work that needs much reading for a short conclusion, or independent parts \
                that can run in parallel: hand each to an agent with `task`.";
    let row = |agent: &str, model: &str, own: &str| (agent.to_owned(), model.to_owned(), format!("{own}{hint}"));
    assert_eq!(recorded, [row("planner", "deep", "You plan."), row("worker", "test", "You are a worker.")]);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn override_by_an_unpickable_agent_is_refused_with_a_list() {
    let journal = crate::support::journal();
    let runtime = start(&journal, watching(&OverrideRequests::default()), 7).start().await.expect("the runtime starts");
    let session = open(&runtime);
    for name in ["nobody", "helper"] {
        let Err(SendError::BadInput(why)) = session.input("hi").agent(name).send().await else { panic!("{name}") };
        assert!(why.contains(name) && why.contains("planner, worker") && !why.contains("helper, "), "{why}");
    }
    assert_eq!(crate::support::kinds(&journal, session.id()).await, ["session_created"]);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn override_during_a_run_binds_its_next_calls() {
    let journal = crate::support::journal();
    // A steering input names the planner in the first turn: the worker's write precedes it, the planner's follows.
    let answering = model(|request| async move {
        seconds(1).await;
        Ok(if answers(&request) < 2 { calls([("write", json!({}))]) } else { text("done") })
    });
    let runtime = start(&journal, answering, 7).start().await.expect("the runtime starts");
    let (session, _) = sent(&runtime, "go").await;
    session.input("think first").agent("planner").steer().await.expect("accepted");
    session.run_ended(subtend_session::ids::RunNo(1)).await.expect("the run ends");
    let ends: Vec<_> = records(&journal, session.id())
        .await
        .into_iter()
        .filter_map(|record| match record {
            Record::CallFinished(finished) => Some(finished.end),
            _ => None,
        })
        .collect();
    assert_eq!(ends.len(), 2);
    assert!(ends[0] == CallEnd::Ok && ends[1] != CallEnd::Ok, "{ends:?}");
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn children_of_an_override_have_at_most_its_permissions() {
    let journal = crate::support::journal();
    let answering = model(|request| async move {
        Ok(match (&*request.agent, answers(&request)) {
            ("planner", 0) => calls([task("child", false)]),
            ("worker", 0) => calls([("write", json!({})), ("read", json!({}))]),
            _ => text("done"),
        })
    });
    let runtime = start(&journal, answering, 7).start().await.expect("the runtime starts");
    let session = open(&runtime);
    say(&session, "plan it", Some("planner")).await;
    let child = journal.children(session.id()).expect("children")[0];
    let ends: Vec<_> = records(&journal, child)
        .await
        .into_iter()
        .filter_map(|record| match record {
            Record::CallFinished(finished) => Some((finished.call.ix, finished.end == CallEnd::Ok)),
            _ => None,
        })
        .collect();
    assert_eq!(ends, [(0, false), (1, true)], "expected the write of the planner's child to be refused");
    shut(runtime).await;
}

/// Returns the turn limit of each run of a session, and the number of turns that it answered.
async fn spent(journal: &Journal, session: &SessionHandle) -> Vec<(u32, usize)> {
    let mut runs = Vec::new();
    for record in records(journal, session.id()).await {
        match record {
            Record::RunOpened(opened) => runs.push((opened.max_turns, 0)),
            Record::TurnAnswered(_) => runs.last_mut().expect("a run").1 += 1,
            _ => {}
        }
    }
    runs
}

#[tokio::test(start_paused = true)]
async fn turns_of_an_agent_file_bind_runs_that_persons_open() {
    let store = Memory::new();
    let endless = || model(|_| async { Ok(calls([("read", json!({}))])) });
    let begin = |journal: &Journal, limits: Limits| {
        let mut catalog = catalog();
        catalog.insert(Manifest { turns: Some(2), ..Manifest::new("short", AgentMode::All, "You are brief.") });
        start(journal, endless(), 1).catalog(catalog).limits(limits)
    };
    let first = reopen(&store);
    let runtime = begin(&first, Limits { turns: 4, ..Limits::default() }).start().await.expect("a runtime");
    let short = runtime.open("short").expect("a session");
    let worker = runtime.open("worker").expect("a session");
    let sends = async |session: &SessionHandle, agent: Option<&str>, turns: Option<u32>| {
        let input = session.input("go");
        let input = agent.into_iter().fold(input, |input, agent| input.agent(agent));
        let receipt = turns.into_iter().fold(input, Input::turns).send().await.expect("accepted");
        session.run_ended(receipt.run).await.expect("it ends");
    };
    sends(&short, None, None).await;
    sends(&worker, None, None).await;
    sends(&worker, Some("short"), None).await;
    sends(&worker, None, None).await;
    sends(&worker, None, Some(3)).await;
    sends(&short, Some("worker"), None).await;
    assert_eq!(spent(&first, &worker).await, [(4, 4), (2, 2), (2, 2), (3, 3)]);
    assert_eq!(spent(&first, &short).await, [(2, 2), (4, 4)]);
    let (short, worker) = (short.id(), worker.id());
    shut(runtime).await;
    // The limits are recorded, so another host with other limits changes nothing.
    let second = reopen(&store);
    let runtime = begin(&second, Limits::default()).start().await.expect("a runtime");
    for (session, turns) in [(short, 4), (worker, 2)] {
        let session = runtime.session(session).expect("a journal").expect("a session");
        sends(&session, None, None).await;
        assert_eq!(spent(&second, &session).await.last(), Some(&(turns, turns as usize)));
    }
    shut(runtime).await;
}
