//! Cancels of a whole tree whose owned sessions have queued inputs of a person.

use crate::support::*;

/// Plays three levels: each waits for the next one below, and the last one takes long.
async fn chain(request: Request) -> Result<Answer, ModelError> {
    match (prompt(&request).as_str(), answers(&request), user_messages(&request)) {
        ("2", 0, 1) => Ok(calls([task("1", false), task("1", true)])),
        ("1", 0, 1) => Ok(calls([task("0", false)])),
        _ => {
            seconds(50).await;
            Ok(text("done"))
        }
    }
}

fn below(runtime: &Runtime, session: &SessionHandle) -> Vec<SessionHandle> {
    let children = runtime.journal().children(session.id()).expect("children");
    children.into_iter().map(|id| runtime.session(id).expect("readable").expect("the session exists")).collect()
}

async fn check_tree_cancel(slots: usize, live: u32) {
    let journal = journal();
    let options = Options { slots, seed: Some(7), ..Options::default() };
    let limits = Limits { live_runs: live, ..Limits::default() };
    let runtime = started(builder(&journal).limits(limits).options(options).model(model(chain))).await;
    let (session, _) = sent(&runtime, "2").await;
    seconds(5).await;
    let mut all = below(&runtime, &session);
    let deeper: Vec<SessionHandle> = all.iter().flat_map(|child| below(&runtime, child)).collect();
    all.extend(deeper);
    for child in &all {
        child.send("for a person").await.expect("accepted");
    }
    assert_eq!(session.cancel_tree().await, Ok(1), "expected one unowned run");
    assert_eq!(end_of(&session, 1).await.outcome, Outcome::Cancelled { by: Initiator::Person });
    let by_owner = Outcome::Cancelled { by: Initiator::Owner { outcome: OutcomeKind::Cancelled } };
    for child in &all {
        assert_eq!(end_of(child, 1).await.outcome, by_owner);
    }
    seconds(100).await;
    assert_eq!(journal.inflight().expect("inflight"), [], "queued inputs opened a run");
    for child in &all {
        assert_eq!(child.queue().await.expect("listed").len(), 1);
        child.send("continue").await.expect("accepted");
        assert_eq!(end_of(child, 2).await.outcome, Outcome::Completed);
    }
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn tree_cancel_keeps_queued_inputs_of_owned_sessions() {
    check_tree_cancel(10, 10).await;
}

#[tokio::test(start_paused = true)]
async fn tree_cancel_keeps_queued_inputs_of_queued_sessions() {
    check_tree_cancel(1, 1).await;
}

#[tokio::test(start_paused = true)]
async fn plain_cancel_ends_owned_runs_but_not_persons_runs() {
    let runtime = builder(&journal()).model(model(chain)).start().await.expect("a runtime");
    let (session, _) = sent(&runtime, "2").await;
    seconds(5).await;
    let child = below(&runtime, &session)[0].clone();
    child.send("for a person").await.expect("accepted");
    session.cancel().await.expect("cancelled");
    assert_eq!(end_of(&child, 2).await.outcome, Outcome::Completed);
    shut(runtime).await;
}
