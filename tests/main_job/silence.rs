//! Models and tools that hang: limits end them, in virtual time.

use std::sync::Arc;
use std::time::Duration;

use subtend::format::Record;
use subtend::journal::{Journal, StoreSpec, open_store};
use subtend::models::{Scripted, Step};
use subtend::session::{FailKind, Limits, ModelFail, Outcome, TimeLimit};
use subtend::{OpenOptions, Runtime};
use tokio::time::Instant;

/// Runs a script with `limits`; returns the outcome, the time it took, and all outcomes in the journal.
async fn run(script: Scripted, limits: Limits) -> (Outcome, Duration, Vec<Outcome>) {
    let journal = open_store(&StoreSpec::Memory).expect("a journal in memory");
    let builder = Runtime::builder().journal(journal.clone()).model(Arc::new(script)).limits(limits);
    let runtime = builder.start().await.expect("a runtime");
    let session = runtime.open(OpenOptions { agent: "general".into(), ..OpenOptions::default() }).expect("a session");
    let from = Instant::now();
    let receipt = session.send("go").await.expect("accepted");
    let ended = tokio::time::timeout(Duration::from_secs(86_400), session.run_ended(receipt.run)).await;
    let ended = ended.expect("the run ends within a day").expect("the runtime lives");
    let took = from.elapsed();
    journal.settled().await.expect("the journal lives");
    let report = journal.verify(&mut |_| ()).expect("a report");
    assert!(report.problems.is_empty(), "{report:?}");
    let ends = ends(&journal);
    let left = runtime.shutdown(Duration::from_secs(5)).await;
    assert_eq!((left.actors, left.tasks), (0, 0), "{left:?}");
    (ended.outcome, took, ends)
}

fn ends(journal: &Journal) -> Vec<Outcome> {
    let heads = journal.heads().expect("heads");
    let all = heads.into_iter().flat_map(|(session, _)| journal.records(session).expect("records"));
    let ends =
        all.filter_map(|stored| if let Record::RunEnded(ended) = stored.record { Some(ended.outcome) } else { None });
    ends.collect()
}

fn hanging() -> Scripted {
    Scripted::builder("silent").rule("*", [Step::hang().repeat()]).build().expect("a script")
}

#[tokio::test(start_paused = true)]
async fn silent_model_is_abandoned_after_its_attempts() {
    let limits = Limits::default();
    let silence = Duration::from_millis(limits.first_byte_ms) * limits.attempts;
    let (outcome, took, ends) = run(hanging(), limits).await;
    let Outcome::Failed { kind: FailKind::Model { error, .. } } = &outcome else { panic!("{outcome:?}") };
    assert_eq!(*error, ModelFail::Unavailable);
    assert!(took >= silence && took < silence * 2, "{took:?}");
    assert_eq!(ends, [outcome]);
}

#[tokio::test(start_paused = true)]
async fn turn_has_its_own_time_limit() {
    let limits = Limits { turn_ms: 7_000, ..Limits::default() };
    let (outcome, took, ends) = run(hanging(), limits).await;
    assert_eq!(outcome, Outcome::TimedOut { what: TimeLimit::Turn });
    assert!(took >= Duration::from_secs(7) && took < Duration::from_secs(60), "{took:?}");
    assert_eq!(ends, [outcome]);
}

#[tokio::test(start_paused = true)]
async fn silent_child_does_not_block_its_owner() {
    let script = Scripted::builder("family")
        .rule("general", [Step::fan_out(2, "explore", true, "Part {n}."), Step::text("ended: {last}").repeat()])
        .rule("explore", [Step::hang().repeat()])
        .build()
        .expect("a script");
    let (outcome, _, ends) = run(script, Limits::default()).await;
    assert_eq!(outcome, Outcome::Completed);
    let silent =
        |end: &&Outcome| matches!(end, Outcome::Failed { kind: FailKind::Model { error: ModelFail::Unavailable, .. } });
    assert_eq!((ends.len(), ends.iter().filter(silent).count()), (3, 2), "{ends:?}");
}
