//! Review.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    unreachable_pub,
    reason = "a test fails by panicking"
)]

mod support;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use subtend_actors::faults::{Faults, Point};
use subtend_actors::{Next, Options, SendError, What};
use subtend_journal::Journal;
use subtend_models::model::{ModelError, Request};
use subtend_session::call::ToolEffect;
use subtend_session::ids::{RunNo, SessionId};
use subtend_session::limits::Limits;
use subtend_session::message::Message;
use subtend_session::outcome::{ModelFail, Outcome};
use subtend_session::record::Record;
use subtend_tools::tool::ToolOutput;
use support::{answers, ask, builder, calls, journal, model, open, prompt, records, shut, task, text, tool, tools};

const SOON: Duration = Duration::from_secs(30);

fn refused() -> ModelError {
    ModelError { kind: ModelFail::Auth, message: "no".into(), retry_after_ms: None, usage: None }
}

fn strikes(points: &'static [(Point, &'static str, usize)]) -> (Faults, Arc<Mutex<Vec<usize>>>) {
    let left = Arc::new(Mutex::new(vec![0; points.len()]));
    let struck = Arc::clone(&left);
    let faults = Faults::new(move |at, what| {
        for (ix, (point, detail, times)) in points.iter().enumerate() {
            if at == *point && what == *detail {
                let mut struck = struck.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                struck[ix] += 1;
                let n = struck[ix];
                drop(struck);
                assert!(n > *times, "a fault at {detail}");
            }
        }
    });
    (faults, left)
}

fn kid(journal: &Journal, parent: SessionId, nth: usize) -> SessionId {
    let mut kids = journal.kids(parent).expect("kids");
    kids.sort();
    kids[nth]
}

#[tokio::test(start_paused = true)]
async fn t01_an_input_that_comes_with_the_idle_timer_is_answered() {
    for (offset, yields) in (0..12_u64).flat_map(|offset| (0..4).map(move |yields| (offset, yields))) {
        let journal = journal();
        let options = Options { idle: Duration::from_secs(2), seed: Some(7), ..Options::default() };
        let answer = |_| async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Ok(text("hello"))
        };
        let runtime = builder(&journal).model(model(answer)).options(options).start().await.expect("a runtime");
        let (session, _) = ask(&runtime, "one").await;
        let sender = session.clone();
        // A task of its own: the timer that fires and the sender take their turns as they come.
        let sent = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(1_995 + offset)).await;
            for _ in 0..yields {
                tokio::task::consume_budget().await;
            }
            sender.send("two").await
        });
        let receipt = sent.await.unwrap().expect("accepted");
        let ended = tokio::time::timeout(SOON, session.run_ended(receipt.run)).await;
        assert!(ended.is_ok(), "offset {offset}, {yields} yields: the run never ended");
        let all = support::kinds(&journal, session.id()).await;
        let turns = all.iter().filter(|kind| **kind == "turn_started").count();
        assert_eq!(turns, 2, "offset {offset}, {yields} yields: {all:?}");
        shut(runtime).await;
    }
}

#[tokio::test(start_paused = true)]
async fn t02_the_end_of_a_run_does_not_drop_the_stream_of_the_next() {
    let journal = journal();
    let answer = |request: Request| async move {
        tokio::time::sleep(Duration::from_secs(1)).await;
        if answers(&request) == 0 && prompt(&request) == "one" && request.messages.len() == 1 {
            return Err(refused());
        }
        Ok(text("two"))
    };
    let runtime = builder(&journal).model(model(answer)).start().await.expect("a runtime");
    let session = open(&runtime);
    session.send("one").await.expect("accepted");
    session.send("two").await.expect("accepted");
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let ended = tokio::time::timeout(SOON, session.run_ended(RunNo(2))).await;
    let all = support::kinds(&journal, session.id()).await;
    assert_eq!(ended.expect("the second run ends").expect("lives").outcome, Outcome::Completed, "{all:?}");
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn t03_two_ends_in_one_batch_are_both_told() {
    let journal = journal();
    let made = Arc::new(AtomicUsize::new(0));
    let answer = move |_| {
        let first = made.fetch_add(1, Ordering::Relaxed) == 0;
        async move {
            if first {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            Err(refused())
        }
    };
    let runtime = builder(&journal).model(model(answer)).start().await.expect("a runtime");
    let session = open(&runtime);
    session.send("one").await.expect("accepted");
    session.send("two").await.expect("accepted");
    let (one, two) = (session.clone(), session.clone());
    let one = tokio::spawn(async move { one.run_ended(RunNo(1)).await });
    let two = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(2)).await;
        two.run_ended(RunNo(2)).await
    });
    let two = tokio::time::timeout(SOON, two).await.expect("two").expect("joined").expect("ended");
    assert_eq!(two.run, RunNo(2));
    let one =
        tokio::time::timeout(SOON, one).await.expect("the first run's end is told").expect("joined").expect("ended");
    assert_eq!(one.run, RunNo(1));
    // An end that was before the last one is still known.
    let late = session.run_ended(RunNo(1)).await.expect("known");
    assert_eq!(late.run, RunNo(1));
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn t05_a_quiet_session_that_was_given_up_gives_up_no_later_run() {
    let journal = journal();
    let (faults, _) = strikes(&[(Point::Handler, "submit", 2), (Point::Handler, "model_answered", 1)]);
    let answer = |_| async {
        tokio::time::sleep(Duration::from_millis(1)).await;
        Ok(text("hello"))
    };
    let runtime = builder(&journal).model(model(answer)).faults(faults).start().await.expect("a runtime");
    let session = open(&runtime);
    let mut receipt = session.send("one").await;
    for _ in 0..3 {
        if receipt.is_err() {
            receipt = session.send("one").await;
        }
    }
    let ended = tokio::time::timeout(SOON, session.run_ended(receipt.expect("accepted").run)).await;
    assert_eq!(ended.expect("ends").expect("lives").outcome, Outcome::Completed);
    shut(runtime).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t06_giving_up_that_fails_too_is_not_a_hot_loop() {
    let journal = journal();
    let (faults, struck) =
        strikes(&[(Point::Handler, "restarts_exhausted", usize::MAX), (Point::Handler, "model_answered", usize::MAX)]);
    let answer = |_| async {
        tokio::time::sleep(Duration::from_millis(1)).await;
        Ok(text("hello"))
    };
    let runtime = builder(&journal).model(model(answer)).faults(faults).start().await.expect("a runtime");
    let session = open(&runtime);
    drop(session.send("one").await);
    tokio::time::sleep(Duration::from_secs(3)).await;
    let struck = struck.lock().unwrap()[0];
    drop(runtime.shutdown(Duration::from_secs(1)).await);
    assert!(struck < 20, "{struck} restarts in three seconds");
}

#[tokio::test(start_paused = true)]
async fn t07_a_panic_in_the_sweep_does_not_resume_the_run() {
    let journal = journal();
    let answer = |_| async {
        tokio::time::sleep(Duration::from_secs(100)).await;
        Ok(text("hello"))
    };
    let runtime = builder(&journal).model(model(answer)).start().await.expect("a runtime");
    let session = open(&runtime).id();
    runtime.session(session).unwrap().unwrap().send("one").await.expect("accepted");
    drop(runtime);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (faults, struck) = strikes(&[(Point::Handler, "lost", 1)]);
    let runtime = builder(&journal).model(model(answer)).faults(faults).start().await.expect("a runtime");
    assert!(struck.lock().unwrap()[0] > 0);
    let all = records(&journal, session).await;
    assert!(
        matches!(all.last(), Some(Record::RunEnded(ended)) if ended.outcome == Outcome::Lost),
        "{:?}",
        all.iter().map(Record::kind).collect::<Vec<_>>()
    );
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn t08_a_queued_run_that_survives_the_host_is_started() {
    let journal = journal();
    let answer = |request: Request| async move {
        match (prompt(&request).as_str(), answers(&request)) {
            ("parent", 0) => Ok(calls([task("quick", false)])),
            ("parent", 1) => Ok(calls([task("hang", true)])),
            ("parent", _) => Ok(text("resting")),
            ("hang", _) => {
                std::future::pending::<()>().await;
                Ok(text("never"))
            }
            (_, 1) if request.messages.len() < 4 => Ok(calls([task("below", false)])),
            (_, _) => Ok(text("quick")),
        }
    };
    let limits = Limits { live_runs: 1, ..Limits::default() };
    let runtime = builder(&journal).model(model(answer)).limits(limits.clone()).start().await.expect("a runtime");
    let parent = open(&runtime);
    parent.send("parent").await.expect("accepted");
    tokio::time::sleep(Duration::from_secs(1)).await;
    let kids = journal.kids(parent.id()).expect("kids");
    let quiet = |kid: &&SessionId| journal.inflight().expect("inflight").iter().all(|(id, _)| id != *kid);
    let quick = *kids.iter().find(quiet).expect("a quiet child");
    let again = runtime.session(quick).unwrap().unwrap().send("again").await.expect("accepted");
    assert_eq!(again.run, RunNo(2), "{:?}", support::kinds(&journal, quick).await);
    drop(parent);
    drop(runtime);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let runtime = builder(&journal).model(model(answer)).limits(limits).start().await.expect("a runtime");
    let ended = tokio::time::timeout(SOON, runtime.session(quick).unwrap().unwrap().run_ended(RunNo(2))).await;
    let all = support::kinds(&journal, quick).await;
    assert_eq!(ended.unwrap_or_else(|_| panic!("never ends: {all:?}")).expect("lives").outcome, Outcome::Completed);
    let below = kid(&journal, quick, 0);
    let all = records(&journal, below).await;
    assert!(matches!(all.last(), Some(Record::RunEnded(ended)) if ended.outcome == Outcome::Completed), "{all:#?}");
    shut(runtime).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t09_a_child_that_is_addressed_while_it_is_born_still_runs() {
    let journal = journal();
    let (told, tell) = std::sync::mpsc::channel();
    let once = AtomicUsize::new(0);
    let looked = journal.clone();
    let faults = Faults::new(move |at, _| {
        if at == Point::AfterAppend
            && let Some((child, _)) = looked.heads().expect("heads").into_iter().find(|(id, head)| *id != head.root)
            && once.fetch_add(1, Ordering::Relaxed) == 0
        {
            told.send(child).expect("heard");
            std::thread::sleep(Duration::from_millis(300));
        }
    });
    let answer = |request: Request| async move {
        match (prompt(&request).as_str(), answers(&request)) {
            ("parent", 0) => Ok(calls([task("child", false)])),
            ("child", _) => {
                tokio::time::sleep(Duration::from_secs(1)).await;
                Ok(text("done"))
            }
            (_, _) => Ok(text("done")),
        }
    };
    let runtime = builder(&journal).model(model(answer)).faults(faults).start().await.expect("a runtime");
    let session = open(&runtime);
    let sender = session.clone();
    let sent = tokio::spawn(async move { sender.send("parent").await });
    let child = tokio::task::spawn_blocking(move || tell.recv().expect("a child")).await.expect("joined");
    let id = child;
    let child = runtime.session(child).unwrap().unwrap();
    let waits = tokio::spawn(async move { child.run_ended(RunNo(1)).await });
    let receipt = sent.await.unwrap().expect("accepted");
    let ended = tokio::time::timeout(Duration::from_secs(5), session.run_ended(receipt.run)).await;
    assert_eq!(ended.expect("the parent ends").expect("lives").outcome, Outcome::Completed);
    let ended = tokio::time::timeout(Duration::from_secs(5), waits).await;
    assert_eq!(ended.expect("the child ends").unwrap().expect("lives").outcome, Outcome::Completed);
    let all = support::kinds(&journal, id).await;
    assert_eq!(all.iter().filter(|kind| **kind == "turn_started").count(), 1, "{all:?}");
    assert_eq!(runtime.slots_in_use(), 0);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn t10_no_model_is_called_below_a_cancelled_run() {
    let journal = journal();
    let cancelled = Arc::new(AtomicUsize::new(0));
    let after = Arc::new(AtomicUsize::new(0));
    let (off, late) = (Arc::clone(&cancelled), Arc::clone(&after));
    let answer = move |request: Request| {
        if off.load(Ordering::Relaxed) == 1 {
            late.fetch_add(1, Ordering::Relaxed);
        }
        async move {
            let depth: u32 = prompt(&request).parse().unwrap_or(0);
            match (depth, answers(&request)) {
                (0, 0) => Ok(calls([("hang", serde_json::json!({}))])),
                (_, 0) => Ok(calls([task(&(depth - 1).to_string(), false)])),
                (_, _) => Ok(text("done")),
            }
        }
    };
    let hang = tool("hang", ToolEffect::ReadOnly, |_| async {
        std::future::pending::<()>().await;
        Ok(ToolOutput::text("never"))
    });
    let runtime = builder(&journal).tools(tools([hang])).model(model(answer)).start().await.expect("a runtime");
    let session = open(&runtime);
    let receipt = session.send("5").await.expect("accepted");
    tokio::time::sleep(Duration::from_secs(1)).await;
    cancelled.store(1, Ordering::Relaxed);
    drop(session.cancel().await.expect("cancelled"));
    tokio::time::timeout(SOON, session.run_ended(receipt.run)).await.expect("ends").expect("lives");
    assert_eq!(after.load(Ordering::Relaxed), 0, "models called after the cancel");
    for (id, _) in journal.heads().expect("heads") {
        let all = records(&journal, id).await;
        assert!(
            matches!(all.last(), Some(Record::RunEnded(ended)) if matches!(ended.outcome, Outcome::Cancelled { .. })),
            "{:?}",
            all.last()
        );
    }
    shut(runtime).await;
}

struct Alive(Arc<AtomicUsize>);
impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn hanging(alive: &Arc<AtomicUsize>) -> Arc<dyn subtend_models::model::Model> {
    let alive = Arc::clone(alive);
    model(move |_| {
        alive.fetch_add(1, Ordering::Relaxed);
        let guard = Alive(Arc::clone(&alive));
        async move {
            std::future::pending::<()>().await;
            drop(guard);
            Ok(text("never"))
        }
    })
}

#[test]
fn t11_dropped_outside_of_tokio_it_stops_all_the_same() {
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let alive = Arc::new(AtomicUsize::new(0));
    let runtime = tokio.block_on(async {
        let runtime = builder(&journal()).model(hanging(&alive)).start().await.expect("a runtime");
        open(&runtime).send("one").await.expect("accepted");
        runtime
    });
    assert_eq!(alive.load(Ordering::Relaxed), 1);
    drop(runtime);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(alive.load(Ordering::Relaxed), 0, "the stream goes on");
}

#[tokio::test(start_paused = true)]
async fn t12_a_shutdown_that_is_given_up_still_stops_all() {
    let alive = Arc::new(AtomicUsize::new(0));
    let runtime = builder(&journal()).model(hanging(&alive)).start().await.expect("a runtime");
    let session = open(&runtime);
    let receipt = session.send("one").await.expect("accepted");
    let waits = tokio::spawn(async move { session.run_ended(receipt.run).await });
    let shutdown = tokio::time::timeout(Duration::from_secs(1), runtime.shutdown(Duration::from_secs(60))).await;
    assert!(shutdown.is_err());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(alive.load(Ordering::Relaxed), 0, "the stream goes on");
    assert!(tokio::time::timeout(SOON, waits).await.expect("told").unwrap().is_err());
}

#[tokio::test]
async fn t13_dropped_it_lets_the_store_go() {
    let place = tempfile::tempdir().expect("a directory");
    let at = subtend_journal::store::StoreSpec::Redb(place.path().join("store"));
    let journal = subtend_journal::store::open_store(&at).expect("a store");
    let alive = Arc::new(AtomicUsize::new(0));
    let runtime = builder(&journal).model(hanging(&alive)).start().await.expect("a runtime");
    drop(journal);
    open(&runtime).send("one").await.expect("accepted");
    drop(runtime);
    for _ in 0..50 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        if subtend_journal::store::open_store(&at).is_ok() {
            return;
        }
    }
    panic!("the store is still locked");
}

#[tokio::test(start_paused = true)]
async fn t14_a_subscriber_of_all_sees_roots_being_opened() {
    let journal = journal();
    let runtime = builder(&journal).model(model(|_| async { Ok(text("hello")) })).start().await.expect("a runtime");
    let mut events = runtime.subscribe(None);
    ask(&runtime, "one").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut seqs = Vec::new();
    while let Some(Next::Event(event)) = events.try_next() {
        if let What::Record { seq, .. } = event.what {
            seqs.push(seq.0);
        }
    }
    assert_eq!(seqs, (1..=8).collect::<Vec<_>>());
    shut(runtime).await;
}

#[tokio::test]
async fn t15_many_large_results_at_once_are_recorded() {
    let place = tempfile::tempdir().expect("a directory");
    let at = subtend_journal::store::StoreSpec::Redb(place.path().join("store"));
    let journal = subtend_journal::store::open_store(&at).expect("a store");
    let big = tool("big", ToolEffect::ReadOnly, |_| async { Ok(ToolOutput::text("x".repeat(250 << 10))) });
    let answer = |request: Request| async move {
        if answers(&request) == 0 {
            return Ok(calls((0..8).map(|_| ("big", serde_json::json!({})))));
        }
        let results = request.messages.iter().filter(|message| matches!(message, Message::Result { .. })).count();
        Ok(text(&results.to_string()))
    };
    let runtime = builder(&journal).tools(tools([big])).model(model(answer)).start().await.expect("a runtime");
    let session = open(&runtime);
    let receipt = session.send("one").await.expect("accepted");
    let ended = tokio::time::timeout(Duration::from_secs(5), session.run_ended(receipt.run)).await;
    let ended = ended.expect("ends").expect("lives");
    assert_eq!((ended.outcome, ended.text.as_deref()), (Outcome::Completed, Some("8")));
    shut(runtime).await;
}

#[tokio::test]
async fn t15b_an_answer_that_no_frame_holds_ends_the_run() {
    let place = tempfile::tempdir().expect("a directory");
    let at = subtend_journal::store::StoreSpec::Redb(place.path().join("store"));
    let journal = subtend_journal::store::open_store(&at).expect("a store");
    let answer = |_| async move {
        tokio::time::sleep(Duration::from_millis(5)).await;
        Ok(text(&"x".repeat(2 << 20)))
    };
    let runtime = builder(&journal).model(model(answer)).start().await.expect("a runtime");
    let session = open(&runtime);
    let receipt = session.send("one").await.expect("accepted");
    let ended = tokio::time::timeout(Duration::from_secs(5), session.run_ended(receipt.run)).await;
    println!("{:?}", ended.expect("ends").expect("lives").outcome);
    shut(runtime).await;
}

#[tokio::test]
async fn t15c_many_large_notices_at_once_are_recorded() {
    let place = tempfile::tempdir().expect("a directory");
    let at = subtend_journal::store::StoreSpec::Redb(place.path().join("store"));
    let journal = subtend_journal::store::open_store(&at).expect("a store");
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let open_gate = Arc::clone(&gate);
    let answer = move |request: Request| {
        let gate = Arc::clone(&gate);
        async move {
            match (prompt(&request).as_str(), answers(&request)) {
                ("parent", 0) => Ok(calls((0..48).map(|_| task("child", false)))),
                ("parent", _) => Ok(text("done")),
                (_, _) => {
                    let _pass = gate.acquire().await;
                    Ok(text(&"x".repeat(40 << 10)))
                }
            }
        }
    };
    let limits = Limits { live_runs: 64, ..Limits::default() };
    let runtime = builder(&journal).model(model(answer)).limits(limits).start().await.expect("a runtime");
    let session = open(&runtime);
    let receipt = session.send("parent").await.expect("accepted");
    tokio::time::sleep(Duration::from_millis(500)).await;
    open_gate.add_permits(100);
    let ended = tokio::time::timeout(Duration::from_secs(8), session.run_ended(receipt.run)).await;
    let ended = ended.expect("ends").expect("lives");
    assert_eq!((ended.outcome, ended.text.as_deref()), (Outcome::Completed, Some("done")));
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn t16_a_tool_in_its_grace_does_not_hold_a_shutdown_up() {
    let journal = journal();
    let hang = tool("hang", ToolEffect::SideEffect, |_| async {
        std::future::pending::<()>().await;
        Ok(ToolOutput::text("never"))
    });
    let answer = |request: Request| async move {
        if answers(&request) == 0 { Ok(calls([("hang", serde_json::json!({}))])) } else { Ok(text("done")) }
    };
    let limits = Limits { tool_ms: 1_000, ..Limits::default() };
    let runtime =
        builder(&journal).tools(tools([hang])).limits(limits).model(model(answer)).start().await.expect("a runtime");
    ask(&runtime, "one").await;
    let began = tokio::time::Instant::now();
    let report = runtime.shutdown(Duration::from_millis(100)).await;
    assert_eq!((report.actors, report.tasks), (0, 0));
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn t17_a_receipt_names_the_run_of_its_input() {
    let journal = journal();
    let answer = |_| async { Err(refused()) };
    let runtime = builder(&journal).model(model(answer)).start().await.expect("a runtime");
    let session = open(&runtime);
    let (one, two) = tokio::join!(session.send("one"), session.send("two"));
    assert_eq!((one.expect("one").run, two.expect("two").run), (RunNo(1), RunNo(1)));
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn t18_a_refused_spawn_uses_up_nothing() {
    let journal = journal();
    let answer = |request: Request| async move {
        match (prompt(&request).as_str(), answers(&request)) {
            ("parent", 0) => Ok(calls([task("child", false)])),
            ("parent", 1) => Ok(calls([task("second", false)])),
            ("child", 0) => Ok(calls([task("too deep", false)])),
            (_, _) => Ok(text("done")),
        }
    };
    let limits = Limits { max_depth: 1, spawns: 2, ..Limits::default() };
    let runtime = builder(&journal).model(model(answer)).limits(limits).start().await.expect("a runtime");
    let (session, _) = ask(&runtime, "parent").await;
    assert_eq!(journal.kids(session.id()).expect("kids").len(), 2);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn t20_a_panic_after_the_end_leaves_no_account_open() {
    let journal = journal();
    let (faults, _) = strikes(&[(Point::AfterAppend, "run_ended", 2)]);
    let answer = |request: Request| async move {
        tokio::time::sleep(Duration::from_millis(1)).await;
        let last = request.messages.iter().rev().find_map(|message| match message {
            Message::User { text, .. } => Some(text.to_string()),
            _ => None,
        });
        match (last.as_deref(), request.messages.last()) {
            (Some("parent"), Some(Message::User { .. })) => Ok(calls([task("child", false)])),
            (_, _) => Ok(text("done")),
        }
    };
    let limits = Limits { spawns: 1, ..Limits::default() };
    let runtime =
        builder(&journal).model(model(answer)).limits(limits).faults(faults).start().await.expect("a runtime");
    let (session, _) = ask(&runtime, "parent").await;
    let again = session.send("parent").await.expect("accepted");
    session.run_ended(again.run).await.expect("ended");
    assert_eq!(journal.kids(session.id()).expect("kids").len(), 2);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn t21_an_input_that_is_refused_is_not_kept() {
    let journal = journal();
    let (faults, _) = strikes(&[(Point::AfterAppend, "turn_started", 1)]);
    let answer = |_| async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok(text("hello"))
    };
    let runtime = builder(&journal).model(model(answer)).faults(faults).start().await.expect("a runtime");
    let session = open(&runtime);
    let sent = session.send("one").await;
    let kept = support::kinds(&journal, session.id()).await.iter().filter(|kind| **kind == "input_accepted").count();
    assert_eq!((sent.is_ok(), kept), (true, 1), "{sent:?}");
    assert!(!matches!(sent, Err(SendError::Stopped(_))));
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn t22_a_wait_survives_a_panic() {
    let journal = journal();
    let (faults, _) = strikes(&[(Point::Handler, "model_answered", 1)]);
    let answer = |_| async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok(text("hello"))
    };
    let runtime = builder(&journal).model(model(answer)).faults(faults).start().await.expect("a runtime");
    let session = open(&runtime);
    let receipt = session.send("one").await.expect("accepted");
    let mut waits = Vec::new();
    for offset in 995..1_005_u64 {
        let session = session.clone();
        waits.push(tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(offset)).await;
            session.run_ended(receipt.run).await
        }));
    }
    for wait in waits {
        assert_eq!(wait.await.unwrap().expect("the runtime lives").outcome, Outcome::Completed);
    }
    shut(runtime).await;
}
