use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::finding::{FindingKind, Violation};
use super::sabotage::Sabotage;

/// Maximum number of violations listed in the JSON object. Further violations are only counted.
pub const MAX_LISTED: usize = 50;
const MAX_CHARS: usize = 1_000;

/// The number of kills that hit each target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Hits {
    /// Kills that left a call open in a run in flight.
    pub open_call: u64,
    /// Kills that left an undelivered outbox row.
    pub outbox: u64,
    /// Kills during a recovery with work to do.
    pub recovery: u64,
    /// Kills between the request of a deletion and its acknowledgement.
    pub deletion: u64,
    /// Kills that left a deletion recorded for only some sessions of its tree.
    pub half_deleted: u64,
}

impl Hits {
    /// Returns each target, its hits, and the minimum percentage of kills. A drill with fewer hits is inconclusive.
    fn targets(self) -> [(&'static str, u64, u64); 4] {
        [
            ("an open call", self.open_call, 30),
            ("an undelivered outbox row", self.outbox, 10),
            ("recovery itself", self.recovery, 10),
            ("a deletion", self.deletion, 4),
        ]
    }
}

/// A violation, with its store and kill.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FoundViolation {
    pub kill: u64,
    pub store: String,
    pub kind: FindingKind,
    pub what: String,
}

/// The counts and violations of a drill.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub engine: String,
    pub seed: u64,
    pub sabotage: Option<Sabotage>,
    pub kills: u64,
    /// Number of runs that were in flight at a kill.
    pub in_flight: u64,
    /// Number of sessions in the stores at the end.
    pub sessions: u64,
    pub processes: u64,
    pub acknowledged: u64,
    /// Number of trees whose deletion was acknowledged.
    pub deleted: u64,
    /// Number of sessions erased from the stores at the end.
    pub erased: u64,
    pub hits: Hits,
    pub recoveries: Vec<Duration>,
    pub counts: BTreeMap<FindingKind, u64>,
    /// The first violations. [`Report::violations`] counts all of them.
    pub examples: Vec<FoundViolation>,
    /// Stores that are kept for inspection.
    pub kept: Vec<String>,
    pub took: Duration,
    pub stopped: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DrillVerdict {
    /// Enough targets were hit, without a violation.
    Sound,
    Violated,
    /// Too few targets were hit for a conclusion.
    Vacuous,
    Caught,
    /// The seeded bug was not detected, so the drill proves nothing.
    Uncaught,
    Stopped,
}

/// Durations of recoveries in milliseconds.
#[derive(Serialize)]
pub struct Recovery {
    pub count: u64,
    pub p50: f64,
    /// The 99th percentile.
    pub p99: f64,
    pub max: f64,
}

#[derive(Serialize)]
struct Json<'a> {
    verdict: DrillVerdict,
    engine: &'a str,
    seed: u64,
    sabotage: Option<Sabotage>,
    kills: u64,
    hit: Hits,
    vacuous: Vec<String>,
    acknowledged: u64,
    lost: u64,
    kept_text: u64,
    duplicated: u64,
    missing: u64,
    dangling: u64,
    endless: u64,
    repeated: u64,
    unintended: u64,
    unfenced: u64,
    orphaned: u64,
    unsound: u64,
    broken: u64,
    in_flight: u64,
    sessions: u64,
    deleted: u64,
    erased: u64,
    processes: u64,
    recovery_ms: Recovery,
    violations: u64,
    what: &'a [FoundViolation],
    kept: &'a [String],
    took_ms: u64,
}

impl Report {
    /// Adds the findings after the last kill.
    pub fn take(&mut self, store: &str, found: Vec<Violation>) {
        for Violation { kind, what } in found {
            let of_kind = self.counts.entry(kind).or_default();
            *of_kind = of_kind.saturating_add(1);
            if self.examples.len() < MAX_LISTED {
                let what = what.chars().take(MAX_CHARS).collect();
                self.examples.push(FoundViolation { kill: self.kills, store: store.to_owned(), kind, what });
            }
        }
    }

    pub fn violations(&self) -> u64 {
        self.counts.values().fold(0, |all, of_kind| all.saturating_add(*of_kind))
    }

    pub fn of(&self, kind: FindingKind) -> u64 {
        self.counts.get(&kind).copied().unwrap_or(0)
    }

    /// Returns the targets that too few kills hit for a conclusion.
    pub fn vacuous(&self) -> Vec<String> {
        let seldom = self.hits.targets().into_iter().filter(|(_, hit, least)| *hit < least * self.kills / 100);
        let text = |(what, hit, least): (&str, u64, u64)| {
            format!("{hit} of {} kills hit {what}; the minimum is {least} %", self.kills)
        };
        seldom.map(text).collect()
    }

    pub fn verdict(&self) -> DrillVerdict {
        match (self.sabotage, self.violations()) {
            (Some(sabotage), _) if sabotage.expected_findings().iter().any(|kind| self.of(*kind) > 0) => {
                DrillVerdict::Caught
            }
            (None, 1..) => DrillVerdict::Violated,
            _ if self.stopped => DrillVerdict::Stopped,
            (Some(_), _) => DrillVerdict::Uncaught,
            (None, 0) if !self.vacuous().is_empty() => DrillVerdict::Vacuous,
            (None, 0) => DrillVerdict::Sound,
        }
    }

    pub fn recovery(&self) -> Recovery {
        let mut all = self.recoveries.clone();
        all.sort_unstable();
        let at = |percent: usize| {
            let ix = (all.len() * percent).div_ceil(100).saturating_sub(1);
            all.get(ix).map_or(0.0, |took| (took.as_secs_f64() * 1e5).round() / 100.0)
        };
        Recovery { count: all.len() as u64, p50: at(50), p99: at(99), max: at(100) }
    }

    pub fn json(&self) -> impl Serialize {
        Json {
            verdict: self.verdict(),
            engine: &self.engine,
            seed: self.seed,
            sabotage: self.sabotage,
            kills: self.kills,
            hit: self.hits,
            vacuous: if self.sabotage.is_some() { Vec::new() } else { self.vacuous() },
            acknowledged: self.acknowledged,
            lost: self.of(FindingKind::Lost),
            kept_text: self.of(FindingKind::NotErased),
            duplicated: self.of(FindingKind::Duplicated),
            missing: self.of(FindingKind::Missing),
            dangling: self.of(FindingKind::Dangling),
            endless: self.of(FindingKind::NotEndedOnce),
            repeated: self.of(FindingKind::Repeated),
            unintended: self.of(FindingKind::Unintended),
            unfenced: self.of(FindingKind::Unfenced),
            orphaned: self.of(FindingKind::Orphaned),
            unsound: self.of(FindingKind::Unsound),
            broken: self.of(FindingKind::Broken),
            in_flight: self.in_flight,
            sessions: self.sessions,
            deleted: self.deleted,
            erased: self.erased,
            processes: self.processes,
            recovery_ms: self.recovery(),
            violations: self.violations(),
            what: &self.examples,
            kept: &self.kept,
            took_ms: u64::try_from(self.took.as_millis()).unwrap_or(u64::MAX),
        }
    }
}
