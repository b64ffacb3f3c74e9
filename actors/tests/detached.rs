//! Detached runs have no owner: the tree lists them, and its cancel or their own cap ends them.

use crate::support::*;

const HOUR: u64 = 3_600;

async fn end_of(session: &SessionHandle, run: u32) -> Ended {
    let ended = tokio::time::timeout(Duration::from_secs(72_000), session.run_ended(RunNo(run))).await;
    ended.expect("the run ends").expect("the runtime is running")
}

fn watched(journal: &Journal) -> Builder {
    let mut catalog = Catalog::builtin();
    catalog.insert(Manifest::new("worker", AgentMode::All, "You are a worker."));
    let manifest = Manifest::new("watcher", AgentMode::All, "You watch.");
    catalog.insert(Manifest { detached: true, ..manifest });
    builder(journal).catalog(catalog)
}

fn watch(prompt: &str) -> (&'static str, Value) {
    ("task", json!({"subagent_type": "watcher", "prompt": prompt}))
}

/// The parent starts a watcher, which runs for half an hour of model time.
async fn family(request: Request) -> Result<Answer, ModelError> {
    match (prompt(&request).as_str(), answers(&request)) {
        ("parent", 0) => Ok(calls([watch("watch")])),
        ("parent", _) => Ok(text("started")),
        ("worker", _) => {
            seconds(100).await;
            Ok(text("worked"))
        }
        (_, done) if done < 18 => {
            seconds(100).await;
            Ok(calls([("none", json!({}))]))
        }
        _ => Ok(text("seen")),
    }
}

fn child_of(runtime: &Runtime, session: &SessionHandle) -> SessionHandle {
    let kids = runtime.journal().children(session.id()).expect("children");
    runtime.session(kids[0]).expect("readable").expect("the session exists")
}

async fn owner(journal: &Journal, session: &SessionHandle) -> Option<Owner> {
    records(journal, session.id()).await.into_iter().find_map(|record| match record {
        Record::RunOpened(opened) => Some(opened.owner),
        _ => None,
    })
}

/// Returns limits with a turn limit above half an hour.
fn limits() -> Limits {
    Limits { run_ms: None, ..Limits::default() }
}

#[tokio::test(start_paused = true)]
async fn detached_call_returns_at_once_and_its_end_wakes_no_owner() {
    let journal = journal();
    let runtime = watched(&journal).limits(limits()).model(model(family)).start().await.expect("a runtime");
    let (session, _) = sent(&runtime, "parent").await;
    assert_eq!(end_of(&session, 1).await.text.as_deref(), Some("started"), "the call waited for the detached run");
    let child = child_of(&runtime, &session);
    assert_eq!(owner(&journal, &child).await, Some(Owner::Detached { by_host: false }));
    assert_eq!(runtime.slots_in_use(), 1);
    let tree = session.tree().await.expect("a tree");
    assert_eq!(tree.children.iter().map(|child| child.id).collect::<Vec<_>>(), [child.id()]);
    // A cancel of owned runs does not reach the detached run.
    assert_eq!(session.cancel().await, Ok(Control::AlreadyEnded(RunNo(1), Outcome::Completed)));
    assert_eq!(end_of(&child, 1).await.text.as_deref(), Some("seen"));
    seconds(1).await;
    let all = records(&journal, session.id()).await;
    let stored = all.iter().filter(|record| matches!(record, Record::NoticeTaken(_))).count();
    let turns = all.iter().filter(|record| matches!(record, Record::TurnStarted { .. })).count();
    assert_eq!((stored, turns), (1, 2), "{all:#?}");
    seconds(60).await;
    assert_eq!(runtime.stats(), RuntimeStats::default(), "the timer of its cap remains");
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn detached_run_ends_by_the_trees_cancel_only() {
    let journal = journal();
    let answer = |request: Request| async move {
        if prompt(&request) == "parent" && answers(&request) == 1 {
            seconds(10_000).await;
        }
        family(request).await
    };
    let limits = Limits { first_byte_ms: u64::MAX, turn_ms: u64::MAX, ..limits() };
    let runtime = watched(&journal).limits(limits).model(model(answer)).start().await.expect("a runtime");
    let (session, _) = sent(&runtime, "parent").await;
    seconds(5).await;
    let child = child_of(&runtime, &session);
    session.interrupt().await.expect("interrupted");
    session.send("continue").await.expect("accepted");
    seconds(5).await;
    session.cancel().await.expect("cancelled");
    seconds(20).await;
    assert_eq!(child.current_run().await.expect("probed").map(|run| run.no()), Some(RunNo(1)));
    assert_eq!(session.cancel_tree().await, Ok(1));
    assert_eq!(end_of(&child, 1).await.outcome, Outcome::Cancelled { by: Initiator::Person });
    assert_eq!(session.cancel_tree().await, Ok(0));
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn detached_run_ends_by_its_cap_while_working_or_queued() {
    let cap = Outcome::TimedOut { what: TimeLimit::WallCap };
    for queued in [false, true] {
        let journal = journal();
        let answer = move |request: Request| async move {
            match (prompt(&request).as_str(), answers(&request)) {
                // A long-running worker holds the only slot.
                ("parent", 0) if queued => Ok(calls([task("worker", true), watch("watch")])),
                _ => family(request).await,
            }
        };
        let limits = Limits { detached_ms: 50_000, live_runs: 1, ..limits() };
        let runtime = watched(&journal).limits(limits).model(model(answer)).start().await.expect("a runtime");
        let (session, _) = sent(&runtime, "parent").await;
        seconds(5).await;
        let kids = journal.children(session.id()).expect("children");
        let mut capped = 0;
        for kid in kids {
            let kid = runtime.session(kid).expect("readable").expect("the session exists");
            if owner(&journal, &kid).await == Some(Owner::Detached { by_host: false }) {
                let before = tokio::time::Instant::now();
                let ended = end_of(&kid, 1).await;
                assert_eq!((ended.outcome, ended.turns), (cap.clone(), 0), "{queued}");
                assert!(before.elapsed() < Duration::from_secs(46), "{:?}", before.elapsed());
                capped += 1;
            }
        }
        assert_eq!(capped, 1);
        end_of(&session, 1).await;
        seconds(HOUR).await;
        assert_eq!(runtime.stats().timers, 0, "its timer remains");
        shut(runtime).await;
    }
}

#[tokio::test(start_paused = true)]
async fn host_detaches_a_session_below_another() {
    let journal = journal();
    let runtime = watched(&journal).limits(limits()).model(model(family)).start().await.expect("a runtime");
    let (session, _) = sent(&runtime, "worker").await;
    let child = session.detach("worker", "watch").await.expect("detached");
    assert_eq!(owner(&journal, &child).await, Some(Owner::Detached { by_host: true }));
    end_of(&session, 1).await;
    session.cancel().await.expect("answered");
    assert_eq!(end_of(&child, 1).await.text.as_deref(), Some("seen"));
    let missing = session.detach("nobody", "watch").await;
    assert!(matches!(missing, Err(ControlError::Refused(_))), "{missing:?}");
    seconds(HOUR).await;
    assert_eq!(runtime.stats().timers, 0);
    let capped = session.detach("worker", "watch").await.expect("detached");
    let opened = records(&journal, capped.id()).await.into_iter().find_map(|record| match record {
        Record::RunOpened(opened) => opened.wall_cap_at,
        _ => None,
    });
    assert!(opened.is_some(), "the detached run has no cap");
    assert_eq!(session.cancel_tree().await, Ok(1));
    end_of(&capped, 1).await;
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn queued_runs_without_an_owner_survive_a_restart() {
    let memory = Memory::new();
    let journal = reopen(&memory);
    let answer = |request: Request| async move {
        match (prompt(&request).as_str(), answers(&request)) {
            ("parent", 0) => Ok(calls([task("quick", false), task("quick", false)])),
            ("parent", 1) => Ok(calls([task("worker", true), watch("watch")])),
            ("quick", 0) => Ok(text("quick")),
            ("quick", _) => {
                seconds(100).await;
                Ok(text("there"))
            }
            _ => family(request).await,
        }
    };
    let limits = Limits { live_runs: 1, live_person_runs: 1, ..limits() };
    let runtime = watched(&journal).limits(limits.clone()).model(model(answer)).start().await.expect("a runtime");
    let (session, _) = sent(&runtime, "parent").await;
    seconds(5).await;
    let tree = session.tree().await.expect("a tree");
    for quick in tree.children.iter().take(2) {
        let quick = runtime.session(quick.id).expect("readable").expect("the session exists");
        quick.send("and now?").await.expect("accepted");
    }
    assert_eq!((runtime.stats().slots, runtime.stats().queued), (2, 2));
    journal.settled().await.expect("the journal is open");
    drop((runtime, journal));

    let journal = reopen(&memory);
    let runtime = watched(&journal).limits(limits).model(model(answer)).start().await.expect("a runtime");
    // They request their slots without any input.
    seconds(HOUR).await;
    assert_eq!(journal.inflight().expect("inflight"), []);
    let mut outcomes = Vec::new();
    for (id, head) in journal.heads().expect("heads") {
        if head.parent.is_some() {
            for record in records(&journal, id).await {
                if let Record::RunEnded(ended) = record {
                    outcomes.push(ended.outcome);
                }
            }
        }
    }
    let (lost, done): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(|outcome| *outcome == Outcome::Lost);
    assert_eq!(lost.len(), 2, "expected the worker and the person's running one");
    assert_eq!(done, [const { Outcome::Completed }; 4]);
    shut(runtime).await;
}
