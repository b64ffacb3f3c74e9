//! The kill drill of `subtend drill`: starts real processes on real stores, kills them with SIGKILL, and judges what
//! they left.
//!
//! It judges by what is on the disk and by what callers were told, never by the process that it killed.

#![allow(missing_docs, reason = "a comment that only repeats a name is deleted")]

use std::sync::atomic::AtomicBool;

use course::Course;
use home::Ground;

pub use error::DrillError;
pub use finding::{Kind, Violation};
pub use report::{Hits, Recovery, Report, TOLD, Told, Verdict};
pub use sabotage::Sabotage;

mod chance;
pub mod child;
mod course;
mod error;
mod finding;
mod home;
mod judge;
mod line;
mod look;
mod marks;
mod model;
mod names;
mod orphans;
mod plan;
mod process;
mod report;
mod sabotage;
mod told;
mod tools;
mod trigger;
mod workload;

/// What is drilled.
#[derive(Clone, Debug)]
pub struct Options {
    /// The engine, and the directory of the drill behind a colon; a temporary one if absent.
    pub store: String,
    /// The seed of the work and of the kills.
    pub seed: u64,
    /// How many kills.
    pub kills: u64,
    /// The bug that is to be noticed.
    pub sabotage: Option<Sabotage>,
}

/// Drills, to the end or until `stop` is set: then the kill at hand is the last. Tells after each kill and recovery how
/// far it is.
///
/// # Errors
/// When the store cannot be drilled, or the system refuses a directory or a process.
pub fn drill(
    options: &Options,
    stop: &AtomicBool,
    tell: &mut (dyn FnMut(&Report) + Send),
) -> Result<Report, DrillError> {
    let ground = Ground::prepare(&options.store, options.seed)?;
    Course::new(ground, (options.seed, options.kills), options.sabotage, stop, tell).run()
}
