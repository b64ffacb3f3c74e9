//! The text that inputs of clients keep in memory while sessions work.

use crate::support::*;
use subtend_actors::run_for_sender;

const KIB: usize = 1 << 10;
const SHARE: &str = "the sender's memory for working sessions, which runs free when they end,";

/// Hangs for an input that says so.
fn hanging() -> Arc<dyn Model> {
    model(|request: Request| async move {
        if last_user(&request).starts_with("hang") {
            return std::future::pending().await;
        }
        Ok(text("done"))
    })
}

/// Starts a runtime in which a single sender has half of `working_text`.
async fn started_with(journal: &Journal, working_text: u64) -> Runtime {
    let options = Options { working_text, seed: Some(7), ..Options::default() };
    builder(journal).options(options).model(hanging()).start().await.expect("a runtime")
}

fn large(kib: usize) -> String {
    format!("hang{}", "x".repeat(kib * KIB))
}

/// Sends inputs until one is refused. Returns the number of the others.
async fn fill(session: &SessionHandle, kib: usize) -> (usize, SendError) {
    for accepted in 0..64 {
        if let Err(error) = session.send(large(kib)).await {
            return (accepted, error);
        }
    }
    panic!("no input was refused");
}

/// The controls: short inputs, another sender, and room after the queue was cleared and the run was cancelled.
#[tokio::test(start_paused = true)]
async fn queued_inputs_take_bounded_memory() {
    let runtime = started_with(&journal(), 1 << 20).await;
    // The only session of a sender is not refused for its own length.
    sent(&runtime, &large(100)).await;
    let (one, first) = sent(&runtime, "hang").await;
    let keyed = one.input(large(100)).key("k").send().await.expect("accepted");
    let refused = SendError::Busy { what: SHARE, limit: 512 << 10 };
    assert_eq!(fill(&one, 100).await, (3, refused.clone()));
    let again = one.input(large(100)).key("k").send().await.expect("known");
    assert_eq!((again.input, again.duplicate), (keyed.input, true));
    let other = open(&runtime);
    assert_eq!(fill(&other, 100).await, (0, refused));
    other.send("hang").await.expect("accepted");
    run_for_sender(Some(7), sent(&runtime, &large(60))).await;
    let third = open(&runtime);
    let (accepted, error) = run_for_sender(Some(7), fill(&third, 100)).await;
    assert!(accepted == 2 && matches!(error, SendError::Busy { what: SHARE, .. }), "{accepted} {error}");
    assert_eq!(one.queue_clear().await, Ok(4));
    assert_eq!(one.cancel().await, Ok(Control::Done(first.run)));
    end_of(&one, 1).await;
    assert_eq!(fill(&other, 100).await.0, 3);
    runtime.shutdown(Duration::ZERO).await;
}

/// Each run takes its input at once, so that no queue has any. The control: sessions that answered do not count.
#[tokio::test(start_paused = true)]
async fn taken_inputs_count_while_their_runs_work() {
    let runtime = started_with(&journal(), 1 << 20).await;
    let mut sessions = Vec::new();
    for _ in 0..4 {
        let (session, ended) = crate::support::ask(&runtime, &"x".repeat(200 * KIB)).await;
        assert_eq!(ended.outcome, Outcome::Completed);
        sessions.push(session);
    }
    let mut refused = Vec::new();
    for session in &sessions {
        refused.push(session.send("hang").await.is_err());
    }
    assert_eq!(refused, [false, false, true, true]);
    runtime.shutdown(Duration::ZERO).await;
}

/// A session that waits for its child has left memory, and its text returns with the child's end. The control: an ended one makes room.
#[tokio::test(start_paused = true)]
async fn inputs_of_waiting_sessions_count_outside_of_memory() {
    let answer = |request: Request| async move {
        match prompt(&request).split('.').next() {
            Some("parent") if answers(&request) == 0 => Ok(calls([task("child", false)])),
            Some("child") => {
                seconds(50).await;
                Ok(text("late"))
            }
            _ => Ok(text("done")),
        }
    };
    let options = Options { working_text: 1 << 20, idle: Duration::from_secs(2), seed: Some(7), ..Options::default() };
    let runtime = builder(&journal()).options(options).model(model(answer)).start().await.expect("a runtime");
    let (session, receipt) = sent(&runtime, &format!("parent.{}", "x".repeat(300 * KIB))).await;
    seconds(10).await;
    assert_eq!(runtime.loaded_sessions(), 1, "expected only the working child in memory");
    let other = open(&runtime);
    let refused = other.send("x".repeat(300 * KIB)).await.map(drop);
    assert_eq!(refused, Err(SendError::Busy { what: SHARE, limit: 512 << 10 }));
    let ended = session.run_ended(receipt.run).await.expect("ended");
    assert_eq!(ended.text.as_deref(), Some("done"));
    other.send("x".repeat(300 * KIB)).await.expect("accepted");
    shut(runtime).await;
}

/// The queue has more than the bound of the next process.
#[tokio::test(start_paused = true)]
async fn accepted_inputs_are_taken_after_a_restart_above_the_bound() {
    let memory = Memory::new();
    let runtime = started_with(&reopen(&memory), 64 << 20).await;
    let (session, _) = sent(&runtime, "hang").await;
    for _ in 0..8 {
        session.send("x".repeat(100 * KIB)).await.expect("accepted");
    }
    runtime.shutdown(Duration::ZERO).await;
    let runtime = started_with(&reopen(&memory), 0).await;
    seconds(60).await;
    let session = runtime.session(session.id()).expect("readable").expect("the session exists");
    let taken = records(runtime.journal(), session.id()).await.into_iter().filter_map(|record| match record {
        Record::InputsTaken { ids, .. } => Some(ids.len()),
        _ => None,
    });
    assert_eq!((session.queue().await, taken.sum::<usize>()), (Ok(Vec::new()), 9));
    shut(runtime).await;
}
