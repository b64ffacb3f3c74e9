//! The boot sweep: each run that was in flight when the host died ends as lost, and its owner is notified once.

use crate::support::*;

async fn tree(request: Request) -> Result<Answer, ModelError> {
    let depth: u32 = prompt(&request).parse().unwrap_or(0);
    if depth > 0 && answers(&request) == 0 {
        return Ok(calls([task(&(depth - 1).to_string(), false), task(&(depth - 1).to_string(), true)]));
    }
    seconds(3600).await;
    Ok(text("late"))
}

#[tokio::test(start_paused = true)]
async fn run_in_flight_ends_lost_and_notifies_its_owner_once() {
    let memory = Memory::new();
    let journal = reopen(&memory);
    let runtime = builder(&journal).model(model(tree)).start().await.expect("a runtime");
    let _sent = sent(&runtime, "3").await;
    seconds(30).await;
    let in_flight = journal.inflight().expect("inflight").len();
    assert!(in_flight > 3, "{in_flight}");
    drop((runtime, journal));

    let journal = reopen(&memory);
    let runtime = builder(&journal).model(model(tree)).start().await.expect("a runtime");
    let boot = runtime.boot();
    assert_eq!((boot.swept, boot.waiting, boot.notices, &*boot.failures), (in_flight, 0, in_flight - 1, &[][..]));
    assert_eq!(journal.inflight().expect("inflight"), []);
    assert_eq!(journal.outbox().expect("outbox"), []);
    let mut lost = 0;
    for (id, _) in journal.heads().expect("heads") {
        for record in records(&journal, id).await {
            if let Record::RunEnded(ended) = record {
                lost += usize::from(ended.outcome == Outcome::Lost);
            }
        }
    }
    assert!(lost > 3, "only {lost} runs ended as lost; those that never started end with their owner");
    shut(runtime).await;
    let again = reopen(&memory);
    let runtime = builder(&again).model(model(tree)).start().await.expect("a runtime");
    assert_eq!(runtime.boot().swept, 0, "a second recovery found work");
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn owner_continues_with_the_failure_of_its_child_in_context() {
    let memory = Memory::new();
    let journal = reopen(&memory);
    let runtime = builder(&journal).model(model(tree)).start().await.expect("a runtime");
    let (session, _) = sent(&runtime, "1").await;
    seconds(30).await;
    drop((runtime, journal));

    let journal = reopen(&memory);
    let seen = Arc::new(AtomicUsize::new(0));
    let received = Arc::clone(&seen);
    let answer = move |request: Request| {
        let failures = request.messages.iter().filter(|message| match message {
            Message::Result { content, .. } => content.contains("lost"),
            Message::Notice { text, .. } => text.contains("lost"),
            _ => false,
        });
        received.fetch_max(failures.count(), Ordering::Relaxed);
        async { Ok(text("I see")) }
    };
    let runtime = builder(&journal).model(model(answer)).start().await.expect("a runtime");
    let session = runtime.session(session.id()).expect("readable").expect("the session exists");
    let receipt = session.send("what happened?").await.expect("accepted");
    let ended = session.run_ended(receipt.run).await.expect("ended");
    assert_eq!((ended.run.0, ended.outcome), (2, Outcome::Completed));
    assert_eq!(seen.load(Ordering::Relaxed), 2, "expected one notice of each child");
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn boot_does_not_change_a_finished_tree() {
    let memory = Memory::new();
    let journal = reopen(&memory);
    let answer = |_| async { Ok(text("done")) };
    let runtime = builder(&journal).model(model(answer)).start().await.expect("a runtime");
    let (session, _) = ask(&runtime, "hi").await;
    let before = records(&journal, session.id()).await;
    shut(runtime).await;
    let journal = reopen(&memory);
    let runtime = builder(&journal).model(model(answer)).start().await.expect("a runtime");
    assert_eq!(runtime.boot().swept, 0);
    assert_eq!(records(&journal, session.id()).await, before);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn swept_sessions_leave_memory_during_the_sweep() {
    const ROOTS: usize = 1_500;
    let memory = Memory::new();
    let journal = reopen(&memory);
    let roomy = || Options { slots: usize::MAX, ..Options::default() };
    let runtime = builder(&journal).options(roomy()).model(model(tree)).start().await.expect("a runtime");
    for _ in 0..ROOTS {
        open(&runtime).send("0").await.expect("accepted");
    }
    drop((runtime, journal));

    let journal = reopen(&memory);
    let runtime = builder(&journal).options(roomy()).model(model(tree)).start().await.expect("a runtime");
    let (begun, present) = (tokio::time::Instant::now(), runtime.stats().loaded);
    assert_eq!(runtime.boot().swept, ROOTS);
    assert!(present < ROOTS / 2, "{present} sessions are in memory after the start");
    while runtime.stats().loaded > 0 {
        tokio::task::yield_now().await;
        assert_eq!(begun.elapsed(), Duration::ZERO, "swept sessions waited for their idle timer");
    }
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn start_without_recovery_takes_no_input() {
    let memory = Memory::new();
    let journal = reopen(&memory);
    let runtime = builder(&journal).model(model(tree)).start().await.expect("a runtime");
    let (session, _) = sent(&runtime, "1").await;
    session.send("and then").await.expect("accepted");
    seconds(30).await;
    assert_eq!(session.queue().await.expect("a queue").len(), 1);
    drop((runtime, journal));

    let looks = Options { resumes: false, ..Options::default() };
    let journal = reopen(&memory);
    let runtime = builder(&journal).options(looks).model(model(tree)).start().await.expect("a runtime");
    let session = runtime.session(session.id()).expect("readable").expect("the session exists");
    assert_eq!(session.run_ended(RunNo(1)).await.expect("the run ends").outcome, Outcome::Lost);
    seconds(60).await;
    let waits = session.queue().await.expect("a queue");
    assert_eq!(waits.iter().map(|entry| &*entry.text).collect::<Vec<_>>(), ["and then"]);
    shut(runtime).await;

    let journal = reopen(&memory);
    let runtime = builder(&journal).model(model(tree)).start().await.expect("a runtime");
    let session = runtime.session(session.id()).expect("readable").expect("the session exists");
    session.send("2").await.expect("accepted");
    seconds(3_600).await;
    assert_eq!(session.queue().await.expect("a queue"), [], "the next input did not resume the queue");
    shut(runtime).await;
}
