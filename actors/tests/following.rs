//! Events of one session: every record once and in order, from any position, even for slow readers; deltas in between.

use crate::support::*;
use subtend_actors::{Events, Stopped};

const TEST_TIMEOUT: Duration = Duration::from_secs(30);

async fn next(events: &mut Events) -> Event {
    tokio::time::timeout(TEST_TIMEOUT, events.next())
        .await
        .expect("an event comes")
        .expect("readable")
        .expect("the stream is open")
}

/// Returns the position of the next record; skips deltas.
async fn next_seq(events: &mut Events) -> Seq {
    loop {
        if let EventKind::Record { seq, .. } = next(events).await.what {
            return seq;
        }
    }
}

async fn seqs(events: &mut Events, upto: u64) -> Vec<u64> {
    let mut seqs = Vec::new();
    while seqs.last() != Some(&upto) {
        seqs.push(next_seq(events).await.0);
    }
    seqs
}

async fn last(journal: &Journal, session: &SessionHandle) -> u64 {
    records(journal, session.id()).await.len() as u64
}

/// Returns a model that streams its words one second apart, and then answers with all of them. The word `fail` fails the attempt.
fn streaming() -> Arc<dyn Model> {
    Arc::new(fn_model("streaming", |request, deltas| async move {
        let wording = match request.attempt.0 {
            1 => crate::support::prompt(&request),
            _ => "better now".to_owned(),
        };
        for word in wording.split(' ') {
            if word == "fail" {
                return Err(ModelError::new(ModelFail::Unavailable, "gone"));
            }
            deltas.send(Delta::Text(word.into()));
            seconds(1).await;
        }
        Ok(text(&wording.replace(' ', "")))
    }))
}

async fn streaming_runtime(journal: &Journal) -> Runtime {
    builder(journal).model(streaming()).start().await.expect("a runtime")
}

#[tokio::test(start_paused = true)]
async fn records_come_stored_then_live_each_once() {
    let journal = journal();
    let runtime = builder(&journal).model(model(|_| async { Ok(text("hello")) })).start().await.expect("a runtime");
    let (session, _) = ask(&runtime, "one").await;
    let before = last(&journal, &session).await;
    let mut events = session.events(Seq(1));
    assert_eq!(next_seq(&mut events).await, Seq(1));
    // More records arrive while the reader is in the middle of the earlier ones.
    let receipt = session.send("two").await.expect("accepted");
    session.run(receipt.run).ended().await.expect("ended");
    let after = last(&journal, &session).await;
    assert!(after > before);
    assert_eq!(seqs(&mut events, after).await, (2..=after).collect::<Vec<_>>());
    let receipt = session.send("three").await.expect("accepted");
    session.run(receipt.run).ended().await.expect("ended");
    let end = last(&journal, &session).await;
    assert_eq!(seqs(&mut events, end).await, (after + 1..=end).collect::<Vec<_>>());
    // Resumed after the last seq, as after a restart of the reader.
    let mut resumed = session.events(Seq(before).next());
    assert_eq!(seqs(&mut resumed, end).await, (before + 1..=end).collect::<Vec<_>>());
    // The stream stays open, since a later run may follow.
    assert!(tokio::time::timeout(TEST_TIMEOUT, resumed.next()).await.is_err());
    shut(runtime).await;
    assert!(events.next().await.expect("no error").is_none(), "the stream continued after the runtime stopped");
}

#[tokio::test(start_paused = true)]
async fn lagging_reader_catches_up_from_the_journal() {
    let journal = journal();
    let options = Options { events: 4, seed: Some(7), ..Options::default() };
    let builder = builder(&journal).options(options).model(model(|_| async { Ok(text("hello")) }));
    let runtime = builder.start().await.expect("a runtime");
    let (session, _) = ask(&runtime, "first").await;
    let mut slow = session.events(Seq(1));
    assert_eq!(next_seq(&mut slow).await, Seq(1));
    for round in 0..100 {
        let receipt = session.send(format!("round {round}")).await.expect("accepted");
        session.run(receipt.run).ended().await.expect("ended");
        // Other sessions fill the buffer too.
        ask(&runtime, "other").await;
    }
    let end = last(&journal, &session).await;
    assert!(end > 600, "expected several pages: {end}");
    assert_eq!(seqs(&mut slow, end).await, (2..=end).collect::<Vec<_>>());
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn reader_of_a_busy_session_misses_no_record() {
    let journal = journal();
    let options = Options { events: 8, seed: Some(7), ..Options::default() };
    let answer = |_| async {
        tokio::task::yield_now().await;
        Ok(text("hello"))
    };
    let runtime = builder(&journal).options(options).model(model(answer)).start().await.expect("a runtime");
    let session = open(&runtime);
    let writer = session.clone();
    let writing = tokio::spawn(async move {
        for round in 0..60 {
            let receipt = writer.send(format!("round {round}")).await.expect("accepted");
            writer.run(receipt.run).ended().await.expect("ended");
        }
    });
    let mut readers = tokio::task::JoinSet::new();
    for at in 0..40_u64 {
        let session = session.clone();
        readers.spawn(async move {
            for _ in 0..at * 7 {
                tokio::task::yield_now().await;
            }
            let mut events = session.events(Seq(1));
            let mut seen = 0;
            while seen < 60 * 7 + 1 {
                let seq = next_seq(&mut events).await.0;
                assert_eq!(seq, seen + 1, "reader {at}");
                seen = seq;
                if at % 3 == 0 {
                    tokio::task::yield_now().await;
                }
            }
        });
    }
    writing.await.expect("written");
    assert_eq!(last(&journal, &session).await, 60 * 7 + 1);
    while let Some(read) = readers.join_next().await {
        read.expect("read");
    }
    shut(runtime).await;
}

/// Follows a session to the end of its run, and assembles the text as the documentation describes.
async fn received(events: &mut Events) -> Vec<String> {
    let mut received = Vec::new();
    loop {
        let word = match next(events).await.what {
            EventKind::Delta { attempt, offset, delta: Delta::Text(text), .. } => format!("{attempt}@{offset} {text}"),
            EventKind::Record { record, .. } => record.kind().to_owned(),
            other => format!("{other:?}"),
        };
        let over = word == "run_ended";
        received.push(word);
        if over {
            return received;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn late_reader_gets_the_text_so_far_and_then_the_rest() {
    let runtime = streaming_runtime(&journal()).await;
    let (session, _) = sent(&runtime, "one two three four").await;
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let mut late = session.events(Seq(6));
    let mut watching = session.watch();
    let received = received(&mut late).await;
    assert_eq!(received, ["turn_started", "1@0 onetwo", "1@6 three", "1@11 four", "turn_answered", "run_ended"]);
    let mut texts = Vec::new();
    while let Some(subtend_actors::Next::Event(event)) = watching.try_next() {
        if let EventKind::Delta { offset, delta: Delta::Text(text), .. } = event.what {
            texts.push((offset, text.to_string()));
        }
    }
    assert_eq!(texts, [(0, "onetwo".to_owned()), (6, "three".to_owned()), (11, "four".to_owned())]);
    // After the answer, its deltas are not kept.
    let mut after = session.watch();
    assert!(after.try_next().is_none());
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn reader_that_missed_pieces_gets_the_text_so_far() {
    let options = Options { events: 2, seed: Some(7), ..Options::default() };
    let runtime = builder(&journal()).options(options).model(streaming()).start().await.expect("a runtime");
    let (session, _) = sent(&runtime, "a b c d e f g h").await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let mut slow = session.events(Seq(6));
    assert!(matches!(next(&mut slow).await.what, EventKind::Record { seq: Seq(6), .. }));
    tokio::time::sleep(Duration::from_millis(6_000)).await;
    // Expected: the piece at which the reader attached, then the text that its buffer lost.
    let received = received(&mut slow).await;
    assert_eq!(received, ["1@0 a", "1@0 abcdefg", "1@7 h", "turn_answered", "run_ended"]);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn failed_attempt_is_discarded_before_the_next_one_streams() {
    let runtime = streaming_runtime(&journal()).await;
    let session = open(&runtime);
    let mut events = session.events(Seq(6));
    let receipt = session.send("all is fail").await.expect("accepted");
    let mut received = received(&mut events).await;
    // The first attempt is not held back: its first piece may arrive before the record that starts it.
    received[..2].sort();
    assert_eq!(
        received,
        [
            "1@0 all",
            "turn_started",
            "1@3 is",
            "attempt_discarded",
            "turn_started",
            "2@0 better",
            "2@6 now",
            "turn_answered",
            "run_ended"
        ]
    );
    assert_eq!(session.run(receipt.run).ended().await.expect("ended").outcome, Outcome::Completed);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn deltas_after_an_answer_are_ignored() {
    let chatty = fn_model("chatty", |_, deltas| async move {
        tokio::spawn(async move {
            seconds(5).await;
            deltas.send(Delta::Text("by the way".into()));
        });
        Ok(text("hello"))
    });
    let runtime = builder(&journal()).model(Arc::new(chatty)).start().await.expect("a runtime");
    let mut events = runtime.subscribe(None);
    let (session, _) = ask(&runtime, "one").await;
    seconds(10).await;
    while let Some(next) = events.try_next() {
        assert!(
            matches!(&next, subtend_actors::Next::Event(event) if matches!(event.what, EventKind::Record { .. })),
            "{next:?}"
        );
    }
    drop(session);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn unknown_session_is_reported() {
    let runtime = streaming_runtime(&journal()).await;
    let session = open(&runtime);
    // The reader waits for a position beyond the end.
    let mut ahead = session.events(Seq(3));
    assert!(tokio::time::timeout(TEST_TIMEOUT, ahead.next()).await.is_err());
    session.send("x").await.expect("accepted");
    assert_eq!(next_seq(&mut ahead).await, Seq(3));
    seconds(2).await;
    shut(runtime).await;
}

#[tokio::test]
async fn journal_failure_ends_every_wait_with_its_reason() {
    let dir = tempfile::tempdir().expect("a directory");
    let redb = Redb::open(&dir.path().join("store"), 1 << 20).expect("a store");
    let (engine, faults) = Faulty::new(Box::new(redb));
    let journal = on(Box::new(engine));
    let never = model(|_| std::future::pending());
    let runtime = builder(&journal).model(never).start().await.expect("a runtime");
    let (session, receipt) = sent(&runtime, "one").await;
    let mut events = session.events(Seq(1));
    assert_eq!(next_seq(&mut events).await, Seq(1));
    let follows = tokio::spawn(async move {
        loop {
            if let Err(error) = events.next().await {
                return error.to_string();
            }
        }
    });
    let waits = tokio::spawn(async move { receipt.answer().await });
    tokio::task::yield_now().await;
    faults.fail_write(faults.writes() + 1);
    session.send("two").await.expect_err("an input was accepted after the failure");
    let why = follows.await.expect("joined");
    assert!(why.starts_with("the journal failed"), "{why}");
    let error = waits.await.expect("joined").expect_err("expected no answer");
    assert!(matches!(&error, AnswerError::Stopped(Stopped::Poisoned(_))), "{error}");
    runtime.shutdown(Duration::from_secs(1)).await;
}
