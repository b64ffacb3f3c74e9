//! Receipts and their answers, at any time and for every outcome.

use crate::support::*;
use tokio::sync::Notify;

const TEST_TIMEOUT: Duration = Duration::from_secs(30);

async fn echo(request: Request) -> Result<Answer, ModelError> {
    seconds(1).await;
    match &*last_user(&request) {
        "fail" => Err(ModelError::new(ModelFail::Auth, "no key")),
        input => Ok(text(&format!("re: {input}"))),
    }
}

#[tokio::test(start_paused = true)]
async fn each_input_has_its_own_answer_at_any_time() {
    let options = Options { idle: Duration::from_secs(1), seed: Some(7), ..Options::default() };
    let runtime = builder(&journal()).options(options).model(model(echo)).start().await.expect("a runtime");
    let (session, one) = sent(&runtime, "one").await;
    let two = session.send("two").await.expect("accepted");
    let waits = tokio::spawn({
        let two = two.clone();
        async move { two.answer().await }
    });
    assert_eq!(&*one.answer().await.expect("answered").text, "re: one");
    assert_eq!(&*waits.await.expect("joined").expect("answered").text, "re: two");
    for round in 3..40 {
        let receipt = session.send(format!("{round}")).await.expect("accepted");
        let answer = receipt.answer().await.expect("answered");
        assert_eq!((&*answer.text, answer.run), (&*format!("re: {round}"), receipt.run));
    }
    // The answer of an earlier run can be read while another run is in flight.
    session.send("later").await.expect("accepted");
    assert_eq!(&*two.answer().await.expect("answered").text, "re: two");
    seconds(60).await;
    assert_eq!(runtime.loaded_sessions(), 0);
    let again = session.receipt(one.input).await.expect("known");
    assert_eq!((again.run, again.duplicate), (one.run, true));
    assert_eq!(again.answer().await.expect("answered").text, one.answer().await.expect("answered").text);
    assert_eq!(runtime.loaded_sessions(), 0, "reading an answer activates a session");
    shut(runtime).await;
}

/// The steps give the same results as [`Receipt::answer`] and [`RunHandle::ended`].
#[tokio::test(start_paused = true)]
async fn wait_in_steps_finds_the_same_result() {
    let runtime = builder(&journal()).model(model(echo)).start().await.expect("a runtime");
    let session = runtime.open("general").expect("a session");
    for message in ["one", "fail"] {
        let receipt = session.send(message).await.expect("accepted");
        let (mut wait, mut steps) = (receipt.wait(), 0);
        let found = loop {
            match wait.read().await.transpose() {
                Some(found) => break found,
                None => wait.changed().await.expect("running"),
            }
            steps += 1;
        };
        assert!(steps > 0, "{message}: it waited");
        assert_eq!(format!("{found:?}"), format!("{:?}", receipt.answer().await), "{message}");
        let later = session.run(session.send("x").await.expect("accepted").run);
        let ended = loop {
            match later.try_ended().await.expect("it may open") {
                Some(ended) => break ended,
                None => later.changed().await.expect("running"),
            }
        };
        assert_eq!(ended, later.ended().await.expect("ended"), "{message}");
    }
    shut(runtime).await;
}

/// The wait has noticed the answer, but is dropped before the answer is on the disk. No later record wakes the next wait.
#[tokio::test]
async fn dropped_wait_loses_no_record_that_is_not_durable() {
    let dir = tempfile::tempdir().expect("a directory");
    let (engine, faults) = Faulty::new(Box::new(Redb::open(&dir.path().join("store"), 1 << 20).expect("a store")));
    let journal = on(Box::new(engine));
    let (called, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (calling, going) = (Arc::clone(&called), Arc::clone(&go));
    let answering = model(move |_| {
        let (calling, going) = (Arc::clone(&calling), Arc::clone(&going));
        async move {
            calling.notify_one();
            going.notified().await;
            Ok(text("done"))
        }
    });
    let runtime = builder(&journal).model(answering).start().await.expect("a runtime");
    let (_, receipt) = sent(&runtime, "go").await;
    called.notified().await;
    journal.settled().await.expect("the journal is open");
    let mut wait = receipt.wait();
    assert_eq!(wait.read().await.expect("read"), None);
    let (before, held) = (journal.last_appended(), faults.hold_writes());
    go.notify_one();
    while journal.last_appended() == before {
        tokio::task::yield_now().await;
    }
    // On this single thread, everything that can run without the disk has now run.
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    tokio::select! {
        biased;
        changed = wait.changed() => panic!("changed before the records are durable: {changed:?}"),
        () = tokio::task::yield_now() => {}
    }
    drop(held);
    tokio::time::timeout(TEST_TIMEOUT, wait.changed()).await.expect("the notice is kept").expect("running");
    assert_eq!(wait.read().await.expect("read").map(|answer| answer.text), Some("done".into()));
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn answer_is_available_before_its_run_ends() {
    let journal = journal();
    let answer = |request: Request| async move {
        let child = crate::support::prompt(&request) == "work";
        match (child, answers(&request)) {
            (true, _) => {
                seconds(60).await;
                Ok(text("worked"))
            }
            (false, 0) => Ok(calls([task("work", true)])),
            (false, 1) => Ok(text("It is being worked on.")),
            (false, _) => Ok(text("It is done.")),
        }
    };
    let runtime = builder(&journal).model(model(answer)).start().await.expect("a runtime");
    let (session, receipt) = sent(&runtime, "go").await;
    let answer = tokio::time::timeout(TEST_TIMEOUT, receipt.answer())
        .await
        .expect("the answer did not precede the end of the child")
        .expect("answered");
    assert_eq!(&*answer.text, "It is being worked on.");
    let current = session.current_run().await.expect("the runtime is running").expect("in flight");
    assert_eq!(current.no(), receipt.run);
    assert_eq!(current.ended().await.expect("ended").text.as_deref(), Some("It is done."));
    assert!(session.current_run().await.expect("the runtime is running").is_none());
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn truncated_answer_is_returned_whole() {
    let journal = journal();
    let answer = |request: Request| async move {
        match answers(&request) {
            0 => Ok(Answer { stop: Stop::Length, ..text("The first half, ") }),
            _ => Ok(text("and the second.")),
        }
    };
    let runtime = builder(&journal).model(model(answer)).start().await.expect("a runtime");
    let receipt = open(&runtime).send("go").await.expect("accepted");
    assert_eq!(&*receipt.answer().await.expect("answered").text, "The first half, and the second.");
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn failed_run_returns_its_outcome_and_its_partial_text() {
    let journal = journal();
    let answer = |request: Request| async move {
        if answers(&request) == 0 {
            return Ok(Answer { text: Some("So far.".into()), ..calls([task("x", false)]) });
        }
        std::future::pending().await
    };
    let runtime = builder(&journal).model(model(answer)).start().await.expect("a runtime");
    let (session, receipt) = sent(&runtime, "go").await;
    let waits = tokio::spawn(async move { receipt.answer().await });
    seconds(1).await;
    session.cancel().await.expect("cancelled");
    let Err(AnswerError::Ended(ended)) = waits.await.expect("joined") else { panic!("expected no answer") };
    assert_eq!((ended.run, ended.outcome), (RunNo(1), Outcome::Cancelled { by: Initiator::Person }));
    assert_eq!(ended.text.as_deref(), Some("So far."));
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn failed_run_fails_only_its_own_input() {
    let runtime = builder(&journal()).model(model(echo)).start().await.expect("a runtime");
    let (session, bad) = sent(&runtime, "fail").await;
    let good = session.send("good").await.expect("accepted");
    assert_eq!((bad.run, good.run), (RunNo(1), RunNo(1)));
    let error = bad.answer().await.expect_err("failed");
    assert_eq!(error.to_string(), "run 1 ended before it answered the input: failed");
    let answer = good.answer().await.expect("answered");
    assert_eq!((&*answer.text, answer.run), ("re: good", RunNo(2)));
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn abandoned_wait_does_not_lose_the_answer() {
    let runtime = builder(&journal()).model(model(echo)).start().await.expect("a runtime");
    let (_session, receipt) = sent(&runtime, "one").await;
    for _ in 0..10 {
        assert!(tokio::time::timeout(Duration::from_millis(10), receipt.answer()).await.is_err());
    }
    assert_eq!(&*receipt.answer().await.expect("answered").text, "re: one");
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn receipt_is_found_again_after_a_restart() {
    let memory = Memory::new();
    let journal = reopen(&memory);
    let runtime = builder(&journal).model(model(echo)).start().await.expect("a runtime");
    let (session, _) = ask(&runtime, "one").await;
    let answered = session.send("two").await.expect("accepted");
    answered.answer().await.expect("answered");
    let lost = session.send("three").await.expect("accepted");
    let waits = tokio::spawn({
        let lost = lost.clone();
        async move { lost.answer().await }
    });
    tokio::task::yield_now().await;
    let (id, one, two) = (session.id(), answered.input, lost.input);
    runtime.shutdown(Duration::ZERO).await;
    assert!(
        matches!(waits.await.expect("joined"), Err(AnswerError::Stopped(_))),
        "expected an error of the stopped runtime"
    );
    drop((session, answered, lost));

    let runtime = builder(&reopen(&memory)).model(model(echo)).start().await.expect("a runtime");
    let session = runtime.session(id).expect("readable").expect("the session exists");
    let answer = session.receipt(one).await.expect("known").answer().await.expect("answered");
    assert_eq!((&*answer.text, answer.run), ("re: two", RunNo(2)));
    let Err(AnswerError::Ended(ended)) = session.receipt(two).await.expect("known").answer().await else {
        panic!("its run was lost")
    };
    assert_eq!((ended.run, ended.outcome), (RunNo(3), Outcome::Lost));
    let unknown: InputId = "0192f0c1-2d3e-7abc-8def-0123456789ab".parse().unwrap();
    assert!(matches!(session.receipt(unknown).await, Err(AnswerError::NoSuchInput { .. })));
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn inputs_with_the_same_key_are_the_same_input() {
    let journal = journal();
    let runtime = builder(&journal).model(model(echo)).start().await.expect("a runtime");
    let session = runtime.open("worker").expect("a session");
    let metadata = json!({"ticket": 17});
    let first = session.input("pay").key("invoice-17").metadata(&metadata).send().await.expect("accepted");
    let again = session.input("pay").key("invoice-17").steer().await.expect("accepted");
    assert_eq!((first.duplicate, again.duplicate, again.input), (false, true, first.input));
    first.answer().await.expect("answered");
    let late = session.input("pay it now").key("invoice-17").send().await.expect("accepted");
    assert_eq!(&*late.answer().await.expect("answered").text, "re: pay", "expected the answer to the first input");
    let accepted: Vec<_> = records(&journal, session.id())
        .await
        .into_iter()
        .filter_map(|record| match record {
            Record::InputAccepted(input) => Some((input.text, input.key, input.metadata)),
            _ => None,
        })
        .collect();
    assert_eq!(accepted, vec![("pay".into(), Some("invoice-17".into()), Some("{\"ticket\":17}".into()))]);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn key_and_metadata_of_an_input_are_bounded() {
    let journal = journal();
    let runtime = builder(&journal).model(model(echo)).start().await.expect("a runtime");
    let session = runtime.open(OpenOptions::agent("worker")).expect("a session");
    let why = |sent: Result<subtend_actors::Receipt, SendError>| sent.expect_err("refused").to_string();
    assert_eq!(
        why(session.input("x").key("k".repeat(257)).send().await),
        "the key of the input has 257 bytes, the limit is 256"
    );
    assert_eq!(
        why(session.input("x").key("").send().await),
        "the key of the input is empty. Omit the key, or give each input its own"
    );
    let long = json!("m".repeat(64 << 10));
    assert_eq!(
        why(session.input("x").metadata(&long).send().await),
        "the metadata of the input has 65538 bytes, the limit is 65536"
    );
    assert_eq!(records(&journal, session.id()).await.len(), 1, "a refused input was kept");
    shut(runtime).await;
}
