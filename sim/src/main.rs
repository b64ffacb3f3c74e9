//! Model checker and simulator by hand: `model` tries every interleaving of a small whole, `run` runs the real one in virtual
//! time, seed by seed, `controls` shows that both would notice, and `coverage` what they put to the test.

mod cli;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::cli::controls::{self, ControlsArgs};
use crate::cli::coverage::{self, CoverageArgs};
use crate::cli::model::{self, ModelArgs};
use crate::cli::run::{self, RunArgs};

/// A quarter of a simulation is allocating.
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
