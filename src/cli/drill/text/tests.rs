use std::time::Duration;

use subtend_drill::{Hits, Violation};

use super::*;

fn report() -> Report {
    Report {
        engine: "redb".into(),
        seed: 7,
        kills: 50,
        in_flight: 800,
        sessions: 1_200,
        processes: 31,
        acknowledged: 12_345,
        hits: Hits { open_call: 40, outbox: 20, recovery: 18, deletion: 4, half_deleted: 2 },
        recoveries: (1..=100).map(Duration::from_millis).collect(),
        took: Duration::from_secs(61),
        ..Report::default()
    }
}

fn violation_report() -> Report {
    let mut report = report();
    let lost = |what: &str| Violation { kind: FindingKind::Lost, what: what.to_owned() };
    report.take("aged", vec![lost("the accepted input a of b is gone"), lost("another")]);
    report
}

fn plain(report: &Report) -> String {
    anstream::adapter::strip_str(&text(report)).to_string()
}

#[test]
fn sound_drill_prints_its_hits_and_no_violation() {
    let expected = "\
redb, seed 7: 50 kills in 1m 01s
  kills hit      open call 40 (80 %) · undelivered row 20 (40 %) · recovery 18 (36 %) · deletion 4 (8 %)
  on the stores  1200 sessions · 800 runs in flight at a kill
  deleted        0 trees · 2 half done at a kill · 0 sessions erased · 0 still in the files
  acknowledged   12345 · 0 lost
  notices        0 duplicated · 0 missing
  calls and runs 0 dangling · 0 not ended exactly once
  side effects   0 repeated · 0 without an intent record
  processes      31 started by tools · 0 orphaned
  stores         0 damaged · 0 written by a killed process · 0 failed processes
  recovery       100 times · p50 50 ms · p99 99 ms
✓ 0 violations";
    assert_eq!(plain(&report()), expected);
    assert_eq!(report().verdict(), DrillVerdict::Sound);
}

#[test]
fn stopped_drill_with_a_violation_is_violated() {
    let stopped = Report { stopped: true, ..violation_report() };
    assert_eq!(
        (stopped.verdict(), Report { stopped: true, ..report() }.verdict()),
        (DrillVerdict::Violated, DrillVerdict::Stopped)
    );
    assert!(plain(&stopped).contains("✗ 2 violations; stopped before its end\n"), "{}", plain(&stopped));
}

#[test]
fn violation_is_printed_with_its_store_and_kill() {
    let report = violation_report();
    assert_eq!((report.verdict(), report.violations()), (DrillVerdict::Violated, 2));
    let plain = plain(&report);
    assert!(
        plain.contains("✗ 2 violations\n  after kill 50, aged, lost: the accepted input a of b is gone\n"),
        "{plain}"
    );
    let json = serde_json::to_value(report.json()).expect("JSON");
    assert_eq!((&json["violations"], &json["lost"], &json["missing"]), (&2.into(), &2.into(), &0.into()));
    let result = serde_json::json!({"kill": 50, "store": "aged", "kind": "lost", "what": "another"});
    assert_eq!(json["what"][1], result);
}

#[test]
fn many_violations_are_counted_and_truncated() {
    let mut report = report();
    let found = (0..80).map(|n| Violation { kind: FindingKind::Missing, what: n.to_string() });
    report.take("aged", found.collect());
    assert_eq!((report.violations(), report.examples.len()), (80, 50));
    assert!(plain(&report).ends_with("\n  and 70 more (--json lists up to 50)"));
}

#[test]
fn drill_with_too_few_hits_is_vacuous() {
    let least = Hits { open_call: 15, outbox: 5, recovery: 5, deletion: 2, half_deleted: 0 };
    for hits in [
        Hits { open_call: 14, ..least },
        Hits { outbox: 4, ..least },
        Hits { recovery: 4, ..least },
        Hits { deletion: 1, ..least },
    ] {
        let report = Report { hits, ..report() };
        assert_eq!((report.verdict(), report.vacuous().len()), (DrillVerdict::Vacuous, 1), "{hits:?}");
        assert!(plain(&report).contains("✗ the drill is vacuous: "), "{hits:?}");
    }
    let enough = Report { hits: least, ..report() };
    assert_eq!(enough.verdict(), DrillVerdict::Sound);
}

#[test]
fn sabotage_must_be_detected() {
    let sabotage = Some(Sabotage::AckBeforeCommit);
    let uncaught = Report { sabotage, ..report() };
    assert_eq!(uncaught.verdict(), DrillVerdict::Uncaught);
    assert!(
        plain(&uncaught).ends_with("✗ the injected bug ack-before-commit was not detected: the drill is ineffective")
    );
    let caught = Report { sabotage, kills: 1, hits: Hits::default(), ..violation_report() };
    assert_eq!(caught.verdict(), DrillVerdict::Caught);
    assert!(plain(&caught).contains("✓ the injected bug ack-before-commit was detected after 1 kill: 2 violations"));
    // A violation that the injected bug cannot cause does not count as its detection.
    let other = Report { sabotage: Some(Sabotage::NoEpoch), ..violation_report() };
    assert_eq!(other.verdict(), DrillVerdict::Uncaught);
}

#[test]
fn stopped_drill_is_reported_as_stopped() {
    let stopped = Report { stopped: true, kills: 3, ..report() };
    assert_eq!(stopped.verdict(), DrillVerdict::Stopped);
    assert!(plain(&stopped).ends_with("stopped before its end: 0 violations"));
}
