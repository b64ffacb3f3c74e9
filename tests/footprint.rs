//! Measures the memory of sessions: allocations of a child from call to result, and heap bytes that a session keeps.
//!
//! `cargo test --test footprint -- --nocapture` prints the table. The journal is in memory and its bytes are printed
//! separately: they remain on the heap after the runtime is dropped. The tokio runtime has one thread, so the counts
//! are the same in every run and build. This binary has only one test, because it counts the allocations of the whole
//! process.

#![allow(clippy::expect_used, reason = "a test fails by panicking")]

#[path = "../benches/fan_out/bare.rs"]
#[expect(dead_code, reason = "only the reading helpers of the fake model are used")]
mod bare;
#[path = "../benches/fan_out/fake.rs"]
mod fake;

use std::alloc::System;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use subtend_actors::{OpenOptions, Options, Runtime};
use subtend_agents::catalog::Catalog;
use subtend_agents::manifest::{AgentMode, Manifest};
use subtend_journal::{Journal, memory::Memory};
use subtend_models::model::{Answer, Deltas, Model, ModelError, Request};
use subtend_session::authority::{RuleSet, Verdict};
use subtend_session::limits::Limits;
use subtend_tools::registry::Registry;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const CHILDREN: u32 = 10_000;

/// Returns the number of allocations so far and the bytes on the heap.
fn heap() -> (usize, usize) {
    let stats = ALLOCATOR.stats();
    (stats.allocations + stats.reallocations, stats.bytes_allocated.saturating_sub(stats.bytes_deallocated))
}

/// The fake model. It counts its own allocations, and can leave calls of workers unanswered.
struct CountingModel {
    fake: fake::FanOutModel,
    hangs: bool,
    called: AtomicU32,
    allocated: AtomicUsize,
}

impl CountingModel {
    fn new(children: u32, hangs: bool) -> Arc<Self> {
        Arc::new(Self {
            fake: fake::FanOutModel { children },
            hangs,
            called: AtomicU32::new(0),
            allocated: AtomicUsize::new(0),
        })
    }
}

impl Model for CountingModel {
    fn name(&self) -> &str {
        "fake"
    }

    fn leaves_process(&self) -> bool {
        false
    }

    fn call(&self, request: Request, deltas: Deltas) -> BoxFuture<'static, Result<Answer, ModelError>> {
        if &*request.agent == "worker" {
            self.called.fetch_add(1, Ordering::Relaxed);
            if self.hangs {
                return Box::pin(std::future::pending());
            }
        }
        let before = heap().0;
        let answer = self.fake.call(request, deltas);
        self.allocated.fetch_add(heap().0 - before, Ordering::Relaxed);
        answer
    }
}

fn journal() -> Journal {
    Journal::open(Box::new(Memory::new()), Default::default()).expect("a journal")
}

async fn runtime(journal: &Journal, model: Arc<dyn Model>, live_runs: u32) -> Runtime {
    let mut catalog = Catalog::builtin();
    catalog.insert(Manifest::new("general", AgentMode::All, "You are a parent."));
    catalog.insert(Manifest::new("worker", AgentMode::Subagent, "You are a worker."));
    let limits = Limits { calls_per_answer: u32::MAX, spawns: u32::MAX, live_runs, ..Limits::default() };
    let options = Options { slots: usize::MAX, idle: Duration::from_millis(1), ..Options::default() };
    Runtime::builder()
        .journal(journal.clone())
        .catalog(catalog)
        .tools(Registry::builder().tool(fake::echo()).expect("one tool").build())
        .model(model)
        .limits(limits)
        .policy(RuleSet { default: Verdict::Allow, rules: Vec::new() })
        .options(options)
        .start()
        .await
        .expect("a runtime")
}

fn general() -> OpenOptions {
    OpenOptions { agent: "general".into(), ..OpenOptions::default() }
}

/// Yields to the runtime until `done` returns true.
async fn until(done: impl Fn() -> bool) {
    while !done() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Returns the bytes on the heap once they no longer change.
async fn settled_heap() -> usize {
    let mut before = heap().1;
    loop {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let now = heap().1;
        if now == before {
            return now;
        }
        before = now;
    }
}

/// Prints the bytes that `sessions` keep beyond the `before` of the process; returns the runtime's per session.
async fn measure_sessions(state: &str, before: usize, runtime: Runtime, journal: Journal) -> usize {
    let all = settled_heap().await;
    drop(runtime);
    let kept = settled_heap().await;
    let each = |bytes: usize| bytes / CHILDREN as usize;
    let (subtend, stored) = (each(all.saturating_sub(kept)), each(kept.saturating_sub(before)));
    println!("{state:<30} {subtend:>14} {stored:>14}");
    drop(journal);
    subtend
}

/// Runs children to their ends. Returns allocations per child without those of the model, and the bytes it keeps.
async fn measure_ended_children() -> (usize, usize) {
    let (journal, before, model) = (journal(), heap().1, CountingModel::new(CHILDREN, false));
    let runtime = runtime(&journal, Arc::clone(&model) as _, u32::MAX).await;
    let session = runtime.open(general()).expect("a session");
    let count = heap().0;
    let receipt = session.send("fan out").await.expect("accepted");
    let ended = session.run_ended(receipt.run).await.expect("ended");
    assert_eq!(ended.text.as_deref(), Some(&*format!("{CHILDREN} results")));
    let allocated = heap().0 - count - model.allocated.load(Ordering::Relaxed);
    drop((ended, session));
    until(|| runtime.loaded_sessions() <= 1).await;
    (allocated / CHILDREN as usize, measure_sessions("ended children", before, runtime, journal).await)
}

/// Starts children whose model never answers, `live_runs` at a time; returns the bytes that one keeps.
async fn measure_waiting_children(state: &str, live_runs: u32) -> usize {
    let (journal, before, model) = (journal(), heap().1, CountingModel::new(CHILDREN, true));
    let runtime = runtime(&journal, Arc::clone(&model) as _, live_runs).await;
    let session = runtime.open(general()).expect("a session");
    session.send("fan out").await.expect("accepted");
    until(|| model.called.load(Ordering::Relaxed) == CHILDREN.min(live_runs)).await;
    measure_sessions(state, before, runtime, journal).await
}

/// Opens roots that answer once and leave memory; returns the bytes that one keeps.
async fn measure_passivated_roots() -> usize {
    let (journal, before) = (journal(), heap().1);
    let runtime = runtime(&journal, CountingModel::new(0, false), 3).await;
    for _ in 0..CHILDREN {
        let session = runtime.open(general()).expect("a session");
        let receipt = session.send("go").await.expect("accepted");
        session.run_ended(receipt.run).await.expect("ended");
    }
    until(|| runtime.loaded_sessions() == 0).await;
    measure_sessions("passivated roots", before, runtime, journal).await
}

#[test]
fn sessions_keep_within_their_footprint() {
    let tokio = || tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a tokio runtime");
    println!("{:<30} {:>14} {:>14}", "heap bytes of one", "in the runtime", "in the journal");
    let (allocations, ended) = tokio().block_on(measure_ended_children());
    let calling = tokio().block_on(measure_waiting_children("child in a model call", u32::MAX));
    let queued = tokio().block_on(measure_waiting_children("queued child", 3));
    let passivated = tokio().block_on(measure_passivated_roots());
    println!("\nallocations of one child, without those of its model: {allocations}");
    assert!(allocations <= 120, "{allocations} allocations of one child");
    assert!(ended <= 512, "{ended} bytes of an ended child");
    assert!(calling <= 12_288, "{calling} bytes of a child in a model call");
    assert!(queued <= 1024, "{queued} bytes of a queued child");
    assert!(passivated <= 512, "{passivated} bytes of a passivated root");
}
