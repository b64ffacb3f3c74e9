//! Interrupts: the stopped work, the unaffected work, and the inputs that resume the run.

use crate::support::*;

const INTERRUPTED: Outcome = Outcome::Interrupted { by: Initiator::Person };

struct Alive(Arc<AtomicUsize>);

impl Alive {
    fn one(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn child_of(journal: &Journal, session: &SessionHandle) -> SessionId {
    let heads = journal.heads().expect("heads");
    heads.into_iter().find(|(_, head)| head.parent == Some(session.id())).expect("a child").0
}

async fn results(journal: &Journal, session: SessionId) -> Vec<(CallEnd, String)> {
    let finished = |record| match record {
        Record::CallFinished(finished) => Some((finished.end, finished.content.to_string())),
        _ => None,
    };
    records(journal, session).await.into_iter().filter_map(finished).collect()
}

/// Answers the first turn with `first`, and each later one with its context.
async fn telling(request: Request, first: Answer) -> Result<Answer, ModelError> {
    if answers(&request) == 0 { Ok(first) } else { Ok(text(&kinds_of(&request).join(" "))) }
}

#[tokio::test(start_paused = true)]
async fn interrupt_drops_a_stream_at_once_and_ends_the_run() {
    let alive = Arc::new(AtomicUsize::new(0));
    let streams = Arc::clone(&alive);
    let answer = move |request: Request| {
        let stream = Alive::one(&streams);
        async move {
            if answers(&request) == 0 && kinds_of(&request).len() == 1 {
                seconds(60).await;
            }
            drop(stream);
            Ok(text(&kinds_of(&request).join(" ")))
        }
    };
    let runtime = builder(&journal()).model(model(answer)).start().await.expect("a runtime");
    let (session, _) = sent(&runtime, "one").await;
    seconds(5).await;
    assert_eq!(alive.load(Ordering::Relaxed), 1);
    let before = tokio::time::Instant::now();
    assert_eq!(session.interrupt().await, Ok(Control::Done(RunNo(1))));
    assert_eq!(end_of(&session, 1).await.outcome, INTERRUPTED);
    assert!(before.elapsed() < Duration::from_millis(100), "{:?}", before.elapsed());
    assert_eq!(alive.load(Ordering::Relaxed), 0, "the future was not dropped");
    let again = [session.interrupt().await, session.interrupt().await];
    let ended = || Ok(Control::AlreadyEnded(RunNo(1), INTERRUPTED));
    assert_eq!(again, [ended(), ended()]);
    session.send("two").await.expect("accepted");
    let next = end_of(&session, 2).await;
    assert_eq!(
        (next.outcome, next.text.as_deref()),
        (Outcome::Completed, Some("user user")),
        "the context is incomplete"
    );
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn session_without_a_run_has_nothing_to_interrupt() {
    let runtime = builder(&journal()).model(model(|_| async { Ok(text("done")) })).start().await.expect("a runtime");
    let session = open(&runtime);
    assert_eq!(session.interrupt().await, Ok(Control::NotFound));
    session.send("go").await.expect("accepted");
    end_of(&session, 1).await;
    assert_eq!(session.interrupt().await, Ok(Control::AlreadyEnded(RunNo(1), Outcome::Completed)));
    shut(runtime).await;
}

/// Starts a runtime whose first answer calls `work`, and a session in which that call has run for two seconds.
async fn at_work(journal: &Journal, work: FnTool) -> (Runtime, SessionHandle) {
    let answer = |request| telling(request, calls([("work", json!({}))]));
    let runtime = builder(journal).tools(tools([work])).model(model(answer)).start().await.expect("a runtime");
    let (session, _) = sent(&runtime, "go").await;
    seconds(2).await;
    (runtime, session)
}

fn works(effect: ToolEffect, for_seconds: u64, alive: &Arc<AtomicUsize>) -> FnTool {
    let alive = Arc::clone(alive);
    tool("work", effect, move |_| {
        let at = Alive::one(&alive);
        async move {
            seconds(for_seconds).await;
            drop(at);
            Ok(ToolOutput::text("worked"))
        }
    })
}

#[tokio::test(start_paused = true)]
async fn interrupt_drops_a_read_only_tool_at_once() {
    let (journal, alive) = (journal(), Arc::new(AtomicUsize::new(0)));
    let (runtime, session) = at_work(&journal, works(ToolEffect::ReadOnly, 60, &alive)).await;
    let before = tokio::time::Instant::now();
    assert_eq!(session.interrupt().await, Ok(Control::Done(RunNo(1))));
    assert_eq!(end_of(&session, 1).await.outcome, INTERRUPTED);
    assert!(before.elapsed() < Duration::from_millis(100), "{:?}", before.elapsed());
    assert_eq!(alive.load(Ordering::Relaxed), 0);
    let text = "Interrupted before it was done. Call it again if it is still needed.".to_owned();
    assert_eq!(results(&journal, session.id()).await, [(CallEnd::Interrupted, text)]);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn tool_with_side_effects_may_finish_within_the_grace() {
    let (journal, alive) = (journal(), Arc::new(AtomicUsize::new(0)));
    let (runtime, session) = at_work(&journal, works(ToolEffect::SideEffect, 4, &alive)).await;
    assert_eq!(session.interrupt().await, Ok(Control::Done(RunNo(1))));
    assert_eq!(session.interrupt().await, Ok(Control::Done(RunNo(1))), "a held run was not reported as interrupted");
    assert_eq!(end_of(&session, 1).await.outcome, INTERRUPTED);
    let text = "The run was interrupted, but this call finished:\nworked".to_owned();
    assert_eq!(results(&journal, session.id()).await, [(CallEnd::Interrupted, text)]);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn tool_with_side_effects_is_killed_after_the_grace() {
    let (journal, alive) = (journal(), Arc::new(AtomicUsize::new(0)));
    let (runtime, session) = at_work(&journal, works(ToolEffect::SideEffect, 60, &alive)).await;
    let before = tokio::time::Instant::now();
    assert_eq!(session.interrupt().await, Ok(Control::Done(RunNo(1))));
    assert_eq!(end_of(&session, 1).await.outcome, INTERRUPTED);
    let took = before.elapsed();
    assert!((Duration::from_secs(5)..Duration::from_secs(6)).contains(&took), "{took:?}");
    seconds(1).await;
    assert_eq!(alive.load(Ordering::Relaxed), 0, "the killed tool continued");
    let ends: Vec<CallEnd> = results(&journal, session.id()).await.into_iter().map(|(end, _)| end).collect();
    assert_eq!(ends, [CallEnd::UnknownEffects]);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn interrupt_grace_does_not_affect_later_calls() {
    let (journal, alive) = (journal(), Arc::new(AtomicUsize::new(0)));
    let work = works(ToolEffect::SideEffect, 4, &alive);
    let answer = |request: Request| async move {
        let turn = answers(&request);
        Ok(if turn < 2 { calls([("work", json!({}))]) } else { text(&kinds_of(&request).join(" ")) })
    };
    let runtime = builder(&journal).tools(tools([work])).model(model(answer)).start().await.expect("a runtime");
    let (session, _) = sent(&runtime, "go").await;
    seconds(2).await;
    assert_eq!(session.interrupt().await, Ok(Control::Done(RunNo(1))));
    session.send("on").await.expect("accepted");
    let ended = end_of(&session, 1).await;
    assert_eq!(ended.outcome, Outcome::Completed, "the input did not resume the run");
    assert_eq!(ended.text.as_deref(), Some("user assistant result user assistant result"));
    let ends: Vec<CallEnd> = results(&journal, session.id()).await.into_iter().map(|(end, _)| end).collect();
    assert_eq!(ends, [CallEnd::Interrupted, CallEnd::Ok]);
    shut(runtime).await;
}

/// Answers the root's first turn with `first`. Sessions below the root take a minute to answer.
async fn family(request: Request, first: Answer) -> Result<Answer, ModelError> {
    if prompt(&request) == "go" {
        return telling(request, first).await;
    }
    seconds(60).await;
    Ok(text("found"))
}

#[tokio::test(start_paused = true)]
async fn interrupt_cancels_a_blocking_child_with_its_subtree() {
    let journal = journal();
    let answer = |request: Request| async move {
        match (prompt(&request).as_str(), answers(&request)) {
            ("go", 0) => Ok(calls([task("delegate", false)])),
            ("delegate", 0) => Ok(calls([task("dig", false), task("lookup", true)])),
            _ => family(request, text("never")).await,
        }
    };
    let runtime = builder(&journal).model(model(answer)).start().await.expect("a runtime");
    let (session, _) = sent(&runtime, "go").await;
    seconds(5).await;
    assert_eq!(session.interrupt().await, Ok(Control::Done(RunNo(1))));
    assert_eq!(end_of(&session, 1).await.outcome, INTERRUPTED);
    let child = child_of(&journal, &session);
    let below = |outcome| Some(Outcome::Cancelled { by: Initiator::Owner { outcome } });
    assert_eq!(outcome_of(&journal, child).await, below(OutcomeKind::Interrupted));
    for (id, head) in journal.heads().expect("heads") {
        if head.parent == Some(child) {
            assert_eq!(
                outcome_of(&journal, id).await,
                below(OutcomeKind::Cancelled),
                "an owned run did not end with it"
            );
        }
    }
    assert_eq!(journal.heads().expect("heads").len(), 4);
    assert_eq!(journal.outbox().expect("outbox"), [], "the cancel row remained after the notice");
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn interrupted_child_waiting_for_a_slot_never_starts() {
    let called = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&called);
    let answer = move |request: Request| {
        if prompt(&request) != "go" {
            count.fetch_add(1, Ordering::Relaxed);
        }
        family(request, calls([task("a", true), task("b", false)]))
    };
    let limits = subtend_session::limits::Limits { live_runs: 1, ..Default::default() };
    let runtime = builder(&journal()).limits(limits).model(model(answer)).start().await.expect("a runtime");
    let (session, _) = sent(&runtime, "go").await;
    seconds(5).await;
    assert_eq!(session.interrupt().await, Ok(Control::Done(RunNo(1))));
    assert_eq!(end_of(&session, 1).await.outcome, INTERRUPTED);
    assert_eq!(called.load(Ordering::Relaxed), 1, "the background child lost its slot");
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn background_child_continues_and_its_notice_stays_unread() {
    let journal = journal();
    let called = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&called);
    let answer = move |request: Request| {
        if prompt(&request) == "go" {
            count.fetch_add(1, Ordering::Relaxed);
        }
        family(request, calls([task("dig", true)]))
    };
    let runtime = builder(&journal).model(model(answer)).start().await.expect("a runtime");
    let (session, _) = sent(&runtime, "go").await;
    seconds(5).await;
    let turns = called.load(Ordering::Relaxed);
    assert_eq!(session.interrupt().await, Ok(Control::Done(RunNo(1))));
    seconds(30).await;
    assert_eq!(session.interrupt().await, Ok(Control::Done(RunNo(1))), "the run was not held for its child");
    let ended = end_of(&session, 1).await;
    assert_eq!(ended.outcome, INTERRUPTED);
    assert_eq!(outcome_of(&journal, child_of(&journal, &session)).await, Some(Outcome::Completed));
    assert_eq!(called.load(Ordering::Relaxed), turns, "a session was woken");
    let all = kinds(&journal, session.id()).await;
    assert!(all.ends_with(&["run_held", "notice_taken", "run_ended"]), "{all:?}");
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn input_resumes_a_held_run_with_its_whole_context() {
    let journal = journal();
    let answer = |request| family(request, calls([task("dig", true), task("lookup", false)]));
    let runtime = builder(&journal).model(model(answer)).start().await.expect("a runtime");
    let (session, _) = sent(&runtime, "go").await;
    seconds(5).await;
    assert_eq!(session.interrupt().await, Ok(Control::Done(RunNo(1))));
    seconds(10).await;
    let receipt = session.send("leave that").await.expect("accepted");
    assert_eq!(receipt.run, RunNo(1), "the held run did not take the input");
    let ended = end_of(&session, 1).await;
    let received = "user assistant result result user assistant notice";
    assert_eq!((ended.outcome, ended.text.as_deref()), (Outcome::Completed, Some(received)));
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn child_is_interrupted_alone_and_its_owner_is_notified() {
    let journal = journal();
    let answer = |request| family(request, calls([task("dig", false)]));
    let runtime = builder(&journal).model(model(answer)).start().await.expect("a runtime");
    let (session, _) = sent(&runtime, "go").await;
    seconds(5).await;
    let child = runtime.session(child_of(&journal, &session)).expect("readable").expect("the session exists");
    assert_eq!(child.interrupt().await, Ok(Control::Done(RunNo(1))));
    let ended = end_of(&session, 1).await;
    assert_eq!((ended.outcome, ended.text.as_deref()), (Outcome::Completed, Some("user assistant result")));
    assert_eq!(outcome_of(&journal, child.id()).await, Some(INTERRUPTED));
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn cancel_ends_runs_that_an_interrupt_spared() {
    let journal = journal();
    let answer = |request| family(request, calls([task("dig", true)]));
    let runtime = builder(&journal).model(model(answer)).start().await.expect("a runtime");
    let (session, _) = sent(&runtime, "go").await;
    seconds(5).await;
    assert_eq!(session.interrupt().await, Ok(Control::Done(RunNo(1))));
    assert_eq!(session.cancel().await, Ok(Control::Done(RunNo(1))));
    assert_eq!(end_of(&session, 1).await.outcome, Outcome::Cancelled { by: Initiator::Person });
    let by = Initiator::Owner { outcome: OutcomeKind::Cancelled };
    assert_eq!(outcome_of(&journal, child_of(&journal, &session)).await, Some(Outcome::Cancelled { by }));
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn interrupt_racing_the_end_reports_that_end() {
    for pause_ms in [9, 10, 11] {
        let journal = journal();
        let answer = |_| async {
            tokio::time::sleep(Duration::from_millis(10)).await;
            Ok(text("done"))
        };
        let runtime = builder(&journal).model(model(answer)).start().await.expect("a runtime");
        let (session, _) = sent(&runtime, "go").await;
        tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        let (interrupted, again) = tokio::join!(session.interrupt(), session.interrupt());
        let ended = end_of(&session, 1).await.outcome;
        for answer in [interrupted, again] {
            match answer.expect("answered") {
                Control::Done(run) => assert_eq!((run, &ended), (RunNo(1), &INTERRUPTED)),
                Control::AlreadyEnded(run, outcome) => assert_eq!((run, outcome), (RunNo(1), ended.clone())),
                Control::NotFound => panic!("the run was not found"),
            }
        }
        shut(runtime).await;
    }
}

/// The owner's actor dies with its interrupt in the log but before its effects; a child's dies before it handles the interrupt.
#[cfg(feature = "fault-points")]
#[tokio::test(start_paused = true)]
async fn panic_keeps_the_interrupt_and_its_cause() {
    use subtend_actors::faults::{Faults, Point};

    for (point, detail) in [(Point::AfterAppend, "cancel_asked"), (Point::Handler, "owner_cancels")] {
        let journal = journal();
        let struck = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&struck);
        let faults = Faults::new(move |at, what| {
            if at == point && what == detail && count.fetch_add(1, Ordering::Relaxed) == 0 {
                panic!("injected fault at {detail}");
            }
        });
        let alive = Arc::new(AtomicUsize::new(0));
        let work = works(ToolEffect::ReadOnly, 60, &alive);
        let first = || calls([task("dig", false), task("lookup", true), ("work", json!({}))]);
        let answer = move |request| family(request, first());
        let builder = builder(&journal).faults(faults).tools(tools([work])).model(model(answer));
        let runtime = builder.start().await.expect("a runtime");
        let (session, _) = sent(&runtime, "go").await;
        seconds(5).await;
        // The reply may be lost with the actor.
        drop(session.interrupt().await);
        seconds(10).await;
        assert_eq!(
            session.interrupt().await,
            Ok(Control::Done(RunNo(1))),
            "{detail}: the run was not held for its background child"
        );
        assert_eq!((struck.load(Ordering::Relaxed) > 0, alive.load(Ordering::Relaxed)), (true, 0), "{detail}");
        assert_eq!(end_of(&session, 1).await.outcome, INTERRUPTED, "{detail}");
        let mut ends = Vec::new();
        for (id, head) in journal.heads().expect("heads") {
            if head.parent.is_some() {
                ends.extend(outcome_of(&journal, id).await);
            }
        }
        let by = Initiator::Owner { outcome: OutcomeKind::Interrupted };
        ends.sort_by_key(Outcome::kind);
        assert_eq!(ends, [Outcome::Completed, Outcome::Cancelled { by }], "{detail}");
        shut(runtime).await;
    }
}

#[tokio::test(start_paused = true)]
async fn host_restart_ends_a_held_run_as_interrupted() {
    let memory = Memory::new();
    let journal = reopen(&memory);
    let answer = |request| family(request, calls([task("dig", true)]));
    let runtime = builder(&journal).model(model(answer)).start().await.expect("a runtime");
    let (session, _) = sent(&runtime, "go").await;
    seconds(5).await;
    assert_eq!(session.interrupt().await, Ok(Control::Done(RunNo(1))));
    journal.settled().await.expect("the journal is open");
    drop((runtime, journal));

    let journal = reopen(&memory);
    let runtime = builder(&journal).model(model(answer)).start().await.expect("a runtime");
    assert_eq!(runtime.boot().swept, 2);
    assert_eq!(outcome_of(&journal, child_of(&journal, &session)).await, Some(Outcome::Lost));
    let session = runtime.session(session.id()).expect("readable").expect("the session exists");
    assert_eq!(end_of(&session, 1).await.outcome, INTERRUPTED);
    session.send("continue").await.expect("accepted");
    let next = end_of(&session, 2).await;
    let received = next.text.expect("an answer");
    assert!(received.ends_with("notice user"), "{received}: the lost end did not precede the input");
    shut(runtime).await;
}
