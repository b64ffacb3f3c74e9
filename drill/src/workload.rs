//! The simulated users of a drill. They report each acknowledgement.

use std::sync::Arc;
use std::time::Duration;

use subtend_actors::event::{EventKind, Next};
use subtend_actors::{Approver, BranchOptions, Control, Runtime, SessionHandle};
use subtend_session::ids::{RunNo, SessionId};
use subtend_session::record::{AskVerdict, Record};
use tokio::task::JoinSet;

use super::line::Line;
use super::model;
use super::names::{SECRET, STEADY, WORKER};
use super::rng::SeededRng;
use super::trigger::Trigger;

const TREES: u32 = 8;
/// Time for which a tree runs before an early deletion.
const EARLY_DELETE_AFTER: Duration = Duration::from_millis(60);

/// Runs the users until the process is killed.
pub(crate) async fn run(runtime: Runtime, seed: u64, trigger: Arc<Trigger>) {
    let runtime = Arc::new(runtime);
    let reports = tokio::spawn(report_events(Arc::clone(&runtime), Arc::clone(&trigger)));
    let mut trees = JoinSet::new();
    for tree in 0..TREES {
        let (runtime, trigger) = (Arc::clone(&runtime), Arc::clone(&trigger));
        trees.spawn(async move {
            for round in 0_u32.. {
                // The runtime has stopped, and acknowledges nothing more. The drill notices if the process then exits.
                if run_tree(&runtime, seed, (tree, round), &trigger).await.is_none() {
                    return;
                }
            }
        });
    }
    while trees.join_next().await.is_some() {}
    reports.abort();
}

async fn report_events(runtime: Arc<Runtime>, trigger: Arc<Trigger>) {
    let mut events = runtime.subscribe(None);
    while let Some(next) = events.next().await {
        let Next::Event(event) = next else { continue };
        let EventKind::Record { seq, record } = event.what else { continue };
        Line::Seen(event.session, seq).print();
        trigger.on_seen();
        if matches!(*record, Record::SessionDeleted { .. }) {
            trigger.on_deletion_step();
        }
        if matches!(*record, Record::RunEnded(_)) && event.session != event.root {
            trigger.on_ended();
        }
    }
}

/// Runs one tree from its first message to its last. `None` if the runtime accepts no more requests.
async fn run_tree(runtime: &Runtime, seed: u64, (tree, round): (u32, u32), trigger: &Trigger) -> Option<()> {
    let name = format!("{tree}-{round}");
    let mut rng = SeededRng::of(seed, &name);
    // Deletes two trees of the first round, so that an early kill hits a deletion, and some of the others.
    if (round == 0 && tree < 2) || rng.one_in(4) || (trigger.dies_in_deletion() && tree.is_multiple_of(2)) {
        let branches = rng.one_in(2).then_some(name.as_str());
        return run_deleted_tree(runtime, rng.below(3), branches, rng.one_in(3), trigger).await;
    }
    let session = runtime.open(if rng.one_in(3) { STEADY } else { WORKER }).ok()?;
    let depth = 1 + rng.below(4);
    let first = send(&session, &name, depth).await?;
    if rng.one_in(4) {
        // This input is queued after the first one, or opens the next run.
        send(&session, &format!("{name}-queued"), 1).await?;
    }
    if rng.one_in(5) {
        tokio::time::sleep(Duration::from_millis(rng.below(60))).await;
        cancel(&session).await?;
    }
    if rng.one_in(6) {
        tokio::time::sleep(Duration::from_millis(rng.below(80))).await;
        interrupt(&session).await?;
        if rng.one_in(2) {
            // This input resumes the run, or opens the next run.
            send(&session, &format!("{name}-on"), 1).await?;
        }
    }
    let ended = session.run_ended(first).await.ok()?;
    Line::Ended(session.id(), ended.run).print();
    if rng.one_in(4) {
        let branch = session.branch(BranchOptions::default()).await.ok()?;
        Line::Branched(branch.id()).print();
        let run = send(&branch, &format!("{name}-branch"), 1).await?;
        let ended = branch.run_ended(run).await.ok()?;
        Line::Ended(branch.id(), ended.run).print();
    }
    if rng.one_in(3) {
        let continuation = session.continue_with(Some(&model::prompt(&format!("{name}-again"), 1))).await.ok()?;
        Line::Input(session.id(), continuation.input).print();
        let ended = session.run_ended(continuation.run).await.ok()?;
        Line::Ended(session.id(), ended.run).print();
    }
    Some(())
}

/// Returns the unique text of a session that will be deleted. Its prompt and answers contain the text.
pub(crate) fn secret(session: SessionId) -> String {
    format!("{SECRET}{}", session.0.simple())
}

/// Runs a small tree or a branch with unique text and deletes it: after its end, or while it runs if `early` is true.
async fn run_deleted_tree(
    runtime: &Runtime,
    depth: u64,
    branches: Option<&str>,
    early: bool,
    trigger: &Trigger,
) -> Option<()> {
    let mut session = runtime.open(WORKER).ok()?;
    if let Some(name) = branches {
        let first = send(&session, name, 0).await?;
        session.run_ended(first).await.ok()?;
        session = session.branch(BranchOptions::default()).await.ok()?;
        Line::Branched(session.id()).print();
    }
    let run = send(&session, &secret(session.id()), depth).await?;
    if early {
        tokio::time::sleep(EARLY_DELETE_AFTER).await;
    } else {
        let ended = session.run_ended(run).await.ok()?;
        Line::Ended(session.id(), ended.run).print();
    }
    Line::Deleting(session.id()).print();
    trigger.on_deletion_step();
    session.delete(true).await.ok()?;
    Line::Deleted(session.id()).print();
    Some(())
}

async fn send(session: &SessionHandle, name: &str, depth: u64) -> Option<RunNo> {
    let receipt = session.send(model::prompt(name, depth)).await.ok()?;
    Line::Input(session.id(), receipt.input).print();
    Some(receipt.run)
}

async fn interrupt(session: &SessionHandle) -> Option<()> {
    if let Control::Done(run) = session.interrupt().await.ok()? {
        Line::Interrupted(session.id(), run).print();
    }
    Some(())
}

/// Answers each approval after a random delay.
pub(crate) async fn answer(mut approver: Approver, seed: u64) {
    loop {
        let approval = approver.next().await;
        let mut rng = SeededRng::of(seed, &format!("{} {}", approval.session, approval.call));
        tokio::time::sleep(Duration::from_millis(rng.below(40))).await;
        let verdict = if rng.one_in(4) { AskVerdict::Deny } else { AskVerdict::Allow };
        // The answer is refused if the run has ended meanwhile.
        if let Ok(Control::Done(_)) = approver.answer(&approval, verdict).await {
            Line::Approved(approval.session, approval.call).print();
        }
    }
}

async fn cancel(session: &SessionHandle) -> Option<()> {
    if let Control::Done(run) = session.cancel().await.ok()? {
        Line::Cancelled(session.id(), run).print();
    }
    Some(())
}
