//! Hooks: what a host can and cannot change, and what happens when a hook fails.

use std::num::NonZeroU64;

use crate::support::*;
use subtend_actors::{ModelChoice, Refused, SubagentStart, SubagentStop, ToolDone, UserMessage};
use subtend_models::windows::ByModel;

type BeforeToolHook = dyn Fn(ToolAsked) -> BoxFuture<'static, BeforeTool> + Send + Sync;
type AfterToolHook = dyn Fn(ToolDone) -> BoxFuture<'static, Option<Text>> + Send + Sync;
type MessageHook = dyn Fn(UserMessage) -> BoxFuture<'static, Result<UserMessage, Refused>> + Send + Sync;
type ModelHook = dyn Fn(ModelChoice) -> BoxFuture<'static, Option<Text>> + Send + Sync;
type StartHook = dyn Fn(&SubagentStart) -> Result<(), Refused> + Send + Sync;
type StopHook = dyn Fn(&SubagentStop) + Send + Sync;

#[derive(Default)]
struct ClosureHooks {
    message: Option<Box<MessageHook>>,
    model: Option<Box<ModelHook>>,
    before: Option<Box<BeforeToolHook>>,
    after: Option<Box<AfterToolHook>>,
    start: Option<Box<StartHook>>,
    stop: Option<Box<StopHook>>,
}

impl Hooks for ClosureHooks {
    fn user_message(&self, message: UserMessage) -> BoxFuture<'_, Result<UserMessage, Refused>> {
        match &self.message {
            Some(hook) => hook(message),
            None => Box::pin(async { Ok(message) }),
        }
    }

    fn resolve_model(&self, choice: ModelChoice) -> BoxFuture<'_, Option<Text>> {
        self.model.as_ref().map_or_else(|| Box::pin(async { None }) as _, |hook| hook(choice))
    }

    fn before_tool(&self, call: ToolAsked) -> BoxFuture<'_, BeforeTool> {
        self.before.as_ref().map_or_else(|| Box::pin(async { BeforeTool::Proceed }) as _, |hook| hook(call))
    }

    fn after_tool(&self, done: ToolDone) -> BoxFuture<'_, Option<Text>> {
        self.after.as_ref().map_or_else(|| Box::pin(async { None }) as _, |hook| hook(done))
    }

    fn subagent_start(&self, start: &SubagentStart) -> Result<(), Refused> {
        self.start.as_ref().map_or(Ok(()), |hook| hook(start))
    }

    fn subagent_stop(&self, stop: &SubagentStop) {
        if let Some(hook) = &self.stop {
            hook(stop);
        }
    }
}

fn before(hook: impl Fn(ToolAsked) -> BeforeTool + Send + Sync + 'static) -> ClosureHooks {
    let hook = move |tool_call| -> BoxFuture<'static, BeforeTool> { Box::pin(std::future::ready(hook(tool_call))) };
    ClosureHooks { before: Some(Box::new(hook)), ..ClosureHooks::default() }
}

fn after(hook: impl Fn(ToolDone) -> Option<Text> + Send + Sync + 'static) -> ClosureHooks {
    let hook = move |done| -> BoxFuture<'static, Option<Text>> { Box::pin(std::future::ready(hook(done))) };
    ClosureHooks { after: Some(Box::new(hook)), ..ClosureHooks::default() }
}

/// Returns a tool `put` of `{"path": …}` that returns its arguments and counts its calls.
fn put(ran: &Arc<AtomicUsize>) -> FnTool {
    let ran = Arc::clone(ran);
    let put = tool("put", ToolEffect::SideEffect, move |call| {
        ran.fetch_add(1, Ordering::Relaxed);
        async move { Ok(ToolOutput::text(format!("put {}", call.args["path"]))) }
    });
    put.access(|args| {
        let path = args.and_then(|args| args["path"].as_str()).unwrap_or("*");
        vec![Access { action: "put".into(), resource: path.into() }]
    })
}

/// Returns a policy: `secret` is denied, `asked` needs an approval, everything else is allowed.
fn policy() -> RuleSet {
    let rule = |resource: &str, verdict| Rule { action: "put".into(), resource: resource.into(), verdict };
    let rules = vec![rule("secret", Verdict::Deny), rule("asked", Verdict::Ask)];
    RuleSet { default: Verdict::Allow, rules }
}

/// Starts a runtime whose model calls `put` with `path`, then answers with the result.
async fn putting(journal: &Journal, hooks: ClosureHooks, ran: &Arc<AtomicUsize>, path: &'static str) -> Runtime {
    let answering = model(move |request| async move {
        Ok(if answers(&request) == 0 { calls([("put", json!({"path": path}))]) } else { text("done") })
    });
    let builder = builder(journal).policy(policy()).tools(tools([put(ran)])).hooks(Arc::new(hooks)).model(answering);
    builder.start().await.expect("the runtime starts")
}

async fn go(runtime: &Runtime) -> (SessionHandle, Outcome) {
    let session = open(runtime);
    session.send("go").await.expect("accepted");
    let ended = tokio::time::timeout(Duration::from_secs(7200), session.run_ended(RunNo(1))).await;
    let outcome = ended.expect("the run ends").expect("the runtime is running").outcome;
    (session, outcome)
}

async fn results(journal: &Journal, session: &SessionHandle) -> Vec<(CallEnd, String)> {
    let finished = |record| match record {
        Record::CallFinished(finished) => Some((finished.end, finished.content.to_string())),
        _ => None,
    };
    records(journal, session.id()).await.into_iter().filter_map(finished).collect()
}

#[tokio::test(start_paused = true)]
async fn message_hook_changes_or_refuses_before_acceptance() {
    let journal = journal();
    let hook = |mut message: UserMessage| -> BoxFuture<'static, _> {
        Box::pin(async move {
            if message.text.contains("merge") {
                return Err(Refused::because("review it first"));
            }
            message.text = format!("{} (checked)", message.text).into();
            message.metadata = Some(r#"{"seen":true}"#.into());
            Ok(message)
        })
    };
    let hooks = ClosureHooks { message: Some(Box::new(hook)), ..ClosureHooks::default() };
    let answering = model(|request| async move { Ok(text(&format!("you said: {}", prompt(&request)))) });
    let runtime = builder(&journal).hooks(Arc::new(hooks)).model(answering).start().await.expect("the runtime starts");
    let session = open(&runtime);
    let refused = session.send("merge it").await.expect_err("the message was not refused");
    assert_eq!(refused, SendError::Refused("the host refuses the message: review it first".to_owned()));
    let receipt = session.send("hello").await.expect("accepted");
    assert_eq!(&*receipt.answer().await.expect("an answer").text, "you said: hello (checked)");
    let accepted: Vec<_> = records(&journal, session.id())
        .await
        .into_iter()
        .filter_map(|record| match record {
            Record::InputAccepted(input) => Some((input.text.to_string(), input.metadata)),
            _ => None,
        })
        .collect();
    assert_eq!(
        accepted,
        [("hello (checked)".to_owned(), Some(r#"{"seen":true}"#.into()))],
        "a refused message left a record"
    );
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn message_hook_that_panics_or_hangs_refuses_the_message() {
    let journal = journal();
    let hook = |message: UserMessage| -> BoxFuture<'static, _> {
        match &*message.text {
            "now" => panic!("at once"),
            "later" => Box::pin(async { panic!("on the way") }),
            "never" => Box::pin(std::future::pending()),
            _ => Box::pin(async move { Ok(message) }),
        }
    };
    let hooks = ClosureHooks { message: Some(Box::new(hook)), ..ClosureHooks::default() };
    let answering = model(|_| async move { Ok(text("fine")) });
    let runtime = builder(&journal).hooks(Arc::new(hooks)).model(answering).start().await.expect("the runtime starts");
    let session = open(&runtime);
    for bad in ["now", "later", "never"] {
        assert!(matches!(session.send(bad).await, Err(SendError::Refused(_))), "{bad}");
    }
    let receipt = session.send("well").await.expect("accepted");
    assert_eq!(&*receipt.answer().await.expect("an answer").text, "fine");
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn model_hook_names_the_model_and_the_journal_records_it() {
    let journal = journal();
    let hook = |choice: ModelChoice| -> BoxFuture<'static, _> {
        let other = (&*choice.model == "test").then(|| "big".into());
        Box::pin(async move { other })
    };
    let hooks = ClosureHooks { model: Some(Box::new(hook)), ..ClosureHooks::default() };
    let runtime = builder(&journal)
        .model(model(|_| async move { Ok(text("the small one")) }))
        .named_model("big", model(|request| async move { Ok(text(&format!("the {} one", request.model))) }))
        .hooks(Arc::new(hooks))
        .start()
        .await
        .expect("the runtime starts");
    let (session, outcome) = go(&runtime).await;
    assert_eq!(outcome, Outcome::Completed);
    let answered = records(&journal, session.id()).await.into_iter().find_map(|record| match record {
        Record::TurnAnswered(answered) => Some((answered.text, answered.model)),
        _ => None,
    });
    assert_eq!(answered, Some((Some("the big one".into()), Some("big".into()))));
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn b18_hooked_model_has_its_own_cap() {
    let journal = journal();
    let hook = |_: ModelChoice| -> BoxFuture<'static, _> { Box::pin(async { Some("big".into()) }) };
    let caps = [("test", 10), ("big", 70)].map(|(name, tokens)| (name.into(), NonZeroU64::new(tokens).unwrap()));
    let capped = |request: Request| async move { Ok(text(&format!("{:?}", request.settings.output_tokens))) };
    let runtime = started(
        builder(&journal)
            .model(model(capped))
            .named_model("big", model(capped))
            .output_tokens(ByModel::new(caps.into()))
            .hooks(Arc::new(ClosureHooks { model: Some(Box::new(hook)), ..ClosureHooks::default() })),
    )
    .await;
    let (session, _) = go(&runtime).await;
    let message = records(&journal, session.id()).await.into_iter().find_map(|record| match record {
        Record::TurnAnswered(answered) => answered.text,
        _ => None,
    });
    assert_eq!(message.as_deref(), Some("Some(70)"));
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn failed_or_slow_model_hook_keeps_the_sessions_model() {
    for (panics, expected) in [(true, "completed"), (false, "timed out")] {
        let hook = move |_| -> BoxFuture<'static, Option<Text>> {
            if panics { panic!("a fault") } else { Box::pin(std::future::pending()) }
        };
        let hooks = ClosureHooks { model: Some(Box::new(hook)), ..ClosureHooks::default() };
        let answering = model(|_| async move { Ok(text("fine")) });
        let runtime = started(builder(&journal()).hooks(Arc::new(hooks)).model(answering)).await;
        let (_, outcome) = go(&runtime).await;
        assert_eq!(outcome.kind().as_str(), expected);
        shut(runtime).await;
    }
}

#[tokio::test(start_paused = true)]
async fn call_denied_by_a_hook_never_runs() {
    let (journal, ran) = (journal(), Arc::default());
    let hooks = before(|tool_call| BeforeTool::Deny(format!("not on a Sunday: {}", tool_call.args["path"])));
    let runtime = putting(&journal, hooks, &ran, "open").await;
    let (session, outcome) = go(&runtime).await;
    assert_eq!((outcome, ran.load(Ordering::Relaxed)), (Outcome::Completed, 0));
    let received = "denied: the host does not allow this call of put: not on a Sunday: \"open\"".to_owned();
    assert_eq!(results(&journal, &session).await, [(CallEnd::Denied, received)]);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn tool_receives_the_replaced_arguments() {
    let (journal, ran) = (journal(), Arc::default());
    let hooks = before(|_| BeforeTool::ProceedWith(json!({"path": "other"})));
    let runtime = putting(&journal, hooks, &ran, "open").await;
    let (session, _) = go(&runtime).await;
    assert_eq!(results(&journal, &session).await, [(CallEnd::Ok, "put \"other\"".to_owned())]);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn replacement_never_widens_the_authority() {
    for (path, args, why) in [
        ("open", json!({"path": "secret"}), "is not allowed in this session"),
        ("open", json!({"path": "asked"}), "requires approval"),
        ("open", json!(["no object"]), "invalid arguments"),
    ] {
        let (journal, ran) = (journal(), Arc::default());
        let given = args.clone();
        let hooks = before(move |_| BeforeTool::ProceedWith(given.clone()));
        let runtime = putting(&journal, hooks, &ran, path).await;
        let (session, outcome) = go(&runtime).await;
        assert_eq!((outcome, ran.load(Ordering::Relaxed)), (Outcome::Completed, 0), "{args}");
        let received = results(&journal, &session).await;
        assert!(received[0].0 != CallEnd::Ok && received[0].1.contains(why), "{received:?}");
        shut(runtime).await;
    }
}

#[tokio::test(start_paused = true)]
async fn approval_does_not_cover_arguments_changed_by_a_hook() {
    // The person approves `asked`: the hook may keep that resource, but not change it to one that needs its own approval.
    for (given, ends) in [("asked", CallEnd::Ok), ("asked too", CallEnd::Denied)] {
        let (journal, ran) = (journal(), Arc::default());
        let hooks = before(move |_| BeforeTool::ProceedWith(json!({"path": given})));
        let rule = |resource: &str| Rule { action: "put".into(), resource: resource.into(), verdict: Verdict::Ask };
        let answering = model(|request| async move {
            Ok(if answers(&request) == 0 { calls([("put", json!({"path": "asked"}))]) } else { text("done") })
        });
        let runtime = started(
            builder(&journal)
                .policy(RuleSet { default: Verdict::Allow, rules: vec![rule("asked"), rule("asked too")] })
                .tools(tools([put(&ran)]))
                .hooks(Arc::new(hooks))
                .model(answering),
        )
        .await;
        let mut approver = runtime.approver();
        let (session, _) = sent(&runtime, "go").await;
        let approval = approver.next().await;
        approver.answer(&approval, AskVerdict::Allow).await.expect("answered");
        session.run_ended(RunNo(1)).await.expect("the run ends");
        assert_eq!(results(&journal, &session).await[0].0, ends, "{given}");
        drop(approver);
        shut(runtime).await;
    }
}

#[tokio::test(start_paused = true)]
async fn result_hook_replaces_before_any_reader_and_is_bounded() {
    let (journal, ran) = (journal(), Arc::default());
    let hooks = after(|done| (!done.error).then(|| format!("[cut out] {}", "é".repeat(300_000)).into()));
    let runtime = putting(&journal, hooks, &ran, "open").await;
    let (session, _) = go(&runtime).await;
    let finished = records(&journal, session.id()).await.into_iter().find_map(|record| match record {
        Record::CallFinished(finished) => Some(finished),
        _ => None,
    });
    let finished = finished.expect("a result");
    assert!(finished.content.starts_with("[cut out] é") && finished.content.len() <= 256 << 10);
    assert_eq!((finished.end, finished.truncated_from), (CallEnd::Ok, Some(600_010)));
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn hooks_around_a_tool_that_panic_deny_or_withhold() {
    let (journal, ran) = (journal(), Arc::new(AtomicUsize::new(0)));
    let runtime = putting(&journal, before(|_| panic!("a fault")), &ran, "open").await;
    let (session, outcome) = go(&runtime).await;
    assert_eq!((outcome, ran.load(Ordering::Relaxed)), (Outcome::Completed, 0));
    assert_eq!(results(&journal, &session).await[0].0, CallEnd::Denied);
    shut(runtime).await;

    let journal = crate::support::journal();
    let runtime = putting(&journal, after(|_| panic!("a fault")), &ran, "open").await;
    let (session, _) = go(&runtime).await;
    let withheld = "the call has ended, but its result is withheld: a hook of the host failed".to_owned();
    assert_eq!(results(&journal, &session).await, [(CallEnd::Ok, withheld)]);
    assert_eq!(ran.load(Ordering::Relaxed), 1);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn slow_hook_ends_by_the_calls_deadline_or_a_cancel() {
    let pending = || ClosureHooks {
        before: Some(Box::new(|_| -> BoxFuture<'static, BeforeTool> { Box::pin(std::future::pending()) })),
        ..ClosureHooks::default()
    };
    let (journal, ran) = (journal(), Arc::new(AtomicUsize::new(0)));
    let runtime = putting(&journal, pending(), &ran, "open").await;
    let (session, outcome) = go(&runtime).await;
    assert_eq!(outcome, Outcome::Completed);
    assert_eq!(results(&journal, &session).await[0].0, CallEnd::TimedOut);
    // Cancelled while the hook runs: the call ends at once, since nothing has started.
    let (session, _) = sent(&runtime, "go").await;
    seconds(1).await;
    let begun = tokio::time::Instant::now();
    session.cancel().await.expect("cancelled");
    session.run_ended(RunNo(1)).await.expect("the run ends");
    assert_eq!((begun.elapsed(), ran.load(Ordering::Relaxed)), (Duration::ZERO, 0));
    shut(runtime).await;
}

fn delegating() -> Arc<dyn Model> {
    model(|request| async move {
        Ok(match (&*prompt(&request), answers(&request)) {
            ("go", 0) => calls([task("child", false)]),
            _ => text("done"),
        })
    })
}

#[tokio::test(start_paused = true)]
async fn refused_subagent_is_a_tool_error_and_is_not_created() {
    for panics in [false, true] {
        let journal = journal();
        let hook = move |start: &SubagentStart| {
            assert!(!panics, "injected fault");
            Err(Refused::because(format!("no more {}s", start.agent)))
        };
        let hooks = ClosureHooks { start: Some(Box::new(hook)), ..ClosureHooks::default() };
        let runtime = started(builder(&journal).hooks(Arc::new(hooks)).model(delegating())).await;
        let (session, outcome) = go(&runtime).await;
        assert_eq!(outcome, Outcome::Completed);
        assert_eq!(journal.children(session.id()).expect("children"), []);
        let (end, received) = results(&journal, &session).await.remove(0);
        assert!(matches!(end, CallEnd::ToolError { .. }), "{end:?}");
        let expected = if panics { "a hook of the host failed" } else { "refuses to start worker: no more workers" };
        assert!(received.contains(expected), "{received}");
        shut(runtime).await;
    }
}

#[tokio::test(start_paused = true)]
async fn end_of_a_subagent_is_reported_once_when_durable() {
    let journal = journal();
    let received: Arc<Mutex<Vec<(SubagentStop, bool)>>> = Arc::default();
    let (stops, store) = (Arc::clone(&received), journal.clone());
    let stop = move |stop: &SubagentStop| {
        let durable = store.records(stop.session).expect("records");
        let ended = durable.iter().any(|stored| matches!(stored.record, Record::RunEnded(_)));
        stops.lock().unwrap().push((stop.clone(), ended));
        panic!("a panic of a stop hook must not change anything");
    };
    let hooks = ClosureHooks { stop: Some(Box::new(stop)), ..ClosureHooks::default() };
    let runtime = started(builder(&journal).hooks(Arc::new(hooks)).model(delegating())).await;
    let (session, outcome) = go(&runtime).await;
    assert_eq!(outcome, Outcome::Completed);
    let child = journal.children(session.id()).expect("children")[0];
    seconds(1).await;
    let received = std::mem::take(&mut *received.lock().unwrap());
    let seen: Vec<_> = received
        .iter()
        .map(|(stop, ended)| (stop.session, stop.parent, stop.run, stop.outcome.clone(), *ended))
        .collect();
    assert_eq!(seen, [(child, session.id(), RunNo(1), Outcome::Completed, true)]);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn default_hooks_change_nothing() {
    struct Nothing;
    impl Hooks for Nothing {}
    let (journal, ran) = (journal(), Arc::default());
    let answering = model(|request| async move {
        Ok(match (&*prompt(&request), answers(&request)) {
            ("go", 0) => calls([("put", Value::Null), task("child", false)]),
            _ => text("done"),
        })
    });
    let builder = builder(&journal).policy(policy()).tools(tools([put(&ran)])).hooks(Arc::new(Nothing));
    let runtime = builder.model(answering).start().await.expect("the runtime starts");
    let (session, outcome) = go(&runtime).await;
    assert_eq!((outcome, ran.load(Ordering::Relaxed)), (Outcome::Completed, 0), "the call ran with null as arguments");
    assert_eq!(journal.children(session.id()).expect("children").len(), 1);
    shut(runtime).await;
}
