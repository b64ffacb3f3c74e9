//! Clients of hosts that die: what they receive and send, and seeded bugs of the host.
#![allow(clippy::expect_used, reason = "a test fails by panicking")]

use subtend_host::flaw::Flaw;
use subtend_sim::clients::{ClientPlan, simulate};

#[test]
fn clients_see_each_event_and_effect_once() {
    let (mut resent, mut continued, mut cancels) = (0, 0, 0);
    for seed in 0..5 {
        let run = simulate(ClientPlan { seed, flaw: None });
        assert_eq!(run.violations, Vec::<String>::new(), "seed {seed}");
        (resent, continued, cancels) = (resent + run.resent, continued + run.continued, cancels + run.cancels);
    }
    assert!(resent > 0 && continued > 0 && cancels > 0, "{resent} {continued} {cancels}: too little shows nothing");
}

#[test]
fn clients_of_a_seed_are_a_run() {
    let run = || simulate(ClientPlan { seed: 3, flaw: None });
    assert_eq!(run(), run());
}

#[test]
fn streams_that_begin_again_are_noticed() {
    let noticed = (0..20).find_map(|seed| simulate(ClientPlan { seed, flaw: Some(Flaw::NoResume) }).violations.pop());
    let noticed = noticed.expect("a reader receives the first event again");
    assert!(noticed.contains("H-1"), "{noticed}");
}

#[test]
fn ignored_keys_are_noticed() {
    let noticed = (0..20).find_map(|seed| simulate(ClientPlan { seed, flaw: Some(Flaw::NoKey) }).violations.pop());
    let noticed = noticed.expect("a command takes effect twice");
    assert!(noticed.contains("H-2"), "{noticed}");
}
