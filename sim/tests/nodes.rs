//! Nodes of a simulated database: their behaviour under faults, and seeded bugs of their protocol.
#![allow(clippy::expect_used, reason = "a test fails by panicking")]

use subtend_sim::lease::LeaseBug;
use subtend_sim::nodes::{NodesPlan, NodesReport, simulate};

fn run(seed: u64, bug: Option<LeaseBug>) -> NodesReport {
    simulate(NodesPlan { seed, bug, trace: false })
}

fn violation_of(bug: LeaseBug) -> String {
    let noticed = (0..1_000).find_map(|seed| run(seed, Some(bug)).violation);
    noticed.expect("the bug is not noticed")
}

#[test]
fn d3_simulated_nodes_lose_and_repeat_nothing() {
    let mut all = NodesReport::default();
    for seed in 0..20 {
        let run = run(seed, None);
        assert_eq!(run.violation, None, "seed {seed}");
        all.kills += run.kills;
        all.stops += run.stops;
        all.takeovers += run.takeovers;
        all.fenced += run.fenced;
        all.acknowledged += run.acknowledged;
    }
    let least = [all.kills, all.stops, all.takeovers, all.fenced, all.acknowledged].into_iter().min();
    assert!(least > Some(10), "{all:?}: too few faults");
}

#[test]
fn d3_seed_of_nodes_gives_the_same_run() {
    assert_eq!(run(3, None), run(3, None));
}

#[test]
fn d2_commits_without_a_fence_are_noticed() {
    let noticed = violation_of(LeaseBug::NoFence);
    assert!(noticed.contains("the log of shard"), "{noticed}");
}

#[test]
fn d2_lease_ended_during_its_work_is_noticed() {
    let noticed = violation_of(LeaseBug::LeftWhileWorking);
    assert!(noticed.contains("began under lease"), "{noticed}");
}

#[test]
fn d2_effect_after_the_lease_is_noticed() {
    let noticed = violation_of(LeaseBug::EffectAfterExpiry);
    assert!(noticed.contains("began under lease"), "{noticed}");
}
