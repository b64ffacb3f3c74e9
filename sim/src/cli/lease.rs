use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};
use subtend_sim::lease::{LeaseBug, LeaseReport, LeaseSize, check_lease, hunt_lease};

/// Tries every interleaving of two nodes that share a database, in each size. Exits with 1 at a violation.
#[derive(Args)]
pub(crate) struct LeaseArgs {
    /// Check only this size.
    #[arg(long, value_parser = clap::builder::PossibleValuesParser::new(LeaseSize::NAMED.map(|(name, _)| name)))]
    size: Option<String>,
    /// Write JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn lease(args: &LeaseArgs) -> ExitCode {
    let mut passed = true;
    let wanted = |name: &str| args.size.as_deref().is_none_or(|size| size == name);
    for (name, size) in LeaseSize::NAMED.into_iter().filter(|(name, _)| wanted(name)) {
        let report = check_lease(size, None);
        passed &= report.has_passed();
        if args.json { println!("{}", as_json(name, &report)) } else { print_report(name, &report) }
    }
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Seeds each bug, then checks the known gap ([`LeaseSize::RESIDUE`]). Returns the number of unnoticed bugs.
pub(crate) fn controls(json: bool) -> u32 {
    let bugs = LeaseBug::ALL.into_iter().map(|bug| (bug.to_string(), hunt_lease(bug)));
    let residue = ("StoppedBeforeStart".to_owned(), check_lease(LeaseSize::RESIDUE, None));
    let mut unnoticed = 0_u32;
    for (bug, report) in bugs.chain([residue]) {
        unnoticed = unnoticed.saturating_add(u32::from(report.violation.is_none()));
        if json {
            println!("{}", as_json(&bug, &report));
        } else if let Some((property, happened)) = &report.violation {
            let (steps, states) = (happened.len(), report.states);
            println!("{bug}: noticed as \"{property}\" after {steps} steps and {states} states");
        } else {
            println!("{bug}: NOT NOTICED in {} states", report.states);
        }
    }
    unnoticed
}

fn print_report(name: &str, report: &LeaseReport) {
    let LeaseReport { states, transitions, depth, .. } = report;
    println!("{name}: {states} states, {transitions} transitions, {depth} deep");
    report.never.iter().for_each(|what| println!("never: {what}"));
    if let Some((property, happened)) = &report.violation {
        println!("violated: {property}");
        for (at, step) in (1..).zip(happened) {
            println!("{at:3} {step}");
        }
    }
}

fn as_json(name: &str, report: &LeaseReport) -> Value {
    let violation =
        report.violation.as_ref().map(|(property, happened)| json!({"what": property, "happened": happened}));
    json!({
        "name": name,
        "states": report.states,
        "transitions": report.transitions,
        "depth": report.depth,
        "never": report.never,
        "violation": violation,
    })
}
