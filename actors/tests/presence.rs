//! The start and end of activations: no stream is dropped, and no inbox is left without an actor.

use crate::support::*;

const TEST_TIMEOUT: Duration = Duration::from_secs(30);

#[tokio::test(start_paused = true)]
async fn input_arriving_with_the_idle_timer_is_answered() {
    for (offset, yields) in (0..12_u64).flat_map(|offset| (0..4).map(move |yields| (offset, yields))) {
        let journal = journal();
        let options = Options { idle: Duration::from_secs(2), seed: Some(7), ..Options::default() };
        let answer = |_| async {
            seconds(1).await;
            Ok(text("hello"))
        };
        let runtime = builder(&journal).model(model(answer)).options(options).start().await.expect("a runtime");
        let (session, _) = ask(&runtime, "one").await;
        let sender = session.clone();
        // In its own task, so that the timer and the sender race.
        let sent = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(1_995 + offset)).await;
            for _ in 0..yields {
                tokio::task::consume_budget().await;
            }
            sender.send("two").await
        });
        let receipt = sent.await.unwrap().expect("accepted");
        let ended = tokio::time::timeout(TEST_TIMEOUT, session.run_ended(receipt.run)).await;
        assert!(ended.is_ok(), "offset {offset}, {yields} yields: the run never ended");
        let all = kinds(&journal, session.id()).await;
        let turns = all.iter().filter(|kind| **kind == "turn_started").count();
        assert_eq!(turns, 2, "offset {offset}, {yields} yields: {all:?}");
        shut(runtime).await;
    }
}

#[tokio::test(start_paused = true)]
async fn end_of_a_run_does_not_drop_the_next_stream() {
    let journal = journal();
    let answer = |request: Request| async move {
        seconds(1).await;
        if answers(&request) == 0 && prompt(&request) == "one" && request.messages.len() == 1 {
            return Err(refused());
        }
        Ok(text("two"))
    };
    let runtime = builder(&journal).model(model(answer)).start().await.expect("a runtime");
    let (session, _) = sent(&runtime, "one").await;
    session.send("two").await.expect("accepted");
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let ended = tokio::time::timeout(TEST_TIMEOUT, session.run_ended(RunNo(2))).await;
    let all = kinds(&journal, session.id()).await;
    assert_eq!(
        ended.expect("the second run ends").expect("the runtime is running").outcome,
        Outcome::Completed,
        "{all:?}"
    );
    shut(runtime).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_addressed_during_its_creation_still_runs() {
    let journal = journal();
    let (received, tell) = std::sync::mpsc::channel();
    let once = AtomicUsize::new(0);
    let looked = journal.clone();
    let faults = Faults::new(move |at, _| {
        if at == Point::AfterAppend
            && let Some((child, _)) = looked.heads().expect("heads").into_iter().find(|(id, head)| *id != head.root)
            && once.fetch_add(1, Ordering::Relaxed) == 0
        {
            received.send(child).expect("answered");
            std::thread::sleep(Duration::from_millis(300));
        }
    });
    let answer = |request: Request| async move {
        match (prompt(&request).as_str(), answers(&request)) {
            ("parent", 0) => Ok(calls([task("child", false)])),
            ("child", _) => {
                seconds(1).await;
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
    assert_eq!(ended.expect("the parent ends").expect("the runtime is running").outcome, Outcome::Completed);
    let ended = tokio::time::timeout(Duration::from_secs(5), waits).await;
    assert_eq!(ended.expect("the child ends").unwrap().expect("the runtime is running").outcome, Outcome::Completed);
    let all = kinds(&journal, id).await;
    assert_eq!(all.iter().filter(|kind| **kind == "turn_started").count(), 1, "{all:?}");
    assert_eq!(runtime.slots_in_use(), 0);
    shut(runtime).await;
}
