use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::builder::RangedU64ValueParser;
use clap::{Args, value_parser};
use serde_json::{Value, json};
use subtend_sim::simulate::{SeedRunResult, SeedRunner, Seeded};

use crate::cli::matrix;

/// Runs the real runtime in virtual time, one seed per run.
#[derive(Args)]
pub(crate) struct RunArgs {
    /// Number of seeds.
    #[arg(long, default_value_t = 100, value_parser = value_parser!(u64).range(1..))]
    seeds: u64,
    /// Maximum number of user actions and external events in each run.
    #[arg(long, default_value_t = 500, value_parser = value_parser!(u32).range(1..))]
    steps: u32,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    base: u64,
    /// Threads; one for each core if not given.
    #[arg(long, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    threads: Option<usize>,
    /// Number of failures after which no further seed starts.
    #[arg(long, default_value_t = 20, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    failures: usize,
    /// A seeded bug, by name: see `controls --list`.
    #[arg(long)]
    sabotage: Option<Seeded>,
    /// Print events on the error stream as they happen.
    #[arg(long)]
    trace: bool,
    /// Print how often each event occurred.
    #[arg(long)]
    tally: bool,
    /// Print how often each fault occurred during each kind of request, and fail if a combination never occurred.
    #[arg(long, conflicts_with = "json")]
    matrix: bool,
    /// Write JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn threads(requested: Option<usize>) -> usize {
    requested.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get))
}

pub(crate) fn run(args: &RunArgs) -> ExitCode {
    let seed_runner = SeedRunner {
        base: args.base,
        seeds: args.seeds,
        steps: args.steps,
        bug: args.sabotage,
        trace: args.trace,
        threads: threads(args.threads),
        failures: args.failures,
    };
    let done = AtomicU64::new(0);
    let result = seed_runner.run(&|report| {
        let done = done.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        if let Some(failure) = &report.failure {
            eprintln!("seed {}: {failure}", report.plan.seed);
        }
        if args.seeds == 1 {
            let (hash, processes) = (&report.hash, report.processes);
            eprintln!("seed {}: {} records, {processes} processes, hash {hash}", report.plan.seed, report.records);
        } else if done.is_multiple_of(100) {
            eprintln!("{done} of {} seeds", args.seeds);
        }
    });
    if args.json {
        println!("{}", as_json(&result, args.tally));
    } else {
        print_result(&result, args.tally);
    }
    let empty = if args.matrix { matrix::empty_cells(&result.tally) } else { Vec::new() };
    empty.iter().for_each(|cell| println!("never occurred: {cell}; run more seeds"));
    if args.matrix {
        matrix::print_matrix(&result.tally);
    }
    if result.failed.is_empty() && empty.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn print_result(result: &SeedRunResult, tally: bool) {
    let hours = result.took_ms / 3_600_000;
    println!("{} seeds, {} records, {hours} virtual hours", result.seeds, result.records);
    if tally {
        for (mark, count) in &result.tally.marks {
            println!("{count:9} {mark}");
        }
        for ((fault, verb), count) in &result.tally.matrix {
            println!("{count:9} {fault:?} × {verb:?}");
        }
    }
    for failed in &result.failed {
        println!("{}\n  {}", failed.plan.command(), failed.failure);
    }
}

fn as_json(result: &SeedRunResult, tally: bool) -> Value {
    let failures: Vec<Value> = result
        .failed
        .iter()
        .map(|failed| json!({"command": failed.plan.command(), "id": failed.failure.id, "what": failed.failure.what}))
        .collect();
    let matrix = result.tally.matrix.iter().map(|((fault, verb), count)| json!([fault, verb, count]));
    let mut all = json!({"seeds": result.seeds, "records": result.records, "failures": failures});
    if tally && let Some(all) = all.as_object_mut() {
        all.insert("marks".to_owned(), json!(result.tally.marks));
        all.insert("matrix".to_owned(), matrix.collect());
    }
    all
}
