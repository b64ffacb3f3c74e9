//! Output commit: effects wait for the record of their intent (J-5), and a failed write stops everything (J-9).

use crate::support::*;
use subtend_journal::faulty::Faults;

/// Returns an idle session whose store can hold writes back, and a counter of its model calls.
async fn quiet(dir: &std::path::Path) -> (Runtime, Journal, Faults, SessionHandle, Arc<AtomicUsize>) {
    let redb = Redb::open(&dir.join("store"), 1 << 20).expect("a store");
    let (engine, faults) = Faulty::new(Box::new(redb));
    let journal = on(Box::new(engine));
    let made = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&made);
    let model = fn_model("leaves", move |_, _| {
        count.fetch_add(1, Ordering::Relaxed);
        async { Ok(text("hello")) }
    });
    let runtime = builder(&journal).model(Arc::new(model.with_leaves_process(true))).start().await.expect("a runtime");
    let (session, receipt) = sent(&runtime, "one").await;
    session.run_ended(receipt.run).await.expect("ended");
    (runtime, journal, faults, session, made)
}

#[tokio::test]
async fn model_call_and_receipt_wait_for_their_records() {
    let dir = tempfile::tempdir().expect("a directory");
    let (runtime, journal, faults, session, made) = quiet(dir.path()).await;
    let before = journal.last_appended();
    let held = faults.hold_writes();
    let sender = session.clone();
    let sending = tokio::spawn(async move { sender.send("two").await });
    while journal.last_appended() == before {
        tokio::task::yield_now().await;
    }
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(made.load(Ordering::Relaxed), 1, "the second call was made before its intent was on the disk");
    assert!(!sending.is_finished(), "the input was acknowledged before it was on the disk");
    drop(held);
    let receipt = sending.await.expect("sent").expect("accepted");
    let ended = session.run_ended(receipt.run).await.expect("ended");
    assert_eq!((ended.outcome, made.load(Ordering::Relaxed)), (Outcome::Completed, 2));
    runtime.shutdown(Duration::from_secs(1)).await;
}

#[tokio::test]
async fn failed_write_stops_all_acknowledgements() {
    let dir = tempfile::tempdir().expect("a directory");
    let (runtime, journal, faults, session, made) = quiet(dir.path()).await;
    faults.fail_write(faults.writes() + 1);
    let sent = session.send("two").await;
    assert!(matches!(sent, Err(SendError::Stopped(_))), "{sent:?}");
    assert!(journal.poisoned().is_some());
    assert_eq!(made.load(Ordering::Relaxed), 1, "a call was made although its intent failed");
    let again = session.send("three").await;
    assert!(matches!(again, Err(SendError::Stopped(_))), "{again:?}");
    runtime.shutdown(Duration::from_secs(1)).await;
}

#[tokio::test]
async fn failed_sync_stops_all_acknowledgements() {
    let dir = tempfile::tempdir().expect("a directory");
    let (runtime, journal, faults, session, made) = quiet(dir.path()).await;
    faults.fail_sync(faults.writes() + 1);
    let sent = session.send("two").await;
    assert!(matches!(sent, Err(SendError::Stopped(_))), "{sent:?}");
    assert!(journal.poisoned().is_some());
    assert_eq!(made.load(Ordering::Relaxed), 1, "a call was made although its intent failed");
    let again = session.send("three").await;
    assert!(matches!(again, Err(SendError::Stopped(_))), "{again:?}");
    runtime.shutdown(Duration::from_secs(1)).await;
}

/// A call that reads the journal first reports that the runtime has stopped, and not an invalid argument.
#[tokio::test]
async fn override_after_a_stop_reports_the_stop() {
    let dir = tempfile::tempdir().expect("a directory");
    let (runtime, journal, _, session, _) = quiet(dir.path()).await;
    runtime.shutdown(Duration::from_secs(1)).await;
    journal.close().await.expect("closed");
    let sent = session.input("two").agent("worker").send().await;
    assert!(matches!(sent, Err(SendError::Stopped(_))), "{sent:?}");
}
