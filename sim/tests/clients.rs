//! Clients of hosts that are killed: their events and commands, and seeded bugs of the host.
#![allow(clippy::expect_used, reason = "a test fails by panicking")]

use subtend_host::host_bug::HostBug;
use subtend_sim::clients::{ClientPlan, simulate};

#[test]
fn clients_see_each_event_and_effect_once() {
    let (mut resent, mut continued, mut cancels) = (0, 0, 0);
    let (mut refused, mut recovered) = (0, 0);
    for seed in 0..5 {
        let run = simulate(ClientPlan { seed, host_bug: None });
        assert_eq!(run.violations, Vec::<String>::new(), "seed {seed}");
        (resent, continued, cancels) = (resent + run.resent, continued + run.continued, cancels + run.cancels);
        (refused, recovered) = (refused + run.refused, recovered + run.recovered);
    }
    assert!(resent > 0 && continued > 0 && cancels > 0, "{resent} {continued} {cancels}: too few events");
    assert!(refused > 0 && recovered > 0, "{refused} {recovered}: no client used a host during its recovery");
}

#[test]
fn seed_of_clients_gives_the_same_run() {
    let run = || simulate(ClientPlan { seed: 3, host_bug: None });
    assert_eq!(run(), run());
}

#[test]
fn restarted_streams_are_noticed() {
    let noticed =
        (0..20).find_map(|seed| simulate(ClientPlan { seed, host_bug: Some(HostBug::NoResume) }).violations.pop());
    let noticed = noticed.expect("the bug is not noticed: a reader must receive the first event again");
    assert!(noticed.contains("H-1"), "{noticed}");
}

#[test]
fn ignored_keys_are_noticed() {
    let noticed =
        (0..20).find_map(|seed| simulate(ClientPlan { seed, host_bug: Some(HostBug::NoKey) }).violations.pop());
    let noticed = noticed.expect("the bug is not noticed: a command must take effect twice");
    assert!(noticed.contains("H-2"), "{noticed}");
}

/// A client reads the records of a run that the host recovers. With the bug, its stream of later records omits the first.
#[test]
fn lost_records_after_a_snapshot_are_noticed() {
    let found = |seed| simulate(ClientPlan { seed, host_bug: Some(HostBug::LateJoin) }).violations;
    let noticed = (0..20).find_map(|seed| found(seed).into_iter().find(|what| what.contains("a client joined")));
    assert!(noticed.is_some(), "the bug is not noticed: a joiner must miss records");
}
