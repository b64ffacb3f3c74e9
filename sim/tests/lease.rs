//! Leases, fences and takeovers of shards in every interleaving of two nodes, and controls with seeded bugs.

use subtend_sim::lease::{LeaseBug, LeaseSize, check_lease, hunt_lease};

#[track_caller]
fn check_to_the_end(size: LeaseSize) {
    let report = check_lease(size, None);
    let violation = report.violation.map(|(property, steps)| format!("{property}\n{}", steps.join("\n")));
    assert_eq!((violation, report.never), (None, Vec::new()));
}

#[test]
fn d2_shard_taken_and_taken_back_has_one_history() {
    check_to_the_end(LeaseSize::RETURNS);
}

#[test]
fn d3_failover_takes_a_lease_and_five_seconds_at_most() {
    check_to_the_end(LeaseSize::FAILOVER);
}

/// `subtend-sim lease` checks the other sizes.
#[test]
fn d2_effects_keep_to_the_lease_with_slow_clocks() {
    check_to_the_end(LeaseSize::CLOCKS);
}

#[test]
fn d2_each_bug_of_the_lease_protocol_is_noticed() {
    let (acknowledged, epoch) =
        ("no acknowledged group is lost", "only the holder of a shard commits, and each epoch has one holder");
    let effect = "no effect starts after another node has taken the shard";
    let expected = |bug| match bug {
        LeaseBug::NoFence | LeaseBug::FenceWithoutEpoch | LeaseBug::ReclaimedByAnyone => epoch,
        LeaseBug::FenceWithoutLsn | LeaseBug::AcknowledgedWhenSent | LeaseBug::LostTakenAsStored => acknowledged,
        LeaseBug::ResentUnread => "a shard has one history: each LSN and each group occurs once",
        LeaseBug::EffectBeforeIntent => "no effect starts before its intent is durable",
        LeaseBug::OwnClaimForgotten => "a shard without an owner gets one within the lease time plus five seconds",
        LeaseBug::RenewedByLocalClock
        | LeaseBug::CountedFromReply
        | LeaseBug::ClockStopsInPause
        | LeaseBug::RenewedAfterTakeover
        | LeaseBug::TakenBeforeExpiry
        | LeaseBug::EffectAfterExpiry
        | LeaseBug::LeftWhileWorking
        | LeaseBug::LeftByName => effect,
    };
    for bug in LeaseBug::ALL {
        let found = hunt_lease(bug).violation.map(|(property, _)| property);
        assert_eq!(found, Some(expected(bug)), "{bug}");
    }
}

/// No lease can prevent this, because the takeover happens between the two steps.
#[test]
fn d2_stop_between_check_and_start_is_the_known_gap() {
    let (property, steps) = check_lease(LeaseSize::RESIDUE, None).violation.unwrap();
    assert_eq!(property, "no effect starts after another node has taken the shard");
    let at = |what: &str| steps.iter().position(|step| step.starts_with(what));
    assert!(at("Check(0") < at("Take(1") && at("Take(1") < at("Start(0"), "{steps:?}");
}
