//! Sessions whose actors crash repeatedly: the right run ends, with its true cause, and restarts are limited.

use crate::support::*;

const TEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Panics at each point with its detail, the given number of times.
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
                assert!(n > *times, "injected fault at {detail}");
            }
        }
    });
    (faults, left)
}

#[tokio::test(start_paused = true)]
async fn later_run_is_not_ended_for_an_earlier_crash_loop() {
    let journal = journal();
    let (faults, struck) = strikes(&[(Point::Handler, "submit", 2), (Point::Handler, "model_answered", 1)]);
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
    let ended = tokio::time::timeout(TEST_TIMEOUT, session.run_ended(receipt.expect("accepted").run)).await;
    assert_eq!(ended.expect("the run ends").expect("the runtime is running").outcome, Outcome::Completed);
    assert_eq!(*struck.lock().unwrap(), [3, 2], "expected both faults to strike before the commands succeeded");
    shut(runtime).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crash_while_ending_a_run_is_retried_with_a_delay() {
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
    seconds(3).await;
    let struck = struck.lock().unwrap()[0];
    runtime.shutdown(Duration::from_secs(1)).await;
    assert!((1..20).contains(&struck), "{struck} restarts in three seconds");
}

#[tokio::test(start_paused = true)]
async fn panic_after_the_end_leaves_no_open_account() {
    let journal = journal();
    let (faults, struck) = strikes(&[(Point::AfterAppend, "run_ended", 2)]);
    let answer = |request: Request| async move {
        tokio::time::sleep(Duration::from_millis(1)).await;
        let last = last_user(&request);
        match (last.as_str(), request.messages.last()) {
            ("parent", Some(Message::User { .. })) => Ok(calls([task("child", false)])),
            (_, _) => Ok(text("done")),
        }
    };
    let limits = Limits { spawns: 1, ..Limits::default() };
    let runtime = started(builder(&journal).model(model(answer)).limits(limits).faults(faults)).await;
    let (session, _) = ask(&runtime, "parent").await;
    let again = session.send("parent").await.expect("accepted");
    session.run_ended(again.run).await.expect("ended");
    assert_eq!(journal.children(session.id()).expect("children").len(), 2);
    assert!(struck.lock().unwrap()[0] > 2, "the fault did not strike often enough");
    shut(runtime).await;
}
