//! Sessions in every interleaving of small models, and controls with seeded bugs.

use subtend_invariants::InvariantId;
use subtend_invariants::bugs::Bug;
use subtend_sim::check::{CheckReport, Effort, check, hunt, hunt_for};
use subtend_sim::fault::{Around, SimFault};
use subtend_sim::size::Size;

fn every_interleaving(size: Size) -> CheckReport {
    check(size, SimFault::None, Effort { threads: 1, states: None, first_violation: false })
}

#[track_caller]
fn holds(size: Size) {
    let report = every_interleaving(size);
    let violation = report.violation.map(|(violation, happened)| format!("{violation}\n{}", happened.join("\n")));
    assert_eq!((violation, report.never, report.complete), (None, Vec::new(), true));
}

#[test]
fn a_root_and_a_child_through_a_crash_and_a_cancel() {
    holds(Size::SMALL);
}

#[test]
fn a_root_and_a_child_through_a_panic_and_a_cancel() {
    holds(Size::PANIC);
}

#[test]
fn root_and_child_survive_a_panic_before_effects_of_any_batch() {
    holds(Size::HALF_PANIC);
}

#[test]
fn a_root_and_a_child_with_a_second_input_at_any_step() {
    holds(Size { sends: 2, tools: 0, ..Size::SMALL });
}

#[test]
fn two_children_through_a_cancel_of_any_session() {
    holds(Size::CANCEL);
}

#[test]
fn two_children_through_a_crash_at_any_step() {
    holds(Size::CRASH);
    holds(Size { slots: 2, ..Size::CRASH });
}

#[test]
fn two_children_through_a_panic_before_the_effects_of_any_batch() {
    holds(Size { half_panics: 1, ..Size::CALM });
    holds(Size { half_panics: 1, slots: 2, ..Size::CALM });
}

#[test]
fn root_and_child_survive_a_crash_within_recovery() {
    holds(Size { crashes: 2, ..Size::SMALL });
}

#[test]
fn root_and_child_survive_failed_attempts_and_deadlines() {
    holds(Size { failures: 1, deadlines: 1, crashes: 0, ..Size::SMALL });
}

#[test]
fn root_and_child_survive_an_interrupt_and_a_resuming_input() {
    holds(Size::INTERRUPT);
}

#[test]
fn root_and_child_survive_an_interrupt_with_a_fault() {
    let one = Size { sends: 1, ..Size::INTERRUPT };
    holds(Size { crashes: 1, ..one });
    holds(Size { panics: 1, ..one });
    holds(Size { half_panics: 1, ..one });
    holds(Size { cancels: 1, ..one });
}

#[test]
fn two_children_through_an_interrupt_of_any_session() {
    holds(Size { interrupts: 1, ..Size::CALM });
    holds(Size { interrupts: 1, slots: 2, ..Size::CALM });
    holds(Size { interrupts: 1, ..Size::CRASH });
}

#[test]
fn child_that_its_owner_continues() {
    holds(Size::CONTINUE);
    holds(Size { crashes: 1, cancels: 1, ..Size::CONTINUE });
    holds(Size { half_panics: 1, ..Size::CONTINUE });
}

#[test]
fn cancelled_child_survives_late_and_repeated_rows() {
    holds(Size::STOP);
    holds(Size { crashes: 1, doubles: 0, ..Size::STOP });
}

#[test]
fn a_call_that_is_moved_to_the_background_beside_an_interrupt() {
    holds(Size::MOVE);
    holds(Size { crashes: 1, ..Size::MOVE });
    holds(Size { panics: 1, interrupts: 0, ..Size::MOVE });
}

#[test]
fn call_that_needs_an_approval() {
    holds(Size::ASK);
    holds(Size { crashes: 1, ..Size::ASK });
    holds(Size { cancels: 1, deadlines: 0, ..Size::ASK });
    holds(Size { interrupts: 1, deadlines: 0, ..Size::ASK });
    holds(Size { approvers: 0, deadlines: 0, crashes: 1, ..Size::ASK });
}

#[test]
fn runs_that_are_parked_at_limits() {
    holds(Size::LIMIT);
    holds(Size { limits: 1, cancels: 1, doubles: 0, ..Size::LIMIT });
    holds(Size { limits: 1, interrupts: 1, sends: 2, doubles: 0, ..Size::LIMIT });
}

#[test]
fn parked_runs_survive_a_crash_and_a_panic() {
    holds(Size { crashes: 1, doubles: 0, ..Size::LIMIT });
    holds(Size { limits: 1, half_panics: 1, doubles: 0, ..Size::LIMIT });
}

#[test]
fn inputs_that_wait_while_the_whole_tree_is_cancelled() {
    holds(Size { sends: 2, ..Size::QUEUE });
    holds(Size { sends: 2, crashes: 1, ..Size::QUEUE });
}

#[test]
fn a_child_in_which_a_person_opens_runs_and_which_is_closed() {
    holds(Size { closes: 0, ..Size::PERSON });
    holds(Size { continues: 0, crashes: 1, ..Size::PERSON });
}

#[test]
fn x16_relatives_that_write_to_each_other() {
    holds(Size { interrupts: 0, sends: 1, ..Size::MESSAGE });
    holds(Size { messages: 1, crashes: 1, interrupts: 0, sends: 1, ..Size::MESSAGE });
}

#[test]
fn branches_and_regenerated_answers() {
    holds(Size { crashes: 0, ..Size::BRANCH });
    holds(Size { branches: 0, resumes: 0, ..Size::BRANCH });
}

#[test]
fn runs_that_are_rolled_back() {
    holds(Size { crashes: 0, ..Size::ROLLBACK });
    holds(Size { branches: 0, ..Size::ROLLBACK });
}

#[test]
fn histories_that_are_compacted_after_an_overflow() {
    holds(Size { crashes: 0, rollbacks: 0, ..Size::COMPACT });
    holds(Size { cancels: 0, rollbacks: 0, ..Size::COMPACT });
    holds(Size { crashes: 0, tools: 0, ..Size::COMPACT });
}

#[test]
fn services_of_the_host() {
    holds(Size { services: 1, doubles: 0, closes: 0, ..Size::SERVICE });
    holds(Size { tree_cancels: 0, crashes: 0, ..Size::SERVICE });
}

/// All events at once, within a test's limits; `subtend-sim model` checks all interleavings.
#[test]
fn two_children_through_the_first_of_everything() {
    let report =
        check(Size::MEDIUM, SimFault::None, Effort { threads: 1, states: Some(60_000), first_violation: true });
    assert_eq!(report.violation.map(|(violation, _)| violation.to_string()), None);
}

#[track_caller]
fn noticed(fault: SimFault, expected: InvariantId) {
    let found = hunt(fault, 1).violation.map(|(violation, _)| violation.id);
    assert_eq!(found, Some(expected), "{fault}");
}

#[test]
fn a_rule_of_the_heart_that_is_switched_off_is_noticed() {
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
        noticed(SimFault::Heart(bug), expected);
    }
}

/// A state that its journal does not give breaks J-4 first; the rule that the bug is about sees it too.
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
fn a_world_that_breaks_its_promise_is_noticed() {
    for (around, expected) in [
        (Around::RowsLost, InvariantId::J3),
        (Around::SlotFreedTwice, InvariantId::T3),
        (Around::EpochNotBumped, InvariantId::J4),
        (Around::CancelNotDurable, InvariantId::T5),
        (Around::TokenIgnored, InvariantId::T4),
        (Around::SweepFromTheTop, InvariantId::T7),
        (Around::SlotLostAtPanic, InvariantId::T3),
        (Around::EffectsForgotten, InvariantId::T3),
        (Around::CauseLost, InvariantId::T5),
        (Around::OnePool, InvariantId::T3),
        (Around::PlaceForgotten, InvariantId::S1),
        (Around::ParkedAreLost, InvariantId::S8),
    ] {
        noticed(SimFault::World(around), expected);
    }
}

#[test]
fn every_seeded_bug_is_tried() {
    assert_eq!(SimFault::all().count(), Bug::ALL.len() - 1 + Around::ALL.len(), "all but `Fault::HIDDEN`");
}
