//! Cancel and deletion of a whole tree: affected runs, and what remains.

use crate::support::*;
use subtend_actors::Subscription;
use subtend_session::record::Hold;

/// The parent starts a quick task and a long one. Later messages of a person take long too.
async fn family(request: Request) -> Result<Answer, ModelError> {
    match (prompt(&request).as_str(), answers(&request)) {
        ("parent", 0) => Ok(calls([task("quick", false)])),
        ("parent", 1) => Ok(calls([task("long", true)])),
        ("parent", 2) => Ok(text("waiting")),
        ("quick", 0) => Ok(text("quick")),
        _ => {
            seconds(100).await;
            Ok(text("done"))
        }
    }
}

async fn children(runtime: &Runtime, session: &SessionHandle) -> Vec<SessionHandle> {
    let tree = session.tree().await.expect("a tree");
    let child = |id| runtime.session(id).expect("readable").expect("the session exists");
    tree.children.iter().map(|at| child(at.id)).collect()
}

async fn last_outcome(runtime: &Runtime, session: SessionId) -> Option<Outcome> {
    records(runtime.journal(), session).await.into_iter().rev().find_map(|record| match record {
        Record::RunEnded(ended) => Some(ended.outcome),
        _ => None,
    })
}

async fn deletions(mut events: Subscription, n: usize) -> Vec<SessionId> {
    let mut deleted = Vec::new();
    while deleted.len() < n {
        if let Some(Next::Event(event)) = events.next().await
            && let EventKind::Record { record, .. } = event.what
            && matches!(*record, Record::SessionDeleted { .. })
        {
            deleted.push(event.session);
        }
    }
    deleted
}

#[tokio::test(start_paused = true)]
async fn tree_cancel_ends_persons_runs_and_keeps_queued_inputs() {
    let journal = journal();
    let runtime = builder(&journal).model(model(family)).start().await.expect("a runtime");
    let (session, _) = sent(&runtime, "parent").await;
    seconds(5).await;
    let [quick, long] = children(&runtime, &session).await.try_into().expect("two");
    quick.send("for a person").await.expect("accepted");
    quick.send("and later").await.expect("accepted");
    seconds(5).await;
    // A cancel of the root's run alone would not end the person's run.
    assert_eq!(
        session.cancel_tree().await,
        Ok(2),
        "expected the root's run and the person's, since the long one is owned"
    );
    let by_person = Outcome::Cancelled { by: Initiator::Person };
    assert_eq!(end_of(&session, 1).await.outcome, by_person);
    assert_eq!(end_of(&quick, 2).await.outcome, by_person);
    let by_owner = Outcome::Cancelled { by: Initiator::Owner { outcome: OutcomeKind::Cancelled } };
    assert_eq!(last_outcome(&runtime, long.id()).await, Some(by_owner));
    seconds(100).await;
    assert_eq!(journal.inflight().expect("inflight"), [], "queued inputs opened a run");
    assert_eq!(quick.queue().await.expect("listed").len(), 1);
    assert_eq!(session.cancel_tree().await, Ok(0));
    quick.send("last").await.expect("accepted");
    assert_eq!(end_of(&quick, 3).await.outcome, Outcome::Completed);
    let texts: Vec<String> = records(&journal, quick.id())
        .await
        .into_iter()
        .filter_map(|record| match record {
            Record::InputAccepted(input) => Some(input.text.to_string()),
            _ => None,
        })
        .collect();
    assert_eq!(texts, ["quick", "for a person", "and later", "last"]);
    assert_eq!(quick.queue().await, Ok(Vec::new()), "the queued input did not precede the later one");
    shut(runtime).await;
}

/// Runs a host with a running child and grandchild, each with a queued input. It cancels the tree and dies at the `n`-th write after that. Returns
/// the three sessions, and whether that write happened.
async fn dies_while_it_cancels(memory: &Memory, n: u64) -> ([SessionId; 3], bool) {
    let line = |request: Request| async move {
        match (prompt(&request).as_str(), answers(&request)) {
            ("parent", 0) => Ok(calls([task("child", false)])),
            ("child", 0) => Ok(calls([task("grandchild", false)])),
            _ => {
                seconds(100).await;
                Ok(text("done"))
            }
        }
    };
    let (faulty, faults) = Faulty::new(Box::new(memory.clone()));
    let journal = on(Box::new(faulty));
    let runtime = builder(&journal).model(model(line)).start().await.expect("a runtime");
    let (session, _) = sent(&runtime, "parent").await;
    seconds(5).await;
    let [child] = children(&runtime, &session).await.try_into().expect("a runtime");
    let [grandchild] = children(&runtime, &child).await.try_into().expect("a runtime");
    child.send("for later").await.expect("accepted");
    grandchild.send("for later").await.expect("accepted");
    seconds(5).await;
    let last = faults.writes() + n;
    faults.fail_sync(last);
    // The reply is lost with the host, or reports the cancels before the host died.
    let received = tokio::time::timeout(Duration::from_secs(60), session.cancel_tree()).await;
    seconds(60).await;
    let dead = faults.writes() >= last;
    assert!(dead || received == Ok(Ok(1)), "{received:?}");
    runtime.shutdown(Duration::from_secs(1)).await;
    ([session.id(), child.id(), grandchild.id()], dead)
}

#[tokio::test(start_paused = true)]
async fn queued_inputs_of_a_cancelled_tree_survive_any_crash() {
    let mut unnotified = 0;
    for n in 1.. {
        let memory = Memory::new();
        let (line, dead) = dies_while_it_cancels(&memory, n).await;
        let left = on(Box::new(memory.copy()));
        let [root, _, grandchild] = line;
        let keeps_queue = |record: &Record| match record {
            Record::RunHeld { why, .. } => matches!(**why, Hold::Closing { keeps_queue: true, .. }),
            Record::RunEnded(ended) => ended.keeps_queue,
            _ => false,
        };
        assert!(records(&left, root).await.iter().any(keeps_queue), "the cancel was not the first write");
        unnotified += usize::from(!records(&left, grandchild).await.iter().any(keeps_queue));
        let journal = on(Box::new(memory));
        let runtime = builder(&journal).model(model(family)).start().await.expect("the runtime starts again");
        seconds(1_000).await;
        for session in line {
            let handle = runtime.session(session).expect("readable").expect("the session exists");
            let waits = handle.queue().await.expect("listed").len();
            let runs =
                records(&journal, session).await.iter().filter(|record| matches!(record, Record::RunOpened(_))).count();
            assert_eq!((waits, runs), (usize::from(session != root), 1), "write {n}, {session}");
        }
        shut(runtime).await;
        if !dead {
            break;
        }
    }
    assert!(unnotified > 0, "no host died between notifying the parent and the grandchild");
}

#[tokio::test(start_paused = true)]
async fn cancelling_a_branch_ends_only_its_descendants() {
    let journal = journal();
    let answer = |request: Request| async move {
        match (prompt(&request).as_str(), answers(&request)) {
            ("quick", 1) => Ok(calls([task("below", true)])),
            _ => family(request).await,
        }
    };
    let runtime = builder(&journal).model(model(answer)).start().await.expect("a runtime");
    let (session, _) = sent(&runtime, "parent").await;
    seconds(5).await;
    let [quick, long] = children(&runtime, &session).await.try_into().expect("two");
    quick.send("more").await.expect("accepted");
    seconds(5).await;
    assert_eq!(quick.cancel_tree().await, Ok(1));
    end_of(&quick, 2).await;
    let in_flight: Vec<SessionId> = journal.inflight().expect("inflight").into_iter().map(|(id, _)| id).collect();
    let mut left = [session.id(), long.id()];
    left.sort();
    assert_eq!(in_flight, left);
    assert_eq!(long.cancel_tree().await, Ok(1), "the owned run was not cancelled as the top of its branch");
    end_of(&session, 1).await;
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn running_tree_is_deleted_only_by_force() {
    let journal = journal();
    let runtime = builder(&journal).model(model(family)).start().await.expect("a runtime");
    let (session, _) = sent(&runtime, "parent").await;
    seconds(5).await;
    session.steer("wait").await.expect("accepted");
    let refused = session.delete(false).await;
    assert!(matches!(refused, Err(ControlError::Working(_))), "{refused:?}");
    assert_eq!(journal.heads().expect("heads").iter().filter(|(_, head)| head.deleted).count(), 0);
    let order = tokio::spawn(deletions(session.watch(), 3));
    let child = children(&runtime, &session).await[0].clone();
    assert_eq!(session.delete(true).await, Ok(3));
    assert_eq!(journal.inflight().expect("inflight"), []);
    assert!(journal.heads().expect("heads").iter().all(|(_, head)| head.deleted));
    assert_eq!(session.delete(true).await, Ok(0));
    assert!(children(&runtime, &session).await.is_empty(), "a tree lists a deleted session");
    for gone in [session.clone(), child] {
        assert!(matches!(gone.send("again").await, Err(SendError::Refused(_))));
        assert_eq!(gone.close().await, Err(ControlError::Deleted));
    }
    assert_eq!(order.await.expect("watched").first(), Some(&session.id()), "the root was not deleted first");
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn idle_child_is_deleted_alone() {
    let journal = journal();
    let runtime = builder(&journal).model(model(family)).start().await.expect("a runtime");
    let (session, _) = sent(&runtime, "parent").await;
    seconds(5).await;
    let quick = children(&runtime, &session).await[0].clone();
    let short = journal.head(quick.id()).expect("readable").expect("the session exists").short;
    let named = session.child(&short.0).expect("readable").expect("the session exists");
    assert_eq!(named.id(), quick.id());
    assert_eq!(named.delete(false).await, Ok(1), "a running relative prevented the deletion");
    assert_eq!(end_of(&session, 1).await.outcome, Outcome::Completed);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn cancel_of_a_thousand_sessions_leaves_nothing_behind() {
    let journal = journal();
    let created = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&created);
    let answer = move |request: Request| {
        let depth: u32 = prompt(&request).parse().unwrap_or(0);
        let first = answers(&request) == 0 && user_messages(&request) == 1;
        if first {
            count.fetch_add(1, Ordering::Relaxed);
        }
        async move {
            // The tree has 1 + 10 + 10 × 99 sessions.
            let below = match (depth, first) {
                (2, true) => 10,
                (1, true) => 99,
                _ => 0,
            };
            if below > 0 {
                return Ok(calls((0..below).map(|_| task(&(depth - 1).to_string(), true))));
            }
            std::future::pending::<()>().await;
            Ok(text("never"))
        }
    };
    let limits =
        Limits { live_runs: 2_000, spawns: 2_000, calls_per_answer: 200, first_byte_ms: u64::MAX, ..Limits::default() };
    let options = Options { slots: 2_000, idle: Duration::from_secs(10), seed: Some(7), ..Options::default() };
    let runtime = started(builder(&journal).limits(limits).options(options).model(model(answer))).await;
    assert_eq!(runtime.stats(), RuntimeStats::default());
    let (session, receipt) = sent(&runtime, "2").await;
    seconds(5).await;
    assert_eq!(created.load(Ordering::Relaxed), 1_001);
    let at_work = runtime.stats();
    assert_eq!((at_work.actors, at_work.slots, at_work.tokens, at_work.accounts), (1_001, 1_000, 1_001, 1));
    assert_eq!(session.cancel_tree().await, Ok(1));
    let before = tokio::time::Instant::now();
    end_of(&session, receipt.run.0).await;
    assert!(before.elapsed() < Duration::from_secs(5), "the cancel took longer than one grace: {:?}", before.elapsed());
    assert_eq!((journal.inflight().expect("inflight"), journal.outbox().expect("outbox")), (Vec::new(), Vec::new()));
    seconds(60).await;
    assert_eq!(runtime.stats(), RuntimeStats::default());
    shut(runtime).await;
}
