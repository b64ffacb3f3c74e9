//! Sessions in every interleaving of small models. Seeded bugs show that violations are noticed.

use subtend_invariants::InvariantId;
use subtend_invariants::bugs::Bug;
use subtend_sim::check::{CheckReport, Effort, check, hunt, hunt_for};
use subtend_sim::fault::{EnvironmentBug, SimFault};
use subtend_sim::size::Size;

fn every_interleaving(size: Size) -> CheckReport {
    check(size, SimFault::None, Effort { threads: 1, states: None, first_violation: false })
}

#[track_caller]
fn check_to_the_end(size: Size) {
    let report = every_interleaving(size);
    let violation = report.violation.map(|(violation, happened)| format!("{violation}\n{}", happened.join("\n")));
    assert_eq!((violation, report.never, report.complete), (None, Vec::new(), true));
}

#[test]
fn root_and_child_survive_a_crash_and_a_cancel() {
    check_to_the_end(Size::SMALL);
}

#[test]
fn root_and_child_survive_a_panic_and_a_cancel() {
    check_to_the_end(Size::PANIC);
}

#[test]
fn root_and_child_survive_a_panic_before_effects_of_any_batch() {
    check_to_the_end(Size::HALF_PANIC);
}

#[test]
fn root_and_child_survive_a_second_input_at_any_step() {
    check_to_the_end(Size { sends: 2, tools: 0, ..Size::SMALL });
}

#[test]
fn two_children_survive_a_cancel_of_any_session() {
    check_to_the_end(Size::CANCEL);
}

#[test]
fn two_children_survive_a_crash_at_any_step() {
    check_to_the_end(Size::CRASH);
    check_to_the_end(Size { slots: 2, ..Size::CRASH });
}

#[test]
fn two_children_survive_a_panic_before_effects_of_any_batch() {
    check_to_the_end(Size { half_panics: 1, ..Size::CALM });
    check_to_the_end(Size { half_panics: 1, slots: 2, ..Size::CALM });
}

#[test]
fn root_and_child_survive_a_crash_within_recovery() {
    check_to_the_end(Size { crashes: 2, ..Size::SMALL });
}

#[test]
fn root_and_child_survive_failed_attempts_and_deadlines() {
    check_to_the_end(Size { failures: 1, deadlines: 1, crashes: 0, ..Size::SMALL });
}

#[test]
fn root_and_child_survive_an_interrupt_and_a_resuming_input() {
    check_to_the_end(Size::INTERRUPT);
}

#[test]
fn root_and_child_survive_an_interrupt_with_a_fault() {
    let one = Size { sends: 1, ..Size::INTERRUPT };
    check_to_the_end(Size { crashes: 1, ..one });
    check_to_the_end(Size { panics: 1, ..one });
    check_to_the_end(Size { half_panics: 1, ..one });
    check_to_the_end(Size { cancels: 1, ..one });
}

#[test]
fn two_children_survive_an_interrupt_of_any_session() {
    check_to_the_end(Size { interrupts: 1, ..Size::CALM });
    check_to_the_end(Size { interrupts: 1, slots: 2, ..Size::CALM });
    check_to_the_end(Size { interrupts: 1, ..Size::CRASH });
}

#[test]
fn continued_child_keeps_all_invariants() {
    check_to_the_end(Size::CONTINUE);
    check_to_the_end(Size { crashes: 1, cancels: 1, ..Size::CONTINUE });
    check_to_the_end(Size { half_panics: 1, ..Size::CONTINUE });
}

#[test]
fn cancelled_child_survives_late_and_repeated_rows() {
    check_to_the_end(Size::STOP);
    check_to_the_end(Size { crashes: 1, doubles: 0, ..Size::STOP });
}

#[test]
fn moved_call_survives_an_interrupt() {
    check_to_the_end(Size::MOVE);
    check_to_the_end(Size { crashes: 1, ..Size::MOVE });
    check_to_the_end(Size { panics: 1, interrupts: 0, ..Size::MOVE });
}

#[test]
fn call_with_an_approval_keeps_all_invariants() {
    check_to_the_end(Size::ASK);
    check_to_the_end(Size { crashes: 1, ..Size::ASK });
    check_to_the_end(Size { cancels: 1, deadlines: 0, ..Size::ASK });
    check_to_the_end(Size { interrupts: 1, deadlines: 0, ..Size::ASK });
    check_to_the_end(Size { approvers: 0, deadlines: 0, crashes: 1, ..Size::ASK });
}

#[test]
fn runs_parked_at_limits_keep_all_invariants() {
    check_to_the_end(Size::LIMIT);
    check_to_the_end(Size { limits: 1, cancels: 1, doubles: 0, ..Size::LIMIT });
    check_to_the_end(Size { limits: 1, interrupts: 1, sends: 2, doubles: 0, ..Size::LIMIT });
}

#[test]
fn parked_runs_survive_a_crash_and_a_panic() {
    check_to_the_end(Size { crashes: 1, doubles: 0, ..Size::LIMIT });
    check_to_the_end(Size { limits: 1, half_panics: 1, doubles: 0, ..Size::LIMIT });
}

#[test]
fn queued_inputs_survive_a_cancel_of_the_tree() {
    check_to_the_end(Size { sends: 2, ..Size::QUEUE });
    check_to_the_end(Size { sends: 2, crashes: 1, ..Size::QUEUE });
}

#[test]
fn child_with_persons_runs_survives_its_close() {
    check_to_the_end(Size { closes: 0, ..Size::PERSON });
    check_to_the_end(Size { continues: 0, crashes: 1, ..Size::PERSON });
}

#[test]
fn x16_messages_of_relatives_keep_all_invariants() {
    check_to_the_end(Size { interrupts: 0, sends: 1, ..Size::MESSAGE });
    check_to_the_end(Size { messages: 1, crashes: 1, interrupts: 0, sends: 1, ..Size::MESSAGE });
}

#[test]
fn branches_and_regenerations_keep_all_invariants() {
    check_to_the_end(Size { crashes: 0, ..Size::BRANCH });
    check_to_the_end(Size { branches: 0, resumes: 0, ..Size::BRANCH });
}

#[test]
fn rolled_back_runs_keep_all_invariants() {
    check_to_the_end(Size { crashes: 0, ..Size::ROLLBACK });
    check_to_the_end(Size { branches: 0, ..Size::ROLLBACK });
}

#[test]
fn compacted_histories_keep_all_invariants() {
    check_to_the_end(Size { crashes: 0, rollbacks: 0, ..Size::COMPACT });
    check_to_the_end(Size { cancels: 0, rollbacks: 0, ..Size::COMPACT });
    check_to_the_end(Size { crashes: 0, tools: 0, ..Size::COMPACT });
}

#[test]
fn services_of_the_host_keep_all_invariants() {
    check_to_the_end(Size { services: 1, doubles: 0, closes: 0, ..Size::SERVICE });
    check_to_the_end(Size { tree_cancels: 0, crashes: 0, ..Size::SERVICE });
}

/// Allows all events together, up to a limit of states. `subtend-sim model` checks all interleavings.
#[test]
fn two_children_survive_one_of_each_event() {
    let report =
        check(Size::MEDIUM, SimFault::None, Effort { threads: 1, states: Some(60_000), first_violation: true });
    assert_eq!(report.violation.map(|(violation, _)| violation.to_string()), None);
}

#[track_caller]
fn assert_noticed(fault: SimFault, expected: InvariantId) {
    let found = hunt(fault, 1).violation.map(|(violation, _)| violation.id);
    assert_eq!(found, Some(expected), "{fault}");
}

#[test]
fn disabled_rule_of_sessions_is_noticed() {
    for (bug, expected) in [
        (Bug::RowsLeftPending, InvariantId::T7),
        (Bug::NoCheckAfterLast, InvariantId::S1),
        (Bug::CallsLeftOpen, InvariantId::N4),
        (Bug::UnstartedForgotten, InvariantId::S1),
        (Bug::RowTakenTwice, InvariantId::J4),
        (Bug::OwnerNotChecked, InvariantId::T4),
        (Bug::SlotWithoutTaking, InvariantId::S12),
        (Bug::StaleAccepted, InvariantId::J4),
        (Bug::NoOutbox, InvariantId::J3),
        (Bug::EndTwice, InvariantId::J4),
        (Bug::OpenCallsFromLiveSet, InvariantId::S1),
        (Bug::InterruptEndsAll, InvariantId::T6),
        (Bug::InterruptStopsHere, InvariantId::S12),
        (Bug::ContinueTwice, InvariantId::J4),
        (Bug::ContinueRefusedSilently, InvariantId::J3),
        (Bug::ContinueOfOver, InvariantId::T5),
        (Bug::QueueOpensAfterTreeCancel, InvariantId::S12),
        (Bug::ClosedTakesContinue, InvariantId::J4),
        (Bug::CancelReachesNextRun, InvariantId::S8),
        (Bug::BackgroundStaysBlocking, InvariantId::J4),
        (Bug::AskLeftOpen, InvariantId::J4),
        (Bug::SlotKeptWhileAsking, InvariantId::T3),
        (Bug::AlternativeOverwrites, InvariantId::J4),
        (Bug::BranchSeesLater, InvariantId::T2),
        (Bug::RolledBackSeen, InvariantId::E2),
        (Bug::PersonsRunShown, InvariantId::J4),
        (Bug::OwnersEndNamesPerson, InvariantId::S8),
        (Bug::CompletionsJoinMessages, InvariantId::S13),
        (Bug::MessageExtendsOwnedRun, InvariantId::S13),
        (Bug::AskWithoutDeadline, InvariantId::S6),
        (Bug::OwedCompacted, InvariantId::N8),
        (Bug::ResetForgotten, InvariantId::S6),
        (Bug::ResetTwice, InvariantId::S7),
        (Bug::SlotKeptAtLimit, InvariantId::T3),
    ] {
        assert_noticed(SimFault::Heart(bug), expected);
    }
}

/// A state that differs from its journal violates J-4 first. The invariant of the broken rule must be violated too.
#[test]
fn bug_is_noticed_by_its_own_invariant() {
    for (bug, own) in [
        (Bug::PersonsRunShown, InvariantId::N7),
        (Bug::RowTakenTwice, InvariantId::N1),
        (Bug::EndTwice, InvariantId::S1),
        (Bug::AskLeftOpen, InvariantId::P5),
        (Bug::BackgroundStaysBlocking, InvariantId::T6),
    ] {
        let found = hunt_for(Some(own), SimFault::Heart(bug), 1).violation.map(|(violation, _)| violation.id);
        assert_eq!(found, Some(own), "{bug:?}");
    }
}

#[test]
fn environment_bug_is_noticed() {
    for (around, expected) in [
        (EnvironmentBug::RowsLost, InvariantId::J3),
        (EnvironmentBug::SlotFreedTwice, InvariantId::T3),
        (EnvironmentBug::EpochNotBumped, InvariantId::J4),
        (EnvironmentBug::CancelNotDurable, InvariantId::T5),
        (EnvironmentBug::TokenIgnored, InvariantId::T4),
        (EnvironmentBug::SweepFromTheTop, InvariantId::T7),
        (EnvironmentBug::SlotLostAtPanic, InvariantId::T3),
        (EnvironmentBug::EffectsForgotten, InvariantId::T3),
        (EnvironmentBug::CauseLost, InvariantId::T5),
        (EnvironmentBug::OnePool, InvariantId::T3),
        (EnvironmentBug::PlaceForgotten, InvariantId::S1),
        (EnvironmentBug::ParkedAreLost, InvariantId::S8),
    ] {
        assert_noticed(SimFault::World(around), expected);
    }
}

#[test]
fn every_seeded_bug_is_tried() {
    assert_eq!(SimFault::all().count(), Bug::ALL.len() - 1 + EnvironmentBug::ALL.len(), "all but `SimFault::HIDDEN`");
}
