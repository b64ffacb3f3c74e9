//! The plan of kills: rounds of kills on one store each, which the seed determines.
//!
//! Kills depend on the progress of the process rather than on time: its hundredth event, its tenth side effect, a frame
//! of its recovery. So they hit slow and fast machines at the same points.

use std::fmt;
use std::str::FromStr;

use super::rng::SeededRng;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KillPoint {
    /// While the process opens or creates its store.
    Opening,
    /// During compaction, at this step.
    Compaction(u64),
    /// During the deletion of a tree, at this step of all deletions.
    Deletion(u64),
    /// During recovery, when this number of frames is durable.
    Recovery(u64),
    /// During work, when this number of records was received by a subscriber.
    Seen(u64),
    /// During work, when this number of owned runs has ended.
    Ended(u64),
    /// During work, right after this number of side effects.
    Marked(u64),
}

impl fmt::Display for KillPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Opening => write!(f, "opening"),
            Self::Compaction(at) => write!(f, "compaction:{at}"),
            Self::Deletion(at) => write!(f, "deletion:{at}"),
            Self::Recovery(at) => write!(f, "recovery:{at}"),
            Self::Seen(at) => write!(f, "seen:{at}"),
            Self::Ended(at) => write!(f, "ended:{at}"),
            Self::Marked(at) => write!(f, "marked:{at}"),
        }
    }
}

impl FromStr for KillPoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (word, at) = text.split_once(':').unwrap_or((text, "0"));
        let at = at.parse().map_err(|_| format!("`{text}` is not a valid kill point: its number is invalid"))?;
        match word {
            "opening" => Ok(Self::Opening),
            "compaction" => Ok(Self::Compaction(at)),
            "deletion" => Ok(Self::Deletion(at)),
            "recovery" => Ok(Self::Recovery(at)),
            "seen" => Ok(Self::Seen(at)),
            "ended" => Ok(Self::Ended(at)),
            "marked" => Ok(Self::Marked(at)),
            _ => Err(format!("unknown kill point `{text}`")),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KillOrder {
    /// The moment of the kill. [`KillPoint::Recovery`] has thousandths of the recovery here: its size is not known yet.
    pub(crate) kill_point: KillPoint,
    /// The delay of the kill after that moment in microseconds, so that kills also occur between events.
    pub(crate) late_us: u64,
    pub(crate) seed: u64,
}

/// Consecutive kills on one store, with a recovery after the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Round {
    /// True for the store that several rounds use, false for a fresh store.
    pub(crate) aged: bool,
    pub(crate) orders: Vec<KillOrder>,
}

/// The kind of a kill, before its numbers are drawn.
#[derive(Clone, Copy, Debug)]
enum KillKind {
    Opening,
    Work,
    Compaction,
    Deletion,
    Recovery,
}

#[derive(Clone, Copy, Debug)]
enum KillTrigger {
    Seen,
    Ended,
    Marked,
}

/// An endless series of rounds. They are taken from a shuffled stack that is refilled when empty, so that a short drill
/// covers all kinds. Of seventeen kills, seven occur during work, six during recovery, two during a deletion, one during
/// a compaction, and one during the creation of a store. In a round with two kills during work, the second process works
/// alongside the runs that it recovered.
#[derive(Debug)]
pub(crate) struct Plan {
    rng: SeededRng,
    rounds: Vec<&'static [KillKind]>,
    triggers: Vec<KillTrigger>,
    aged: bool,
}

impl Plan {
    pub(crate) fn new(seed: u64) -> Self {
        Self { rng: SeededRng::new(seed), rounds: Vec::new(), triggers: Vec::new(), aged: false }
    }

    /// Returns the next round, of at most `left` kills.
    pub(crate) fn next(&mut self, left: usize) -> Round {
        use KillKind::{Compaction, Deletion, Opening, Recovery, Work};
        const ROUNDS: [&[KillKind]; 8] = [
            &[Work],
            &[Work, Work],
            &[Work, Recovery],
            &[Work, Compaction, Recovery],
            &[Work, Recovery, Recovery],
            &[Opening, Work],
            &[Deletion, Recovery],
            &[Deletion, Recovery],
        ];
        self.aged = !self.aged;
        if self.rounds.is_empty() {
            self.rounds.extend(ROUNDS);
            self.rng.shuffle(&mut self.rounds);
        }
        let kinds = self.rounds.pop().unwrap_or_default();
        let orders = kinds.iter().take(left).map(|kind| self.order(*kind)).collect();
        Round { aged: self.aged, orders }
    }

    fn order(&mut self, kind: KillKind) -> KillOrder {
        let kill_point = match kind {
            KillKind::Opening => KillPoint::Opening,
            // A small store has about six steps.
            KillKind::Compaction => KillPoint::Compaction(self.rng.below(7)),
            KillKind::Deletion => KillPoint::Deletion(self.rng.below(24)),
            // Omits the last third, in which the recovery may finish before the kill.
            KillKind::Recovery => KillPoint::Recovery(self.rng.below(667)),
            KillKind::Work => match self.trigger() {
                KillTrigger::Seen => KillPoint::Seen(60 + self.rng.below(500)),
                KillTrigger::Ended => KillPoint::Ended(2 + self.rng.below(16)),
                KillTrigger::Marked => KillPoint::Marked(2 + self.rng.below(30)),
            },
        };
        let late_us = match kind {
            KillKind::Opening => self.rng.below(20_000),
            KillKind::Work | KillKind::Compaction | KillKind::Deletion | KillKind::Recovery => self.rng.below(3_000),
        };
        KillOrder { kill_point, late_us, seed: self.rng.draw() }
    }

    fn trigger(&mut self) -> KillTrigger {
        if self.triggers.is_empty() {
            self.triggers.extend([
                KillTrigger::Seen,
                KillTrigger::Ended,
                KillTrigger::Ended,
                KillTrigger::Marked,
                KillTrigger::Marked,
            ]);
            self.rng.shuffle(&mut self.triggers);
        }
        self.triggers.pop().unwrap_or(KillTrigger::Seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kills(seed: u64, kills: usize) -> Vec<Round> {
        let mut plan = Plan::new(seed);
        let (mut rounds, mut left) = (Vec::new(), kills);
        while left > 0 {
            let round = plan.next(left);
            left -= round.orders.len();
            rounds.push(round);
        }
        rounds
    }

    #[test]
    fn same_seed_gives_the_same_plan() {
        assert_eq!(kills(7, 40), kills(7, 40));
        assert_ne!(kills(7, 40), kills(8, 40));
    }

    #[test]
    fn kill_point_round_trips_through_text() {
        for kill_point in [
            KillPoint::Opening,
            KillPoint::Compaction(2),
            KillPoint::Deletion(5),
            KillPoint::Recovery(3),
            KillPoint::Seen(60),
            KillPoint::Ended(4),
            KillPoint::Marked(u64::MAX),
        ] {
            assert_eq!(kill_point.to_string().parse(), Ok(kill_point));
        }
        assert_eq!("sometime:1".parse::<KillPoint>(), Err("unknown kill point `sometime:1`".to_owned()));
    }

    #[test]
    fn shortest_drill_of_any_seed_hits_work_and_recovery() {
        for seed in 0..1_000 {
            let rounds = kills(seed, 10);
            let orders: Vec<KillOrder> = rounds.iter().flat_map(|round| round.orders.clone()).collect();
            assert_eq!(orders.len(), 10);
            let recovery = orders.iter().filter(|order| matches!(order.kill_point, KillPoint::Recovery(_))).count();
            let opening = orders.iter().filter(|order| order.kill_point == KillPoint::Opening).count();
            assert!(recovery >= 2 && opening <= 1, "seed {seed}: {rounds:?}");
            assert!(rounds.iter().any(|round| round.aged) && rounds.iter().any(|round| !round.aged));
        }
    }
}
