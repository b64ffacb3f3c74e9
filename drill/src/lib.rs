//! The kill drill of `subtend drill`. It starts real processes on real stores, kills them with SIGKILL, and checks the
//! stores afterwards.
//!
//! The drill relies only on the files and on the replies that callers received, and never on the killed process.

#![allow(missing_docs, reason = "a comment that only repeats a name is deleted")]

use std::sync::atomic::AtomicBool;

use rounds::DrillRun;
use store_dir::DrillDirectory;

pub use error::DrillError;
pub use finding::{FindingKind, Violation};
pub use report::{DrillVerdict, FoundViolation, Hits, MAX_LISTED, Recovery, Report};
pub use sabotage::{Sabotage, VARIABLE as FAULT_VARIABLE};

mod acknowledgements;
pub mod child;
#[cfg(unix)]
pub mod clients;
mod error;
mod finding;
mod judge;
mod line;
mod marks;
mod model;
mod names;
mod orphans;
mod plan;
mod process;
mod report;
mod rng;
mod rounds;
mod sabotage;
#[cfg(unix)]
mod server;
mod snapshot;
mod store_dir;
mod tools;
mod trigger;
mod workload;

#[derive(Clone, Debug)]
pub struct DrillOptions {
    /// The engine, optionally followed by a colon and the directory of the drill. The default is a temporary directory.
    /// `postgres` starts a server.
    pub store: String,
    /// The seed of the work and of the kills.
    pub seed: u64,
    pub kills: u64,
    /// The seeded bug that must be detected.
    pub sabotage: Option<Sabotage>,
}

/// Runs the drill to the end, or until `stop` is set. Reports progress after each kill and recovery.
/// # Errors
/// If the store cannot be drilled, or the system refuses a directory or a process.
pub fn drill(
    options: &DrillOptions,
    stop: &AtomicBool,
    progress: &mut (dyn FnMut(&Report) + Send),
) -> Result<Report, DrillError> {
    let directory = DrillDirectory::prepare(&options.store, options.seed)?;
    DrillRun::new(directory, (options.seed, options.kills), options.sabotage, stop, progress).run()
}
