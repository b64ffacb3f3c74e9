//! The simulator: the same seed gives the same run, recorded seeds pass, and seeded bugs are noticed.
#![allow(clippy::expect_used, reason = "a test fails by panicking")]

use subtend_sim::simulate::{SeedPlan, Seeded, simulate};

const STEPS: u32 = 300;

fn plan(seed: u64) -> SeedPlan {
    SeedPlan { seed, steps: STEPS, bug: None, trace: false }
}

#[test]
fn seed_gives_the_same_run() {
    for seed in 0..50 {
        let (first, second) = (simulate(plan(seed)), simulate(plan(seed)));
        assert_eq!(first, second, "seed {seed}");
        assert_eq!(first.failure, None, "{}", first.plan.command());
        assert!(first.records > 0, "seed {seed} wrote no records");
    }
}

/// `seeds.txt` lists seeds that failed once: `SEED STEPS`, and the violation.
#[test]
fn seeds_that_once_failed_pass() {
    for line in include_str!("../seeds.txt").lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split_whitespace();
        let Some((seed, steps)) = words.next().zip(words.next()) else { continue };
        let (seed, steps) = (seed.parse().expect("a seed"), steps.parse().expect("steps"));
        let report = simulate(SeedPlan { steps, ..plan(seed) });
        assert_eq!(report.failure, None, "{}", report.plan.command());
    }
}

#[test]
fn failed_seed_prints_the_command_that_repeats_it() {
    let bug = "NoOutbox".parse::<Seeded>().expect("a seeded bug");
    let plan = SeedPlan { bug: Some(bug), ..plan(7) };
    assert_eq!(plan.command(), "subtend-sim run --seeds 1 --base 7 --steps 300 --sabotage NoOutbox");
    assert!("NoSuchBug".parse::<Seeded>().is_err());
}

/// A run without seeds, steps or threads would check nothing, so it must not count as a success.
#[test]
fn zero_seeds_steps_or_threads_are_refused() {
    for none in ["--seeds", "--steps", "--threads"] {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_subtend-sim"));
        let refused = command.args(["run", none, "0"]).output().expect("it starts");
        let text = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(2), "{none}: {text}");
        assert!(text.contains(&format!("invalid value '0' for '{none} <")), "{text}");
    }
}

/// `subtend-sim controls` checks the other bugs.
#[test]
fn lost_obligation_is_noticed() {
    let bug = "NoOutbox".parse::<Seeded>().expect("a seeded bug");
    let noticed = (0..40).find_map(|seed| simulate(SeedPlan { bug: Some(bug), ..plan(seed) }).failure);
    assert!(noticed.is_some(), "the bug is not noticed: owners are not notified");
}

/// A record of the parent keeps text of a deleted branch. No predicate of the journal can find that.
#[test]
fn a8_text_of_a_deleted_branch_is_noticed() {
    let bug = "UnreadTextKept".parse::<Seeded>().expect("a seeded bug");
    let noticed = (0..400).find_map(|seed| simulate(SeedPlan { bug: Some(bug), ..plan(seed) }).failure);
    let noticed = noticed.expect("the bug is not noticed: a parent keeps the text of a deleted branch");
    assert!(noticed.id == "J-10" && noticed.to_string().contains("another session keeps its text"), "{noticed:?}");
}

/// With the bug, an ask that no approver answers remains open.
#[test]
fn p5_ask_open_beyond_its_deadline_is_noticed() {
    let bug = "AskWithoutDeadline".parse::<Seeded>().expect("a seeded bug");
    // With this bug the run does not end either, so in some worlds the violation of S-6 is noticed first.
    let mut failures = (0..400).filter_map(|seed| simulate(SeedPlan { bug: Some(bug), ..plan(seed) }).failure);
    let noticed = failures.find(|failure| failure.id != "S-6").expect("the bug is not noticed: an ask remains open");
    assert!(noticed.id == "P-5" && noticed.to_string().contains("it was open beyond its deadline"), "{noticed:?}");
}

/// The requests show the true cause. The journal alone does not.
#[test]
fn t5_end_with_a_wrong_person_as_cause_is_noticed() {
    let bug = "OwnersEndNamesPerson".parse::<Seeded>().expect("a seeded bug");
    let noticed = (0..400).find_map(|seed| simulate(SeedPlan { bug: Some(bug), ..plan(seed) }).failure);
    assert_eq!(noticed.expect("the bug is not noticed: an owner's end counts as a person's cancel").id, "T-5");
}

/// With the bug, the tree of a root omits grandchildren.
#[test]
fn t9_truncated_tree_is_noticed() {
    let bug = "TreesEndAtChildren".parse::<Seeded>().expect("a seeded bug");
    let noticed = (0..400).find_map(|seed| simulate(SeedPlan { bug: Some(bug), ..plan(seed) }).failure);
    let noticed = noticed.expect("the bug is not noticed: a session is not listed");
    assert!(noticed.id == "T-9" && noticed.to_string().contains("not in the listing"), "{noticed:?}");
}

#[test]
fn v5_owner_stopping_before_its_children_is_noticed() {
    let bug = "OwnersStopFirst".parse::<Seeded>().expect("a seeded bug");
    let noticed = (0..400).find_map(|seed| simulate(SeedPlan { bug: Some(bug), ..plan(seed) }).failure);
    let noticed = noticed.expect("the bug is not noticed: an owner stops before its children");
    assert!(noticed.id == "V-5" && noticed.to_string().contains("it was stopped after its owner"), "{noticed:?}");
}

/// With a small context window, compactions succeed, fail and are stopped. Some users request and undo them.
#[test]
fn g14_compacted_histories_keep_owed_messages() {
    for seed in (0..160).filter(|seed| matches!(seed % 17, 7 | 9 | 11 | 13)) {
        let report = simulate(plan(seed));
        assert_eq!(report.failure, None, "{}", report.plan.command());
    }
    let bug = "OwedCompacted".parse::<Seeded>().expect("a seeded bug");
    let hidden = |seed| simulate(SeedPlan { bug: Some(bug), ..plan(seed) }).failure;
    let noticed = (0..2_000).filter(|seed| matches!(seed % 17, 7 | 9 | 11)).find_map(hidden);
    assert_eq!(noticed.expect("the bug is not noticed: a compaction hides owed messages").id, "N-8");
    let noticed = (0..2_000).filter(|seed| seed % 17 == 13).find_map(hidden);
    assert_eq!(noticed.expect("the bug is not noticed: users request compactions").id, "N-8");
}
