//! How long a start takes: a store with many sessions, of which some were in flight when the host died.
//!
//! `cargo bench --bench boot --no-default-features --features redb` prints milliseconds (median, least and most of the passes) from opening
//! the store until `start` has returned, for 100,000 sessions with 1,000 in flight, and for 100,000 in flight. Warm: the store was just
//! copied. `-- --quick` takes a tenth of the sessions.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    unreachable_pub,
    reason = "a bench measures wall time and fails by panicking"
)]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use subtend_actors::{OpenOptions, Options, Runtime};
use subtend_agents::catalog::Catalog;
use subtend_agents::manifest::{AgentMode, Manifest};
use subtend_journal::{Journal, StoreSpec, open_store};
use subtend_models::model::{Answer, Deltas, Model, ModelError, Request};
use subtend_session::message::Message;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const PASSES: usize = 3;
/// Inputs that are sent at the same time while a store is made.
const WIDTH: usize = 512;

/// Answers at once, or never.
struct Voice;

impl Model for Voice {
    fn name(&self) -> &str {
        "voice"
    }

    fn leaves_process(&self) -> bool {
        false
    }

    fn call(&self, request: Request, _: Deltas) -> BoxFuture<'static, Result<Answer, ModelError>> {
        let waits = matches!(request.messages.first(), Some(Message::User { text, .. }) if &**text == "wait");
        if waits { Box::pin(std::future::pending()) } else { Box::pin(std::future::ready(Ok(Answer::of_text("done")))) }
    }
}

fn store(dir: &Path) -> Journal {
    let spec = StoreSpec::parse(&format!("redb:{}", dir.join("store").display())).expect("a store spec");
    open_store(&spec).expect("a journal")
}

async fn runtime(journal: Journal) -> Runtime {
    let mut catalog = Catalog::builtin();
    catalog.insert(Manifest::new("worker", AgentMode::All, "You are a worker."));
    let options = Options { slots: usize::MAX, idle: Duration::from_millis(1), ..Options::default() };
    let builder = Runtime::builder().journal(journal).catalog(catalog).model(Arc::new(Voice)).options(options);
    builder.start().await.expect("a runtime")
}

/// Sends each of `count` new sessions one input; of those that wait the model never answers.
async fn opened(runtime: &Arc<Runtime>, count: usize, words: &'static str) {
    let mut sends = tokio::task::JoinSet::new();
    for n in 0..count {
        if n >= WIDTH {
            sends.join_next().await.expect("one is sent").expect("no panic");
        }
        let runtime = Arc::clone(runtime);
        sends.spawn(async move {
            let session = runtime.open(OpenOptions::agent("worker")).expect("a session");
            let receipt = session.send(words).await.expect("accepted");
            if words != "wait" {
                session.run_ended(receipt.run).await.expect("ended");
            }
        });
    }
    while let Some(sent) = sends.join_next().await {
        sent.expect("no panic");
    }
}

/// Makes a store as a host leaves it that dies: quiet sessions, and some in flight.
async fn made(dir: &Path, quiet: usize, in_flight: usize) {
    let journal = store(dir);
    let runtime = Arc::new(runtime(journal.clone()).await);
    opened(&runtime, quiet, "go").await;
    opened(&runtime, in_flight, "wait").await;
    journal.settled().await.expect("all is on the disk");
    assert_eq!(journal.inflight().expect("the runs in flight").len(), in_flight);
    // Dropped, as by a host that dies: nothing ends.
    drop(runtime);
    journal.close().await.expect("closed");
}

/// From opening the store until the runtime takes work.
async fn pass(from: &Path, in_flight: usize) -> Duration {
    let dir = tempfile::tempdir().expect("a directory for the bench");
    let copied = std::process::Command::new("cp").arg("-r").arg(from.join("store")).arg(dir.path()).status();
    assert!(copied.expect("cp").success());
    let begun = Instant::now();
    let journal = store(dir.path());
    let runtime = runtime(journal).await;
    let wall = begun.elapsed();
    let report = runtime.boot();
    assert_eq!((report.swept, report.unreadable), (in_flight, 0));
    runtime.shutdown(Duration::from_secs(5)).await;
    wall
}

#[tokio::main]
async fn main() {
    let tenth = std::env::args().any(|arg| arg == "--quick");
    let all = if tenth { 10_000 } else { 100_000 };
    println!("{:>10} {:>10} {:>10} {:>8} {:>8}", "sessions", "in flight", "median ms", "least", "most");
    for in_flight in [all / 100, all] {
        let dir = tempfile::tempdir().expect("a directory for the bench");
        made(dir.path(), all - in_flight, in_flight).await;
        let mut walls = Vec::with_capacity(PASSES);
        for _ in 0..PASSES {
            walls.push(pass(dir.path(), in_flight).await.as_millis());
        }
        walls.sort_unstable();
        let (least, most) = (walls.first().expect("passes"), walls.last().expect("passes"));
        println!("{all:>10} {in_flight:>10} {:>10} {least:>8} {most:>8}", walls.get(PASSES / 2).expect("passes"));
    }
}
