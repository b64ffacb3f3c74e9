//! Measures how long a start takes on a store with many sessions, some of which were in flight when the host died.
//!
//! `cargo bench --bench boot --no-default-features --features redb` prints milliseconds (median, minimum and maximum of
//! the passes) from opening the store until `start` returns, and the peak resident memory, for 100,000 sessions with
//! 1,000 in flight, and for 100,000 in flight. Each pass is a separate process on a copy of one store: *warm* right
//! after the copy, *cold* after the system dropped the copy's pages from its cache. `-- --quick` uses a tenth of the
//! sessions. With `--features postgres` and `-- --quick ADDRESS`, each pass makes a shard of that database and starts
//! on it.

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
/// First argument of a process that runs one pass.
const START_ARGUMENT: &str = "--start";
/// Number of inputs sent concurrently while a store is made.
const CONCURRENT_SENDS: usize = 512;

/// A model that answers at once or never.
struct TextModel;

impl Model for TextModel {
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

fn store(spec: &str) -> Journal {
    open_store(&StoreSpec::parse(spec).expect("a store spec")).expect("a journal")
}

fn redb(dir: &Path) -> String {
    format!("redb:{}", dir.join("store").display())
}

async fn runtime(journal: Journal, idle: Duration) -> Runtime {
    let mut catalog = Catalog::builtin();
    catalog.insert(Manifest::new("worker", AgentMode::All, "You are a worker."));
    let options = Options { slots: usize::MAX, idle, ..Options::default() };
    let builder = Runtime::builder().journal(journal).catalog(catalog).model(Arc::new(TextModel)).options(options);
    builder.start().await.expect("a runtime")
}

/// Opens `count` sessions and sends each one input, which the model may never answer.
async fn opened(runtime: &Arc<Runtime>, count: usize, text: &'static str) {
    let mut sends = tokio::task::JoinSet::new();
    for n in 0..count {
        if n >= CONCURRENT_SENDS {
            sends.join_next().await.expect("an input is sent").expect("no panic");
        }
        let runtime = Arc::clone(runtime);
        sends.spawn(async move {
            let session = runtime.open(OpenOptions::agent("worker")).expect("a session");
            let receipt = session.send(text).await.expect("accepted");
            if text != "wait" {
                session.run_ended(receipt.run).await.expect("ended");
            }
        });
    }
    while let Some(sent) = sends.join_next().await {
        sent.expect("no panic");
    }
}

/// Makes the store of a host that died: idle sessions, and some in flight.
async fn make_store(spec: &str, quiet: usize, in_flight: usize) {
    let journal = store(spec);
    let runtime = Arc::new(runtime(journal.clone(), Duration::from_millis(1)).await);
    opened(&runtime, quiet, "go").await;
    opened(&runtime, in_flight, "wait").await;
    journal.settled().await.expect("the writes are durable");
    assert_eq!(journal.inflight().expect("the runs in flight").len(), in_flight);
    // Dropped without a shutdown, as when a host dies, so that no run ends.
    drop(runtime);
    journal.close().await.expect("closed");
}

/// Runs one pass in its own process: opens the store and starts the runtime. Prints milliseconds and MiB.
async fn start(spec: &str, in_flight: usize) {
    let begun = Instant::now();
    let journal = store(spec);
    // The default idle time, so that swept sessions do not leave memory during the measurement.
    let runtime = runtime(journal, Options::default().idle).await;
    let wall = begun.elapsed();
    let report = runtime.boot();
    assert_eq!((report.swept, report.failures.len()), (in_flight, 0));
    println!("{} {}", wall.as_millis(), peak().map_or_else(|| "?".to_owned(), |peak| peak.to_string()));
    runtime.shutdown(Duration::from_secs(5)).await;
}

/// Returns the peak resident memory of this process in MiB; `None` if the system does not report it.
fn peak() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kib| kib.div_ceil(1024))
}

/// State of the copy in the system's cache when the store opens.
#[derive(Clone, Copy)]
enum Cache {
    Warm,
    Cold,
}

/// Drops the cached pages of all files below `dir`. Syncs them first, because only written pages can be dropped.
#[cfg(target_os = "linux")]
fn drop_pages(dir: &Path) {
    for entry in std::fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            drop_pages(&path);
        } else {
            let file = std::fs::File::open(&path).expect("a file");
            file.sync_all().expect("synced");
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("the system accepts the advice");
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn drop_pages(_: &Path) {
    println!("this system cannot be asked to drop pages: passes called cold are warm");
}

/// Runs one pass; returns milliseconds and MiB.
fn pass(from: &Path, in_flight: usize, cache: Cache) -> (u64, u64) {
    let dir = tempfile::tempdir().expect("a directory for the bench");
    let copied = std::process::Command::new("cp").arg("-r").arg(from.join("store")).arg(dir.path()).status();
    assert!(copied.expect("cp").success());
    if matches!(cache, Cache::Cold) {
        drop_pages(&dir.path().join("store"));
    }
    started(&redb(dir.path()), in_flight)
}

fn started(spec: &str, in_flight: usize) -> (u64, u64) {
    let mut child = std::process::Command::new(std::env::current_exe().expect("this program"));
    let out = child.arg(START_ARGUMENT).arg(spec).arg(in_flight.to_string()).output().expect("start the process");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let printed = String::from_utf8_lossy(&out.stdout);
    let mut numbers = printed.split_whitespace().map(|word| word.parse().unwrap_or(0));
    (numbers.next().expect("milliseconds"), numbers.next().expect("MiB"))
}

/// Makes one store and starts on copies of it, or makes a shard for each pass.
async fn passes(database: Option<&str>, quiet: usize, in_flight: usize) -> Vec<(&'static str, Vec<(u64, u64)>)> {
    if let Some(database) = database {
        let mut passes = Vec::new();
        for n in 0..PASSES {
            let spec = format!("{database}?shard=boot-{}-{in_flight}-{n}", std::process::id());
            make_store(&spec, quiet, in_flight).await;
            passes.push(started(&spec, in_flight));
        }
        return vec![("shard", passes)];
    }
    let dir = tempfile::tempdir().expect("a directory for the bench");
    make_store(&redb(dir.path()), quiet, in_flight).await;
    let of = |cache| (0..PASSES).map(|_| pass(dir.path(), in_flight, cache)).collect();
    vec![("warm", of(Cache::Warm)), ("cold", of(Cache::Cold))]
}

async fn measured(all: usize, database: Option<&str>) {
    println!(
        "{:>10} {:>10} {:>6} {:>10} {:>8} {:>8} {:>9}",
        "sessions", "in flight", "cache", "median ms", "least", "most", "peak MiB"
    );
    for in_flight in [all / 100, all] {
        for (cache, passes) in passes(database, all - in_flight, in_flight).await {
            let mut walls: Vec<u64> = passes.iter().map(|(wall, _)| *wall).collect();
            walls.sort_unstable();
            let (least, most) = (walls.first().expect("passes"), walls.last().expect("passes"));
            let (median, peak) = (walls.get(PASSES / 2).expect("passes"), passes.iter().map(|(_, peak)| *peak).max());
            let peak = peak.expect("passes");
            println!("{all:>10} {in_flight:>10} {cache:>6} {median:>10} {least:>8} {most:>8} {peak:>9}");
        }
    }
}

#[tokio::main]
async fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [START_ARGUMENT, spec, in_flight] => start(spec, in_flight.parse().expect("a number")).await,
        others => {
            let database = others.iter().copied().find(|word| word.starts_with("postgres"));
            measured(if others.contains(&"--quick") { 10_000 } else { 100_000 }, database).await;
        }
    }
}
