//! A runtime boots with a damaged session: the others start, and calls to the damaged one return a typed error (J-8).

use crate::support::answers as answers_of;
use crate::support::*;
use subtend_actors::Stopped;
use subtend_invariants::observed::DamageReplies;
use subtend_invariants::{self as invariant, InvariantId, Observed};
use subtend_journal::{StoreSpec, open_store};
use tokio::sync::Semaphore;

fn store(dir: &Path) -> Journal {
    open_store(&StoreSpec::Redb(dir.to_owned())).expect("the store opens")
}

/// Returns the sessions in flight in a copy of the store, as a killed process leaves it.
async fn killed(dir: &Path, sessions: usize) -> Vec<SessionId> {
    let journal = store(&dir.join("live"));
    let model_calls = Arc::new(Semaphore::new(0));
    let asks = Arc::clone(&model_calls);
    let hangs = move |_: Request| {
        asks.add_permits(1);
        std::future::pending::<Result<Answer, ModelError>>()
    };
    let options = Options { seed: Some(7), durable_before_call: true, ..Options::default() };
    let runtime = builder(&journal).options(options).model(model(hangs)).start().await.expect("a runtime");
    let mut ids = Vec::new();
    for _ in 0..sessions {
        let (session, _) = sent(&runtime, "work").await;
        ids.push(session.id());
    }
    drop(model_calls.acquire_many(u32::try_from(sessions).expect("few")).await.expect("every model is asked"));
    journal.settled().await.expect("settled");
    copied(dir);
    runtime.shutdown(Duration::from_secs(1)).await;
    ids
}

fn copied(dir: &Path) {
    let copy = dir.join("copy");
    std::fs::create_dir_all(copy.join("redb-4")).expect("a directory");
    for file in ["WATERMARK", "redb-4/journal.redb"] {
        std::fs::copy(dir.join("live").join(file), copy.join(file)).expect("a copy");
    }
}

/// Flips a bit in every copy of the session's first record.
fn damage(dir: &Path, session: SessionId) {
    let path = dir.join("copy/redb-4/journal.redb");
    let mut file = std::fs::read(&path).expect("the file");
    let needle = format!("\"short\":\"{}\",\"agent\":\"worker\",\"agent_hash\"", session.short());
    let found: Vec<usize> =
        (0..file.len() - needle.len()).filter(|at| file[*at..].starts_with(needle.as_bytes())).collect();
    assert!(!found.is_empty(), "the creation record is missing in the file");
    found.iter().for_each(|at| file[at + 10] ^= 1);
    std::fs::write(&path, file).expect("it is written");
}

fn is_reported(stopped: &Stopped, session: &SessionHandle) -> bool {
    let Stopped::Unreadable(why) = stopped else { return false };
    why.starts_with(&format!("session {} is damaged at record 1 (lsn ", session.id()))
}

async fn answers(runtime: &Runtime, ids: &[SessionId], damaged: [SessionId; 1]) -> DamageReplies {
    let mut aside = DamageReplies { damaged: damaged.into(), ..DamageReplies::default() };
    for id in ids {
        let session = runtime.session(*id).expect("a sound row").expect("it exists");
        match session.send("once more").await {
            Ok(_) => _ = aside.served.insert(*id),
            Err(SendError::Stopped(why)) if is_reported(&why, &session) => _ = aside.refused.insert(*id),
            Err(other) => panic!("{other}"),
        }
    }
    aside
}

#[tokio::test]
async fn damaged_session_returns_a_typed_error_and_others_start() {
    let dir = tempfile::tempdir().expect("a directory");
    let ids = killed(dir.path(), 3).await;
    damage(dir.path(), ids[1]);

    let journal = store(&dir.path().join("copy"));
    let says = |request: Request| async move { Ok(text(&prompt(&request))) };
    let runtime = builder(&journal).model(model(says)).start().await.expect("the runtime starts despite the damage");
    assert_eq!(runtime.boot().swept, 2, "the unreadable session was counted as swept");
    let failures: Vec<_> = runtime.boot().failures.iter().map(|failure| (failure.session, &*failure.why)).collect();
    let why = journal.records(ids[1]).expect_err("it is damaged").to_string();
    assert_eq!(failures, [(Some(ids[1]), &*why)]);
    let session = |ix: usize| runtime.session(ids[ix]).expect("a sound row").expect("it exists");
    for ix in [0, 2] {
        assert_eq!(session(ix).run_ended(RunNo(1)).await.expect("the run ends").outcome, Outcome::Lost);
        let receipt = session(ix).send("again").await.expect("accepted");
        assert_eq!(session(ix).run_ended(receipt.run).await.expect("the run ends").outcome, Outcome::Completed);
    }

    let bad = session(1);
    assert!(matches!(bad.send("again").await, Err(SendError::Stopped(why)) if is_reported(&why, &bad)));
    assert!(matches!(bad.run_ended(RunNo(1)).await, Err(WaitError::Stopped(why)) if is_reported(&why, &bad)));
    assert!(matches!(bad.cancel().await, Err(WaitError::Stopped(why)) if is_reported(&why, &bad)));
    assert!(matches!(bad.queue().await, Err(ControlError::Stopped(why)) if is_reported(&why, &bad)));
    assert!(matches!(journal.records(bad.id()), Err(ReadError::Damaged { session, .. }) if session == bad.id()));
    let observed = Observed { damage: Some(answers(&runtime, &ids, [ids[1]]).await), ..Observed::default() };
    let nothing = BTreeSet::new();
    let views = ids.iter().filter(|id| **id != ids[1]).map(|id| (*id, invariant::View::default()));
    let seen = invariant::World::new(views, &nothing, None, false).with_observations(&observed);
    assert_eq!(InvariantId::J8.check(&seen, true), Ok(()));
    let fresh = open(&runtime).send("new work").await.expect("new work is taken");
    assert_eq!(fresh.run, RunNo(1));
    runtime.shutdown(Duration::from_secs(1)).await;
}

/// The control: without the damage all three are swept, and all three answer.
#[tokio::test]
async fn undamaged_sessions_are_all_readable() {
    let dir = tempfile::tempdir().expect("a directory");
    let ids = killed(dir.path(), 3).await;
    let journal = store(&dir.path().join("copy"));
    let says = |request: Request| async move { Ok(text(&prompt(&request))) };
    let runtime = builder(&journal).model(model(says)).start().await.expect("the runtime starts");
    assert_eq!((runtime.boot().swept, &*runtime.boot().failures), (3, &[][..]));
    for id in ids {
        let session = runtime.session(id).expect("a sound row").expect("it exists");
        assert_eq!(session.run_ended(RunNo(1)).await.expect("the run ends").outcome, Outcome::Lost);
    }
    runtime.shutdown(Duration::from_secs(1)).await;
}

/// The owner ends but its child's run stays in flight: the report lists it and does not count it as swept.
#[tokio::test]
async fn boot_counts_ended_runs_as_swept_and_lists_the_rest() {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = store(&dir.path().join("live"));
    let model_calls = Arc::new(Semaphore::new(0));
    let asks = Arc::clone(&model_calls);
    let works = move |request: Request| {
        let first = &*prompt(&request) == "work" && answers_of(&request) == 0;
        let part = first.then(|| crate::support::calls([task("part", true)]));
        asks.add_permits(usize::from(part.is_none()));
        async move {
            match part {
                Some(part) => Ok(part),
                None => std::future::pending().await,
            }
        }
    };
    let options = Options { seed: Some(7), durable_before_call: true, ..Options::default() };
    let runtime = builder(&journal).options(options).model(model(works)).start().await.expect("a runtime");
    let (session, _) = sent(&runtime, "work").await;
    drop(model_calls.acquire_many(2).await.expect("both models are asked"));
    journal.settled().await.expect("settled");
    copied(dir.path());
    let (id, child) = (session.id(), session.tree().await.expect("a tree").children[0].id);
    runtime.shutdown(Duration::from_secs(1)).await;
    damage(dir.path(), child);

    let journal = store(&dir.path().join("copy"));
    let says = |_: Request| async { Ok(text("more")) };
    let options = Options { seed: Some(8), ..Options::default() };
    let runtime = builder(&journal)
        .options(options)
        .model(model(says))
        .start()
        .await
        .expect("the runtime starts despite the damage");
    assert_eq!(journal.inflight().expect("inflight").iter().map(|(id, _)| *id).collect::<Vec<_>>(), [child]);
    assert_eq!(runtime.boot().swept, 1);
    let session = runtime.session(id).expect("a sound row").expect("it exists");
    assert_eq!(session.run_ended(RunNo(1)).await.expect("the run ends").outcome, Outcome::Lost);
    let failures: Vec<_> = runtime.boot().failures.iter().map(|failure| (failure.session, &*failure.why)).collect();
    let why = journal.records(child).expect_err("it is damaged").to_string();
    assert_eq!(failures, [(Some(child), &*why)]);
    runtime.shutdown(Duration::from_secs(1)).await;
}

/// An ended child that cannot be read still counts in its owner's account, and the owner continues.
#[tokio::test]
async fn owner_continues_after_restart_with_an_unreadable_child() {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = store(&dir.path().join("live"));
    let model_calls = Arc::new(Semaphore::new(0));
    let asks = Arc::clone(&model_calls);
    let works = move |request: Request| {
        let answer = match (&*prompt(&request), answers_of(&request)) {
            ("work", 0) => Some(crate::support::calls([task("part", false)])),
            ("work", _) => None,
            _ => Some(text("done")),
        };
        asks.add_permits(usize::from(answer.is_none()));
        async move {
            match answer {
                Some(answer) => Ok(answer),
                None => std::future::pending().await,
            }
        }
    };
    let options = || Options { seed: Some(7), durable_before_call: true, ..Options::default() };
    let runtime = builder(&journal).options(options()).model(model(works)).start().await.expect("a runtime");
    let resumes = OpenOptions { agent: "worker".into(), on_restart: Some(OnRestart::Resume), ..OpenOptions::default() };
    let session = runtime.open(resumes).expect("a session");
    session.send("work").await.expect("accepted");
    drop(model_calls.acquire().await.expect("the model is asked again"));
    journal.settled().await.expect("settled");
    copied(dir.path());
    let (id, child) = (session.id(), session.tree().await.expect("a tree").children[0].id);
    runtime.shutdown(Duration::from_secs(1)).await;
    damage(dir.path(), child);

    let journal = store(&dir.path().join("copy"));
    let says = |_: Request| async { Ok(text("continued")) };
    let options = Options { seed: Some(8), ..options() };
    let runtime = builder(&journal)
        .options(options)
        .model(model(says))
        .start()
        .await
        .expect("the runtime starts despite the damage");
    assert_eq!((runtime.boot().resumed, runtime.boot().swept), (1, 0));
    let session = runtime.session(id).expect("a sound row").expect("it exists");
    let ended = session.run_ended(RunNo(1)).await.expect("the run ends");
    assert_eq!((ended.outcome, ended.text.as_deref()), (Outcome::Completed, Some("continued")));
    assert!(matches!(journal.records(child), Err(ReadError::Damaged { .. })));
    runtime.shutdown(Duration::from_secs(1)).await;
}

/// Without a notice of its unreadable background child, the owner and its cancel would wait forever (S-6).
#[tokio::test]
async fn owner_ends_when_its_child_in_flight_is_unreadable() {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = store(&dir.path().join("live"));
    let working = Arc::new(Semaphore::new(0));
    let at_work = Arc::clone(&working);
    let works = move |request: Request| {
        let answer = match (&*prompt(&request), answers_of(&request)) {
            ("work", 0) => Some(crate::support::calls([task("part", true)])),
            ("work", _) => Some(text("so far")),
            _ => None,
        };
        at_work.add_permits(usize::from(answers_of(&request) > 0 || answer.is_none()));
        async move {
            match answer {
                Some(answer) => Ok(answer),
                None => std::future::pending().await,
            }
        }
    };
    let options = |seed| Options { seed: Some(seed), durable_before_call: true, ..Options::default() };
    let runtime = builder(&journal).options(options(7)).model(model(works)).start().await.expect("a runtime");
    let resumes = OpenOptions { agent: "worker".into(), on_restart: Some(OnRestart::Resume), ..OpenOptions::default() };
    let session = runtime.open(resumes).expect("a session");
    session.send("work").await.expect("accepted");
    drop(working.acquire_many(2).await.expect("the owner answered, and the child runs"));
    journal.settled().await.expect("settled");
    copied(dir.path());
    let (id, child) = (session.id(), session.tree().await.expect("a tree").children[0].id);
    runtime.shutdown(Duration::from_secs(1)).await;
    damage(dir.path(), child);

    let journal = store(&dir.path().join("copy"));
    let says = |request: Request| async move {
        let received = request.messages.iter().filter_map(|message| match message {
            Message::Notice { text, .. } => Some(text.to_string()),
            _ => None,
        });
        Ok(text(&format!("heard: {}", received.collect::<String>())))
    };
    let runtime = builder(&journal)
        .options(options(8))
        .model(model(says))
        .start()
        .await
        .expect("the runtime starts despite the damage");
    let session = runtime.session(id).expect("a sound row").expect("it exists");
    let ended = session.run_ended(RunNo(1)).await.expect("the run ends");
    assert_eq!(ended.outcome, Outcome::Completed);
    let report = ended.text.expect("a text");
    assert!(report.contains("failed: its session cannot be read (\"session "), "{report}");
    assert!(report.contains("its progress is unknown, and its last calls may have had effects"), "{report}");
    assert_eq!(report.matches("cannot be read").count(), 1, "reported once: {report}");
    runtime.shutdown(Duration::from_secs(1)).await;
}
