//! Queued children whose state is dropped from memory start from the journal.

use crate::support::*;
use subtend_session::ids::Epoch;

/// Runs eight children one after another; returns all sessions with their records and the epoch of their rows.
async fn family(queued_states: usize) -> Vec<(SessionId, Vec<Record>, Epoch)> {
    let journal = journal();
    let answer = |request| async move {
        // Some answers take time, so that calls are made both in a task and in the handler.
        if prompt(&request).ends_with(['2', '5']) {
            seconds(1).await;
        }
        Ok(match (&*prompt(&request), answers(&request)) {
            ("root", 0) => calls((0..8).map(|n| task(&format!("child {n}"), false))),
            ("root", _) => text("all"),
            ("child 3", 0) => calls([("task", json!({"subagent_type": "worker", "prompt": "grandchild 5"}))]),
            _ => text("done"),
        })
    };
    let limits = Limits { live_runs: 1, ..Limits::default() };
    let options = Options { seed: Some(7), queued_states, ..Options::default() };
    let runtime =
        builder(&journal).limits(limits).options(options).model(model(answer)).start().await.expect("started");
    let (_, ended) = ask(&runtime, "root").await;
    assert_eq!(ended.outcome, Outcome::Completed);
    journal.settled().await.expect("durable");
    let mut all = Vec::new();
    for (session, head) in journal.heads().expect("sessions") {
        all.push((session, records(&journal, session).await, head.epoch));
    }
    shut(runtime).await;
    all
}

#[tokio::test(start_paused = true)]
async fn children_run_the_same_without_kept_states() {
    let kept = family(1_024).await;
    assert_eq!(kept.len(), 10);
    assert_eq!(family(0).await, kept);
    assert_eq!(family(2).await, kept);
}
