//! Model and tool calls start only while the process holds its lease, and the end of the lease stops the runtime.

use std::sync::atomic::AtomicU64;

use crate::support::*;
use subtend_journal::faulty::{Faults, HeldWrites};
use subtend_supervision::Lease;

const WORK: Duration = Duration::from_secs(10);

/// A runtime whose journal can be held back, with its lease and its number of calls.
struct Leased {
    runtime: Runtime,
    session: SessionHandle,
    lease: Lease,
    /// The time of the lease's clock, in seconds.
    clock: Arc<AtomicU64>,
    faults: Faults,
    journal: Journal,
    _dir: tempfile::TempDir,
    /// Number of model calls, and of tool calls.
    begun: [Arc<AtomicUsize>; 2],
}

impl Leased {
    async fn start(leaves_process: bool) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        // The journal is written by a thread of its own, which can be held.
        let (engine, faults) = Faulty::new(Box::new(Redb::open(&dir.path().join("store"), 1 << 20).expect("a store")));
        let journal = on(Box::new(engine));
        let begun = [Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0))];
        let [requests, ran] = begun.clone();
        let answering = subtend_models::closure::fn_model("test", move |request, _| {
            requests.fetch_add(1, Ordering::SeqCst);
            let answer = if answers(&request).is_multiple_of(2) { calls([("write", json!({}))]) } else { text("done") };
            async { Ok(answer) }
        });
        let write = tool("write", ToolEffect::SideEffect, move |_| {
            ran.fetch_add(1, Ordering::SeqCst);
            async { Ok(ToolOutput::text("written")) }
        });
        let clock = Arc::new(AtomicU64::new(1));
        let reads = Arc::clone(&clock);
        let lease = Lease::new(WORK, move || Duration::from_secs(reads.load(Ordering::SeqCst)));
        assert!(lease.renew(lease.now()));
        let builder =
            builder(&journal).model(Arc::new(answering.with_leaves_process(leaves_process))).tools(tools([write]));
        let runtime = builder.lease(lease.clone()).start().await.expect("a runtime");
        let session = open(&runtime);
        // The session is active from here on, since a held journal cannot be read either.
        session.send("first").await.expect("accepted").answer().await.expect("an answer");
        journal.settled().await.expect("durable");
        assert!(lease.renew(lease.now()));
        begun.iter().for_each(|count| count.store(0, Ordering::SeqCst));
        Self { runtime, session, lease, clock, faults, journal, _dir: dir, begun }
    }

    fn begun(&self) -> [usize; 2] {
        [&self.begun[0], &self.begun[1]].map(|count| count.load(Ordering::SeqCst))
    }

    /// Waits until the journal has more records than when it was held.
    async fn appended(&self, before: subtend_session::ids::Lsn) {
        while self.journal.last_appended() == before {
            tokio::task::yield_now().await;
        }
    }
}

async fn calm() {
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
}

/// Simulates a pause of the whole process: time passes, and no timer fires before the work that was due.
async fn paused(leased: &Leased, held: HeldWrites) {
    leased.clock.fetch_add(WORK.as_secs(), Ordering::SeqCst);
    drop(held);
    leased.journal.settled().await.expect("the commit succeeded");
    calm().await;
}

#[tokio::test]
async fn d2_committed_call_does_not_start_after_the_lease() {
    let leased = Leased::start(true).await;
    let before = leased.journal.last_appended();
    let held = leased.faults.hold_writes();
    let session = leased.session.clone();
    let sending = tokio::spawn(async move { session.send("work").await });
    leased.appended(before).await;
    calm().await;
    assert_eq!(leased.begun(), [0, 0], "a call started before its intent was durable");
    paused(&leased, held).await;
    assert_eq!(leased.begun(), [0, 0], "a call started after the lease");
    assert!(!leased.lease.renew(leased.lease.now()), "a late renewal was accepted");
    sending.abort();
    assert!(leased.session.send("more").await.is_err(), "the stopped runtime accepted an input");
}

/// The owner of the lease then knows that the runtime's work has stopped. Control: a runtime that was not dropped.
#[tokio::test]
async fn d2_lease_is_released_by_a_dropped_runtime() {
    let Leased { runtime, session, lease, journal, .. } = Leased::start(false).await;
    lease.end();
    let released_early = tokio::select! {
        biased;
        () = lease.released() => true,
        () = calm() => false,
    };
    assert!(!released_early, "the control");
    drop((runtime, session));
    tokio::time::timeout(Duration::from_secs(60), lease.released()).await.expect("no holder remains");
    drop(journal);
}

/// The control: the same pause, but within the lease.
#[tokio::test]
async fn d2_committed_call_starts_within_the_lease() {
    let leased = Leased::start(true).await;
    let before = leased.journal.last_appended();
    let held = leased.faults.hold_writes();
    let session = leased.session.clone();
    let sending = tokio::spawn(async move { session.send("work").await });
    leased.appended(before).await;
    leased.clock.fetch_add(6, Ordering::SeqCst);
    assert!(leased.lease.renew(leased.lease.now()));
    leased.clock.fetch_add(6, Ordering::SeqCst);
    drop(held);
    let receipt = sending.await.expect("sent").expect("accepted");
    receipt.answer().await.expect("an answer");
    assert_eq!(leased.begun(), [2, 1]);
    leased.runtime.shutdown(Duration::from_secs(1)).await;
}

#[tokio::test]
async fn d2_tool_does_not_start_after_the_lease() {
    let leased = Leased::start(false).await;
    let (before, held) = (leased.journal.last_appended(), leased.faults.hold_writes());
    let session = leased.session.clone();
    let sending = tokio::spawn(async move { session.send("work").await });
    leased.appended(before).await;
    calm().await;
    assert_eq!(leased.begun(), [1, 0], "the tool did not wait for its intent");
    paused(&leased, held).await;
    assert_eq!(leased.begun(), [1, 0]);
    sending.abort();
    assert!(leased.session.send("more").await.is_err());
}

#[tokio::test]
async fn d2_runtime_stops_when_its_lease_ends() {
    let leased = Leased::start(false).await;
    let (before, held) = (leased.journal.last_appended(), leased.faults.hold_writes());
    let session = leased.session.clone();
    let waiting = tokio::spawn(async move { session.send("work").await });
    leased.appended(before).await;
    leased.lease.end();
    drop(held);
    if let Ok(receipt) = waiting.await.expect("no panic") {
        receipt.answer().await.expect_err("a stopped runtime answered");
    }
    let refused = leased.session.send("more").await.expect_err("the stopped runtime accepted an input");
    assert!(refused.to_string().contains("the runtime is shut down"), "{refused}");
}
