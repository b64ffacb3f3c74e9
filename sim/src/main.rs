//! The commands: `model` tries every interleaving of a small system, `run` simulates seeds, `controls` shows that both notice seeded
//! bugs, and `coverage` counts what they can refute.

mod cli;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::cli::controls::{self, ControlsArgs};
use crate::cli::coverage::{self, CoverageArgs};
use crate::cli::model::{self, ModelArgs};
use crate::cli::run::{self, RunArgs};

/// A quarter of a simulation's time is allocation.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Model checker and simulator of subtend.
#[derive(Parser)]
#[command(name = "subtend-sim", version)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Model(ModelArgs),
    Run(RunArgs),
    Controls(ControlsArgs),
    Coverage(CoverageArgs),
}

fn main() -> ExitCode {
    match Cli::parse().verb {
        Verb::Model(args) => model::model(&args),
        Verb::Run(args) => run::run(&args),
        Verb::Controls(args) => controls::controls(&args),
        Verb::Coverage(args) => coverage::coverage(&args),
    }
}
