use std::process::ExitCode;

use clap::builder::RangedU64ValueParser;
use clap::{Args, value_parser};
use serde_json::json;
use subtend_sim::fault::SimFault;
use subtend_sim::lease::LeaseBug;
use subtend_sim::simulate::{SeedRunner, Seeded};

use crate::cli::run::threads;
use crate::cli::{lease, model};

/// Seeds each bug in turn, in the models and in the simulator. Exits with 1 if a bug is not noticed.
#[derive(Args)]
pub(crate) struct ControlsArgs {
    /// Seed bugs only in the models.
    #[arg(long, group = "where")]
    model: bool,
    /// Seed bugs only in the simulator.
    #[arg(long, group = "where")]
    simulator: bool,
    /// List the bugs and exit.
    #[arg(long)]
    list: bool,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    base: u64,
    /// Number of seeds within which the simulator must notice a bug.
    #[arg(long, default_value_t = 1_000, value_parser = value_parser!(u64).range(1..))]
    seeds: u64,
    /// Steps of each seed.
    #[arg(long, default_value_t = 500, value_parser = value_parser!(u32).range(1..))]
    steps: u32,
    /// Threads; one for each core if not given.
    #[arg(long, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    threads: Option<usize>,
    /// Write JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn controls(args: &ControlsArgs) -> ExitCode {
    if args.list {
        SimFault::all().for_each(|fault| println!("model {fault}"));
        LeaseBug::ALL.iter().for_each(|bug| println!("lease {bug}"));
        Seeded::all().for_each(|bug| println!("simulator {bug}"));
        return ExitCode::SUCCESS;
    }
    let mut survived = 0_u32;
    if !args.simulator {
        survived = survived.saturating_add(model::controls(args.json)).saturating_add(lease::controls(args.json));
    }
    if !args.model {
        survived = survived.saturating_add(simulator(args));
    }
    if survived == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Returns the number of unnoticed bugs.
fn simulator(args: &ControlsArgs) -> u32 {
    let mut survived = 0_u32;
    for bug in Seeded::all() {
        let seed_runner = SeedRunner {
            base: args.base,
            seeds: args.seeds,
            steps: args.steps,
            bug: Some(bug),
            trace: false,
            threads: threads(args.threads),
            failures: 1,
        };
        let result = seed_runner.run(&|_| {});
        let noticed = result.failed.first();
        survived = survived.saturating_add(u32::from(noticed.is_none()));
        let command = noticed.map(|failed| failed.plan.command());
        if args.json {
            let id = noticed.map(|failed| &failed.failure.id);
            println!("{}", json!({"bug": bug.to_string(), "seeds": result.seeds, "noticed": id, "command": command}));
        } else if let Some(failed) = noticed {
            println!("{bug}: noticed as {} after {} seeds: {}", failed.failure.id, result.seeds, failed.plan.command());
        } else {
            println!("{bug}: NOT NOTICED in {} seeds", result.seeds);
        }
    }
    survived
}
