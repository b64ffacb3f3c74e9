use std::process::ExitCode;

use clap::{Args, value_parser};
use subtend_sim::lease::LeaseBug;
use subtend_sim::nodes::{NodesPlan, NodesReport, simulate};

/// Simulates nodes that stop, are killed and lose replies of their database. Exits with 1 at a violation.
#[derive(Args)]
pub(crate) struct NodesArgs {
    /// Number of seeds.
    #[arg(long, default_value_t = 200, value_parser = value_parser!(u64).range(1..))]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    base: u64,
    /// Seed each known bug instead. Exits with 1 if a bug is not noticed.
    #[arg(long)]
    controls: bool,
    /// Print events on the error stream as they happen.
    #[arg(long)]
    trace: bool,
}

pub(crate) fn nodes(args: &NodesArgs) -> ExitCode {
    let seeds = args.base..args.base.saturating_add(args.seeds);
    if args.controls {
        let mut unnoticed = 0_u32;
        for bug in LeaseBug::SIMULATED {
            let run = |seed| simulate(NodesPlan { seed, bug: Some(bug), trace: args.trace });
            if let Some((seed, what)) = seeds.clone().find_map(|seed| Some((seed, run(seed).violation?))) {
                println!("{bug}: noticed with seed {seed}: {what}");
            } else {
                unnoticed = unnoticed.saturating_add(1);
                println!("{bug}: NOT NOTICED in {} seeds", args.seeds);
            }
        }
        return if unnoticed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let (mut all, mut violations) = (NodesReport::default(), 0_u64);
    for seed in seeds {
        let run = simulate(NodesPlan { seed, bug: None, trace: args.trace });
        if let Some(what) = &run.violation {
            violations = violations.saturating_add(1);
            println!("subtend-sim nodes --seeds 1 --base {seed}\n  {what}");
        }
        for (sum, more) in [
            (&mut all.kills, run.kills),
            (&mut all.stops, run.stops),
            (&mut all.takeovers, run.takeovers),
            (&mut all.fenced, run.fenced),
            (&mut all.lost_replies, run.lost_replies),
            (&mut all.effects, run.effects),
            (&mut all.acknowledged, run.acknowledged),
        ] {
            *sum = sum.saturating_add(more);
        }
    }
    println!(
        "{} seeds: {} kills, {} stops, {} takeovers, {} commits of former owners refused, {} replies lost; {} calls, {} commands \
         acknowledged; {violations} violations",
        args.seeds, all.kills, all.stops, all.takeovers, all.fenced, all.lost_replies, all.effects, all.acknowledged
    );
    if violations == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
