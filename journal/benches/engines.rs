//! Throughput of the engines with frames of the journal: commits, reads, opening.
//!
//! `cargo bench -p subtend-journal --bench engines` prints medians of three passes; the engines take turns in each pass. `floor` writes
//! the same groups to a plain file and syncs it: the lower bound of a durable commit. `-- --quick` does one small pass. `TMPDIR` chooses
//! the disk.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    unreachable_pub,
    reason = "a bench measures wall time and fails by panicking"
)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use subtend_journal::engine::Engine;
use subtend_journal::redb::Redb;
use subtend_journal::{Batch, Journal, Options, sled};
use subtend_session::ids::Lsn;

use crate::floor::Floor;

#[path = "engines/floor.rs"]
mod floor;
#[path = "engines/frames.rs"]
mod frames;

const CACHE: usize = 128 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Floor,
    Redb,
    Sled,
    Unsynced,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Floor, Self::Redb, Self::Sled, Self::Unsynced];

    fn name(self) -> &'static str {
        match self {
            Self::Floor => "floor",
            Self::Redb => "redb",
            Self::Sled => "sled",
            Self::Unsynced => "sled, without the sync it needs",
        }
    }

    fn open(self, dir: &Path, bytes: usize) -> Box<dyn Engine> {
        let entry = dir.join("store");
        match self {
            Self::Floor => Box::new(Floor::open(&entry, bytes)),
            Self::Redb => Box::new(Redb::open(&entry, CACHE).expect("a store")),
            Self::Sled => Box::new(sled::open(&entry, CACHE).expect("a store")),
            Self::Unsynced => Box::new(sled::open_unsynced(&entry, CACHE).expect("a store")),
        }
    }
}

#[derive(Clone, Debug)]
struct Pass {
    frames_per_s: f64,
    /// Processor time per frame, including the journal's.
    cpu_us: f64,
    p50_ms: f64,
    p99_ms: f64,
    group: f64,
    /// Bytes written and stored, per byte of frames.
    written: f64,
    held: f64,
    open_ms: f64,
    sessions_per_s: f64,
}

/// Bytes written by this process, from the kernel.
fn written() -> u64 {
    let io = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    io.lines().find_map(|line| line.strip_prefix("write_bytes: ")?.parse().ok()).unwrap_or(0)
}

/// Processor time of this process.
fn worked() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks = fields.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<f64>().ok());
    ticks.sum::<f64>() / 100.0
}

fn held(dir: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let entries: Vec<PathBuf> =
        std::fs::read_dir(dir).expect("a directory").map(|entry| entry.unwrap().path()).collect();
    let of = |path: &PathBuf| if path.is_dir() { held(path) } else { path.metadata().unwrap().blocks() * 512 };
    entries.iter().map(of).sum()
}

async fn produce(journal: Journal, batches: Vec<Batch>) -> Vec<Duration> {
    let mut waits = Vec::with_capacity(batches.len());
    for batch in batches {
        journal.wait_for_room().await;
        let from = Instant::now();
        let last = journal.append(batch).expect("an append").last;
        journal.wait(last).await.expect("a sync");
        waits.push(from.elapsed());
    }
    waits
}

fn percentile(sorted: &[Duration], share: f64) -> f64 {
    let at = (sorted.len() as f64 * share) as usize;
    sorted[at.min(sorted.len() - 1)].as_secs_f64() * 1e3
}

fn pass(kind: Kind, load: &frames::Load) -> Pass {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = Journal::open(kind.open(dir.path(), load.bytes), Options::default()).expect("a journal");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let producers = load.batches();
    let (before, worked_before, from) = (written(), worked(), Instant::now());
    let mut waits: Vec<Duration> = runtime.block_on(async {
        let tasks: Vec<_> =
            producers.into_iter().map(|batches| tokio::spawn(produce(journal.clone(), batches))).collect();
        let mut waits = Vec::new();
        for task in tasks {
            waits.extend(task.await.expect("a producer"));
        }
        waits
    });
    let took = from.elapsed().as_secs_f64();
    let synced = journal.info().syncs.max(1);
    drop(journal);
    let (wrote, worked) = (written() - before, worked() - worked_before);
    waits.sort_unstable();
    let payload = load.bytes as f64;
    let (open_ms, sessions_per_s) = reopened(kind, dir.path(), load);
    Pass {
        frames_per_s: waits.len() as f64 / took,
        cpu_us: worked * 1e6 / waits.len() as f64,
        p50_ms: percentile(&waits, 0.5),
        p99_ms: percentile(&waits, 0.99),
        group: waits.len() as f64 / synced as f64,
        written: wrote as f64 / payload,
        held: held(dir.path()) as f64 / payload,
        open_ms,
        sessions_per_s,
    }
}

fn reopened(kind: Kind, dir: &Path, load: &frames::Load) -> (f64, f64) {
    if kind == Kind::Floor {
        return (f64::NAN, f64::NAN);
    }
    let from = Instant::now();
    let journal = Journal::open(kind.open(dir, load.bytes), Options::default()).expect("a journal");
    let open_ms = from.elapsed().as_secs_f64() * 1e3;
    assert_eq!(journal.durable(), Lsn(load.frames as u64), "{}: something is missing", kind.name());
    let from = Instant::now();
    for session in &load.sessions {
        assert_eq!(journal.records(*session).expect("a session").len(), load.records_each, "{}", kind.name());
    }
    (open_ms, load.sessions.len() as f64 / from.elapsed().as_secs_f64())
}

fn median(of: &[Pass], value: impl Fn(&Pass) -> f64) -> f64 {
    let mut values: Vec<f64> = of.iter().map(value).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn table(load: &frames::Load, passes: usize) {
    let mut done: Vec<(Kind, Vec<Pass>)> = Kind::ALL.map(|kind| (kind, Vec::new())).into();
    for n in 0..passes {
        for (kind, of) in &mut done {
            eprintln!("pass {} of {passes}: {}", n + 1, kind.name());
            of.push(pass(*kind, load));
        }
    }
    let floor = median(&done[0].1, |pass| pass.frames_per_s);
    println!(
        "\n{} producers, {} frames of {} bytes, each acknowledged before its producer's next; median of {passes}\n",
        load.producers,
        load.frames,
        load.bytes / load.frames
    );
    println!(
        "| engine | frames/s | of the floor | processor, µs a frame | p50 ms | p99 ms | frames a sync | written | held | opened, ms | sessions read/s |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    for (kind, of) in &done {
        let rate = median(of, |pass| pass.frames_per_s);
        let ms = |value: f64| if value.is_nan() { "-".to_owned() } else { format!("{value:.1}") };
        let whole = |value: f64| if value.is_nan() { "-".to_owned() } else { format!("{value:.0}") };
        let group = if *kind == Kind::Unsynced { f64::NAN } else { median(of, |pass| pass.group) };
        println!(
            "| {} | {rate:.0} | {:.2} | {:.0} | {} | {} | {} | {:.1} | {:.1} | {} | {} |",
            kind.name(),
            rate / floor,
            median(of, |pass| pass.cpu_us),
            ms(median(of, |pass| pass.p50_ms)),
            ms(median(of, |pass| pass.p99_ms)),
            ms(group),
            median(of, |pass| pass.written),
            median(of, |pass| pass.held),
            ms(median(of, |pass| pass.open_ms)),
            whole(median(of, |pass| pass.sessions_per_s)),
        );
    }
}

fn main() {
    let quick = std::env::args().any(|arg| arg == "--quick");
    let (passes, loads) = if quick { (1, [(16, 10), (64, 10)]) } else { (3, [(64, 200), (1024, 40)]) };
    for (producers, each) in loads {
        table(&Arc::new(frames::Load::new(producers, each)), passes);
    }
}
