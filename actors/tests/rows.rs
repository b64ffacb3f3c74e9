//! Continues, cancels and people's controls under faults: a panic at every point and a crash at every write do not change outcomes.

use crate::support::*;
use subtend_session::index::RowKind;

async fn end_of(session: &SessionHandle, run: u32) -> Option<Ended> {
    let ended = tokio::time::timeout(Duration::from_secs(7200), session.run_ended(RunNo(run))).await;
    ended.expect("the run ends").ok()
}

/// The owner continues an ended task, cancels it, and checks the result. Answers take a moment, so no input is lost.
async fn managing(request: Request) -> Result<Answer, ModelError> {
    tokio::time::sleep(Duration::from_millis(1)).await;
    let child = || short(&request);
    match (prompt(&request).as_str(), answers(&request), last_user(&request).as_str()) {
        ("parent", 0, _) => Ok(calls([task("child", true)])),
        ("parent", 1, _) => Ok(text("waiting")),
        ("parent", 2, _) => Ok(calls([("task", json!({"session_id": child(), "prompt": "on", "background": true}))])),
        ("parent", 3, _) => Ok(calls([("cancel_task", json!({"taskId": child()}))])),
        ("parent", 4, _) => Ok(calls([("check_task", json!({"taskId": child()}))])),
        ("parent", 5, _) => Ok(calls([("task", json!({"session_id": child(), "prompt": "again"}))])),
        ("parent", ..) => Ok(text("done")),
        ("child", _, "on") => {
            seconds(3_000).await;
            Ok(text("never"))
        }
        _ => Ok(text("found")),
    }
}

/// Returns the outcomes of all runs of all sessions of the journal, the root's first.
async fn outcomes(journal: &Journal) -> Vec<Vec<Outcome>> {
    let mut all = Vec::new();
    for (id, head) in journal.heads().expect("heads") {
        let ends = records(journal, id).await.into_iter().filter_map(|record| match record {
            Record::RunEnded(ended) => Some(ended.outcome),
            _ => None,
        });
        all.push((head.parent.is_some(), head.created_ms, id, ends.collect()));
    }
    all.sort_by_key(|(child, created, id, _): &(bool, i64, SessionId, Vec<Outcome>)| (*child, *created, *id));
    all.into_iter().map(|(.., ends)| ends).collect()
}

/// Returns faults that panic at the `n`-th point, once.
fn at(n: usize) -> (Faults, Arc<Mutex<Vec<String>>>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let points = Arc::clone(&seen);
    let faults = Faults::new(move |point, detail| {
        let mut points = points.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        points.push(format!("{point:?} {detail}"));
        let struck = points.len() == n;
        drop(points);
        assert!(!struck, "injected fault at {detail}");
    });
    (faults, seen)
}

fn limits() -> Limits {
    // The cancelled task would take longer than its model may be silent.
    Limits { first_byte_ms: u64::MAX, turn_ms: u64::MAX, ..Limits::default() }
}

#[tokio::test(start_paused = true)]
async fn panics_change_no_effect_of_a_models_call() {
    let mut met: BTreeMap<String, usize> = BTreeMap::new();
    for n in 0.. {
        let journal = journal();
        let (faults, seen) = at(n);
        let runtime = started(builder(&journal).limits(limits()).model(model(managing)).faults(faults)).await;
        let (session, receipt) = sent(&runtime, "parent").await;
        let ended = end_of(&session, receipt.run.0).await.expect("the runtime is running");
        let struck = seen.lock().unwrap().get(n.wrapping_sub(1)).cloned();
        let at = struck.clone().unwrap_or_default();
        assert_eq!((ended.outcome, ended.text.as_deref()), (Outcome::Completed, Some("done")), "{n}: {at}");
        let found = outcomes(&journal).await;
        let by = Initiator::Model { call: CallId { turn: TurnNo(4), ix: 0 } };
        let child = vec![Outcome::Completed, Outcome::Cancelled { by }, Outcome::Completed];
        assert_eq!(found, [vec![Outcome::Completed], child], "{n}: {at}");
        assert_eq!((journal.outbox().unwrap(), journal.inflight().unwrap()), (Vec::new(), Vec::new()), "{n}: {at}");
        assert_eq!((runtime.stats().slots, runtime.stats().tokens), (0, 0), "{n}: {at}");
        shut(runtime).await;
        if n > 0 {
            let Some(struck) = struck else { break };
            *met.entry(struck).or_default() += 1;
        }
    }
    for point in [
        "Handler continue",
        "Handler owner_cancels",
        "Handler spawn",
        "AfterAppend continue_asked",
        "AfterAppend run_opened",
        "AfterAppend run_ended",
    ] {
        assert!(met.contains_key(point), "{point} was never struck: {met:?}");
    }
}

/// Plays a root with one long blocking task; everything else is answered soon.
async fn quick(request: Request) -> Result<Answer, ModelError> {
    tokio::time::sleep(Duration::from_millis(1)).await;
    match (prompt(&request).as_str(), answers(&request)) {
        ("parent", 0) => Ok(calls([task("child", false)])),
        ("child", 0) => {
            seconds(60).await;
            Ok(text("found"))
        }
        ("parent", 1) => Ok(text("moved")),
        _ => Ok(text("done")),
    }
}

/// Applies each control of a person once; stops if the host dies.
async fn controls(runtime: &Runtime, session: &SessionHandle) -> Option<()> {
    session.send("parent").await.ok()?;
    seconds(5).await;
    let started = |record| match record {
        Record::CallStarted { call, kind, .. } if matches!(*kind, CallKind::Child(_)) => Some(call),
        _ => None,
    };
    let stored = runtime.journal().records(session.id()).ok()?;
    let call = stored.into_iter().find_map(|stored| started(stored.record))?;
    let child = runtime.journal().children(session.id()).ok()?[0];
    let child = runtime.session(child).ok()??;
    assert_eq!(session.background(call).await.ok()?, Control::Done(RunNo(1)));
    seconds(2).await;
    let steered = child.send("one more thing").await.ok()?;
    let waits = child.send("and another").await.ok()?;
    assert_eq!(child.queue().await.ok()?.len(), 2);
    assert!(child.queue_remove(waits.input).await.ok()?);
    assert_eq!(steered.run, RunNo(2), "a run of a model took a message");
    // A control that was applied but whose reply was lost gets the reply of a repeated one.
    assert!(child.cancel_tree().await.ok()? <= 1);
    end_of(&child, 1).await?;
    assert_eq!(child.queue().await.ok()?.len(), 1, "the queued input is missing");
    assert!(child.queue_clear().await.ok()? <= 1);
    end_of(session, 1).await?;
    child.close().await.ok()?;
    session.continue_with(None).await.ok()?;
    end_of(session, 2).await?;
    child.delete(false).await.ok()?;
    session.delete(true).await.ok().map(drop)
}

#[tokio::test(start_paused = true)]
async fn panics_change_no_effect_of_a_persons_command() {
    let mut met: BTreeMap<String, usize> = BTreeMap::new();
    for n in 0.. {
        let journal = journal();
        let (faults, seen) = at(n);
        let runtime = builder(&journal).model(model(quick)).faults(faults).start().await.expect("a runtime");
        let session = open(&runtime);
        let done = controls(&runtime, &session).await;
        let struck = seen.lock().unwrap().get(n.wrapping_sub(1)).cloned();
        let at = struck.clone().unwrap_or_default();
        assert_eq!(done, Some(()), "{n}: {at}");
        let by_person = Outcome::Cancelled { by: Initiator::Person };
        let ends = [vec![Outcome::Completed, Outcome::Completed], vec![by_person]];
        assert_eq!(outcomes(&journal).await, ends, "{n}: {at}");
        assert!(journal.heads().expect("heads").iter().all(|(_, head)| head.deleted), "{n}: {at}");
        assert_eq!((journal.outbox().unwrap(), journal.inflight().unwrap()), (Vec::new(), Vec::new()), "{n}: {at}");
        shut(runtime).await;
        if n > 0 {
            let Some(struck) = struck else { break };
            *met.entry(struck).or_default() += 1;
        }
    }
    for point in [
        "Handler background",
        "Handler change_queue",
        "Handler cancel",
        "Handler close",
        "Handler delete",
        "AfterAppend queue_changed",
        "AfterAppend session_closed",
        "AfterAppend session_deleted",
    ] {
        assert!(met.contains_key(point), "{point} was never struck: {met:?}");
    }
}

/// Runs `scenario` until the `n`-th write fails, restarts on the store, and returns whether that write was reached.
async fn killed<F, Fut>(
    n: u64,
    answer: fn(Request) -> F,
    scenario: impl FnOnce(Arc<Runtime>, SessionHandle) -> Fut,
) -> bool
where
    F: Future<Output = Result<Answer, ModelError>> + Send + 'static,
    Fut: Future<Output = ()>,
{
    let memory = Memory::new();
    let (faulty, faults) = Faulty::new(Box::new(memory.clone()));
    faults.fail_write(n);
    let first = on(Box::new(faulty));
    if let Ok(runtime) = builder(&first).limits(limits()).model(model(answer)).start().await {
        let runtime = Arc::new(runtime);
        let session = runtime.open("worker").ok();
        if let Some(session) = session {
            scenario(Arc::clone(&runtime), session).await;
        }
        let runtime = Arc::into_inner(runtime).expect("no other owner of the runtime");
        runtime.shutdown(Duration::from_secs(1)).await;
    }
    let writes = faults.writes();
    drop(first);
    let journal = on(Box::new(memory));
    let runtime =
        builder(&journal).limits(limits()).model(model(answer)).start().await.expect("the runtime starts again");
    seconds(7_200).await;
    assert_eq!((journal.outbox().unwrap(), journal.inflight().unwrap()), (Vec::new(), Vec::new()), "write {n}");
    for ends in outcomes(&journal).await {
        let fine = ends.iter().all(|end| match end {
            Outcome::Completed
            | Outcome::Lost
            | Outcome::Cancelled { by: Initiator::Person | Initiator::Model { .. } | Initiator::Sweep } => true,
            // Continued but not opened when the host died: its owner was lost.
            Outcome::Cancelled { by: Initiator::Owner { outcome } } => *outcome == OutcomeKind::Lost,
            _ => false,
        });
        assert!(fine, "write {n}: {ends:?}");
    }
    shut(runtime).await;
    writes >= n
}

#[tokio::test(start_paused = true)]
async fn host_crash_at_any_write_leaves_every_owner_an_answer() {
    let mut n = 1;
    let scenario = |_: Arc<Runtime>, session: SessionHandle| async move {
        if let Ok(receipt) = session.send("parent").await {
            end_of(&session, receipt.run.0).await;
        }
    };
    while killed(n, managing, scenario).await {
        n += 1;
    }
    assert!(n > 12, "only {n} writes");
    let scenario = |runtime: Arc<Runtime>, session: SessionHandle| async move {
        controls(&runtime, &session).await;
    };
    n = 1;
    while killed(n, quick, scenario).await {
        n += 1;
    }
    assert!(n > 12, "only {n} writes");
}

/// The child never handles its row, since its owner's host dies first.
#[tokio::test(start_paused = true)]
async fn unhandled_row_is_answered_at_boot_before_its_owner_ends() {
    let memory = Memory::new();
    let journal = on(Box::new(memory.clone()));
    let faults =
        Faults::new(|point, detail| assert!(!(point == Point::Handler && detail == "continue"), "injected fault"));
    let runtime = started(builder(&journal).limits(limits()).model(model(managing)).faults(faults)).await;
    let (session, _) = sent(&runtime, "parent").await;
    seconds(2).await;
    let rows: Vec<_> = journal.outbox().expect("outbox").into_iter().map(|(row, _)| row.kind).collect();
    assert_eq!(rows, [RowKind::Continue, RowKind::Cancel]);
    drop((runtime, journal));

    let journal = on(Box::new(memory));
    let runtime = builder(&journal).limits(limits()).model(model(managing)).start().await.expect("a runtime");
    let by_owner = Outcome::Cancelled { by: Initiator::Owner { outcome: OutcomeKind::Lost } };
    assert_eq!(outcomes(&journal).await, [vec![Outcome::Lost], vec![Outcome::Completed, by_owner]]);
    let all = records(&journal, session.id()).await;
    let kinds: Vec<&str> = all.iter().rev().take(3).map(Record::kind).collect();
    assert_eq!(kinds[0], "run_ended");
    assert!(kinds.contains(&"notice_taken"), "the owner did not receive the end before its own: {kinds:?}");
    assert_eq!(journal.outbox().expect("outbox"), []);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn cancel_racing_a_continue_ends_only_that_run() {
    // Both are in one answer, and the child's actor starts slowly: the cancel is always behind the continue.
    for panics in [0, 1, 2] {
        let journal = journal();
        let struck = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&struck);
        let faults = Faults::new(move |point, detail| {
            let here = point == Point::Handler && ["continue", "owner_cancels"].contains(&detail);
            assert!(!here || count.fetch_add(1, Ordering::Relaxed) >= panics, "injected fault at {detail}");
        });
        let answer = |request: Request| async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            let child = short(&request);
            match (prompt(&request).as_str(), answers(&request), last_user(&request).as_str()) {
                ("parent", 0, _) => Ok(calls([task("child", true)])),
                ("parent", 1, _) => Ok(text("waiting")),
                ("parent", 2, _) => Ok(calls([
                    ("task", json!({"session_id": child, "prompt": "on", "background": true})),
                    ("cancel_task", json!({"taskId": child})),
                ])),
                ("parent", 3, _) => Ok(text("cancelled?")),
                ("parent", ..) => Ok(text("done")),
                ("child", _, "on") => {
                    seconds(3_000).await;
                    Ok(text("never"))
                }
                _ => Ok(text("found")),
            }
        };
        let runtime = started(builder(&journal).limits(limits()).model(model(answer)).faults(faults)).await;
        let (session, _) = sent(&runtime, "parent").await;
        let before = tokio::time::Instant::now();
        let ended = end_of(&session, 1).await.expect("the runtime is running");
        assert_eq!(ended.outcome, Outcome::Completed, "{panics}");
        assert!(before.elapsed() < Duration::from_secs(120), "{panics}: {:?}", before.elapsed());
        let found = outcomes(&journal).await;
        assert_eq!(found[1].len(), 2, "{panics}: {found:?}");
        assert!(matches!(found[1][1], Outcome::Cancelled { by: Initiator::Model { .. } }), "{panics}: {found:?}");
        assert_eq!(journal.outbox().expect("outbox"), [], "{panics}");
        shut(runtime).await;
    }
}

/// The token of a run fires for all runs below it at once, even if the actor of its session dies at the cancel.
#[tokio::test(start_paused = true)]
async fn cancel_by_a_model_stops_the_subtree_at_once() {
    for again in [false, true] {
        let journal = journal();
        let (faults, _) = strikes("owner_cancels");
        let times = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&times);
        let answer = move |request: Request| {
            let seen = Arc::clone(&seen);
            async move {
                let child = short(&request);
                match (prompt(&request).as_str(), answers(&request), last_user(&request).as_str()) {
                    ("parent", 0, _) => Ok(calls([task(if again { "quick" } else { "on" }, true)])),
                    ("parent", 1, _) if again => Ok(text("waiting")),
                    ("parent", 2, _) if again => {
                        Ok(calls([("task", json!({"session_id": child, "prompt": "on", "background": true}))]))
                    }
                    ("parent", turn, _) if turn == if again { 3 } else { 1 } => {
                        seconds(5).await;
                        seen.lock().unwrap().push(tokio::time::Instant::now());
                        Ok(calls([("cancel_task", json!({"taskId": child}))]))
                    }
                    ("parent", ..) => Ok(text("done")),
                    ("below", ..) => {
                        let stopped = Stopped(seen);
                        std::future::pending::<()>().await;
                        drop(stopped);
                        Ok(text("never"))
                    }
                    (_, _, "on") => Ok(calls([task("below", false)])),
                    _ => Ok(text("found")),
                }
            }
        };
        let runtime = started(builder(&journal).limits(limits()).model(model(answer)).faults(faults)).await;
        let (session, _) = sent(&runtime, "parent").await;
        assert_eq!(end_of(&session, 1).await.expect("the runtime is running").outcome, Outcome::Completed, "{again}");
        let times = times.lock().unwrap().clone();
        let [asked_at, stopped] = times[..] else { panic!("{again}: {times:?}") };
        assert!(stopped - asked_at < Duration::from_millis(5), "{again}: {:?}", stopped - asked_at);
        let by_model = |end: &Outcome| matches!(end, Outcome::Cancelled { by: Initiator::Model { .. } });
        assert_eq!(outcomes(&journal).await.iter().flatten().filter(|end| by_model(end)).count(), 1, "{again}");
        shut(runtime).await;
    }
}

struct Stopped(Arc<Mutex<Vec<tokio::time::Instant>>>);

impl Drop for Stopped {
    fn drop(&mut self) {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(tokio::time::Instant::now());
    }
}

fn strikes(command: &'static str) -> (Faults, Arc<AtomicUsize>) {
    let struck = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&struck);
    let faults = Faults::new(move |point, detail| {
        let here = point == Point::Handler && detail == command;
        assert!(!here || count.fetch_add(1, Ordering::Relaxed) > 0, "injected fault at {detail}");
    });
    (faults, struck)
}
