//! After a run's token has fired, no run below it starts an effect (T-4).

use crate::support::*;
use tokio::sync::{Notify, mpsc, oneshot};

async fn ends(journal: &Journal, session: SessionId) -> Vec<CallEnd> {
    let ended = |record| match record {
        Record::CallFinished(finished) => Some(finished.end),
        _ => None,
    };
    records(journal, session).await.into_iter().filter_map(ended).collect()
}

async fn child_of(journal: &Journal, parent: &SessionHandle) -> SessionId {
    loop {
        if let [child] = journal.children(parent.id()).expect("a store")[..] {
            return child;
        }
        tokio::task::yield_now().await;
    }
}

async fn shut(runtime: Runtime) {
    let report = runtime.shutdown(Duration::from_secs(1)).await;
    assert_eq!((report.actors, report.tasks), (0, 0), "{report:?}");
}

/// Answers for a parent that waits for one child, and for the child, which makes the calls `asks` once `go` fires.
fn one_child(
    go: Arc<Notify>,
    asks: &'static [&'static str],
) -> impl Fn(Request) -> futures_util::future::BoxFuture<'static, Result<Answer, ModelError>> + Send + Sync + 'static {
    move |request| {
        let go = Arc::clone(&go);
        Box::pin(async move {
            Ok(match (prompt(&request).as_str(), answers(&request)) {
                ("parent", 0) => calls([task("child", false)]),
                ("child", 0) => {
                    go.notified().await;
                    calls(asks.iter().map(|name| (*name, json!({}))))
                }
                (_, _) => text("done"),
            })
        })
    }
}

/// The owner is cancelled while the intent of a call with side effects is being synced, so the call does not start.
#[tokio::test]
async fn call_whose_intent_syncs_after_the_cancel_never_starts() {
    let dir = tempfile::tempdir().expect("a directory");
    let (engine, faults) = Faulty::new(Box::new(Redb::open(&dir.path().join("store"), 1 << 20).expect("a store")));
    let journal = on(Box::new(engine));
    let (begun, go) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let count = Arc::clone(&begun);
    let write = tool("write", ToolEffect::SideEffect, move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        async { Ok(ToolOutput::text("written")) }
    });
    let answering = model(one_child(Arc::clone(&go), &["write"]));
    let runtime = builder(&journal).model(answering).tools(tools([write])).start().await.expect("a runtime");
    let (parent, _) = sent(&runtime, "parent").await;
    let child = child_of(&journal, &parent).await;
    journal.settled().await.expect("the journal is open");

    let before = journal.last_appended();
    let held = faults.hold_writes();
    go.notify_one();
    while journal.last_appended() == before {
        tokio::task::yield_now().await;
    }
    let before = journal.last_appended();
    let owner = parent.clone();
    let cancelling = tokio::spawn(async move { owner.cancel().await });
    while journal.last_appended() == before {
        tokio::task::yield_now().await;
    }
    assert!(!cancelling.is_finished(), "the cancel returned before it was on the disk");
    // On this single thread, everything that can run without the disk has now run.
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(begun.load(Ordering::Relaxed), 0, "the call started before its intent was on the disk");
    drop(held);
    cancelling.await.expect("a model call").expect("answered");
    let ended = parent.run_ended(RunNo(1)).await.expect("the run ends");
    assert!(matches!(ended.outcome, Outcome::Cancelled { .. }), "{ended:?}");
    assert_eq!(ends(&journal, child).await, [CallEnd::Cancelled]);
    assert_eq!(begun.load(Ordering::Relaxed), 0, "the call started after its owner was cancelled");
    shut(runtime).await;
}

struct Witness(mpsc::UnboundedSender<()>);

impl Drop for Witness {
    fn drop(&mut self) {
        // The receiver may have been dropped.
        self.0.send(()).ok();
    }
}

/// While the first of two due read-only calls runs, another thread cancels the owner: the second does not start.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn second_due_call_does_not_start_after_the_owners_cancel() {
    let journal = journal();
    let begun = Arc::new(AtomicUsize::new(0));
    let (at_work, is_at_work) = oneshot::channel();
    let (go_on, continues) = std::sync::mpsc::channel::<()>();
    let first = Mutex::new(Some((at_work, continues)));
    // The tool blocks the actor's thread, as a synchronous tool may.
    let first = tool("first", ToolEffect::ReadOnly, move |call| {
        let (at_work, continues) = first.lock().unwrap().take().expect("called once");
        at_work.send(call.key.session).expect("a receiver waits");
        continues.recv().expect("it is released");
        async { Ok(ToolOutput::text("first")) }
    });
    let count = Arc::clone(&begun);
    let second = tool("second", ToolEffect::ReadOnly, move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        async { Ok(ToolOutput::text("second")) }
    });
    let (stopped, mut are_stopped) = mpsc::unbounded_channel();
    let (begins, mut have_begun) = mpsc::unbounded_channel();
    let answering = model(move |request| {
        let (begins, stopped) = (begins.clone(), stopped.clone());
        async move {
            Ok(match (prompt(&request).as_str(), answers(&request)) {
                ("parent", 0) => calls([task("witness", true), task("child", false), task("witness", true)]),
                ("child", 0) => calls([("first", json!({})), ("second", json!({}))]),
                ("witness", _) => {
                    let _witness = Witness(stopped);
                    begins.send(()).expect("a receiver waits");
                    std::future::pending().await
                }
                (_, _) => text("done"),
            })
        }
    });
    let runtime =
        started(builder(&journal).model(answering).tools(tools([first.in_process(), second.in_process()]))).await;
    let (parent, _) = sent(&runtime, "parent").await;
    let child = is_at_work.await.expect("it is called");
    for _ in 0..2 {
        have_begun.recv().await.expect("both begin");
    }
    parent.cancel().await.expect("answered");
    // When the siblings of the running child have stopped, the owner's token has reached all children.
    for _ in 0..2 {
        are_stopped.recv().await.expect("both stop");
    }
    go_on.send(()).expect("it waits");
    let ended = parent.run_ended(RunNo(1)).await.expect("the run ends");
    assert!(matches!(ended.outcome, Outcome::Cancelled { .. }), "{ended:?}");
    assert_eq!(begun.load(Ordering::Relaxed), 0, "the call started after its owner was cancelled");
    assert_eq!(ends(&journal, child).await.last(), Some(&CallEnd::Cancelled));
    shut(runtime).await;
}
