//! Approvals: which approver is asked, how calls wait for the answer, and what happens to calls without one.

use crate::support::*;

/// Returns a policy that allows everything, except that `make.*` needs an approval and `break` is denied.
fn policy() -> RuleSet {
    let rule = |action: &str, verdict| Rule { action: action.into(), resource: "*".into(), verdict };
    RuleSet { default: Verdict::Allow, rules: vec![rule("make.*", Verdict::Ask), rule("break", Verdict::Deny)] }
}

fn make(ran: &Arc<AtomicUsize>) -> FnTool {
    let ran = Arc::clone(ran);
    let made = tool("make", ToolEffect::SideEffect, move |_| {
        ran.fetch_add(1, Ordering::Relaxed);
        async { Ok(ToolOutput::text("made")) }
    });
    made.access(|args| {
        let what = args.and_then(|args| args["what"].as_str()).unwrap_or("*");
        vec![Access { action: "make.thing".into(), resource: what.into() }]
    })
}

fn making(what: &str) -> (&'static str, Value) {
    ("make", json!({"what": what}))
}

/// Returns a runtime whose model makes the things in turn, then answers.
async fn maker(journal: &Journal, ran: &Arc<AtomicUsize>, things: &'static [&'static str]) -> Runtime {
    making_in_turn(journal, ran, things).start().await.expect("the runtime starts")
}

fn making_in_turn(journal: &Journal, ran: &Arc<AtomicUsize>, things: &'static [&'static str]) -> Builder {
    let answering = model(move |request| async move {
        Ok(things.get(answers(&request)).map_or_else(|| text("done"), |what| calls([making(what)])))
    });
    builder(journal).policy(policy()).tools(tools([make(ran)])).model(answering)
}

fn call(turn: u32, ix: u32) -> CallId {
    CallId { turn: TurnNo(turn), ix }
}

async fn asks(journal: &Journal, session: &SessionHandle) -> Vec<(CallId, AskVerdict, AnsweredBy)> {
    let answered = |record| match record {
        Record::AskAnswered { call, verdict, by } => Some((call, verdict, by)),
        _ => None,
    };
    records(journal, session.id()).await.into_iter().filter_map(answered).collect()
}

async fn ends(journal: &Journal, session: &SessionHandle) -> Vec<CallEnd> {
    let finished = |record| match record {
        Record::CallFinished(finished) => Some(finished.end),
        _ => None,
    };
    records(journal, session.id()).await.into_iter().filter_map(finished).collect()
}

async fn ended(session: &SessionHandle) -> Outcome {
    let ended = tokio::time::timeout(Duration::from_secs(7200), session.run_ended(RunNo(1))).await;
    ended.expect("the run ends").expect("the runtime is running").outcome
}

#[tokio::test(start_paused = true)]
async fn call_that_needs_approval_is_denied_without_an_approver() {
    let (journal, ran) = (journal(), Arc::default());
    let runtime = maker(&journal, &ran, &["a"]).await;
    let begun = tokio::time::Instant::now();
    let (session, _) = sent(&runtime, "go").await;
    assert_eq!(ended(&session).await, Outcome::Completed);
    assert_eq!(begun.elapsed(), Duration::ZERO, "the denial waited");
    assert_eq!(asks(&journal, &session).await, [(call(1, 0), AskVerdict::Deny, AnsweredBy::NoApprover)]);
    assert_eq!(ends(&journal, &session).await, [CallEnd::Denied]);
    assert_eq!((ran.load(Ordering::Relaxed), asked(&runtime).await), (0, Vec::new()));
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn approver_gets_the_ask_and_its_answer_starts_the_call() {
    let (journal, ran) = (journal(), Arc::default());
    let runtime = maker(&journal, &ran, &["a", "a"]).await;
    let mut approver = runtime.approver();
    let (session, _) = sent(&runtime, "go").await;
    let approval = approver.next().await;
    let expected = Approval {
        root: session.id(),
        session: session.id(),
        path: session.id().short().0.to_string(),
        call: call(1, 0),
        tool: "make".into(),
        args: making("a").1.to_string().into(),
        action: "make.thing".into(),
        resource: "a".into(),
        plan: None,
        deadline_ms: approval.deadline_ms,
    };
    assert!(approval.deadline_ms > Some(runtime.now_ms()), "{approval:?}");
    assert_eq!(approval, expected);
    assert_eq!(asked(&runtime).await, [expected]);
    assert_eq!(ran.load(Ordering::Relaxed), 0, "the call did not wait");
    assert_eq!(approver.answer(&approval, AskVerdict::Allow).await, Ok(Control::Done(RunNo(1))));
    // An approval for one call does not cover later calls: the same access is asked for again.
    let again = approver.next().await;
    assert_eq!((again.call, ran.load(Ordering::Relaxed)), (call(2, 0), 1));
    assert_eq!(approver.answer(&again, AskVerdict::Deny).await, Ok(Control::Done(RunNo(1))));
    assert_eq!(ended(&session).await, Outcome::Completed);
    assert_eq!(ran.load(Ordering::Relaxed), 1);
    assert_eq!(ends(&journal, &session).await, [CallEnd::Ok, CallEnd::Denied]);
    assert_eq!(asked(&runtime).await, []);
    drop(approver);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn always_covers_the_same_access_in_its_session_only() {
    let (journal, ran) = (journal(), Arc::default());
    let runtime = maker(&journal, &ran, &["a", "a", "b"]).await;
    let mut approver = runtime.approver();
    let (first, _) = sent(&runtime, "go").await;
    let approval = approver.next().await;
    approver.answer(&approval, AskVerdict::Always).await.expect("answered");
    // The second `a` runs without an ask, but `b` is another resource.
    let other = approver.next().await;
    assert_eq!((other.call, &*other.resource, ran.load(Ordering::Relaxed)), (call(3, 0), "b", 2));
    approver.answer(&other, AskVerdict::Deny).await.expect("answered");
    assert_eq!(ended(&first).await, Outcome::Completed);
    let (second, _) = sent(&runtime, "go").await;
    let approval = approver.next().await;
    assert_eq!((approval.session, approval.call, &*approval.resource), (second.id(), call(1, 0), "a"));
    assert_eq!(second.cancel().await, Ok(Control::Done(RunNo(1))));
    assert_eq!(asks(&journal, &second).await, [(call(1, 0), AskVerdict::Deny, AnsweredBy::Closed)]);
    drop(approver);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn approval_does_not_lift_a_deny() {
    let journal = journal();
    let ran = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&ran);
    let breaks = tool("smash", ToolEffect::SideEffect, move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        async { Ok(ToolOutput::text("smashed")) }
    });
    // The access without arguments needs an approval; the access with arguments is denied.
    let breaks = breaks.access(|args| {
        let access = |action: &str| Access { action: action.into(), resource: "x".into() };
        args.map_or_else(|| vec![access("make.thing")], |_| vec![access("make.thing"), access("break")])
    });
    let answering = model(|request| async move {
        Ok(if answers(&request) == 0 { calls([("smash", json!({}))]) } else { text("done") })
    });
    let runtime = started(builder(&journal).policy(policy()).tools(tools([breaks])).model(answering)).await;
    let approver = runtime.approver();
    let (session, _) = sent(&runtime, "go").await;
    assert_eq!(ended(&session).await, Outcome::Completed);
    assert_eq!((asks(&journal, &session).await, ends(&journal, &session).await), (vec![], vec![CallEnd::Denied]));
    assert_eq!(ran.load(Ordering::Relaxed), 0);
    drop(approver);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn unanswered_ask_is_denied_at_its_deadline() {
    let (journal, ran) = (journal(), Arc::default());
    let runtime = maker(&journal, &ran, &["a"]).await;
    let mut approver = runtime.approver();
    let session = open(&runtime);
    let begun = tokio::time::Instant::now();
    session.send("go").await.expect("accepted");
    let approval = approver.next().await;
    // Dropping the last approver does not deny open asks.
    drop(approver);
    assert_eq!(asked(&runtime).await.len(), 1);
    assert_eq!(ended(&session).await, Outcome::Completed);
    assert_eq!(begun.elapsed(), Duration::from_millis(Limits::default().ask_ms));
    assert_eq!(asks(&journal, &session).await, [(call(1, 0), AskVerdict::Deny, AnsweredBy::Deadline)]);
    // A late answer gets an error and changes nothing.
    assert_eq!(runtime.answer(approval.session, approval.call, AskVerdict::Always).await, Ok(Control::NotFound));
    assert_eq!(ran.load(Ordering::Relaxed), 0);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn ask_keeps_its_deadline_when_its_session_panics() {
    let (journal, ran) = (journal(), Arc::default());
    // The panic drops the deadline itself.
    let panicked = AtomicUsize::new(0);
    let faults = subtend_actors::faults::Faults::new(move |point, detail| {
        let here = point == subtend_actors::faults::Point::Handler && detail == "deadline";
        assert!(!here || panicked.fetch_add(1, Ordering::Relaxed) > 0, "injected fault at the deadline");
    });
    let runtime = making_in_turn(&journal, &ran, &["a"]).faults(faults).start().await.expect("the runtime starts");
    let mut approver = runtime.approver();
    let session = open(&runtime);
    let begun = tokio::time::Instant::now();
    session.send("go").await.expect("accepted");
    approver.next().await;
    assert_eq!(ended(&session).await, Outcome::Completed);
    let late = begun.elapsed().saturating_sub(Duration::from_millis(Limits::default().ask_ms));
    assert!(late < Duration::from_secs(1), "it waited {late:?} beyond its deadline");
    assert_eq!(asks(&journal, &session).await, [(call(1, 0), AskVerdict::Deny, AnsweredBy::Deadline)]);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn ask_answered_elsewhere_is_skipped() {
    let (journal, ran) = (journal(), Arc::default());
    let runtime = maker(&journal, &ran, &["a", "b"]).await;
    let (mut first, mut second) = (runtime.approver(), runtime.approver());
    let (session, _) = sent(&runtime, "go").await;
    let approval = first.next().await;
    first.answer(&approval, AskVerdict::Allow).await.expect("answered");
    let next = second.next().await;
    assert_eq!(&*next.resource, "b", "`a` is already answered and must be skipped");
    // A new approver receives the open asks.
    assert_eq!(runtime.approver().next().await, next);
    assert_eq!(runtime.answer(session.id(), next.call, AskVerdict::Allow).await, Ok(Control::Done(RunNo(1))));
    assert_eq!(ended(&session).await, Outcome::Completed);
    assert_eq!(ran.load(Ordering::Relaxed), 2);
    drop((first, second));
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn child_asks_at_the_root_and_releases_its_slot_meanwhile() {
    let (journal, ran) = (journal(), Arc::default());
    let answering = model(|request| async move {
        Ok(match (&*prompt(&request), answers(&request)) {
            ("go", 0) => calls([task("child", false)]),
            ("child", 0) => calls([making("a")]),
            _ => text("done"),
        })
    });
    let runtime = started(builder(&journal).policy(policy()).tools(tools([make(&ran)])).model(answering)).await;
    let mut approver = runtime.approver();
    let (session, _) = sent(&runtime, "go").await;
    let approval = approver.next().await;
    let child = journal.children(session.id()).expect("children")[0];
    assert_eq!((approval.root, approval.session), (session.id(), child));
    assert_eq!(approval.path, format!("{}/{}", session.id().short().0, child.short().0));
    assert_eq!(runtime.slots_in_use(), 0, "a session that waits for an approval holds a slot");
    let found = runtime.find(&approval.path).await.expect("a store").expect("a session");
    assert_eq!(found.id(), child);
    approver.answer(&approval, AskVerdict::Allow).await.expect("answered");
    assert_eq!(ended(&session).await, Outcome::Completed);
    assert_eq!(ran.load(Ordering::Relaxed), 1);
    drop(approver);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn starting_an_agent_may_need_approval() {
    let journal = journal();
    let rule = Rule { action: "task:*".into(), resource: "*".into(), verdict: Verdict::Ask };
    let answering = model(|request| async move {
        Ok(match (&*prompt(&request), answers(&request)) {
            ("go", 0) => calls([task("child", false)]),
            _ => text("done"),
        })
    });
    let policy = RuleSet { default: Verdict::Allow, rules: vec![rule] };
    let runtime = builder(&journal).policy(policy).model(answering).start().await.expect("the runtime starts");
    let mut approver = runtime.approver();
    let (session, _) = sent(&runtime, "go").await;
    let approval = approver.next().await;
    assert_eq!((&*approval.tool, &*approval.action, &*approval.resource), ("task", "task:worker", "."));
    assert_eq!(journal.children(session.id()).expect("children"), []);
    approver.answer(&approval, AskVerdict::Allow).await.expect("answered");
    assert_eq!(ended(&session).await, Outcome::Completed);
    assert_eq!(journal.children(session.id()).expect("children").len(), 1);
    drop(approver);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn continuing_a_task_needs_approval_as_starting_does() {
    let journal = journal();
    let rule = Rule { action: "task:*".into(), resource: "*".into(), verdict: Verdict::Ask };
    let answering = model(|request| async move {
        let on =
            request.messages.iter().any(|message| matches!(message, Message::User { text, .. } if &**text == "on"));

        Ok(match (&*prompt(&request), results(&request).len()) {
            ("child" | "more", _) => text("done"),
            (_, 0) => calls([task("child", true)]),
            (_, 1) if on => calls([("task", json!({"session_id": short(&request), "prompt": "more"}))]),
            _ => text("done"),
        })
    });
    let policy = RuleSet { default: Verdict::Allow, rules: vec![rule] };
    let runtime = builder(&journal).policy(policy).model(answering).start().await.expect("the runtime starts");
    let mut approver = runtime.approver();
    let (session, _) = sent(&runtime, "go").await;
    let approval = approver.next().await;
    approver.answer(&approval, AskVerdict::Allow).await.expect("answered");
    session.run_ended(RunNo(1)).await.expect("the run ends");
    session.send("on").await.expect("accepted");
    let approval = approver.next().await;
    assert_eq!((&*approval.tool, &*approval.action, &*approval.resource), ("task", "task:worker", "."));
    approver.answer(&approval, AskVerdict::Deny).await.expect("answered");
    session.run_ended(RunNo(2)).await.expect("the run ends");
    let child = journal.children(session.id()).expect("children")[0];
    let runs = records(&journal, child).await.into_iter().filter(|record| matches!(record, Record::RunOpened(_)));
    assert_eq!(runs.count(), 1, "a second run started without an approval");
    drop(approver);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn open_ask_is_closed_at_the_next_start() {
    let (memory, ran) = (Memory::new(), Arc::default());
    let runtime = maker(&reopen(&memory), &ran, &["a"]).await;
    let mut approver = runtime.approver();
    let (session, _) = sent(&runtime, "go").await;
    let approval = approver.next().await;
    drop(approver);
    runtime.shutdown(Duration::from_secs(1)).await;
    let journal = reopen(&memory);
    // The journal alone would allow an answer, but the next start closes the ask.
    assert_eq!(journal.outbox().expect("rows").len(), 1);
    let runtime = maker(&journal, &ran, &["a"]).await;
    assert_eq!(asked(&runtime).await, []);
    let session = runtime.session(session.id()).expect("a store").expect("a session");
    assert_eq!(session.run_ended(RunNo(1)).await.expect("the run ends").outcome, Outcome::Lost);
    assert_eq!(asks(&journal, &session).await, [(approval.call, AskVerdict::Deny, AnsweredBy::Closed)]);
    assert_eq!(ran.load(Ordering::Relaxed), 0);
    shut(runtime).await;
}

/// A resumed run asks during the start: an approver that attaches afterwards is too late.
#[tokio::test(start_paused = true)]
async fn resumed_run_asks_the_approver_that_is_attached_before_start() {
    for attended in [true, false] {
        let (memory, ran) = (Memory::new(), Arc::default());
        let runtime = maker(&reopen(&memory), &ran, &["a"]).await;
        let mut approver = runtime.approver();
        let on_restart = Some(OnRestart::Resume);
        let options = OpenOptions { agent: "general".into(), on_restart, ..OpenOptions::default() };
        let session = runtime.open(options).expect("a session");
        session.send("go").await.expect("accepted");
        let approval = approver.next().await;
        drop(approver);
        runtime.shutdown(Duration::from_secs(1)).await;
        let journal = reopen(&memory);
        let builder = making_in_turn(&journal, &ran, &["a"]);
        let (runtime, mut approver) = if attended {
            builder.start_attended().await.expect("the runtime starts")
        } else {
            let runtime = builder.start().await.expect("the runtime starts");
            let approver = runtime.approver();
            (runtime, approver)
        };
        if attended {
            assert_eq!(approver.next().await, approval);
            approver.answer(&approval, AskVerdict::Allow).await.expect("answered");
        }
        let session = runtime.session(session.id()).expect("a store").expect("a session");
        assert_eq!(session.run_ended(RunNo(1)).await.expect("the run ends").outcome, Outcome::Completed);
        let word =
            if attended { (AskVerdict::Allow, AnsweredBy::Person) } else { (AskVerdict::Deny, AnsweredBy::NoApprover) };
        assert_eq!(asks(&journal, &session).await, [(approval.call, word.0, word.1)]);
        assert_eq!(ran.load(Ordering::Relaxed), usize::from(attended));
        drop(approver);
        shut(runtime).await;
    }
}

#[tokio::test(start_paused = true)]
async fn answer_without_an_ask_is_not_found() {
    let (journal, ran) = (journal(), Arc::default());
    let runtime = maker(&journal, &ran, &[]).await;
    let session = open(&runtime);
    assert_eq!(runtime.answer(session.id(), call(1, 0), AskVerdict::Allow).await, Ok(Control::NotFound));
    let nobody = subtend_session::ids::SessionId(uuid::Uuid::from_u128(7));
    let missing = runtime.answer(nobody, call(1, 0), AskVerdict::Allow).await;
    assert_eq!(missing, Err(ControlError::NotFound(ReadError::NoSuchSession(nobody).to_string())));
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn allowed_call_starts_after_its_actor_was_killed() {
    let (journal, ran) = (journal(), Arc::default());
    let panics = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&panics);
    // The actor dies after the answer is in the log but before its effects.
    let faults = subtend_actors::faults::Faults::new(move |point, detail| {
        let after = point == subtend_actors::faults::Point::AfterAppend && detail == "call_started";
        if after && seen.fetch_add(1, Ordering::Relaxed) == 0 {
            panic!("injected fault");
        }
    });
    let answering = model(|request| async move {
        Ok(if answers(&request) == 0 { calls([making("a"), making("b")]) } else { text("done") })
    });
    let runtime =
        started(builder(&journal).policy(policy()).tools(tools([make(&ran)])).model(answering).faults(faults)).await;
    let mut approver = runtime.approver();
    let (session, _) = sent(&runtime, "go").await;
    let first = approver.next().await;
    approver.answer(&first, AskVerdict::Allow).await.expect("answered");
    let second = approver.next().await;
    assert_eq!(&*second.resource, "b", "the next activation did not ask the open ask again");
    approver.answer(&second, AskVerdict::Allow).await.expect("answered");
    assert_eq!(ended(&session).await, Outcome::Completed);
    assert_eq!(panics.load(Ordering::Relaxed), 2);
    let allowed = |ix| (call(1, ix), AskVerdict::Allow, AnsweredBy::Person);
    assert_eq!(asks(&journal, &session).await, [allowed(0), allowed(1)]);
    // The first call may have started before its actor died, so it is not repeated.
    assert_eq!(ends(&journal, &session).await, [CallEnd::UnknownEffects, CallEnd::Ok]);
    assert_eq!(ran.load(Ordering::Relaxed), 1);
    drop(approver);
    shut(runtime).await;
}
