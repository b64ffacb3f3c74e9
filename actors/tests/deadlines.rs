//! Every deadline, its clock, and the cause that it records (S-8).
//!
//! | deadline | counts | ends |
//! |---|---|---|
//! | run | working time | the owned run |
//! | queue | time in which no slot of its root was granted | the queued run |
//! | turn | one model call with all its attempts | the run |
//! | call | one local tool | the call |
//! | check | one wait for a task | the wait |
//! | ask | one wait for an approval | the call, denied |
//! | grace | the time after a stop | the work, not the cause |
//! | wall cap | wall clock | the run, and all runs it owns (E-4) |

use crate::support::*;

fn timed_out(what: TimeLimit) -> Outcome {
    Outcome::TimedOut { what }
}

/// Returns an answer that leads to another turn: its call is refused at once.
fn again() -> Answer {
    calls([("nothing", json!({}))])
}

async fn children(runtime: &Runtime, session: SessionId) -> Vec<SessionHandle> {
    let kids = runtime.journal().children(session).expect("children");
    kids.into_iter().map(|kid| runtime.session(kid).expect("readable").expect("the session exists")).collect()
}

async fn outcomes(runtime: &Runtime, session: SessionId) -> Vec<Outcome> {
    let ended = |record| match record {
        Record::RunEnded(ended) => Some(ended.outcome),
        _ => None,
    };
    records(runtime.journal(), session).await.into_iter().filter_map(ended).collect()
}

/// Returns the working time of each ended run, in milliseconds.
async fn worked(journal: &Journal, session: SessionId) -> Vec<u64> {
    let ended = |record| match record {
        Record::RunEnded(ended) => Some(ended.worked_ms),
        _ => None,
    };
    records(journal, session).await.into_iter().filter_map(ended).collect()
}

async fn ends(runtime: &Runtime, session: SessionId) -> Vec<CallEnd> {
    let finished = |record| match record {
        Record::CallFinished(finished) => Some(finished.end),
        _ => None,
    };
    records(runtime.journal(), session).await.into_iter().filter_map(finished).collect()
}

#[tokio::test(start_paused = true)]
async fn run_counts_the_work_of_owned_runs_but_not_their_waits() {
    let journal = journal();
    let answer = |request: Request| async move {
        match (prompt(&request).as_str(), answers(&request)) {
            ("root", 0) => return Ok(calls([task("child", false)])),
            ("child", 0) => return Ok(calls([task("grandchild", false)])),
            _ => {}
        }
        seconds(100).await;
        match (prompt(&request).as_str(), answers(&request)) {
            ("root", n) if n < 8 => Ok(again()),
            ("grandchild", n) if n < 3 => Ok(again()),
            ("child", _) => Ok(again()),
            _ => Ok(text("done")),
        }
    };
    let runtime = builder(&journal).model(model(answer)).start().await.expect("a runtime");
    let begun = Instant::now();
    let (session, ended) = ask(&runtime, "root").await;
    assert_eq!(ended.outcome, Outcome::Completed, "a person's run was limited");
    // Expected: 400 s of waiting for the grandchild, 480 s of work of the child, 800 s of work of the root.
    assert_eq!(begun.elapsed().as_secs(), 400 + 480 + 800);
    let child = &children(&runtime, session.id()).await[0];
    assert_eq!(outcomes(&runtime, child.id()).await, [timed_out(TimeLimit::Run)]);
    let grandchild = &children(&runtime, child.id()).await[0];
    assert_eq!(outcomes(&runtime, grandchild.id()).await, [Outcome::Completed]);
    shut(runtime).await;
}

/// A queued message opens the next run in the decision that ends the previous one.
#[tokio::test(start_paused = true)]
async fn k4_each_run_counts_its_own_work() {
    let journal = journal();
    let answer = |_| async move {
        seconds(100).await;
        Ok(text("done"))
    };
    let limits = Limits { run_ms: Some(150_000), ..Limits::default() };
    let runtime = builder(&journal).model(model(answer)).limits(limits).start().await.expect("a runtime");
    // The limit applies to each run of a task, with any owner.
    let first = runtime.spawn_task("worker", "first").await.expect("started");
    let session = first.session();
    let second = session.send("second").await.expect("accepted").run;
    let ended = session.run_ended(second).await.expect("ended");
    assert_eq!((second, ended.outcome), (RunNo(2), Outcome::Completed));
    assert_eq!(worked(&journal, session.id()).await, [100_000, 100_000]);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn queue_time_counts_from_the_last_slot_of_its_root() {
    let journal = journal();
    let answer = |request: Request| async move {
        match (prompt(&request).as_str(), answers(&request)) {
            // One at a time: the ninth never ends, and three are queued behind it.
            ("root", 0) => Ok(calls((1..=12).map(|ix| task(if ix == 9 { "forever" } else { "work" }, true)))),
            ("root", _) => Ok(text("waiting")),
            (message, _) => {
                seconds(100).await;
                Ok(if message == "work" { text("done") } else { again() })
            }
        }
    };
    let limits = Limits { live_runs: 1, run_ms: Some(2_000_000), ..Limits::default() };
    let runtime = builder(&journal).model(model(answer)).limits(limits).start().await.expect("a runtime");
    let session = open(&runtime);
    let begun = Instant::now();
    let receipt = session.send("root").await.expect("accepted");
    seconds(1).await;
    let mut ended = Vec::new();
    let waits = children(&runtime, session.id()).await.into_iter().map(|child| async move {
        let ended = child.run_ended(RunNo(1)).await.expect("ended");
        (ended.outcome, begun.elapsed().as_secs(), ended.turns)
    });
    for wait in waits.map(tokio::spawn).collect::<Vec<_>>() {
        ended.push(wait.await.unwrap());
    }
    ended.sort_by_key(|(_, at, _)| *at);
    let moved: Vec<_> = (1..=8).map(|n| (Outcome::Completed, n * 100, 1)).collect();
    assert_eq!(ended[..8], moved, "the queue moved, and the last of these waited for 700 s");
    // The ninth got the last slot after 800 s: those behind it wait for 600 s from then, and never work.
    let stuck = (timed_out(TimeLimit::Queue), 1_400, 0);
    assert_eq!(ended[8..11], [stuck.clone(), stuck.clone(), stuck]);
    assert_eq!((&ended[11].0, ended[11].1), (&timed_out(TimeLimit::Run), 2_800));
    session.run_ended(receipt.run).await.expect("ended");
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn turn_deadline_ends_an_endless_stream() {
    let talks = fn_model("talks", |_, deltas| async move {
        loop {
            seconds(30).await;
            deltas.send(Delta::Text("and ".into()));
        }
        #[expect(unreachable_code, reason = "the type of a model")]
        Ok::<_, ModelError>(text("never"))
    });
    let runtime = builder(&journal()).model(Arc::new(talks)).start().await.expect("a runtime");
    let begun = Instant::now();
    let (_, ended) = ask(&runtime, "go").await;
    assert_eq!((ended.outcome, begun.elapsed().as_secs()), (timed_out(TimeLimit::Turn), 600));
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn turn_deadline_covers_all_attempts() {
    let journal = journal();
    let answer = |_| async {
        seconds(100).await;
        Err(ModelError::new(subtend_session::outcome::ModelFail::Unavailable, "503"))
    };
    let limits = Limits { attempts: 100, ..Limits::default() };
    let runtime = builder(&journal).model(model(answer)).limits(limits).start().await.expect("a runtime");
    let begun = Instant::now();
    let (_, ended) = ask(&runtime, "go").await;
    assert_eq!((ended.outcome, begun.elapsed().as_secs()), (timed_out(TimeLimit::Turn), 600));
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn call_deadline_ends_the_tool_and_the_run_continues() {
    let journal = journal();
    let hangs = |name, effect| tool(name, effect, |_| std::future::pending());
    let registry = tools([hangs("reads", ToolEffect::ReadOnly), hangs("writes", ToolEffect::SideEffect)]);
    let answer = |request: Request| async move {
        Ok(match answers(&request) {
            0 => calls([("reads", json!({}))]),
            1 => calls([("writes", json!({}))]),
            _ => text("done"),
        })
    };
    let runtime = builder(&journal).tools(registry).model(model(answer)).start().await.expect("a runtime");
    let begun = Instant::now();
    let (session, ended) = ask(&runtime, "go").await;
    assert_eq!((ended.outcome, begun.elapsed().as_secs()), (Outcome::Completed, 240));
    assert_eq!(ends(&runtime, session.id()).await, [CallEnd::TimedOut, CallEnd::TimedOut]);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn check_deadline_ends_the_wait_and_not_the_task() {
    let journal = journal();
    let answer = |request: Request| async move {
        match (prompt(&request).as_str(), answers(&request)) {
            ("root", 0) => Ok(calls([task("child", true)])),
            ("root", 1) => Ok(calls([("check_task", json!({"taskId": short(&request)}))])),
            ("root", _) => Ok(text("rest")),
            (_, n) if n < 3 => {
                seconds(100).await;
                Ok(again())
            }
            (_, _) => {
                seconds(100).await;
                Ok(text("done"))
            }
        }
    };
    let runtime = builder(&journal).model(model(answer)).start().await.expect("a runtime");
    let begun = Instant::now();
    let (session, receipt) = sent(&runtime, "root").await;
    seconds(301).await;
    assert_eq!(ends(&runtime, session.id()).await.last(), Some(&CallEnd::TimedOut));
    let ended = session.run_ended(receipt.run).await.expect("ended");
    assert_eq!((ended.outcome, begun.elapsed().as_secs()), (Outcome::Completed, 400), "the end did not wake it");
    let child = &children(&runtime, session.id()).await[0];
    assert_eq!(outcomes(&runtime, child.id()).await, [Outcome::Completed]);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn ask_is_denied_without_an_answer_in_time() {
    let journal = journal();
    let asks = RuleSet {
        default: Verdict::Allow,
        rules: vec![Rule { action: "make".into(), resource: "*".into(), verdict: Verdict::Ask }],
    };
    let make = tool("make", ToolEffect::SideEffect, |_| async { Ok(ToolOutput::text("made")) });
    let make = make.access(|_| vec![Access { action: "make".into(), resource: "it".into() }]);
    let answer = |request: Request| async move {
        Ok(if answers(&request) == 0 { calls([("make", json!({}))]) } else { text("done") })
    };
    let runtime = started(builder(&journal).policy(asks).tools(tools([make])).model(model(answer))).await;
    let approver = runtime.approver();
    let begun = Instant::now();
    let (session, ended) = ask(&runtime, "go").await;
    assert_eq!((ended.outcome, begun.elapsed().as_secs()), (Outcome::Completed, 300));
    assert_eq!(ends(&runtime, session.id()).await, [CallEnd::Denied]);
    let answered = records(&journal, session.id()).await.into_iter().find_map(|record| match record {
        Record::AskAnswered { verdict, by, .. } => Some((verdict, by)),
        _ => None,
    });
    assert_eq!(answered, Some((AskVerdict::Deny, AnsweredBy::Deadline)));
    assert_eq!(worked(&journal, session.id()).await, [0], "the wait for an approval counted as work");
    drop(approver);
    shut(runtime).await;
}

/// Returns a policy and tools: `make` and `look` need an approval, the other tools do not.
fn partly_asked() -> (RuleSet, Registry) {
    let rule = |action: &str| Rule { action: action.into(), resource: "*".into(), verdict: Verdict::Ask };
    let works = |name, effect| {
        tool(name, effect, |_| async {
            seconds(1).await;
            Ok(ToolOutput::text("done"))
        })
    };
    let named = |name: &'static str, effect| {
        works(name, effect).access(move |_| vec![Access { action: name.into(), resource: "it".into() }])
    };
    let asking = RuleSet { default: Verdict::Allow, rules: vec![rule("make"), rule("look")] };
    let registry = tools([
        named("make", ToolEffect::SideEffect),
        named("look", ToolEffect::ReadOnly),
        works("write", ToolEffect::SideEffect),
        works("read", ToolEffect::ReadOnly),
    ]);
    (asking, registry)
}

/// Runs one answer with the calls `names`, by the root or by a child. The approver answers each ask after 100 s.
async fn worked_behind_asks(names: &'static [&'static str], by_child: bool) -> Vec<Vec<u64>> {
    let journal = journal();
    let (asking, registry) = partly_asked();
    let answer = move |request: Request| async move {
        seconds(1).await;
        let first = prompt(&request).as_str() == if by_child { "child" } else { "go" };
        Ok(match answers(&request) {
            0 if first => calls(names.iter().map(|name| (*name, json!({})))),
            0 => calls([task("child", false)]),
            _ => text("done"),
        })
    };
    let runtime = started(builder(&journal).policy(asking).tools(registry).model(model(answer))).await;
    let mut approver = runtime.approver();
    let (session, receipt) = sent(&runtime, "go").await;
    for _ in names.iter().filter(|name| ["make", "look"].contains(*name)) {
        let approval = approver.next().await;
        seconds(100).await;
        approver.answer(&approval, AskVerdict::Allow).await.expect("answered");
    }
    assert_eq!(session.run_ended(receipt.run).await.expect("ended").outcome, Outcome::Completed);
    let mut all = vec![worked(&journal, session.id()).await];
    for child in children(&runtime, session.id()).await {
        all.push(worked(&journal, child.id()).await);
    }
    drop(approver);
    shut(runtime).await;
    all
}

#[tokio::test(start_paused = true)]
async fn approval_wait_is_not_work_even_with_calls_behind_it() {
    // Two model calls take 2 s, a tool takes 1 s. Writes run one at a time; reads run while an approval is pending.
    for (names, seconds) in [
        (&["make"][..], 3),
        (&["make", "write"], 4),
        (&["make", "write", "write"], 5),
        (&["write", "make", "write"], 5),
        (&["write", "make"], 4),
        (&["make", "read"], 4),
        (&["read", "look"], 4),
        (&["make", "make"], 4),
        (&["look", "make", "write"], 5),
    ] {
        let root = worked_behind_asks(names, false).await;
        assert_eq!(root, [[seconds * 1_000]], "the root calls {names:?}");
        let child = worked_behind_asks(names, true).await;
        assert_eq!(child, [[2_000], [seconds * 1_000]], "a child calls {names:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn session_with_calls_behind_an_approval_is_unloaded() {
    let journal = journal();
    let (asking, registry) = partly_asked();
    let answer = |request: Request| async move {
        Ok(if answers(&request) == 0 { calls([("make", json!({})), ("write", json!({}))]) } else { text("done") })
    };
    let runtime = started(
        builder(&journal)
            .policy(asking)
            .tools(registry)
            .model(model(answer))
            .options(Options { idle: Duration::from_secs(10), ..Options::default() }),
    )
    .await;
    let mut approver = runtime.approver();
    let (session, receipt) = sent(&runtime, "go").await;
    let approval = approver.next().await;
    seconds(100).await;
    assert_eq!(runtime.loaded_sessions(), 0, "the waiting session kept its actor");
    approver.answer(&approval, AskVerdict::Allow).await.expect("answered");
    assert_eq!(session.run_ended(receipt.run).await.expect("ended").outcome, Outcome::Completed);
    assert_eq!(ends(&runtime, session.id()).await, [CallEnd::Ok, CallEnd::Ok]);
    assert_eq!(worked(&journal, session.id()).await, [2_000]);
    drop(approver);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn grace_ends_the_work_and_keeps_the_cause() {
    let journal = journal();
    let hangs = tool("writes", ToolEffect::SideEffect, |_| std::future::pending());
    let answer = |request: Request| async move {
        Ok(if answers(&request) == 0 { calls([("writes", json!({}))]) } else { text("never") })
    };
    let runtime = builder(&journal).tools(tools([hangs])).model(model(answer)).start().await.expect("a runtime");
    let (session, receipt) = sent(&runtime, "go").await;
    seconds(10).await;
    let begun = Instant::now();
    assert_eq!(session.cancel().await, Ok(Control::Done(receipt.run)));
    let ended = session.run_ended(receipt.run).await.expect("ended");
    assert_eq!((ended.outcome, begun.elapsed().as_secs()), (Outcome::Cancelled { by: Initiator::Person }, 5));
    assert_eq!(ends(&runtime, session.id()).await, [CallEnd::UnknownEffects]);
    shut(runtime).await;
}

async fn caps(runtime: &Runtime, session: SessionId) -> Vec<Option<i64>> {
    let opened = |record| match record {
        Record::RunOpened(opened) => Some(opened.wall_cap_at),
        _ => None,
    };
    records(runtime.journal(), session).await.into_iter().filter_map(opened).collect()
}

#[tokio::test(start_paused = true)]
async fn wall_cap_binds_owned_queued_and_continued_runs() {
    let journal = journal();
    let answer = |request: Request| async move {
        let requested = last_user(&request);
        match (prompt(&request).as_str(), answers(&request)) {
            ("root", 0) => Ok(calls([task("first", true)])),
            ("root", 1) => Ok(text("waiting")),
            ("root", 2) => {
                let more = json!({"session_id": short(&request), "prompt": "more", "background": true});
                Ok(calls([("task", more), task("second", true)]))
            }
            ("root", _) => Ok(text("waiting")),
            ("first", _) if requested == "first" => {
                seconds(10).await;
                Ok(text("done"))
            }
            ("first", _) if requested == "and for me?" => {
                seconds(90).await;
                Ok(text("for a person"))
            }
            (_, _) => {
                seconds(50).await;
                Ok(again())
            }
        }
    };
    let limits = Limits { wall_ms: Some(100_000), live_runs: 1, run_ms: None, ..Limits::default() };
    let runtime = builder(&journal).model(model(answer)).limits(limits).start().await.expect("a runtime");
    let begun = Instant::now();
    let (session, ended) = ask(&runtime, "root").await;
    assert_eq!((ended.outcome, begun.elapsed().as_secs()), (timed_out(TimeLimit::WallCap), 100));
    let cap = caps(&runtime, session.id()).await[0];
    assert!(cap.is_some());
    let children = children(&runtime, session.id()).await;
    let (first, second) = (&children[0], &children[1]);
    assert_eq!(caps(&runtime, first.id()).await, [cap, cap], "the continued run does not have its owner's cap");
    assert_eq!(caps(&runtime, second.id()).await, [cap]);
    let capped = |outcome: &Outcome| {
        *outcome == timed_out(TimeLimit::WallCap)
            || *outcome == Outcome::Cancelled { by: Initiator::Owner { outcome: OutcomeKind::TimedOut } }
    };
    let ends = outcomes(&runtime, first.id()).await;
    assert!(ends[0] == Outcome::Completed && capped(&ends[1]), "{ends:?}");
    assert!(capped(&outcomes(&runtime, second.id()).await[0]));
    let started = kinds(&journal, first.id()).await.into_iter().filter(|kind| *kind == "run_started").count();
    assert_eq!(started, 1, "the continued run did not queue behind the other child");
    // A person's run in the child has a cap of its own.
    let receipt = first.send("and for me?").await.expect("accepted");
    let ended = first.run_ended(receipt.run).await.expect("ended");
    assert_eq!(ended.outcome, Outcome::Completed);
    assert!(caps(&runtime, first.id()).await[2] > cap);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn d6_tool_reports_that_its_effects_are_unknown() {
    let journal = journal();
    let lost =
        tool("writes", ToolEffect::SideEffect, |_| async { Err(ToolError::unknown_effects("the worker was lost")) });
    let answer = |request: Request| async move {
        Ok(if answers(&request) == 0 { calls([("writes", json!({}))]) } else { text("noted") })
    };
    let runtime = builder(&journal).tools(tools([lost])).model(model(answer)).start().await.expect("a runtime");
    let (session, receipt) = sent(&runtime, "go").await;
    assert_eq!(session.run_ended(receipt.run).await.expect("ended").outcome, Outcome::Completed);
    assert_eq!(ends(&runtime, session.id()).await, [CallEnd::UnknownEffects]);
    shut(runtime).await;
}
