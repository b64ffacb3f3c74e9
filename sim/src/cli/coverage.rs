use std::process::ExitCode;

use clap::{Args, value_parser};
use subtend_sim::coverage::{missing, of_model, table};
use subtend_sim::simulate::SeedRunner;

use crate::cli::run::threads;

/// Counts the worlds that each predicate judged, and those in which it could have failed, for the model and the simulator.
/// Exits with 1 if a source feeds a predicate but has no world in which it could have failed.
#[derive(Args)]
pub(crate) struct CoverageArgs {
    /// Seeds of the simulator.
    #[arg(long, default_value_t = 200, value_parser = value_parser!(u64).range(1..))]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    base: u64,
    /// Maximum number of transitions of each model.
    #[arg(long, default_value_t = 100_000)]
    states: usize,
}

pub(crate) fn coverage(args: &CoverageArgs) -> ExitCode {
    let threads = threads(None);
    let seed_runner =
        SeedRunner { base: args.base, seeds: args.seeds, steps: 500, bug: None, trace: false, threads, failures: 1 };
    let simulated = seed_runner.run(&|_| {});
    let table = table(&of_model(threads, args.states), &simulated.tally.examined);
    println!("{:34} {:>12} {:>12} {:>12} {:>12}", "predicate", "model", "relevant", "simulator", "relevant");
    for (name, model, simulator) in &table {
        let (by_model, by_simulator) = ((model.judged, model.relevant), (simulator.judged, simulator.relevant));
        println!("{name:34} {:12} {:12} {:12} {:12}", by_model.0, by_model.1, by_simulator.0, by_simulator.1);
    }
    let wrong = missing(&table);
    wrong.iter().for_each(|line| println!("{line}"));
    simulated.failed.iter().for_each(|failed| println!("{}\n  {}", failed.plan.command(), failed.failure));
    if wrong.is_empty() && simulated.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
