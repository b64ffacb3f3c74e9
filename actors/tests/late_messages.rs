//! Messages that arrive late, twice or at a bad moment apply to the run that they were sent for. Reading does not prolong a wait.

use crate::support::*;
use subtend_session::command::SwitchTo;

async fn end_of(session: &SessionHandle, run: u32) -> Ended {
    let ended = tokio::time::timeout(Duration::from_secs(20_000), session.run_ended(RunNo(run))).await;
    ended.expect("the run ends").expect("the runtime is running")
}

fn child(runtime: &Runtime, session: &SessionHandle, n: usize) -> SessionHandle {
    let children = runtime.journal().children(session.id()).expect("children");
    runtime.session(children[n]).expect("readable").expect("the session exists")
}

fn inject(point: Point, detail: &'static str, times: usize) -> Faults {
    let struck = AtomicUsize::new(0);
    Faults::new(move |at, what| {
        let here = at == point && what == detail;
        assert!(!(here && struck.fetch_add(1, Ordering::Relaxed) < times), "injected fault at {detail}");
    })
}

fn one_slot(journal: &Journal) -> Builder {
    let options = Options { slots: 1, idle: Duration::from_secs(10), seed: Some(7), ..Options::default() };
    let limits = Limits { live_runs: 1, run_ms: None, first_byte_ms: u64::MAX, turn_ms: u64::MAX, ..Limits::default() };
    builder(journal).options(options).limits(limits)
}

/// Answers for a parent with a long task and a queued one, which its model cancels at a person's message.
async fn two(request: Request) -> Result<Answer, ModelError> {
    tokio::time::sleep(Duration::from_millis(1)).await;
    match (prompt(&request).as_str(), answers(&request)) {
        ("parent", 0) => Ok(calls([task("long", true), task("second", true)])),
        ("parent", 1) => Ok(text("waiting")),
        ("parent", 2) => Ok(calls([("cancel_task", json!({"taskId": last_user(&request)}))])),
        ("long", _) => {
            seconds(1_000).await;
            Ok(text("long"))
        }
        _ => Ok(text("done")),
    }
}

/// Returns the parent and its second task, which its model cancels while a person's input is queued behind it.
async fn cancelled_in_the_queue(runtime: &Runtime) -> (SessionHandle, SessionHandle) {
    let session = open(runtime);
    session.send("parent").await.expect("accepted");
    seconds(5).await;
    let queued = |at: &usize| {
        let kid = child(runtime, &session, *at);
        runtime
            .journal()
            .inflight()
            .expect("inflight")
            .iter()
            .any(|(id, row)| *id == kid.id() && row.state == subtend_session::state::Phase::Queued)
    };
    let second = child(runtime, &session, (0..2).find(queued).expect("one waits"));
    second.send("for a person").await.expect("accepted");
    let short = runtime.journal().head(second.id()).expect("readable").expect("the session exists").short;
    session.send(short.0.to_string()).await.expect("accepted");
    seconds(2).await;
    (session, second)
}

async fn ends(journal: &Journal, session: &SessionHandle) -> Vec<Outcome> {
    let ends = records(journal, session.id()).await.into_iter().filter_map(|record| match record {
        Record::RunEnded(ended) => Some(ended.outcome),
        _ => None,
    });
    ends.collect()
}

#[tokio::test(start_paused = true)]
async fn cancel_repeated_after_a_panic_spares_the_next_run() {
    let journal = journal();
    let faults = inject(Point::Handler, "owner_cancels", 1);
    let runtime = one_slot(&journal).faults(faults).model(model(two)).start().await.expect("a runtime");
    let (session, second) = cancelled_in_the_queue(&runtime).await;
    end_of(&session, 1).await;
    end_of(&second, 2).await;
    let found = ends(&journal, &second).await;
    assert!(matches!(found[0], Outcome::Cancelled { by: Initiator::Model { .. } }), "{found:?}");
    assert_eq!(found[1..], [Outcome::Completed], "the person's run was affected");
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn cancel_that_crashes_each_activation_is_named() {
    let journal = journal();
    let faults = inject(Point::Handler, "owner_cancels", usize::MAX);
    let runtime = one_slot(&journal).faults(faults).model(model(two)).start().await.expect("a runtime");
    let (session, second) = cancelled_in_the_queue(&runtime).await;
    end_of(&session, 1).await;
    end_of(&second, 2).await;
    let named = Outcome::RestartsExhausted { command: Some("owner_cancels".into()) };
    assert_eq!(ends(&journal, &second).await, [named, Outcome::Completed], "the person's run was affected");
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn cancel_repeated_at_boot_spares_the_next_run() {
    let memory = Memory::new();
    let first = reopen(&memory);
    // The first process crashes even while it ends the run.
    let faults = Faults::new(|at, what| {
        let here = at == Point::Handler && matches!(what, "owner_cancels" | "restarts_exhausted");
        assert!(!here, "injected fault at {what}");
    });
    let runtime = one_slot(&first).faults(faults).model(model(two)).start().await.expect("a runtime");
    let (session, second) = cancelled_in_the_queue(&runtime).await;
    let (root, second) = (session.id(), second.id());
    drop((session, runtime, first));

    let journal = reopen(&memory);
    let runtime = one_slot(&journal).model(model(two)).start().await.expect("a runtime");
    let second = runtime.session(second).expect("readable").expect("the session exists");
    end_of(&second, 2).await;
    let found = ends(&journal, &second).await;
    assert!(matches!(found[0], Outcome::Cancelled { by: Initiator::Model { .. } }), "{found:?}");
    assert_eq!(found[1..], [Outcome::Completed], "the person's run was affected");
    assert_eq!(ends(&journal, &runtime.session(root).unwrap().unwrap()).await, [Outcome::Lost]);
    shut(runtime).await;
}

async fn slow(_: Request) -> Result<Answer, ModelError> {
    seconds(30).await;
    Ok(text("done"))
}

#[tokio::test(start_paused = true)]
async fn repeated_cancel_reports_the_run_it_ended() {
    let journal = journal();
    let faults = inject(Point::AfterAppend, "run_held", 1);
    let runtime = builder(&journal).faults(faults).model(model(slow)).start().await.expect("a runtime");
    let (session, _) = sent(&runtime, "go").await;
    session.send("next").await.expect("accepted");
    seconds(5).await;
    assert_eq!(session.cancel().await, Ok(Control::Done(RunNo(1))));
    assert_eq!(end_of(&session, 2).await.outcome, Outcome::Completed);
    assert_eq!(ends(&journal, &session).await[0], Outcome::Cancelled { by: Initiator::Person });
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn repeated_interrupt_spares_resumed_runs() {
    let faults = inject(Point::AfterAppend, "run_held", 1);
    let runtime = builder(&journal()).faults(faults).model(model(slow)).start().await.expect("a runtime");
    let (session, _) = sent(&runtime, "go").await;
    session.send("next").await.expect("accepted");
    seconds(5).await;
    assert_eq!(session.interrupt().await, Ok(Control::Done(RunNo(1))));
    assert_eq!(end_of(&session, 1).await.outcome, Outcome::Completed);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn repeated_switch_moves_one_step() {
    let faults = Faults::new({
        let struck = AtomicUsize::new(0);
        // The first two switches are those of the regenerated answers, which become active by themselves.
        move |at, what| {
            let here = at == Point::AfterAppend && what == "alternative_switched";
            assert!(!(here && struck.fetch_add(1, Ordering::Relaxed) == 2), "injected fault");
        }
    });
    let runtime = builder(&journal()).faults(faults).model(model(slow)).start().await.expect("a runtime");
    let (session, _) = sent(&runtime, "go").await;
    end_of(&session, 1).await;
    for _ in 0..2 {
        let (other, run) = session.regenerate(None).await.expect("a branch");
        end_of(&other, run.0).await;
        seconds(1).await;
    }
    assert_eq!(session.alternatives().await.expect("listed")[0].active, 2);
    assert_eq!(session.switch(None, SwitchTo::Previous).await.expect("switched").to, 1);
    assert_eq!(session.alternatives().await.expect("listed")[0].active, 1);
    shut(runtime).await;
}

async fn asking(journal: &Journal) -> (Runtime, SessionHandle) {
    let rule = Rule { action: "make".into(), resource: "*".into(), verdict: Verdict::Ask };
    let policy = RuleSet { default: Verdict::Allow, rules: vec![rule] };
    let make = tool("make", ToolEffect::SideEffect, |_| async { Ok(ToolOutput::text("made")) });
    let make = make.access(|_| vec![Access { action: "make".into(), resource: "a".into() }]);
    let answering = model(|request| async move {
        Ok(if answers(&request) == 0 { calls([("make", json!({}))]) } else { text("done") })
    });
    let options = Options { idle: Duration::from_secs(10), seed: Some(7), ..Options::default() };
    let builder = builder(journal).options(options).policy(policy).tools(tools([make])).model(answering);
    let runtime = builder.start().await.expect("the runtime starts");
    let session = open(&runtime);
    (runtime, session)
}

async fn verdicts(journal: &Journal, session: &SessionHandle) -> Vec<(AskVerdict, AnsweredBy)> {
    let given = records(journal, session.id()).await.into_iter().filter_map(|record| match record {
        Record::AskAnswered { verdict, by, .. } => Some((verdict, by)),
        _ => None,
    });
    given.collect()
}

#[tokio::test(start_paused = true)]
async fn inspection_does_not_prolong_an_ask() {
    let journal = journal();
    let (runtime, session) = asking(&journal).await;
    let approver = runtime.approver();
    let begun = tokio::time::Instant::now();
    session.send("go").await.expect("accepted");
    for _ in 0..7 {
        seconds(50).await;
        session.queue().await.expect("listed");
    }
    assert_eq!(verdicts(&journal, &session).await, [(AskVerdict::Deny, AnsweredBy::Deadline)], "{:?}", begun.elapsed());
    drop(approver);
    assert_eq!(end_of(&session, 1).await.outcome, Outcome::Completed);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn ask_stays_open_after_its_approver_left() {
    let journal = journal();
    let (runtime, session) = asking(&journal).await;
    let mut approver = runtime.approver();
    session.send("go").await.expect("accepted");
    let approval = approver.next().await;
    drop(approver);
    seconds(50).await;
    session.queue().await.expect("listed");
    seconds(1).await;
    assert_eq!(runtime.answer(approval.session, approval.call, AskVerdict::Allow).await, Ok(Control::Done(RunNo(1))));
    assert_eq!(end_of(&session, 1).await.outcome, Outcome::Completed);
    assert_eq!(verdicts(&journal, &session).await, [(AskVerdict::Allow, AnsweredBy::Person)]);
    let finished = records(&journal, session.id()).await.into_iter().find_map(|record| match record {
        Record::CallFinished(finished) => Some(finished.end),
        _ => None,
    });
    assert_eq!(finished, Some(CallEnd::Ok));
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn inspection_does_not_prolong_a_queued_wait() {
    let journal = journal();
    let answer = |request: Request| async move {
        match (prompt(&request).as_str(), answers(&request)) {
            ("parent", 0) => Ok(calls([task("long", true), task("long", true)])),
            ("parent", _) => Ok(text("waiting")),
            _ => {
                seconds(10_000).await;
                Ok(text("long"))
            }
        }
    };
    let runtime = one_slot(&journal).model(model(answer)).start().await.expect("a runtime");
    let (session, _) = sent(&runtime, "parent").await;
    for _ in 0..8 {
        seconds(100).await;
        for n in 0..2 {
            child(&runtime, &session, n).queue().await.expect("listed");
        }
    }
    let mut found = ends(&journal, &child(&runtime, &session, 0)).await;
    found.extend(ends(&journal, &child(&runtime, &session, 1)).await);
    assert_eq!(found, [Outcome::TimedOut { what: TimeLimit::Queue }]);
    end_of(&session, 1).await;
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn run_that_waited_for_a_slot_leaves_no_timer() {
    let journal = journal();
    let answer = |request: Request| async move {
        match (prompt(&request).as_str(), answers(&request)) {
            ("parent", 0) => Ok(calls([task("0", true), task("1", true), task("2", true)])),
            ("parent", _) => Ok(text("waiting")),
            _ => {
                seconds(5).await;
                Ok(text("done"))
            }
        }
    };
    let runtime = one_slot(&journal).model(model(answer)).start().await.expect("a runtime");
    let (session, _) = sent(&runtime, "parent").await;
    end_of(&session, 1).await;
    seconds(20).await;
    assert_eq!(runtime.stats(), RuntimeStats::default());
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn task_created_next_to_a_branch_stays_in_its_owners_tree() {
    let journal = journal();
    let refused = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&refused);
    let answer = move |request: Request| {
        let limit =
            |message: &Message| matches!(message, Message::Result { content, .. } if content.contains("spawns"));
        count.fetch_add(usize::from(request.messages.iter().any(limit)), Ordering::Relaxed);
        std::future::ready(Ok(match (prompt(&request).as_str(), answers(&request)) {
            ("parent", 0) => calls([task("child", false)]),
            ("child", 0) => calls([task("too many", false)]),
            _ => text("done"),
        }))
    };
    let limits = Limits { spawns: 1, ..Limits::default() };
    let runtime = builder(&journal).limits(limits).model(model(answer)).start().await.expect("a runtime");
    let session = open(&runtime);
    let branch = BranchOptions { kind: BranchKind::Subagent, ..BranchOptions::default() };
    let (branch, receipt) = tokio::join!(session.branch(branch), session.send("parent"));
    branch.expect("a branch");
    end_of(&session, receipt.expect("accepted").run.0).await;
    let all = records(&journal, session.id()).await;
    let at = |kind: &str| all.iter().position(|record| record.kind() == kind).expect("recorded");
    assert!(at("branch_created") < at("child_spawned"), "expected one batch with the branch first");
    assert_eq!(refused.load(Ordering::Relaxed), 1, "the limit did not apply to the whole tree");
    shut(runtime).await;
}
