//! Files that come with tasks are read beside the session's actor: what it promises holds while a disk is slow (feature B7).

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use crate::support::{answers, builder, calls, model, open, prompt, records, results, shut, text};
use serde_json::{Value, json};
use subtend_actors::faults::{Faults, Point};
use subtend_actors::{Options, Runtime, SessionHandle};
use subtend_agents::catalog::Catalog;
use subtend_agents::dialect::Dialects;
use subtend_agents::manifest::{AgentMode, Manifest};
use subtend_journal::Journal;
use subtend_journal::memory::Memory;
use subtend_models::model::Model;
use subtend_session::call::CallEnd;
use subtend_session::dialect::Dialect;
use subtend_session::outcome::Outcome;
use subtend_session::place::OnRestart;
use subtend_session::record::Record;
use subtend_tools::workspace::Workspace;

/// A disk that answers when it is told to.
#[derive(Clone, Default)]
struct Disk {
    begun: Arc<AtomicUsize>,
    free: Arc<(Mutex<bool>, Condvar)>,
    /// Whether the handler panics at the next change of the queue.
    breaks: Arc<AtomicBool>,
}

impl Disk {
    fn faults(&self) -> Faults {
        let disk = self.clone();
        Faults::new(move |point, detail| {
            if point == Point::Handler && detail == "change_queue" && disk.breaks.swap(false, Ordering::Relaxed) {
                panic!("a fault of the handler");
            }
            if point == Point::Reading {
                disk.begun.fetch_add(1, Ordering::Relaxed);
                let (free, told) = &*disk.free;
                let mut free = free.lock().unwrap();
                while !*free {
                    free = told.wait(free).unwrap();
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

/// A directory with the file `a`.
fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("a"), "the text of a").expect("a file");
    dir
}

fn memory(memory: &Memory) -> Journal {
    Journal::open(Box::new(memory.clone()), subtend_journal::Options::default()).expect("a journal")
}

async fn host(
    journal: &Journal,
    dir: &tempfile::TempDir,
    faults: Faults,
    answering: Arc<dyn Model>,
    (on_restart, seed): (OnRestart, u64),
) -> Runtime {
    let mut catalog = Catalog::builtin();
    catalog.insert(Manifest { on_restart, ..Manifest::new("worker", AgentMode::All, "You are a worker.") });
    let offered = vec![Dialect::Subagent, Dialect::Task, Dialect::Spawn];
    let builder = builder(journal)
        .catalog(catalog)
        .dialects(Dialects { offered, ..Dialects::default() })
        .workspace(Arc::new(Workspace::open(dir.path()).expect("a workspace")))
        .options(Options { seed: Some(seed), ..Options::default() })
        .faults(faults);
    builder.model(answering).start().await.expect("it starts")
}

/// A model whose root asks for `asked` and then ends; what the others are told first is kept.
fn asking(asked: Vec<(&'static str, Value)>, told: &Arc<Mutex<Vec<String>>>) -> Arc<dyn Model> {
    let told = Arc::clone(told);
    model(move |request| {
        let answer = match (&*prompt(&request), answers(&request)) {
            ("go", 0) => calls(asked.clone()),
            ("go", _) => text(&format!("done: {}", results(&request).join("\n"))),
            (first, _) => {
                told.lock().unwrap().push(first.to_owned());
                text("found")
            }
        };
        async move { Ok(answer) }
    })
}

fn files() -> Vec<(&'static str, Value)> {
    vec![("subagent", json!({"task": "read", "contextFiles": ["a", "gone"]}))]
}

async fn kinds(journal: &Journal, session: &SessionHandle) -> Vec<&'static str> {
    records(journal, session.id()).await.iter().map(Record::kind).collect()
}

async fn ends(journal: &Journal, session: &SessionHandle) -> Vec<CallEnd> {
    let end = |record| match record {
        Record::CallFinished(finished) => Some(finished.end),
        _ => None,
    };
    records(journal, session.id()).await.into_iter().filter_map(end).collect()
}

#[tokio::test(start_paused = true)]
async fn b7_while_files_are_read_a_session_hears_words_and_a_cancel_leaves_no_child() {
    for cancelled in [true, false] {
        let (disk, dir, told) = (Disk::default(), folder(), Arc::default());
        let journal = memory(&Memory::new());
        let runtime = host(&journal, &dir, disk.faults(), asking(files(), &told), (OnRestart::Fail, 7)).await;
        let session = open(&runtime);
        let receipt = session.send("go").await.expect("accepted");
        disk.has_begun(1).await;
        // The answer is in the journal before its child is born, and the session hears what it is told.
        session.steer("behind").await.expect("accepted while it reads");
        assert_eq!(session.queue().await.expect("listed").len(), 1);
        let before = kinds(&journal, &session).await;
        assert!(before.contains(&"turn_answered") && !before.contains(&"child_spawned"), "{before:?}");
        if cancelled {
            session.cancel_tree().await.expect("cancelled");
            let ended = session.run_ended(receipt.run).await.expect("it ended");
            assert!(matches!(ended.outcome, Outcome::Cancelled { .. }), "{ended:?}");
            assert_eq!(ends(&journal, &session).await, [CallEnd::Cancelled]);
        }
        disk.answers();
        session.run_ended(receipt.run).await.expect("it ends");
        let children = session.tree().await.expect("a tree").children.len();
        assert_eq!(children, usize::from(!cancelled));
        if !cancelled {
            let first = told.lock().unwrap()[0].clone();
            let gone = "### gone\n\n(This file could not be read: ";
            assert!(first.contains("the text of a") && first.contains(gone), "{first}");
        }
        shut(runtime).await;
    }
}

#[tokio::test(start_paused = true)]
async fn b7_children_are_born_in_the_order_of_their_calls_whether_files_come_with_them_or_not() {
    let (disk, dir, told) = (Disk::default(), folder(), Arc::default());
    disk.answers();
    let plain = |at: usize| ("task", json!({"subagent_type": "worker", "prompt": format!("{at}"), "background": true}));
    let asked = (0..60).map(|at| match at % 3 {
        0 => plain(at),
        1 => ("subagent", json!({"task": format!("{at}"), "contextFiles": ["a"]})),
        _ => ("spawn", json!({"task": format!("{at}")})),
    });
    let journal = memory(&Memory::new());
    let answering = asking(asked.collect(), &told);
    let runtime = host(&journal, &dir, disk.faults(), answering, (OnRestart::Fail, 7)).await;
    let session = open(&runtime);
    let receipt = session.send("go").await.expect("accepted");
    session.run_ended(receipt.run).await.expect("it ends");
    let born = |record| match record {
        Record::ChildSpawned(spawned) => Some(spawned.call.ix),
        _ => None,
    };
    let order: Vec<u32> = records(&journal, session.id()).await.into_iter().filter_map(born).collect();
    assert_eq!(order, (0..60).collect::<Vec<_>>());
    assert_eq!(disk.begun.load(Ordering::Relaxed), 4, "so many are read for at a time");
    shut(runtime).await;
}

// Virtual time stands while something blocks, and the restart of an actor waits a little.
#[tokio::test]
async fn b7_an_actor_that_dies_while_files_are_read_reads_again_and_bears_one_child() {
    let (disk, dir, told) = (Disk::default(), folder(), Arc::default());
    let journal = memory(&Memory::new());
    let runtime = host(&journal, &dir, disk.faults(), asking(files(), &told), (OnRestart::Fail, 7)).await;
    let session = open(&runtime);
    let receipt = session.send("go").await.expect("accepted");
    disk.has_begun(1).await;
    disk.breaks.store(true, Ordering::Relaxed);
    let other = session.clone();
    let cleared = tokio::spawn(async move { other.queue_clear().await });
    disk.has_begun(2).await;
    disk.answers();
    let ended = session.run_ended(receipt.run).await.expect("it ends");
    assert_eq!(ended.outcome, Outcome::Completed);
    drop(cleared.await);
    assert_eq!(session.tree().await.expect("a tree").children.len(), 1);
    assert_eq!(told.lock().unwrap().len(), 1);
    assert!(!disk.breaks.load(Ordering::Relaxed), "the handler broke");
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn b7_a_host_that_dies_while_files_are_read_leaves_a_call_that_the_next_one_answers() {
    for on_restart in [OnRestart::Fail, OnRestart::Resume] {
        let (disk, dir, told, store) = (Disk::default(), folder(), Arc::default(), Memory::new());
        let journal = memory(&store);
        let runtime = host(&journal, &dir, disk.faults(), asking(files(), &told), (on_restart, 7)).await;
        let session = open(&runtime);
        let receipt = session.send("go").await.expect("accepted");
        disk.has_begun(1).await;
        journal.settled().await.expect("durable");
        let root = session.id();
        drop((session, runtime, journal));
        disk.answers();

        let journal = memory(&store);
        let runtime = host(&journal, &dir, disk.faults(), asking(files(), &told), (on_restart, 8)).await;
        let session = runtime.session(root).expect("readable").expect("there");
        let ended = session.run_ended(receipt.run).await.expect("it ends");
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
async fn b7_a_reading_that_fails_marks_its_files_and_the_child_is_born() {
    let (dir, told) = (folder(), Arc::default());
    let journal = memory(&Memory::new());
    let faults = Faults::new(|point, _| assert!(point != Point::Reading, "the disk broke"));
    let runtime = host(&journal, &dir, faults, asking(files(), &told), (OnRestart::Fail, 7)).await;
    let session = open(&runtime);
    let receipt = session.send("go").await.expect("accepted");
    session.run_ended(receipt.run).await.expect("it ends");
    let first = told.lock().unwrap()[0].clone();
    assert_eq!(first.matches("(This file could not be read: it was not read.)").count(), 2, "{first}");
    shut(runtime).await;
}
