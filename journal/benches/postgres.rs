//! Compares frames of the journal in a shard of PostgreSQL with plain inserts of the same bytes into one table. The
//! inserts use a connection for each writer, and a row and a commit for each frame.
//!
//! `cargo bench -p subtend-journal --features postgres --bench postgres -- ADDRESS` prints medians of three passes, in
//! which both take turns. ADDRESS names a database of this machine, as `--store` does without a shard. The bench
//! creates its own shards there.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    unreachable_pub,
    dead_code,
    reason = "a bench measures wall time and fails by panicking"
)]

use std::time::{Duration, Instant};

use subtend_journal::{Batch, Journal, StoreSpec, codec, open_store};
use tokio_postgres::{Client, NoTls};

#[path = "engines/frames.rs"]
mod frames;

const PASSES: usize = 3;
/// Numbers of writers, and of frames for each writer.
const LOADS: [(usize, usize); 3] = [(1, 2_000), (32, 200), (256, 40)];

async fn connected(address: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(address, NoTls).await.expect("a connection");
    tokio::spawn(connection);
    client
}

async fn appends(journal: Journal, batches: Vec<Batch>) -> Vec<Duration> {
    let mut waits = Vec::with_capacity(batches.len());
    for batch in batches {
        journal.wait_for_room().await;
        let from = Instant::now();
        let last = journal.append(batch).expect("an append").last;
        journal.wait(last).await.expect("a commit");
        waits.push(from.elapsed());
    }
    waits
}

async fn inserts(client: Client, first: i64, rows: Vec<Vec<u8>>) -> Vec<Duration> {
    let insert = client.prepare("INSERT INTO bench_plain VALUES ($1, $2)").await.expect("a statement");
    let mut waits = Vec::with_capacity(rows.len());
    for (id, row) in (first..).zip(&rows) {
        let from = Instant::now();
        client.execute(&insert, &[&id, row]).await.expect("a commit");
        waits.push(from.elapsed());
    }
    waits
}

struct TimedWriters {
    frames_per_s: f64,
    p50_ms: f64,
    p99_ms: f64,
}

impl TimedWriters {
    fn of(took: Duration, mut waits: Vec<Duration>) -> Self {
        waits.sort_unstable();
        let at = |percent: usize| waits[(waits.len() * percent / 100).min(waits.len() - 1)].as_secs_f64() * 1e3;
        Self { frames_per_s: waits.len() as f64 / took.as_secs_f64(), p50_ms: at(50), p99_ms: at(99) }
    }
}

async fn finished(tasks: Vec<tokio::task::JoinHandle<Vec<Duration>>>) -> Vec<Duration> {
    let mut waits = Vec::new();
    for task in tasks {
        waits.extend(task.await.expect("a writer"));
    }
    waits
}

async fn shard(address: &str, load: &frames::Load, n: usize) -> (TimedWriters, f64) {
    let name = format!("bench-{}-{}-{n}", std::process::id(), load.producers);
    let spec = StoreSpec::parse(&format!("{address}?shard={name}")).expect("an address");
    let journal = open_store(&spec).expect("a shard");
    let (batches, from) = (load.batches(), Instant::now());
    let waits = finished(batches.into_iter().map(|own| tokio::spawn(appends(journal.clone(), own))).collect()).await;
    let pass = TimedWriters::of(from.elapsed(), waits);
    let group = load.frames as f64 / journal.info().syncs.max(1) as f64;
    journal.close().await.expect("closed");
    (pass, group)
}

async fn plain(address: &str, load: &frames::Load) -> TimedWriters {
    let admin = connected(address).await;
    let table =
        "DROP TABLE IF EXISTS bench_plain; CREATE TABLE bench_plain (id bigint PRIMARY KEY, frame bytea NOT NULL)";
    admin.batch_execute(table).await.expect("a table");
    let mut writers = Vec::new();
    for batches in load.batches() {
        let rows = batches.iter().flat_map(|batch| &batch.frames);
        let rows: Vec<Vec<u8>> = rows.map(|frame| codec::encode(frame).expect("a frame").to_vec()).collect();
        writers.push((connected(address).await, rows));
    }
    let (from, mut tasks, mut first) = (Instant::now(), Vec::new(), 0);
    for (client, rows) in writers {
        let count = rows.len() as i64;
        tasks.push(tokio::spawn(inserts(client, first, rows)));
        first += count;
    }
    let waits = finished(tasks).await;
    let pass = TimedWriters::of(from.elapsed(), waits);
    admin.batch_execute("DROP TABLE bench_plain").await.expect("no table");
    pass
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

async fn measured(address: &str) {
    println!("| writers | rows | frames/s | p50 ms | p99 ms | frames a commit |");
    println!("|---|---|---|---|---|---|");
    for (producers, each) in LOADS {
        let load = frames::Load::new(producers, each);
        let (mut shards, mut plains, mut groups) = (Vec::new(), Vec::new(), Vec::new());
        for n in 0..PASSES {
            let (pass, group) = shard(address, &load, n).await;
            shards.push(pass);
            groups.push(group);
            plains.push(plain(address, &load).await);
        }
        for (name, of, group) in [("shard", shards, median(groups)), ("plain inserts", plains, 1.0)] {
            let value = |value: fn(&TimedWriters) -> f64| median(of.iter().map(value).collect());
            let (rate, p50, p99) =
                (value(|pass| pass.frames_per_s), value(|pass| pass.p50_ms), value(|pass| pass.p99_ms));
            println!("| {producers} | {name} | {rate:.0} | {p50:.2} | {p99:.2} | {group:.1} |");
        }
    }
}

fn main() {
    let Some(address) = std::env::args().skip(1).find(|word| word.starts_with("postgres")) else {
        println!("name a database: `-- postgres://USER:PASSWORD@localhost/DATABASE`");
        return;
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(measured(&address));
}
