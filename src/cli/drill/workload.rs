//! The people of a drill: they open trees, send, cancel, go on, and tell what was acknowledged to them.

use std::sync::Arc;
use std::time::Duration;

use subtend_actors::event::{Next, What};
use subtend_actors::{Control, Runtime, SessionHandle};
use subtend_session::record::Record;
use tokio::task::JoinSet;

use super::chance::Chance;
use super::line::Line;
use super::model;
use super::trigger::Trigger;

/// The agent whose runs end with the process.
pub(super) const WORKER: &str = "worker";
/// The agent whose runs go on in the next one.
pub(super) const STEADY: &str = "steady";
/// Trees at the same time.
const TREES: u32 = 8;

/// Works until it is killed.
pub(super) async fn run(runtime: Runtime, seed: u64, trigger: Arc<Trigger>) {
    let runtime = Arc::new(runtime);
    let shown = tokio::spawn(show(Arc::clone(&runtime), trigger));
    let mut trees = JoinSet::new();
    for tree in 0..TREES {
        let runtime = Arc::clone(&runtime);
        trees.spawn(async move {
            for round in 0_u32.. {
                // A runtime that stops of itself is found by its exit: nothing is acknowledged any more.
                if one_tree(&runtime, seed, tree, round).await.is_none() {
                    return;
                }
            }
        });
    }
    while trees.join_next().await.is_some() {}
    shown.abort();
}

/// Tells every durable event.
async fn show(runtime: Arc<Runtime>, trigger: Arc<Trigger>) {
    let mut events = runtime.subscribe(None);
    while let Some(next) = events.next().await {
        let Next::Event(event) = next else { continue };
        let What::Record { seq, record } = event.what else { continue };
        Line::Seen(event.session, seq).say();
        trigger.seen();
        if matches!(*record, Record::RunEnded(_)) && event.session != event.root {
            trigger.ended();
        }
    }
}

/// One tree from its first message to its last; `None` when the runtime takes nothing any more.
async fn one_tree(runtime: &Runtime, seed: u64, tree: u32, round: u32) -> Option<()> {
    let name = format!("{tree}-{round}");
    let mut chance = Chance::of(seed, &name);
    let session = runtime.open(if chance.one_in(3) { STEADY } else { WORKER }).ok()?;
    let depth = 1 + chance.below(4);
    let receipt = session.send(model::prompt(&name, depth)).await.ok()?;
    Line::Input(session.id(), receipt.input).say();
    if chance.one_in(4) {
        // Behind the first: it waits in the queue, or opens the next run.
        let queued = session.send(model::prompt(&format!("{name}-queued"), 1)).await.ok()?;
        Line::Input(session.id(), queued.input).say();
    }
    if chance.one_in(5) {
        tokio::time::sleep(Duration::from_millis(chance.below(60))).await;
        cancel(&session).await?;
    }
    let ended = session.run_ended(receipt.run).await.ok()?;
    Line::Ended(session.id(), ended.run).say();
    if chance.one_in(3) {
        let again = session.continue_with(Some(&model::prompt(&format!("{name}-again"), 1))).await.ok()?;
        Line::Input(session.id(), again.input).say();
        let ended = session.run_ended(again.run).await.ok()?;
        Line::Ended(session.id(), ended.run).say();
    }
    Some(())
}

async fn cancel(session: &SessionHandle) -> Option<()> {
    if let Control::Done(run) = session.cancel().await.ok()? {
        Line::Cancelled(session.id(), run).say();
    }
    Some(())
}
