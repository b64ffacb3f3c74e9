//! Measures the overhead of a fan-out: one parent starts N subagents in one answer, and gets N results. Each subagent
//! makes two model turns with one tool call in between. In alternating passes, a bare tokio loop does the same work.
//!
//! `cargo bench --bench fan_out` prints microseconds per child (median of the pairs), the ratio to the bare loop, and
//! frames per child. `-- --quick` does fewer pairs; `-- --durable` adds durable passes on redb (workload D; in memory
//! is workload F). With `--features postgres` and `-- ADDRESS`, it does workload D alone, on redb and on shards of
//! that database in turn. `-- --once bare|memory|redb N` does one pass of N children on one thread and prints its wall
//! time: the counts of `valgrind --tool=callgrind` are then the same on a busy machine.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    unreachable_pub,
    reason = "a bench fails by panicking"
)]

#[path = "fan_out/bare.rs"]
mod bare;
#[path = "fan_out/fake.rs"]
mod fake;
#[path = "fan_out/with_subtend.rs"]
mod with_subtend;

use std::time::Duration;

use with_subtend::{Cap, StoreKind, fan_out};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

pub(crate) struct Pass {
    pub(crate) wall: Duration,
    pub(crate) frames: u64,
}

fn median(mut passes: Vec<f64>) -> f64 {
    passes.sort_by(f64::total_cmp);
    passes.get(passes.len() / 2).copied().unwrap_or_default()
}

fn micros_per_child(wall: Duration, children: u32) -> f64 {
    wall.as_secs_f64() * 1e6 / f64::from(children)
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let has = |flag: &str| args.iter().any(|arg| arg == flag);
    if let Some(at) = args.iter().position(|arg| arg == "--once") {
        return once(args.get(at + 1).map_or("", String::as_str), args.get(at + 2));
    }
    let pairs = if has("--quick") { 3 } else { 7 };
    let sizes: &[u32] = if has("--large") { &[100, 1_000, 10_000, 100_000] } else { &[100, 1_000, 10_000] };
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("no tokio runtime: {error}");
            std::process::exit(1);
        }
    };
    if let Some(address) = args.iter().find(|arg| arg.starts_with("postgres")) {
        return durable(&runtime, pairs.min(3), &[("redb", StoreKind::Redb), ("shard", StoreKind::Postgres(address))]);
    }
    println!("workload F, journal in memory, median of {pairs} alternating pairs");
    println!(
        "{:>9} {:>14} {:>14} {:>7} {:>14}",
        "children", "bare us/child", "subtend us/child", "ratio", "frames/child"
    );
    for children in sizes {
        let mut bare_passes = Vec::new();
        let mut our_passes = Vec::new();
        let mut frames = 0;
        for _ in 0..pairs {
            bare_passes.push(micros_per_child(runtime.block_on(bare::fan_out(*children)), *children));
            let pass = runtime.block_on(fan_out(*children, StoreKind::Memory, Cap::Open));
            frames = pass.frames;
            our_passes.push(micros_per_child(pass.wall, *children));
        }
        let (bare, subtend) = (median(bare_passes), median(our_passes));
        println!(
            "{children:>9} {bare:>14.2} {subtend:>14.2} {:>7.2} {:>14.2}",
            subtend / bare,
            f64_of(frames) / f64::from(*children)
        );
    }
    if has("--durable") || !has("--quick") {
        durable(&runtime, pairs.min(3), &[("redb", StoreKind::Redb)]);
    }
}

fn once(what: &str, children: Option<&String>) {
    let children =
        children.and_then(|children| children.parse().ok()).expect("a number of children after `--once WHAT`");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a tokio runtime");
    let wall = match what {
        "bare" => runtime.block_on(bare::fan_out(children)),
        "memory" => runtime.block_on(fan_out(children, StoreKind::Memory, Cap::Open)).wall,
        "redb" => runtime.block_on(fan_out(children, StoreKind::Redb, Cap::Open)).wall,
        _ => panic!("`--once` runs \"bare\", \"memory\" or \"redb\", not {what:?}"),
    };
    println!("{what}, {children} children: {:.2} us per child", micros_per_child(wall, children));
}

fn durable(runtime: &tokio::runtime::Runtime, passes: usize, stores: &[(&str, StoreKind<'_>)]) {
    println!("\nworkload D, every record durable, median of {passes}");
    println!("{:>9} {:>11} {:>6} {:>14} {:>14}", "children", "cap", "store", "us/child", "frames/child");
    for (cap, word) in [(Cap::Open, "open"), (Cap::Default, "3"), (Cap::DefaultDurable, "3, durable")] {
        for children in [1_000_u32, 10_000] {
            let pass = |(_, store): &(&str, StoreKind<'_>)| runtime.block_on(fan_out(children, *store, cap));
            let all: Vec<Vec<Pass>> = (0..passes).map(|_| stores.iter().map(pass).collect()).collect();
            for (at, (store, _)) in stores.iter().enumerate() {
                let walls = all.iter().map(|passes| micros_per_child(passes[at].wall, children)).collect();
                let frames = f64_of(all[0][at].frames) / f64::from(children);
                println!("{children:>9} {word:>11} {store:>6} {:>14.2} {frames:>14.2}", median(walls));
            }
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "frames of a bench are far below 2^52")]
fn f64_of(n: u64) -> f64 {
    n as f64
}
