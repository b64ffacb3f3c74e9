//! How a node takes part, and the times of its lease.

use std::time::Duration;

/// Times of a lease. They bound how long a shard has no owner: the rest of its lease, and the start of the next owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// Between two renewals.
    pub heartbeat: Duration,
    /// After a renewal was sent, how long model and tool calls may start, by this machine's clock.
    pub work: Duration,
    /// After a renewal, how long no other node takes the shards, by the clock of the database.
    pub lease: Duration,
}

impl Times {
    /// Divides a lease: a node that missed two renewals stops a third before others may take over.
    pub fn of(lease: Duration) -> Self {
        Self { heartbeat: lease / 3, work: lease * 2 / 3, lease }
    }

    pub(super) fn tick(self) -> Duration {
        (self.heartbeat / 5).max(Duration::from_millis(20))
    }
}

impl Default for Times {
    fn default() -> Self {
        Self::of(Duration::from_secs(15))
    }
}

/// How a node takes part.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// Its name, which no other node of the database has.
    pub name: String,
    /// Where other nodes reach it, as `HOST:PORT`.
    pub address: String,
    /// Version of the binary, for operators.
    pub version: String,
    /// Labels of shards that it may claim besides those without one.
    pub labels: Vec<String>,
    /// Shards to make for each kind, where they are missing.
    pub shards: u16,
    /// Times of its lease.
    pub times: Times,
    /// For running calls when a shard is handed over.
    pub grace: Duration,
    /// Longest wait at an orderly end for runs that a restart would end.
    pub drain: Duration,
}
