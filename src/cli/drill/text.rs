use subtend_drill::{DrillVerdict, FindingKind, MAX_LISTED, Report, Sabotage};

use crate::cli::paint::{BAD, GOOD, Styled, clip, count, format_duration};

const MAX_SHOWN: usize = 10;

pub(super) fn text(report: &Report) -> String {
    let kills = count(report.kills, "kill");
    let mut lines =
        vec![format!("{}, seed {}: {kills} in {}", report.engine, report.seed, format_duration(report.took))];
    let hit = |hits: u64| format!("{hits} ({} %)", (hits * 100).checked_div(report.kills).unwrap_or(0));
    let mut row = |name: &str, text: String| lines.push(format!("  {name:<15}{text}"));
    row(
        "kills hit",
        format!(
            "open call {} · undelivered row {} · recovery {} · deletion {}",
            hit(report.hits.open_call),
            hit(report.hits.outbox),
            hit(report.hits.recovery),
            hit(report.hits.deletion)
        ),
    );
    row(
        "on the stores",
        format!("{} · {} in flight at a kill", count(report.sessions, "session"), count(report.in_flight, "run")),
    );
    row(
        "deleted",
        format!(
            "{} · {} half done at a kill · {} erased · {} still in the files",
            count(report.deleted, "tree"),
            report.hits.half_deleted,
            count(report.erased, "session"),
            report.of(FindingKind::NotErased)
        ),
    );
    row("acknowledged", format!("{} · {} lost", report.acknowledged, report.of(FindingKind::Lost)));
    row(
        "notices",
        format!("{} duplicated · {} missing", report.of(FindingKind::Duplicated), report.of(FindingKind::Missing)),
    );
    row(
        "calls and runs",
        format!(
            "{} dangling · {} not ended exactly once",
            report.of(FindingKind::Dangling),
            report.of(FindingKind::NotEndedOnce)
        ),
    );
    row(
        "side effects",
        format!(
            "{} repeated · {} without an intent record",
            report.of(FindingKind::Repeated),
            report.of(FindingKind::Unintended)
        ),
    );
    row("processes", format!("{} started by tools · {} orphaned", report.processes, report.of(FindingKind::Orphaned)));
    row(
        "stores",
        format!(
            "{} damaged · {} written by a killed process · {} failed processes",
            report.of(FindingKind::Unsound),
            report.of(FindingKind::Unfenced),
            report.of(FindingKind::Broken)
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
    let bad = |text: String| format!("{} {text}", Styled(BAD, "✗"));
    let mut lines = match report.verdict() {
        DrillVerdict::Sound => vec![format!("{} {violations}", Styled(GOOD, "✓"))],
        DrillVerdict::Violated if report.stopped => vec![bad(format!("{violations}; stopped before its end"))],
        DrillVerdict::Violated => vec![bad(violations)],
        DrillVerdict::Vacuous => {
            report.vacuous().into_iter().map(|what| bad(format!("the drill is vacuous: {what}"))).collect()
        }
        DrillVerdict::Caught => {
            let after = count(report.kills, "kill");
            vec![format!("{} the injected bug {name} was detected after {after}: {violations}", Styled(GOOD, "✓"))]
        }
        DrillVerdict::Uncaught => {
            vec![bad(format!("the injected bug {name} was not detected: the drill is ineffective"))]
        }
        DrillVerdict::Stopped => vec![format!("stopped before its end: {violations}")],
    };
    lines.extend(report.examples.iter().take(MAX_SHOWN).map(|violation| {
        let kind = serde_json::to_value(violation.kind).ok();
        let kind = kind.as_ref().and_then(serde_json::Value::as_str).unwrap_or_default().to_owned();
        format!("  after kill {}, {}, {kind}: {}", violation.kill, violation.store, clip(&violation.what, 1_000))
    }));
    let omitted = report.violations().saturating_sub(report.examples.len().min(MAX_SHOWN) as u64);
    if omitted > 0 {
        lines.push(format!("  and {omitted} more (--json lists up to {MAX_LISTED})"));
    }
    lines.extend(report.kept.iter().map(|kept| format!("kept for inspection: {kept}")));
    lines
}

#[cfg(test)]
mod tests;
