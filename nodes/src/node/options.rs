//! Options of a node, and the times of its lease.

use std::time::Duration;

/// Times of a lease. After a node fails, its shards have no owner until its lease expires and another node has started them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTimes {
    /// Time between two renewals.
    pub heartbeat: Duration,
    /// Time after sending a renewal during which model and tool calls may start, by this machine's clock.
    pub work: Duration,
    /// Time after a renewal during which other nodes cannot take the shards, by the database's clock.
    pub lease: Duration,
}

impl LeaseTimes {
    /// Derives the times from the length of a lease. A node that missed two renewals stops its work a third of the
    /// lease before others may take over.
    pub fn of(lease: Duration) -> Self {
        Self { heartbeat: lease / 3, work: lease * 2 / 3, lease }
    }

    pub(super) fn tick(self) -> Duration {
        (self.heartbeat / 5).max(Duration::from_millis(20))
    }
}

impl Default for LeaseTimes {
    fn default() -> Self {
        Self::of(Duration::from_secs(15))
    }
}

/// Options of a node.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// Its name, unique in the database.
    pub name: String,
    /// The address at which other nodes reach it, as `HOST:PORT`.
    pub address: String,
    /// Version of the binary, for operators.
    pub version: String,
    /// Labels of shards that it may claim, in addition to those without a label.
    pub labels: Vec<String>,
    /// Number of shards to create without a label and for each label, if no shards exist.
    pub shards: u16,
    /// Number of slots for owned runs on all nodes together, and also for interactive runs. Each node gets an equal part, rounded
    /// up, and each shard at least one slot of each kind.
    pub slots: usize,
    /// Times of its lease.
    pub times: LeaseTimes,
    /// Time for running calls to end when a shard is handed over.
    pub grace: Duration,
    /// Maximum time at shutdown to wait for runs that a restart would end.
    pub drain: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In the last third of a lease, running calls end and none starts.
    #[test]
    fn d2_lease_times_are_parts_of_its_length() {
        let of = |ms| {
            let times = LeaseTimes::of(Duration::from_millis(ms));
            [times.heartbeat, times.work, times.lease, times.tick()].map(|time| time.as_millis())
        };
        assert_eq!(of(15_000), [5_000, 10_000, 15_000, 1_000]);
        assert_eq!(of(3_000), [1_000, 2_000, 3_000, 200]);
        assert_eq!(of(150), [50, 100, 150, 20], "a tick has a minimum");
        assert_eq!(LeaseTimes::default(), LeaseTimes::of(Duration::from_secs(15)));
    }
}
