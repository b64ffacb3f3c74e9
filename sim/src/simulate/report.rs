use std::fmt;

use serde::Serialize;

use crate::simulate::plan::SeedPlan;
use crate::simulate::tally::Tally;

/// The first violation of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SimFailure {
    /// The id of the invariant, or the name of another requirement.
    pub id: String,
    pub what: String,
    /// Virtual time in milliseconds.
    pub at_ms: u64,
}

impl fmt::Display for SimFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {} ms: {}", self.id, self.at_ms, self.what)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunReport {
    pub plan: SeedPlan,
    /// Hash of all records in the order in which they became durable. Equal plans give equal hashes.
    pub hash: String,
    pub records: u64,
    /// The number of simulated processes: one more than the number of restarts.
    pub processes: u32,
    /// Elapsed virtual time in milliseconds.
    pub took_ms: u64,
    pub tally: Tally,
    pub failure: Option<SimFailure>,
}

impl SeedPlan {
    /// Returns the command that repeats the run.
    pub fn command(&self) -> String {
        let bug = self.bug.map(|bug| format!(" --sabotage {bug}")).unwrap_or_default();
        format!("subtend-sim run --seeds 1 --base {} --steps {}{bug}", self.seed, self.steps)
    }
}
