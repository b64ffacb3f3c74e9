//! The report of a drill, for people.

use subtend_drill::{Kind, Report, Sabotage, TOLD, Verdict};

use crate::cli::paint::{BAD, GOOD, In, clip, count, span};

/// Violations that the text shows.
const SHOWN: usize = 10;

/// Returns the report as text for people.
pub(super) fn text(report: &Report) -> String {
    let kills = count(report.kills, "kill");
    let mut lines = vec![format!("{}, seed {}: {kills} in {}", report.engine, report.seed, span(report.took))];
    let hit = |hits: u64| format!("{hits} ({} %)", (hits * 100).checked_div(report.kills).unwrap_or(0));
    let mut row = |name: &str, text: String| lines.push(format!("  {name:<15}{text}"));
    row(
        "kills hit",
        format!(
            "open call {} · undelivered row {} · recovery {}",
            hit(report.hits.open_call),
            hit(report.hits.outbox),
            hit(report.hits.recovery)
        ),
    );
    row(
        "on the stores",
        format!("{} · {} in flight at a kill", count(report.sessions, "session"), count(report.in_flight, "run")),
    );
    row(
        "deleted",
        format!(
            "{} · {} erased · {} still in the files",
            count(report.deleted, "tree"),
            count(report.erased, "session"),
            report.of(Kind::Kept)
        ),
    );
    row("acknowledged", format!("{} · {} lost", report.acknowledged, report.of(Kind::Lost)));
    row("notices", format!("{} duplicated · {} missing", report.of(Kind::Duplicated), report.of(Kind::Missing)));
    row(
        "calls and runs",
        format!("{} dangling · {} without one end", report.of(Kind::Dangling), report.of(Kind::Endless)),
    );
    row("side effects", format!("{} repeated · {} unintended", report.of(Kind::Repeated), report.of(Kind::Unintended)));
    row("processes", format!("{} started by tools · {} orphaned", report.processes, report.of(Kind::Orphaned)));
    row(
        "stores",
        format!(
            "{} unsound · {} unfenced · {} broke off",
            report.of(Kind::Unsound),
            report.of(Kind::Unfenced),
            report.of(Kind::Broken)
        ),
    );
    let recovery = report.recovery();
    row("recovery", format!("{} · p50 {} ms · p99 {} ms", count(recovery.count, "time"), recovery.p50, recovery.p99));
    lines.extend(ending(report));
    lines.join("\n")
}

fn ending(report: &Report) -> Vec<String> {
    let violations = count(report.violations(), "violation");
    let name = report.sabotage.map_or("none", Sabotage::name);
    let bad = |text: String| format!("{} {text}", In(BAD, "✗"));
    let mut lines = match report.verdict() {
        Verdict::Sound => vec![format!("{} {violations}", In(GOOD, "✓"))],
        Verdict::Violated if report.stopped => vec![bad(format!("{violations}; stopped before its end"))],
        Verdict::Violated => vec![bad(violations)],
        Verdict::Vacuous => {
            report.vacuous().into_iter().map(|what| bad(format!("the drill is vacuous: {what}"))).collect()
        }
        Verdict::Caught => {
            let after = count(report.kills, "kill");
            vec![format!("{} the sabotage {name} was caught after {after}: {violations}", In(GOOD, "✓"))]
        }
        Verdict::Uncaught => vec![bad(format!("the sabotage {name} was not caught: the drill is of no use"))],
        Verdict::Stopped => vec![format!("stopped before its end: {violations}")],
    };
    lines.extend(report.told.iter().take(SHOWN).map(|told| {
        let kind = serde_json::to_value(told.kind).ok();
        let kind = kind.as_ref().and_then(serde_json::Value::as_str).unwrap_or_default().to_owned();
        format!("  after kill {}, {}, {kind}: {}", told.kill, told.store, clip(&told.what, 1_000))
    }));
    let untold = report.violations().saturating_sub(report.told.len().min(SHOWN) as u64);
    if untold > 0 {
        lines.push(format!("  and {untold} more (--json tells up to {TOLD})"));
    }
    lines.extend(report.kept.iter().map(|kept| format!("kept to be looked at: {kept}")));
    lines
}

#[cfg(test)]
mod tests;
