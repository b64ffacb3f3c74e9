//! A session reads the files of a task outside its actor, so that a slow disk does not block it (feature B7).

use std::sync::Condvar;

use crate::support::*;

#[derive(Clone, Default)]
struct Disk {
    begun: Arc<AtomicUsize>,
    free: Arc<(Mutex<bool>, Condvar)>,
    /// True if the handler panics at the next change of the queue.
    breaks: Arc<AtomicBool>,
}

impl Disk {
    fn faults(&self) -> Faults {
        let disk = self.clone();
        Faults::new(move |point, detail| {
            if point == Point::Handler && detail == "change_queue" && disk.breaks.swap(false, Ordering::Relaxed) {
                panic!("injected fault in the handler");
            }
            if point == Point::Reading {
                disk.begun.fetch_add(1, Ordering::Relaxed);
                let (free, received) = &*disk.free;
                let mut free = free.lock().unwrap();
                while !*free {
                    free = received.wait(free).unwrap();
                }
            }
        })
    }

    async fn has_begun(&self, times: usize) {
        while self.begun.load(Ordering::Relaxed) < times {
            tokio::task::yield_now().await;
        }
    }

    fn answers(&self) {
        *self.free.0.lock().unwrap() = true;
        self.free.1.notify_all();
    }
}

fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("a"), "the text of a").expect("a file");
    dir
}

async fn host(
    journal: &Journal,
    dir: &tempfile::TempDir,
    faults: Faults,
    answering: Arc<dyn Model>,
    (on_restart, seed): (OnRestart, u64),
) -> Runtime {
    let mut catalog = Catalog::builtin();
    catalog.insert(Manifest {
        on_restart: Some(on_restart),
        ..Manifest::new("worker", AgentMode::All, "You are a worker.")
    });
    let offered = vec![Dialect::Subagent, Dialect::Task, Dialect::Spawn];
    let builder = builder(journal)
        .catalog(catalog)
        .dialects(Dialects { offered, ..Dialects::default() })
        .workspace(Arc::new(Workspace::open(dir.path()).expect("a workspace")))
        .options(Options { seed: Some(seed), ..Options::default() })
        .faults(faults);
    builder.model(answering).start().await.expect("the runtime starts")
}

/// Returns a model that makes `requested_calls` in the root session and then ends. It adds the first message of each child
/// to `received`.
fn asking(requested_calls: Vec<(&'static str, Value)>, received: &Arc<Mutex<Vec<String>>>) -> Arc<dyn Model> {
    let received = Arc::clone(received);
    model(move |request| {
        let answer = match (&*prompt(&request), answers(&request)) {
            ("go", 0) => calls(requested_calls.clone()),
            ("go", _) => text(&format!("done: {}", results(&request).join("\n"))),
            (first, _) => {
                received.lock().unwrap().push(first.to_owned());
                text("found")
            }
        };
        async move { Ok(answer) }
    })
}

fn files() -> Vec<(&'static str, Value)> {
    vec![("subagent", json!({"task": "read", "contextFiles": ["a", "gone"]}))]
}

async fn ends(journal: &Journal, session: &SessionHandle) -> Vec<CallEnd> {
    let end = |record| match record {
        Record::CallFinished(finished) => Some(finished.end),
        _ => None,
    };
    records(journal, session.id()).await.into_iter().filter_map(end).collect()
}

#[tokio::test(start_paused = true)]
async fn b7_session_takes_input_and_cancel_while_files_are_read() {
    for cancelled in [true, false] {
        let (disk, dir, received) = (Disk::default(), folder(), Arc::default());
        let journal = journal();
        let runtime = host(&journal, &dir, disk.faults(), asking(files(), &received), (OnRestart::Fail, 7)).await;
        let (session, receipt) = sent(&runtime, "go").await;
        disk.has_begun(1).await;
        // The answer is recorded before its child exists, and the session still accepts inputs.
        session.steer("behind").await.expect("accepted while it reads");
        assert_eq!(session.queue().await.expect("listed").len(), 1);
        let before = kinds(&journal, session.id()).await;
        assert!(before.contains(&"turn_answered") && !before.contains(&"child_spawned"), "{before:?}");
        if cancelled {
            session.cancel_tree().await.expect("cancelled");
            let ended = session.run_ended(receipt.run).await.expect("the run ended");
            assert!(matches!(ended.outcome, Outcome::Cancelled { .. }), "{ended:?}");
            assert_eq!(ends(&journal, &session).await, [CallEnd::Cancelled]);
        }
        disk.answers();
        session.run_ended(receipt.run).await.expect("the run ends");
        let children = session.tree().await.expect("a tree").children.len();
        assert_eq!(children, usize::from(!cancelled));
        if !cancelled {
            let first = received.lock().unwrap()[0].clone();
            let gone = "### gone\n\n(This file could not be read: ";
            assert!(first.contains("the text of a") && first.contains(gone), "{first}");
        }
        shut(runtime).await;
    }
}

#[tokio::test(start_paused = true)]
async fn b7_children_are_created_in_call_order_with_or_without_files() {
    let (disk, dir, received) = (Disk::default(), folder(), Arc::default());
    disk.answers();
    let plain = |at: usize| ("task", json!({"subagent_type": "worker", "prompt": format!("{at}"), "background": true}));
    let calls = (0..60).map(|at| match at % 3 {
        0 => plain(at),
        1 => ("subagent", json!({"task": format!("{at}"), "contextFiles": ["a"]})),
        _ => ("spawn", json!({"task": format!("{at}")})),
    });
    let journal = journal();
    let answering = asking(calls.collect(), &received);
    let runtime = host(&journal, &dir, disk.faults(), answering, (OnRestart::Fail, 7)).await;
    let (session, receipt) = sent(&runtime, "go").await;
    session.run_ended(receipt.run).await.expect("the run ends");
    let created = |record| match record {
        Record::ChildSpawned(spawned) => Some(spawned.call.ix),
        _ => None,
    };
    let order: Vec<u32> = records(&journal, session.id()).await.into_iter().filter_map(created).collect();
    assert_eq!(order, (0..60).collect::<Vec<_>>());
    // One read covers at most 16 calls.
    assert_eq!(disk.begun.load(Ordering::Relaxed), 4, "expected this number of concurrent reads");
    shut(runtime).await;
}

// Runs on the real clock: virtual time does not advance while a thread blocks, and the restart of an actor needs time.
#[tokio::test]
async fn b7_actor_crash_while_files_are_read_creates_one_child() {
    let (disk, dir, received) = (Disk::default(), folder(), Arc::default());
    let journal = journal();
    let runtime = host(&journal, &dir, disk.faults(), asking(files(), &received), (OnRestart::Fail, 7)).await;
    let (session, receipt) = sent(&runtime, "go").await;
    disk.has_begun(1).await;
    disk.breaks.store(true, Ordering::Relaxed);
    let other = session.clone();
    let cleared = tokio::spawn(async move { other.queue_clear().await });
    disk.has_begun(2).await;
    disk.answers();
    let ended = session.run_ended(receipt.run).await.expect("the run ends");
    assert_eq!(ended.outcome, Outcome::Completed);
    drop(cleared.await);
    assert_eq!(session.tree().await.expect("a tree").children.len(), 1);
    assert_eq!(received.lock().unwrap().len(), 1);
    assert!(!disk.breaks.load(Ordering::Relaxed), "the handler did not panic");
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn b7_host_crash_while_files_are_read_leaves_an_open_call() {
    for on_restart in [OnRestart::Fail, OnRestart::Resume] {
        let (disk, dir, received, store) = (Disk::default(), folder(), Arc::default(), Memory::new());
        let journal = reopen(&store);
        let runtime = host(&journal, &dir, disk.faults(), asking(files(), &received), (on_restart, 7)).await;
        let (session, receipt) = sent(&runtime, "go").await;
        disk.has_begun(1).await;
        journal.settled().await.expect("durable");
        let root = session.id();
        drop((session, runtime, journal));
        disk.answers();

        let journal = reopen(&store);
        let runtime = host(&journal, &dir, disk.faults(), asking(files(), &received), (on_restart, 8)).await;
        let session = runtime.session(root).expect("readable").expect("the session exists");
        let ended = session.run_ended(receipt.run).await.expect("the run ends");
        let children = session.tree().await.expect("a tree").children.len();
        let found = (ended.outcome, children, ends(&journal, &session).await);
        match on_restart {
            OnRestart::Fail => assert_eq!(found, (Outcome::Lost, 0, vec![CallEnd::Interrupted])),
            OnRestart::Resume => assert_eq!(found, (Outcome::Completed, 1, vec![CallEnd::Ok])),
        }
        shut(runtime).await;
    }
}

#[tokio::test(start_paused = true)]
async fn b7_failed_read_marks_its_files_and_creates_the_child() {
    let (dir, received) = (folder(), Arc::default());
    let journal = journal();
    let faults = Faults::new(|point, _| assert!(point != Point::Reading, "injected fault of the disk"));
    let runtime = host(&journal, &dir, faults, asking(files(), &received), (OnRestart::Fail, 7)).await;
    let (session, receipt) = sent(&runtime, "go").await;
    session.run_ended(receipt.run).await.expect("the run ends");
    let first = received.lock().unwrap()[0].clone();
    assert_eq!(first.matches("(This file could not be read: it was not read.)").count(), 2, "{first}");
    shut(runtime).await;
}
