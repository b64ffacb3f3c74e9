//! The model checker and the simulator.
//!
//! - `model` tries every interleaving of a small system, `lease` every interleaving of nodes that share a database.
//! - `run` simulates the runtime, `clients` simulates clients of a host, and `nodes` simulates nodes that share a database.
//!   A seed determines each simulation.
//! - `controls` shows that these checks notice seeded bugs.
//! - `coverage` counts the worlds in which predicates could have failed.

mod cli;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::cli::clients::{self, ClientsArgs};
use crate::cli::controls::{self, ControlsArgs};
use crate::cli::coverage::{self, CoverageArgs};
use crate::cli::lease::{self, LeaseArgs};
use crate::cli::model::{self, ModelArgs};
use crate::cli::nodes::{self, NodesArgs};
use crate::cli::run::{self, RunArgs};

/// Allocation takes a quarter of a simulation's time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Model checker and simulator of subtend.
#[derive(Parser)]
#[command(name = "subtend-sim", version)]
struct Cli {
    #[command(subcommand)]
    verb: SimCommand,
}

#[derive(Subcommand)]
enum SimCommand {
    Model(ModelArgs),
    Lease(LeaseArgs),
    Run(RunArgs),
    Clients(ClientsArgs),
    Nodes(NodesArgs),
    Controls(ControlsArgs),
    Coverage(CoverageArgs),
}

fn main() -> ExitCode {
    match Cli::parse().verb {
        SimCommand::Model(args) => model::model(&args),
        SimCommand::Lease(args) => lease::lease(&args),
        SimCommand::Run(args) => run::run(&args),
        SimCommand::Clients(args) => clients::clients(&args),
        SimCommand::Nodes(args) => nodes::nodes(&args),
        SimCommand::Controls(args) => controls::controls(&args),
        SimCommand::Coverage(args) => coverage::coverage(&args),
    }
}
