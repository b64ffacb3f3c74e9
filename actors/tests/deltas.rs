//! Live deltas on a real disk and several threads: each answer grows without a gap, and no piece arrives after the end of its attempt or before the
//! end of the previous attempt.

use std::collections::{HashMap, HashSet};

use crate::support::*;
use subtend_actors::Events;
use subtend_session::ids::AttemptNo;

const RUNS: usize = 6;
const SESSIONS: usize = 6;
const READERS: usize = 5;
const WORDS: u32 = 12;

#[derive(Default)]
struct ReaderLog {
    texts: HashMap<(TurnNo, AttemptNo), String>,
    over: HashSet<(TurnNo, AttemptNo)>,
    ended: usize,
    pieces: usize,
}

impl ReaderLog {
    fn take(&mut self, event: &Event) {
        match &event.what {
            EventKind::Delta { turn, attempt, offset, delta: Delta::Text(piece), .. } => {
                self.pieces += 1;
                let place = (*turn, *attempt);
                assert!(!self.over.contains(&place), "a piece of {place:?} after its end");
                let before = (*turn, AttemptNo(attempt.0 - 1));
                assert!(
                    attempt.0 == 1 || self.over.contains(&before),
                    "a piece of {place:?} before the end of the previous attempt"
                );
                let kept = self.texts.entry(place).or_default();
                let offset = usize::try_from(*offset).unwrap();
                assert!(offset <= kept.len(), "a gap in {place:?}: {} bytes, then offset {offset}", kept.len());
                kept.truncate(offset);
                kept.push_str(piece);
            }
            EventKind::Record { record, .. } => self.record(record),
            EventKind::Queue { .. } => {}
            other => panic!("{other:?}"),
        }
    }

    fn record(&mut self, record: &Record) {
        match record {
            Record::TurnAnswered(answered) => {
                let place = (answered.turn, answered.attempt);
                self.over.insert(place);
                let whole = answered.text.as_deref().unwrap_or_default();
                // A reader of the journal may have missed some or all pieces.
                let kept = self.texts.get(&place).map(String::as_str).unwrap_or_default();
                assert!(whole.starts_with(kept), "{whole:?} does not start with {kept:?}");
            }
            Record::AttemptDiscarded(discarded) => {
                self.over.insert((discarded.turn, discarded.attempt));
            }
            Record::RunEnded(_) => self.ended += 1,
            _ => {}
        }
    }
}

async fn read(mut events: Events) -> usize {
    let mut seen = ReaderLog::default();
    while seen.ended < RUNS {
        let event = events.next().await.expect("readable").expect("the stream is open");
        seen.take(&event);
    }
    assert_eq!(seen.over.len(), RUNS * 3);
    seen.pieces
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn late_subscribers_receive_deltas_in_order() {
    let dir = tempfile::tempdir().expect("a directory");
    let redb = Redb::open(&dir.path().join("store"), 1 << 20).expect("a store");
    let journal = on(Box::new(redb));
    let model = fn_model("flaky", |request, deltas| async move {
        let mut message = String::new();
        for word in 0..WORDS {
            let piece = format!("{}.{}.{word} ", request.turn, request.attempt);
            message.push_str(&piece);
            deltas.send(Delta::Text(piece.into()));
            tokio::task::yield_now().await;
        }
        if request.attempt.0 < 3 {
            return Err(ModelError::new(ModelFail::Unavailable, "gone"));
        }
        Ok(text(&message))
    });
    let limits = Limits { backoff_ms: 0, attempts: 3, ..Limits::default() };
    // The event buffer is small, so that readers lag.
    let options = Options { events: 64, seed: Some(7), ..Options::default() };
    let builder = builder(&journal).limits(limits).options(options).model(Arc::new(model));
    let runtime = builder.start().await.expect("a runtime");
    let mut tasks = tokio::task::JoinSet::new();
    let mut readers = tokio::task::JoinSet::new();
    for _ in 0..SESSIONS {
        let session = open(&runtime);
        for reader in 0..READERS {
            let session = session.clone();
            readers.spawn(async move {
                for _ in 0..reader * 97 {
                    tokio::task::yield_now().await;
                }
                read(session.events(Seq(1))).await
            });
        }
        tasks.spawn(async move {
            for run in 0..RUNS {
                let receipt = session.send(format!("run {run}")).await.expect("accepted");
                session.run(receipt.run).ended().await.expect("ended");
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.expect("done");
    }
    let mut pieces = 0;
    while let Some(read) = readers.join_next().await {
        pieces += read.expect("read");
    }
    assert!(pieces > 0, "no piece was seen");
    shut(runtime).await;
}
