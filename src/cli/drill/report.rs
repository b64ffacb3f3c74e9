//! The report of a drill: for people, and as one JSON object.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::super::paint::{BAD, GOOD, In, clip, count, span};
use super::finding::{Kind, Violation};
use super::sabotage::Sabotage;

/// Violations that the JSON object tells one by one; the rest is counted.
const TOLD: usize = 50;
/// Violations that the text does.
const SHOWN: usize = 10;

/// What kills hit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Hits {
    /// Kills that left a call open in a run in flight.
    pub(super) open_call: u64,
    /// Kills that left an obligation which nobody had taken.
    pub(super) outbox: u64,
    /// Kills that struck a recovery with something to recover.
    pub(super) recovery: u64,
}

impl Hits {
    /// What is hit, how often it was, and what part of all kills must hit it, in percent: a drill that hits less shows nothing.
    fn wanted(self) -> [(&'static str, u64, u64); 3] {
        [
            ("an open call", self.open_call, 30),
            ("an undelivered outbox row", self.outbox, 10),
            ("recovery itself", self.recovery, 10),
        ]
    }
}

/// A violation, where and after how many kills it was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Told {
    kill: u64,
    store: String,
    kind: Kind,
    what: String,
}

/// What a drill did and found.
#[derive(Clone, Debug, Default)]
pub(super) struct Report {
    pub(super) engine: String,
    pub(super) seed: u64,
    pub(super) sabotage: Option<Sabotage>,
    pub(super) kills: u64,
    /// Runs that were in flight at a kill.
    pub(super) in_flight: u64,
    /// Sessions that the stores held at the end.
    pub(super) sessions: u64,
    /// Processes of tools.
    pub(super) processes: u64,
    pub(super) acknowledged: u64,
    /// Trees whose deletion was acknowledged.
    pub(super) deleted: u64,
    /// Sessions that were erased from the stores at the end.
    pub(super) erased: u64,
    pub(super) hits: Hits,
    pub(super) recoveries: Vec<Duration>,
    pub(super) counts: BTreeMap<Kind, u64>,
    pub(super) told: Vec<Told>,
    /// Stores that are kept for a person to look at.
    pub(super) kept: Vec<String>,
    pub(super) took: Duration,
    /// Whether it was stopped before its end.
    pub(super) stopped: bool,
}

/// What a drill came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    /// Enough was hit, and nothing is wrong.
    Sound,
    /// Something is wrong.
    Violated,
    /// Too little was hit to say that nothing is.
    Vacuous,
    /// The sabotage was noticed.
    Caught,
    /// The sabotage was not noticed: the drill is of no use.
    Uncaught,
    /// It was stopped before its end.
    Stopped,
}

#[derive(Serialize)]
struct Recovery {
    count: u64,
    p50: f64,
    p99: f64,
    max: f64,
}

#[derive(Serialize)]
struct Json<'a> {
    verdict: Verdict,
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
    what: &'a [Told],
    kept: &'a [String],
    took_ms: u64,
}

impl Report {
    /// Takes what was found after the last kill.
    pub(super) fn take(&mut self, store: &str, found: Vec<Violation>) {
        for Violation { kind, what } in found {
            let of_kind = self.counts.entry(kind).or_default();
            *of_kind = of_kind.saturating_add(1);
            if self.told.len() < TOLD {
                let what = clip(&what, 1_000);
                self.told.push(Told { kill: self.kills, store: store.to_owned(), kind, what });
            }
        }
    }

    /// How many things are wrong.
    pub(super) fn violations(&self) -> u64 {
        self.counts.values().fold(0, |all, of_kind| all.saturating_add(*of_kind))
    }

    fn of(&self, kind: Kind) -> u64 {
        self.counts.get(&kind).copied().unwrap_or(0)
    }

    /// What was hit too seldom.
    pub(super) fn vacuous(&self) -> Vec<String> {
        let seldom = self.hits.wanted().into_iter().filter(|(_, hit, least)| hit * 100 < least * self.kills);
        let text = |(what, hit, least): (&str, u64, u64)| {
            format!("{hit} of {} kills hit {what}; {least} % must, or nothing is shown", self.kills)
        };
        seldom.map(text).collect()
    }

    /// What it came to.
    pub(super) fn verdict(&self) -> Verdict {
        match (self.sabotage, self.violations()) {
            (Some(sabotage), _) if sabotage.shows().iter().any(|kind| self.of(*kind) > 0) => Verdict::Caught,
            (None, 1..) => Verdict::Violated,
            _ if self.stopped => Verdict::Stopped,
            (Some(_), _) => Verdict::Uncaught,
            (None, 0) if !self.vacuous().is_empty() => Verdict::Vacuous,
            (None, 0) => Verdict::Sound,
        }
    }

    fn recovery(&self) -> Recovery {
        let mut all = self.recoveries.clone();
        all.sort_unstable();
        let at = |percent: usize| {
            let ix = (all.len() * percent).div_ceil(100).saturating_sub(1);
            all.get(ix).map_or(0.0, |took| (took.as_secs_f64() * 1e5).round() / 100.0)
        };
        Recovery { count: all.len() as u64, p50: at(50), p99: at(99), max: at(100) }
    }

    /// As one JSON object.
    pub(super) fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string(&Json {
            verdict: self.verdict(),
            engine: &self.engine,
            seed: self.seed,
            sabotage: self.sabotage,
            kills: self.kills,
            hit: self.hits,
            vacuous: if self.sabotage.is_some() { Vec::new() } else { self.vacuous() },
            acknowledged: self.acknowledged,
            lost: self.of(Kind::Lost),
            kept_text: self.of(Kind::Kept),
            duplicated: self.of(Kind::Duplicated),
            missing: self.of(Kind::Missing),
            dangling: self.of(Kind::Dangling),
            endless: self.of(Kind::Endless),
            repeated: self.of(Kind::Repeated),
            unintended: self.of(Kind::Unintended),
            unfenced: self.of(Kind::Unfenced),
            orphaned: self.of(Kind::Orphaned),
            unsound: self.of(Kind::Unsound),
            broken: self.of(Kind::Broken),
            in_flight: self.in_flight,
            sessions: self.sessions,
            deleted: self.deleted,
            erased: self.erased,
            processes: self.processes,
            recovery_ms: self.recovery(),
            violations: self.violations(),
            what: &self.told,
            kept: &self.kept,
            took_ms: u64::try_from(self.took.as_millis()).unwrap_or(u64::MAX),
        })
    }

    /// As text.
    pub(super) fn text(&self) -> String {
        let kills = count(self.kills, "kill");
        let mut lines = vec![format!("{}, seed {}: {kills} in {}", self.engine, self.seed, span(self.took))];
        let hit = |hits: u64| format!("{hits} ({} %)", (hits * 100).checked_div(self.kills).unwrap_or(0));
        let mut row = |name: &str, text: String| lines.push(format!("  {name:<15}{text}"));
        row(
            "kills hit",
            format!(
                "open call {} · undelivered row {} · recovery {}",
                hit(self.hits.open_call),
                hit(self.hits.outbox),
                hit(self.hits.recovery)
            ),
        );
        row(
            "on the stores",
            format!("{} · {} in flight at a kill", count(self.sessions, "session"), count(self.in_flight, "run")),
        );
        row(
            "deleted",
            format!(
                "{} · {} erased · {} still in the files",
                count(self.deleted, "tree"),
                count(self.erased, "session"),
                self.of(Kind::Kept)
            ),
        );
        row("acknowledged", format!("{} · {} lost", self.acknowledged, self.of(Kind::Lost)));
        row("notices", format!("{} duplicated · {} missing", self.of(Kind::Duplicated), self.of(Kind::Missing)));
        row(
            "calls and runs",
            format!("{} dangling · {} without one end", self.of(Kind::Dangling), self.of(Kind::Endless)),
        );
        row("side effects", format!("{} repeated · {} unintended", self.of(Kind::Repeated), self.of(Kind::Unintended)));
        row("processes", format!("{} started by tools · {} orphaned", self.processes, self.of(Kind::Orphaned)));
        row(
            "stores",
            format!(
                "{} unsound · {} unfenced · {} broke off",
                self.of(Kind::Unsound),
                self.of(Kind::Unfenced),
                self.of(Kind::Broken)
            ),
        );
        let recovery = self.recovery();
        row(
            "recovery",
            format!("{} · p50 {} ms · p99 {} ms", count(recovery.count, "time"), recovery.p50, recovery.p99),
        );
        lines.extend(self.ending());
        lines.join("\n")
    }

    fn ending(&self) -> Vec<String> {
        let violations = count(self.violations(), "violation");
        let name = self.sabotage.map_or("none", Sabotage::name);
        let bad = |text: String| format!("{} {text}", In(BAD, "✗"));
        let mut lines = match self.verdict() {
            Verdict::Sound => vec![format!("{} {violations}", In(GOOD, "✓"))],
            Verdict::Violated if self.stopped => vec![bad(format!("{violations}; stopped before its end"))],
            Verdict::Violated => vec![bad(violations)],
            Verdict::Vacuous => {
                self.vacuous().into_iter().map(|what| bad(format!("the drill is vacuous: {what}"))).collect()
            }
            Verdict::Caught => {
                let after = count(self.kills, "kill");
                vec![format!("{} the sabotage {name} was caught after {after}: {violations}", In(GOOD, "✓"))]
            }
            Verdict::Uncaught => vec![bad(format!("the sabotage {name} was not caught: the drill is of no use"))],
            Verdict::Stopped => vec![format!("stopped before its end: {violations}")],
        };
        lines.extend(self.told.iter().take(SHOWN).map(|told| {
            let kind = serde_json::to_value(told.kind).ok();
            let kind = kind.as_ref().and_then(serde_json::Value::as_str).unwrap_or_default().to_owned();
            format!("  after kill {}, {}, {kind}: {}", told.kill, told.store, told.what)
        }));
        let untold = self.violations().saturating_sub(self.told.len().min(SHOWN) as u64);
        if untold > 0 {
            lines.push(format!("  and {untold} more (--json tells up to {TOLD})"));
        }
        lines.extend(self.kept.iter().map(|kept| format!("kept to be looked at: {kept}")));
        lines
    }
}

#[cfg(test)]
mod tests;
