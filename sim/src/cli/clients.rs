use std::process::ExitCode;

use clap::{Args, value_parser};
use subtend_host::host_bug::HostBug;
use subtend_sim::clients::{ClientPlan, ClientRun, simulate};

/// Simulates clients of hosts that are killed. Exits with 1 if a client does not receive each event once, or a command
/// does not take effect once.
#[derive(Args)]
pub(crate) struct ClientsArgs {
    /// Number of seeds.
    #[arg(long, default_value_t = 200, value_parser = value_parser!(u64).range(1..))]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    base: u64,
    /// Seed each known bug instead. Exits with 1 if a bug is not noticed.
    #[arg(long)]
    controls: bool,
}

pub(crate) fn clients(args: &ClientsArgs) -> ExitCode {
    let seeds = args.base..args.base.saturating_add(args.seeds);
    if args.controls {
        let mut unnoticed = 0_u32;
        for host_bug in [HostBug::NoResume, HostBug::NoKey, HostBug::LateJoin] {
            let run = |seed| simulate(ClientPlan { seed, host_bug: Some(host_bug) });
            let noticed =
                seeds.clone().find_map(|seed| run(seed).violations.last().map(|violation| (seed, violation.clone())));
            if let Some((seed, violation)) = noticed {
                println!("{host_bug:?}: noticed with seed {seed}: {violation}");
            } else {
                unnoticed = unnoticed.saturating_add(1);
                println!("{host_bug:?}: NOT NOTICED in {} seeds", args.seeds);
            }
        }
        return if unnoticed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let mut all = ClientRun::default();
    for seed in seeds {
        let run = simulate(ClientPlan { seed, host_bug: None });
        run.violations
            .iter()
            .for_each(|violation| println!("subtend-sim clients --seeds 1 --base {seed}\n  {violation}"));
        all.violations.extend(run.violations);
        for (sum, more) in [
            (&mut all.commands, run.commands),
            (&mut all.resent, run.resent),
            (&mut all.cancels, run.cancels),
            (&mut all.received, run.received),
            (&mut all.continued, run.continued),
            (&mut all.refused, run.refused),
            (&mut all.recovered, run.recovered),
        ] {
            *sum = sum.saturating_add(more);
        }
    }
    println!(
        "{} seeds: {} commands, {} sent again to another host, {} cancels in pairs; {} events received, {} streams continued; {} connections \
         refused by a host that starts, {} recovered runs joined; {} violations",
        args.seeds,
        all.commands,
        all.resent,
        all.cancels,
        all.received,
        all.continued,
        all.refused,
        all.recovered,
        all.violations.len()
    );
    if all.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
