//! A runtime boots beside a damaged session: the others start, and whoever addresses the damaged one hears what is wrong (J-8).

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    unreachable_pub,
    reason = "a test fails by panicking"
)]

mod support;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use subtend_actors::{ControlError, Options, SendError, SessionHandle, Stopped, WaitError};
use subtend_journal::{Journal, ReadError, StoreSpec, open_store};
use subtend_models::model::{Answer, ModelError, Request};
use subtend_session::ids::{RunNo, SessionId};
use subtend_session::outcome::Outcome;
use support::{builder, model, open, prompt, text};
use tokio::sync::Semaphore;

fn store(dir: &Path) -> Journal {
    open_store(&StoreSpec::Redb(dir.to_owned())).expect("the store opens")
}

/// A copy of the store as a killed process leaves it: `sessions` are in flight.
async fn killed(dir: &Path, sessions: usize) -> Vec<SessionId> {
    let journal = store(&dir.join("live"));
    let asked = Arc::new(Semaphore::new(0));
    let asks = Arc::clone(&asked);
    let hangs = move |_: Request| {
        asks.add_permits(1);
        std::future::pending::<Result<Answer, ModelError>>()
    };
    let options = Options { seed: Some(7), durable_before_call: true, ..Options::default() };
    let runtime = builder(&journal).options(options).model(model(hangs)).start().await.expect("a runtime");
    let mut ids = Vec::new();
    for _ in 0..sessions {
        let session = open(&runtime);
        session.send("work").await.expect("accepted");
        ids.push(session.id());
    }
    drop(asked.acquire_many(u32::try_from(sessions).expect("few")).await.expect("every model is asked"));
    journal.settled().await.expect("settled");
    let copy = dir.join("copy");
    std::fs::create_dir_all(copy.join("redb-4")).expect("a directory");
    for file in ["WATERMARK", "redb-4/journal.redb"] {
        std::fs::copy(dir.join("live").join(file), copy.join(file)).expect("a copy");
    }
    runtime.shutdown(Duration::from_secs(1)).await;
    ids
}

/// Flips a bit of the session's birth, in every copy of it that the file has.
fn damage(dir: &Path, session: SessionId) {
    let path = dir.join("copy/redb-4/journal.redb");
    let mut file = std::fs::read(&path).expect("the file");
    let needle = format!("\"short\":\"{}\",\"agent\":\"worker\",\"agent_hash\"", session.short());
    let found: Vec<usize> =
        (0..file.len() - needle.len()).filter(|at| file[*at..].starts_with(needle.as_bytes())).collect();
    assert!(!found.is_empty(), "the birth is in the file");
    found.iter().for_each(|at| file[at + 10] ^= 1);
    std::fs::write(&path, file).expect("it is written");
}

fn words(stopped: &Stopped, session: &SessionHandle) -> bool {
    let Stopped::Unreadable(why) = stopped else { return false };
    why.starts_with(&format!("session {} is damaged at record 1 (lsn ", session.id()))
}

#[tokio::test]
async fn the_others_start_and_the_damaged_one_answers_with_a_typed_error() {
    let dir = tempfile::tempdir().expect("a directory");
    let ids = killed(dir.path(), 3).await;
    damage(dir.path(), ids[1]);

    let journal = store(&dir.path().join("copy"));
    let says = |request: Request| async move { Ok(text(&prompt(&request))) };
    let runtime = builder(&journal).model(model(says)).start().await.expect("it boots beside the damage");
    assert_eq!((runtime.boot().swept, runtime.boot().unreadable), (3, 1));
    let session = |ix: usize| runtime.session(ids[ix]).expect("a sound row").expect("it is there");
    for ix in [0, 2] {
        assert_eq!(session(ix).run_ended(RunNo(1)).await.expect("an end").outcome, Outcome::Lost);
        let receipt = session(ix).send("again").await.expect("accepted");
        assert_eq!(session(ix).run_ended(receipt.run).await.expect("an end").outcome, Outcome::Completed);
    }

    let bad = session(1);
    assert!(matches!(bad.send("again").await, Err(SendError::Stopped(why)) if words(&why, &bad)));
    assert!(matches!(bad.run_ended(RunNo(1)).await, Err(WaitError::Stopped(why)) if words(&why, &bad)));
    assert!(matches!(bad.cancel().await, Err(WaitError::Stopped(why)) if words(&why, &bad)));
    assert!(matches!(bad.queue().await, Err(ControlError::Stopped(why)) if words(&why, &bad)));
    assert!(matches!(journal.records(bad.id()), Err(ReadError::Damaged { session, .. }) if session == bad.id()));
    let fresh = open(&runtime).send("new work").await.expect("new work is taken");
    assert_eq!(fresh.run, RunNo(1));
    runtime.shutdown(Duration::from_secs(1)).await;
}

/// Control: without the damage all three are swept and all three answer.
#[tokio::test]
async fn nothing_is_unreadable_where_nothing_is_damaged() {
    let dir = tempfile::tempdir().expect("a directory");
    let ids = killed(dir.path(), 3).await;
    let journal = store(&dir.path().join("copy"));
    let says = |request: Request| async move { Ok(text(&prompt(&request))) };
    let runtime = builder(&journal).model(model(says)).start().await.expect("it boots");
    assert_eq!((runtime.boot().swept, runtime.boot().unreadable), (3, 0));
    for id in ids {
        let session = runtime.session(id).expect("a sound row").expect("it is there");
        assert_eq!(session.run_ended(RunNo(1)).await.expect("an end").outcome, Outcome::Lost);
    }
    runtime.shutdown(Duration::from_secs(1)).await;
}
