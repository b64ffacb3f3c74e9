//! The last LSNs that a node has seen of shards that it does not own.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use subtend_journal::postgres::nodes::Members;
use tokio::time::Instant;

/// The last LSNs that [`OpenShard::remember`](super::OpenShard::remember) stored, by shard.
#[derive(Debug, Default)]
pub(super) struct SeenLsns {
    lsns: BTreeMap<String, u64>,
    due: Option<Instant>,
}

impl SeenLsns {
    /// Returns the shards whose last LSN has changed since [`Self::record`], with that LSN, at most once in `every`. Skips shards in `own`,
    /// which this node has or is opening. A shard that a restore made empty is among them: its loss can be accepted, too.
    pub(super) fn changed(&mut self, members: &Members, own: &BTreeSet<String>, every: Duration) -> Vec<(String, u64)> {
        let now = Instant::now();
        if self.due.is_some_and(|due| now < due) {
            return Vec::new();
        }
        self.due = Some(now + every);
        let others = members.shards.iter().filter(|shard| !own.contains(&shard.name));
        let changed = others.filter(|shard| self.lsns.get(&shard.name) != Some(&shard.last_lsn));
        changed.map(|shard| (shard.name.clone(), shard.last_lsn)).collect()
    }

    /// Records LSNs that [`OpenShard::remember`](super::OpenShard::remember) has stored.
    pub(super) fn record(&mut self, remembered: Vec<(String, u64)>) {
        self.lsns.extend(remembered);
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
        let first = seen.changed(&members([5, 6, 0]), &own, EVERY);
        assert_eq!(first, [("s2".to_owned(), 6), ("s3".to_owned(), 0)], "an empty shard is returned too");
        seen.record(first);
        assert_eq!(seen.changed(&members([5, 7, 0]), &own, EVERY), Vec::new());
        tokio::time::advance(EVERY).await;
        let both = [("s1".to_owned(), 9), ("s2".to_owned(), 7)];
        assert_eq!(seen.changed(&members([9, 7, 0]), &BTreeSet::new(), EVERY), both);
        tokio::time::advance(EVERY).await;
        assert_eq!(seen.changed(&members([9, 7, 0]), &BTreeSet::new(), EVERY), both, "no LSN was recorded");
        seen.record(both.to_vec());
        tokio::time::advance(EVERY).await;
        assert_eq!(seen.changed(&members([9, 7, 0]), &BTreeSet::new(), EVERY), Vec::new());
        tokio::time::advance(EVERY).await;
        assert_eq!(
            seen.changed(&members([9, 6, 0]), &own, EVERY),
            [("s2".to_owned(), 6)],
            "a lower LSN is returned too"
        );
    }
}
