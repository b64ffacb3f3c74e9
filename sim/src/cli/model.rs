use std::process::ExitCode;

use clap::Args;
use clap::builder::RangedU64ValueParser;
use serde_json::{Value, json};
use subtend_sim::check::{CheckReport, Effort, check, hunt};
use subtend_sim::fault::SimFault;
use subtend_sim::size::Size;

/// Tries every interleaving of a small system. Exits with 1 at a violation.
#[derive(Args)]
pub(crate) struct ModelArgs {
    /// A root and one child.
    #[arg(long, group = "which")]
    small: bool,
    /// Two children, siblings or nested. This size is the default.
    #[arg(long, group = "which")]
    medium: bool,
    /// Two children, with an interrupt, a crash and a cancel.
    #[arg(long, group = "which")]
    held: bool,
    /// Two children, with each kind of fault once and two crashes.
    #[arg(long, group = "which")]
    large: bool,
    /// A size, by name.
    #[arg(long, group = "which", value_parser = clap::builder::PossibleValuesParser::new(Size::NAMED.map(|(name, _)| name)))]
    size: Option<String>,
    /// Number of threads.
    #[arg(long, default_value_t = 1, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    threads: usize,
    /// Stop after this number of generated states, repeated ones included (transitions).
    #[arg(long)]
    states: Option<usize>,
    /// Write JSON.
    #[arg(long)]
    json: bool,
}

impl ModelArgs {
    fn name(&self) -> &str {
        match (&self.size, self.small, self.held, self.large) {
            (Some(name), ..) => name,
            (None, true, ..) => "small",
            (None, _, true, _) => "held",
            (None, .., true) => "large",
            (None, false, false, false) => "medium",
        }
    }
}

pub(crate) fn model(args: &ModelArgs) -> ExitCode {
    let name = args.name();
    let Some((_, size)) = Size::NAMED.into_iter().find(|(named, _)| *named == name) else { return ExitCode::FAILURE };
    let effort = Effort { threads: args.threads, states: args.states, first_violation: false };
    let report = check(size, SimFault::None, effort);
    if args.json {
        println!("{}", as_json(name, &report));
    } else {
        print_report(name, &report);
    }
    if report.has_passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Seeds each bug in turn. Returns the number of unnoticed bugs.
pub(crate) fn controls(json: bool) -> u32 {
    let mut unnoticed = 0_u32;
    for fault in SimFault::all() {
        let report = hunt(fault, 1);
        let noticed = report.violation.is_some();
        unnoticed = unnoticed.saturating_add(u32::from(!noticed));
        if json {
            println!("{}", as_json(&fault.to_string(), &report));
        } else if let Some((violation, actions)) = &report.violation {
            println!("{fault}: noticed as {} after {} steps and {} states", violation.id, actions.len(), report.states);
        } else {
            println!("{fault}: NOT NOTICED in {} states", report.states);
        }
    }
    unnoticed
}

fn print_report(name: &str, report: &CheckReport) {
    let all = if report.complete { "all" } else { "not all" };
    println!("{name}: {} states, {} transitions, {} deep, {all}", report.states, report.transitions, report.depth);
    for what in &report.never {
        println!("never: {what}");
    }
    if let Some((violation, actions)) = &report.violation {
        println!("{violation}");
        for (at, action) in actions.iter().enumerate() {
            println!("{:3} {action}", at.saturating_add(1));
        }
    }
}

fn as_json(name: &str, report: &CheckReport) -> Value {
    let violation = report.violation.as_ref().map(|(violation, actions)| {
        json!({
            "id": violation.id.id(),
            "session": violation.session.to_string(),
            "what": violation.what,
            "happened": actions,
        })
    });
    json!({
        "name": name,
        "states": report.states,
        "transitions": report.transitions,
        "depth": report.depth,
        "complete": report.complete,
        "never": report.never,
        "violation": violation,
    })
}
