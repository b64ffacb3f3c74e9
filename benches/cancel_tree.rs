//! Measures the cancel of a tree: 10,000 sessions, each in a model call, until the end of every run is durable.
//!
//! `cargo bench --bench cancel_tree` prints milliseconds (median, minimum and maximum of the passes) for a tree of
//! depth 1 and one of 10 × 10 × 100, in memory and on redb. It fails if a slot, a token, a task, an actor of a child or
//! a run in flight remains. `-- --quick` does fewer passes.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    clippy::disallowed_methods,
    unreachable_pub,
    reason = "a bench measures wall time and fails by panicking"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use subtend_actors::{Control, OpenOptions, Options, Runtime, RuntimeStats, SessionHandle};
use subtend_agents::catalog::Catalog;
use subtend_agents::manifest::{AgentMode, Manifest};
use subtend_journal::{Journal, StoreSpec, memory::Memory, open_store};
use subtend_models::model::{Answer, Deltas, Model, ModelError, Request};
use subtend_session::authority::{RuleSet, Verdict};
use subtend_session::ids::RunNo;
use subtend_session::limits::Limits;
use subtend_session::message::Message;
use subtend_session::outcome::{Initiator, Outcome};
use subtend_session::record::ToolCall;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Maximum time for a tree to grow, and to leave memory.
const GROWTH_TIMEOUT: Duration = Duration::from_secs(120);

/// Store of the records.
#[derive(Clone, Copy)]
enum StoreKind {
    Memory,
    Redb,
}

struct Shape {
    name: &'static str,
    levels: &'static [u32],
}

const SHAPES: [Shape; 2] =
    [Shape { name: "10,000", levels: &[10_000] }, Shape { name: "10 x 10 x 100", levels: &[10, 10, 100] }];

/// A model that starts as many tasks as the first number of its prompt, passes on the others, and never answers.
struct HangingModel;

impl Model for HangingModel {
    fn name(&self) -> &str {
        "parked"
    }

    fn leaves_process(&self) -> bool {
        false
    }

    fn call(&self, request: Request, _: Deltas) -> BoxFuture<'static, Result<Answer, ModelError>> {
        let Some(Message::User { text, .. }) = request.messages.first().filter(|_| request.messages.len() == 1) else {
            return Box::pin(std::future::pending());
        };
        let (own, below) = text.split_once(' ').unwrap_or((text, "0"));
        let children: u32 = own.parse().expect("a number of children");
        if children == 0 {
            return Box::pin(std::future::pending());
        }
        let args = format!("{{\"subagent_type\":\"worker\",\"prompt\":\"{below}\",\"background\":true}}");
        let ask =
            |ix| ToolCall { provider_id: format!("c{ix}").into(), tool: "task".into(), args: args.as_str().into() };
        Box::pin(std::future::ready(Ok(Answer::of_calls(None, (0..children).map(ask).collect()))))
    }
}

async fn runtime(journal: Journal) -> Runtime {
    let mut catalog = Catalog::builtin();
    catalog.insert(Manifest::new("worker", AgentMode::All, "You are a worker."));
    let limits = Limits { calls_per_answer: u32::MAX, spawns: u32::MAX, live_runs: u32::MAX, ..Limits::default() };
    let builder = Runtime::builder()
        .journal(journal)
        .catalog(catalog)
        .model(Arc::new(HangingModel))
        .limits(limits)
        .policy(RuleSet { default: Verdict::Allow, rules: Vec::new() })
        .options(Options { slots: usize::MAX, ..Options::default() });
    builder.start().await.expect("a runtime")
}

/// Returns the number of sessions below the root.
fn below(levels: &[u32]) -> usize {
    levels.iter().rev().fold(0, |below, level| *level as usize * (1 + below))
}

async fn until(runtime: &Runtime, what: &str, wanted: impl Fn(&RuntimeStats) -> bool) {
    let begun = Instant::now();
    while !wanted(&runtime.stats()) {
        assert!(begun.elapsed() < GROWTH_TIMEOUT, "{what}: {:?}", runtime.stats());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Grows the tree; returns when each of its sessions waits for its model.
async fn grow_tree(runtime: &Runtime, levels: &[u32]) -> SessionHandle {
    let options = OpenOptions { agent: "worker".into(), ..OpenOptions::default() };
    let session = runtime.open(options).expect("a session");
    let prompt: Vec<String> = levels.iter().map(u32::to_string).collect();
    session.send(prompt.join(" ")).await.expect("accepted");
    let all = below(levels) + 1;
    until(runtime, "the tree did not grow", |stats| stats.tasks == all && stats.tokens == all).await;
    session
}

/// Runs one pass; returns the time from the cancel until every end is durable.
async fn pass(store: StoreKind, levels: &[u32]) -> Duration {
    let dir = tempfile::tempdir().expect("a directory for the bench");
    let journal = match store {
        StoreKind::Memory => Journal::open(Box::new(Memory::new()), Default::default()),
        StoreKind::Redb => open_store(
            &StoreSpec::parse(&format!("redb:{}", dir.path().join("store").display())).expect("a store spec"),
        ),
    }
    .expect("a journal");
    let runtime = runtime(journal.clone()).await;
    let session = grow_tree(&runtime, levels).await;
    let begun = Instant::now();
    assert_eq!(session.cancel().await, Ok(Control::Done(RunNo(1))));
    // The root's run ends after all owned runs, and its end is reported once it is durable.
    let ended = session.run_ended(RunNo(1)).await.expect("ended");
    let wall = begun.elapsed();
    assert_eq!(ended.outcome, Outcome::Cancelled { by: Initiator::Person });
    assert_eq!(journal.inflight().expect("the runs in flight"), []);
    assert_eq!(journal.heads().expect("the sessions").len(), below(levels) + 1);
    // The root stays in memory for a while, with its idle timer.
    let baseline = RuntimeStats { loaded: 1, actors: 1, timers: 1, ..RuntimeStats::default() };
    until(&runtime, "a task, slot, token or actor remains", |stats| *stats == baseline).await;
    let report = runtime.shutdown(Duration::from_secs(1)).await;
    assert_eq!((report.actors, report.tasks), (0, 0), "{report:?}");
    wall
}

fn millis(wall: Duration) -> f64 {
    wall.as_secs_f64() * 1e3
}

fn main() {
    let quick = std::env::args().any(|arg| arg == "--quick");
    let passes = if quick { 3 } else { 7 };
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let tokio = tokio.expect("a tokio runtime");
    println!("cancel of a tree whose sessions all wait for a model, until every end is durable; {passes} passes");
    println!("{:>15} {:>8} {:>12} {:>10} {:>10} {:>8}", "children", "store", "median ms", "least", "most", "must");
    for (store, word, must) in [(StoreKind::Memory, "memory", 250), (StoreKind::Redb, "redb", 1_000)] {
        for shape in &SHAPES {
            let mut walls: Vec<Duration> = (0..passes).map(|_| tokio.block_on(pass(store, shape.levels))).collect();
            walls.sort_unstable();
            let (median, least, most) = (walls[passes / 2], walls[0], walls[passes - 1]);
            let [median, least, most] = [median, least, most].map(millis);
            println!("{:>15} {word:>8} {median:>12.1} {least:>10.1} {most:>10.1} {must:>8}", shape.name);
        }
    }
}
