//! The model checker by hand: `model` tries every interleaving, `controls` shows that it would notice.

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use serde_json::{Value, json};
use subtend_sim::check::{Effort, Report, check};
use subtend_sim::fault::Fault;
use subtend_sim::size::Size;

/// Model checker of subtend.
#[derive(Parser)]
#[command(name = "subtend-sim", version)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Tries every interleaving of a whole; exits with 1 at a violation.
    Model(ModelArgs),
    /// Seeds each bug in turn; exits with 1 if one goes unnoticed.
    Controls {
        /// Write JSON.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Args)]
struct ModelArgs {
    /// A root and one child.
    #[arg(long, group = "size")]
    small: bool,
    /// Two children, side by side or one below the other (the default).
    #[arg(long, group = "size")]
    medium: bool,
    /// Two children, and an interrupt beside a crash and a cancel.
    #[arg(long, group = "size")]
    held: bool,
    /// Everything once, crashes twice.
    #[arg(long, group = "size")]
    large: bool,
    /// Threads.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Stop after so many transitions.
    #[arg(long)]
    states: Option<usize>,
    /// Write JSON.
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    match Cli::parse().verb {
        Verb::Model(args) => model(&args),
        Verb::Controls { json } => controls(json),
    }
}

fn model(args: &ModelArgs) -> ExitCode {
    let (name, size) = match (args.small, args.held, args.large) {
        (true, ..) => ("small", Size::SMALL),
        (_, true, _) => ("held", Size::HELD),
        (.., true) => ("large", Size::LARGE),
        (false, false, false) => ("medium", Size::MEDIUM),
    };
    let effort = Effort { threads: args.threads, states: args.states, first_violation: false };
    let report = check(size, Fault::None, effort);
    if args.json {
        println!("{}", as_json(name, &report));
    } else {
        tell(name, &report);
    }
    if report.passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn controls(json: bool) -> ExitCode {
    let mut unnoticed = 0_u32;
    for fault in Fault::all() {
        let report = fault.hunt(1);
        let noticed = report.violation.is_some();
        unnoticed = unnoticed.saturating_add(u32::from(!noticed));
        if json {
            println!("{}", as_json(&fault.to_string(), &report));
        } else if let Some((violation, happened)) = &report.violation {
            println!(
                "{fault}: noticed as {} after {} steps and {} states",
                violation.id,
                happened.len(),
                report.states
            );
        } else {
            println!("{fault}: NOT NOTICED in {} states", report.states);
        }
    }
    if unnoticed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn tell(name: &str, report: &Report) {
    let all = if report.complete { "all" } else { "not all" };
    println!("{name}: {} states, {} transitions, {} deep, {all}", report.states, report.transitions, report.depth);
    for what in &report.never {
        println!("never: {what}");
    }
    if let Some((violation, happened)) = &report.violation {
        println!("{violation}");
        for (at, action) in happened.iter().enumerate() {
            println!("{:3} {action}", at.saturating_add(1));
        }
    }
}

fn as_json(name: &str, report: &Report) -> Value {
    let violation = report.violation.as_ref().map(|(violation, happened)| {
        json!({
            "id": violation.id.id(),
            "session": violation.session.to_string(),
            "what": violation.what,
            "happened": happened,
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
