use subtend_journal::faulty::Faulty;
use subtend_journal::redb::Redb;
use subtend_journal::{Batch as Frames, Frame};
use subtend_session::ids::{AttemptNo, CallId, Epoch, RunNo, TurnNo};
use subtend_session::index::Changes;
use uuid::Uuid;

use super::*;
use crate::observe::event::Next;
use crate::observe::streams::tests::{answered, discarded, started};

const SESSION: SessionId = SessionId(Uuid::from_u128(7));

fn at(attempt: u32) -> Address {
    Address { session: SESSION, root: SESSION, run: RunNo(1), turn: TurnNo(1), attempt: AttemptNo(attempt) }
}

fn append(journal: &Journal, first: u64, records: Vec<Record>) -> (Appended, Ends, Vec<ShownRecords>) {
    let ends = Ends::of(&records);
    let shown = vec![ShownRecords { session: SESSION, first: Seq(first), records: records.clone() }];
    let (first_seq, changes) = (Seq(first), Changes::default());
    let frame = Frame { session: SESSION, first_seq, epoch: Epoch(1), at_ms: 0, records, changes };
    (journal.append(Frames { frames: vec![frame] }).expect("appended"), ends, shown)
}

fn show(publisher: &Publisher, batch: (Appended, Ends, Vec<ShownRecords>)) {
    let (at, ends, shown) = batch;
    let created = Vec::new();
    publisher.appended(PublishedBatch { root: SESSION, session: SESSION, at, ends, created, shown: Some(shown) });
}

fn piece(publisher: &Publisher, attempt: u32, text: &str) {
    publisher.delta(&at(attempt), &Delta::Text(text.into()), || true);
}

fn describe(next: Next) -> String {
    match next {
        Next::Event(Event { what: EventKind::Record { seq, record }, .. }) => format!("{seq} {}", record.kind()),
        Next::Event(Event { what: EventKind::Delta { attempt, offset, delta: Delta::Text(text), .. }, .. }) => {
            format!("{attempt}@{offset} {text}")
        }
        other @ (Next::Event(_) | Next::Missed(_)) => format!("{other:?}"),
    }
}

/// Returns the events of an attempt that fails and is retried while the disk is slow.
async fn retry_on_a_slow_disk(publishes_early: bool) -> Vec<String> {
    let dir = tempfile::tempdir().expect("a directory");
    let redb = Redb::open(&dir.path().join("store"), 1 << 20).expect("a store");
    let (engine, faults) = Faulty::new(Box::new(redb));
    let journal = Journal::open(Box::new(engine), subtend_journal::Options::default()).expect("a journal");
    let publisher = Publisher::start(journal.clone(), 64);
    publisher.shared.lock().streams.publishes_early = publishes_early;
    let mut events = publisher.subscribe(SubscriptionScope::All);
    show(&publisher, append(&journal, 1, vec![started(1, 1)]));
    journal.settled().await.expect("durable");
    piece(&publisher, 1, "I am");
    let held = faults.hold_writes();
    show(&publisher, append(&journal, 2, vec![discarded(1, 1), started(1, 2)]));
    // The model is in-process, so it does not wait for a durable intent.
    piece(&publisher, 2, "You ");
    piece(&publisher, 2, "are");
    piece(&publisher, 1, " unseen");
    drop(held);
    journal.settled().await.expect("durable");
    while publisher.shared.lock().streams.open_text(|_, _| true).is_empty() {
        tokio::task::yield_now().await;
    }
    piece(&publisher, 2, "!");
    show(&publisher, append(&journal, 4, vec![answered(1, 2)]));
    let mut seen = Vec::new();
    while let Some(next) = events.next().await {
        seen.push(describe(next));
        if seen.last().is_some_and(|word| word.contains("turn_answered")) {
            break;
        }
    }
    piece(&publisher, 2, " late");
    publisher.close();
    while let Some(next) = events.next().await {
        seen.push(describe(next));
    }
    seen
}

#[tokio::test]
async fn retry_piece_never_precedes_the_end_of_the_earlier_attempt() {
    let seen = retry_on_a_slow_disk(false).await;
    // Nothing orders the first piece and the record of its attempt, so either may come first.
    let mut first = seen[..2].to_vec();
    first.sort();
    assert_eq!(first, ["1 turn_started", "1@0 I am"]);
    let rest = ["2 attempt_discarded", "3 turn_started", "2@0 You are", "2@7 !", "4 turn_answered"];
    assert_eq!(seen[2..], rest);
    // The control: without the rule, pieces overtake records.
    let publishes_early = retry_on_a_slow_disk(true).await;
    let place = |word: &str| publishes_early.iter().position(|seen| seen == word).expect("seen");
    assert!(place("2@0 You ") < place("2 attempt_discarded"), "{publishes_early:?}");
}

#[tokio::test]
async fn subscriber_between_a_batch_and_its_append_sees_it() {
    let journal =
        Journal::open(Box::new(subtend_journal::memory::Memory::new()), subtend_journal::Options::default()).unwrap();
    let publisher = Publisher::start(journal.clone(), 64);
    assert!(!publisher.any(), "a batch without a subscriber keeps its records");
    let mut events = publisher.subscribe(SubscriptionScope::All);
    let (at, ends, _) = append(&journal, 1, vec![started(1, 1), answered(1, 1)]);
    publisher.appended(PublishedBatch { root: SESSION, session: SESSION, at, ends, created: Vec::new(), shown: None });
    assert_eq!(describe(events.next().await.unwrap()), "1 turn_started");
    assert_eq!(describe(events.next().await.unwrap()), "2 turn_answered");
    drop(events);
    assert!(!publisher.any());
}

#[tokio::test]
async fn abandoned_answer_is_not_shown() {
    let journal =
        Journal::open(Box::new(subtend_journal::memory::Memory::new()), subtend_journal::Options::default()).unwrap();
    let publisher = Publisher::start(journal, 64);
    let mut events = publisher.subscribe(SubscriptionScope::All);
    publisher.delta(&at(1), &Delta::Text("late".into()), || false);
    piece(&publisher, 1, "x");
    assert_eq!(describe(events.next().await.unwrap()), "1@0 x");
    publisher.end_call(&at(1));
    assert_eq!(publisher.shared.streaming.load(Ordering::Relaxed), 0, "the publisher keeps state of an ended call");
}

#[tokio::test]
async fn retry_state_is_removed_after_the_last_subscriber_left() {
    let dir = tempfile::tempdir().expect("a directory");
    let redb = Redb::open(&dir.path().join("store"), 1 << 20).expect("a store");
    let (engine, faults) = Faulty::new(Box::new(redb));
    let journal = Journal::open(Box::new(engine), subtend_journal::Options::default()).expect("a journal");
    let publisher = Publisher::start(journal.clone(), 64);
    let events = publisher.subscribe(SubscriptionScope::All);
    let held = faults.hold_writes();
    show(&publisher, append(&journal, 1, vec![started(1, 1), discarded(1, 1), started(1, 2)]));
    drop(events);
    let (at, ends, _) = append(&journal, 4, vec![answered(1, 2)]);
    publisher.appended(PublishedBatch { root: SESSION, session: SESSION, at, ends, created: Vec::new(), shown: None });
    drop(held);
    journal.settled().await.expect("durable");
    while publisher.shared.lock().waiting > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(publisher.shared.streaming.load(Ordering::Relaxed), 0);
}

/// The events of a session whose model answers before the session is durable.
#[tokio::test]
async fn a10_delta_waits_for_the_durable_creation() {
    let dir = tempfile::tempdir().expect("a directory");
    let redb = Redb::open(&dir.path().join("store"), 1 << 20).expect("a store");
    let (engine, faults) = Faulty::new(Box::new(redb));
    let journal = Journal::open(Box::new(engine), subtend_journal::Options::default()).expect("a journal");
    for listens in [true, false] {
        let publisher = Publisher::start(journal.clone(), 64);
        let session = SessionId(Uuid::from_u128(if listens { 8 } else { 9 }));
        let at = Address { session, root: session, ..at(1) };
        let held = faults.hold_writes();
        let mut early = listens.then(|| publisher.subscribe(SubscriptionScope::All));
        let (first_seq, changes, records) = (Seq(1), Changes::default(), vec![started(1, 1)]);
        let frame = Frame { session, first_seq, epoch: Epoch(1), at_ms: 0, records: records.clone(), changes };
        let appended = journal.append(Frames { frames: vec![frame] }).expect("appended");
        let shown = listens.then(|| vec![ShownRecords { session, first: Seq(1), records }]);
        let (ends, created) = (Ends::default(), vec![session]);
        publisher.appended(PublishedBatch { root: session, session, at: appended, ends, created, shown });
        publisher.delta(&at, &Delta::Text("I ".into()), || true);
        publisher.publish_progress(
            session,
            session,
            EventKind::Progress { call: CallId { turn: TurnNo(1), ix: 0 }, line: "x".into() },
        );
        let mut late = publisher.subscribe(SubscriptionScope::All);
        publisher.delta(&at, &Delta::Text("am".into()), || true);
        assert!(late.try_next().is_none(), "an event precedes the durable creation of its session");
        drop(held);
        assert_eq!(describe(late.next().await.unwrap()), if listens { "1 turn_started" } else { "1@0 I am" });
        if let Some(early) = &mut early {
            assert_eq!(describe(early.next().await.unwrap()), "1 turn_started");
            assert_eq!(describe(early.next().await.unwrap()), "1@0 I am");
        }
        publisher.delta(&at, &Delta::Text("!".into()), || true);
        publisher.end_call(&at);
        assert_eq!(publisher.shared.streaming.load(Ordering::Relaxed), 0);
    }
}
