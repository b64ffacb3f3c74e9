//! The last LSNs that a node saw of shards that it does not have.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use subtend_journal::postgres::nodes::Members;
use tokio::time::Instant;

/// What was passed to [`OpenShard::remember`](super::OpenShard::remember).
#[derive(Debug, Default)]
pub(super) struct SeenLsns {
    lsns: BTreeMap<String, u64>,
    due: Option<Instant>,
}

impl SeenLsns {
    /// Returns the shards whose last LSN changed, with it, except those in `taken`, whose owner remembers it. Returns none more often than
    /// once in `every`.
    pub(super) fn take_changed(
        &mut self,
        members: &Members,
        taken: &BTreeSet<String>,
        every: Duration,
    ) -> Vec<(String, u64)> {
        let now = Instant::now();
        if self.due.is_some_and(|due| now < due) {
            return Vec::new();
        }
        self.due = Some(now + every);
        let others = members.shards.iter().filter(|shard| shard.last_lsn > 0 && !taken.contains(&shard.name));
        let changed: Vec<(String, u64)> = others
            .filter(|shard| self.lsns.get(&shard.name) != Some(&shard.last_lsn))
            .map(|shard| (shard.name.clone(), shard.last_lsn))
            .collect();
        self.lsns.extend(changed.iter().cloned());
        changed
    }
}

#[cfg(test)]
mod tests {
    use subtend_journal::postgres::nodes::ShardRow;

    use super::*;

    const EVERY: Duration = Duration::from_secs(5);

    #[tokio::test(start_paused = true)]
    async fn d8_changed_lsns_of_other_shards_are_seen_at_intervals() {
        let members = |lsns: [u64; 3]| {
            let row = |(id, last_lsn): (i32, u64)| ShardRow {
                id,
                name: format!("s{id}"),
                lease: None,
                last_lsn,
                label: None,
            };
            Members { nodes: Vec::new(), shards: (1..).zip(lsns).map(row).collect(), time_ms: 0 }
        };
        let own = BTreeSet::from(["s1".to_owned()]);
        let mut seen = SeenLsns::default();
        assert_eq!(seen.take_changed(&members([5, 6, 0]), &own, EVERY), [("s2".to_owned(), 6)]);
        assert_eq!(seen.take_changed(&members([5, 7, 0]), &own, EVERY), Vec::new());
        tokio::time::advance(EVERY).await;
        assert_eq!(
            seen.take_changed(&members([9, 7, 0]), &BTreeSet::new(), EVERY),
            [("s1".to_owned(), 9), ("s2".to_owned(), 7)]
        );
        tokio::time::advance(EVERY).await;
        assert_eq!(
            seen.take_changed(&members([9, 6, 0]), &own, EVERY),
            [("s2".to_owned(), 6)],
            "an earlier state is passed on too"
        );
    }
}
