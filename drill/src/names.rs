//! Names of agents and sessions in the killed process.

/// The agent whose runs end with the process.
pub(crate) const WORKER: &str = "worker";
/// The agent whose runs continue in the next process.
pub(crate) const STEADY: &str = "steady";
/// The name prefix of sessions that will be deleted.
pub(crate) const SECRET: &str = "secret-";
