//! Receipts and waits: the right run, and always an answer, even after panics.

use crate::support::*;

const TEST_TIMEOUT: Duration = Duration::from_secs(30);

#[tokio::test(start_paused = true)]
async fn two_ends_in_one_batch_are_both_reported() {
    let made = Arc::new(AtomicUsize::new(0));
    let answer = move |_| {
        let first = made.fetch_add(1, Ordering::Relaxed) == 0;
        async move {
            if first {
                seconds(1).await;
            }
            Err(refused())
        }
    };
    let runtime = builder(&journal()).model(model(answer)).start().await.expect("a runtime");
    let (session, _) = sent(&runtime, "one").await;
    session.send("two").await.expect("accepted");
    let (one, two) = (session.clone(), session.clone());
    let one = tokio::spawn(async move { one.run_ended(RunNo(1)).await });
    let two = tokio::spawn(async move {
        seconds(2).await;
        two.run_ended(RunNo(2)).await
    });
    let two = tokio::time::timeout(TEST_TIMEOUT, two).await.expect("two").expect("joined").expect("ended");
    assert_eq!(two.run, RunNo(2));
    let one = tokio::time::timeout(TEST_TIMEOUT, one)
        .await
        .expect("the first run's end is reported")
        .expect("joined")
        .expect("ended");
    assert_eq!(one.run, RunNo(1));
    // An end before the last one is still known.
    let late = session.run_ended(RunNo(1)).await.expect("known");
    assert_eq!(late.run, RunNo(1));
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn receipt_names_the_run_of_its_input() {
    let journal = journal();
    let answer = |_| async { Err(refused()) };
    let runtime = builder(&journal).model(model(answer)).start().await.expect("a runtime");
    let session = open(&runtime);
    let (one, two) = tokio::join!(session.send("one"), session.send("two"));
    assert_eq!((one.expect("a runtime").run, two.expect("two").run), (RunNo(1), RunNo(1)));
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn input_is_accepted_once_when_a_panic_loses_the_reply() {
    for (point, detail) in [(Point::AfterAppend, "turn_started"), (Point::Handler, "submit")] {
        let journal = journal();
        let struck = AtomicUsize::new(0);
        let faults = Faults::new(move |at, what| {
            assert!(
                at != point || what != detail || struck.fetch_add(1, Ordering::Relaxed) > 0,
                "injected fault at {detail}"
            );
        });
        let answer = |_| async {
            seconds(1).await;
            Ok(text("hello"))
        };
        let runtime = builder(&journal).model(model(answer)).faults(faults).start().await.expect("a runtime");
        let (session, receipt) = sent(&runtime, "one").await;
        assert_eq!((receipt.run, receipt.duplicate), (RunNo(1), false));
        assert_eq!(session.run_ended(receipt.run).await.expect("the runtime is running").outcome, Outcome::Completed);
        let all = kinds(&journal, session.id()).await;
        assert_eq!(all.iter().filter(|kind| **kind == "input_accepted").count(), 1, "{all:?}");
        shut(runtime).await;
    }
}

#[tokio::test(start_paused = true)]
async fn wait_survives_a_panic() {
    let journal = journal();
    let struck = AtomicUsize::new(0);
    let faults = Faults::new(move |at, what| {
        let strikes = at == Point::Handler && what == "model_answered";
        assert!(!strikes || struck.fetch_add(1, Ordering::Relaxed) > 0, "injected fault");
    });
    let answer = |_| async {
        seconds(1).await;
        Ok(text("hello"))
    };
    let runtime = builder(&journal).model(model(answer)).faults(faults).start().await.expect("a runtime");
    let (session, receipt) = sent(&runtime, "one").await;
    let mut waits = Vec::new();
    // Some of the probes are drained together with the answer that panics.
    for offset in 995..1_005_u64 {
        let session = session.clone();
        waits.push(tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(offset)).await;
            session.run_ended(receipt.run).await
        }));
    }
    for wait in waits {
        assert_eq!(wait.await.unwrap().expect("the runtime is running").outcome, Outcome::Completed);
    }
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn wait_for_a_withdrawn_run_ends_with_the_previous_run() {
    let journal = journal();
    let answer = |_| async {
        seconds(1).await;
        Ok(text("done"))
    };
    let runtime = builder(&journal).model(model(answer)).start().await.expect("a runtime");
    let (session, _) = sent(&runtime, "one").await;
    let never = tokio::time::timeout(TEST_TIMEOUT, session.run_ended(RunNo(2))).await.expect("an answer");
    assert_eq!(never, Err(WaitError::NoSuchRun { session: session.id(), run: RunNo(2) }));
    shut(runtime).await;
}
