//! `subtend drill` kills real runs on redb and checks the disk. Each injected bug shows that the drill can fail.

#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

#[path = "kill_drill/command.rs"]
mod command;
#[cfg(unix)]
#[path = "kill_drill/compacted.rs"]
mod compacted;
#[cfg(unix)]
#[path = "kill_drill/killed.rs"]
mod killed;
#[cfg(unix)]
#[path = "kill_drill/messages.rs"]
mod messages;
#[cfg(unix)]
#[path = "kill_drill/parked.rs"]
mod parked;

use command::{call, drill};

/// Twenty kills, on one store that is kept and on new stores, during runs and during recovery.
#[test]
fn twenty_kills_lose_and_repeat_nothing() {
    let (code, report) = drill(&["--kills", "20"]);
    println!("{report}");
    assert_eq!((code, &report["verdict"]), (Some(0), &"sound".into()), "{report:#}");
    assert_eq!((&report["kills"], &report["violations"]), (&20.into(), &0.into()), "{report:#}");
    assert!(report["acknowledged"].as_u64() > Some(500), "the drill hit nothing: {report:#}");
    assert!(report["processes"].as_u64() > Some(0), "no tool started a process: {report:#}");
}

/// Runs the shortest possible drill in a temporary directory, and checks the printed report.
#[test]
fn drill_reports_its_kills_and_leaves_no_process() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = dir.path().join("drilled");
    let output = call(&["--kills", "10", "--store", &format!("redb:{}", store.display())]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    for wording in [
        "redb, seed ",
        ": 10 kills in ",
        "  kills hit      open call ",
        "  acknowledged   ",
        " · 0 lost\n",
        "  notices        0 duplicated · 0 missing\n",
        "  calls and runs 0 dangling · 0 not ended exactly once\n",
        "  side effects   0 repeated · 0 without an intent record\n",
        " started by tools · 0 orphaned\n",
        "  stores         0 damaged · 0 written by a killed process · 0 failed processes\n",
        "✓ 0 violations\n",
    ] {
        assert!(text.contains(wording), "{wording} is not in {text}");
    }
    assert!(!store.exists(), "{text}");
}

/// Asserts that the drill detects an injected bug by these effects, which appear at nearly every kill.
fn assert_caught(sabotage: &str, shows: &[&str]) {
    let (code, report) = drill(&["--kills", "60", "--sabotage", sabotage]);
    println!("{sabotage}: after {} kills", report["kills"]);
    assert_eq!((code, &report["verdict"]), (Some(0), &"caught".into()), "{report:#}");
    assert!(shows.iter().any(|kind| report[kind].as_u64() > Some(0)), "{report:#}");
}

/// A journal that acknowledges 50 ms before it commits loses acknowledged records.
#[test]
fn acknowledging_before_the_commit_is_caught() {
    assert_caught("ack-before-commit", &["lost"]);
}

/// Without an outbox, notices are lost, so owners wait forever or end without them.
#[test]
fn missing_outbox_is_caught() {
    assert_caught("no-outbox", &["unsound", "missing", "endless"]);
}

/// An owner that takes the same row twice receives two notices of one end.
#[test]
fn taking_a_row_twice_is_caught() {
    assert_caught("no-dedup", &["duplicated"]);
}

/// An activation that reuses the epoch of an earlier one does not fence it.
#[test]
fn reusing_an_epoch_is_caught() {
    assert_caught("no-epoch", &["unfenced"]);
}

/// A compaction that erases nothing leaves the text of deleted sessions in the files of the store.
#[test]
fn compaction_without_erasure_is_caught() {
    assert_caught("no-erase", &["kept_text"]);
}

/// A deletion that begins with the lowest sessions leaves a partial tree when a kill interrupts it.
#[test]
fn deletion_ending_with_its_root_is_caught() {
    assert_caught("no-order", &["lost"]);
}

/// Without a guard, processes that tools started outlive the runtime.
#[test]
fn processes_without_a_guard_are_caught() {
    assert_caught("no-guard", &["orphaned"]);
}

/// A tool that does not wait for its intent leaves an effect without a record on the disk.
#[test]
fn effect_before_its_intent_is_caught() {
    assert_caught("no-intent", &["unintended"]);
}
