//! The rules that apply to every cell: each as one scenario, run once correctly and once with the rule broken, which must show.

use subtend_invariants::bugs::Rules;
use subtend_session::call::CallKind;
use subtend_session::command::{Command, FoundCall};
use subtend_session::effect::Effect;
use subtend_session::ids::RunNo;
use subtend_session::index::{Before, Stamp};
use subtend_session::limits::Limits;
use subtend_session::outcome::{By, ModelFail, OutcomeKind};
use subtend_session::place::Mode;
use subtend_session::record::Stop;

use crate::given::*;

/// A root whose turn 2 streams, with the background child 0xB1 in flight by call 1.0.
fn owner(rules: Rules) -> Heart {
    Heart::root().under(rules).then(send(1, "go")).then(calls(1, vec![background()])).then(spawn(
        1,
        Mode::Background,
        &[(0, 0xB1)],
    ))
}

fn rows_are_taken_at_a_boundary(rules: Rules) -> String {
    let mut heart = owner(rules).then(calls(2, vec![reads()])).then(ended(0xB1, call(1, 0)));
    heart.says(tool(2, 0, "read"))
}

fn rows_are_taken_at_an_end(rules: Rules) -> String {
    let mut heart = owner(rules).then(ended(0xB1, call(1, 0)));
    heart.says(answer(2, 1, Some("no"), Vec::new(), Stop::Refused))
}

#[test]
fn rule_1_every_boundary_and_end_first_takes_all_pending_rows() {
    assert_eq!(rows_are_taken_at_a_boundary(Rules::ALL), "-0:ok message[1] turn > W");
    assert_eq!(rows_are_taken_at_an_end(Rules::ALL), "answered message[1] ended(failed) > E");
}

fn the_last_child_is_followed_by_the_check(rules: Rules) -> String {
    let mut heart = Heart::root().under(rules).then(send(1, "go")).then(calls(1, vec![blocking()])).then(spawn(
        1,
        Mode::Blocking,
        &[(0, 0xB1)],
    ));
    heart.says(ended(0xB1, call(1, 0)))
}

#[test]
fn rule_2_whatever_removes_the_last_open_call_runs_the_check() {
    assert_eq!(the_last_child_is_followed_by_the_check(Rules::ALL), "result turn > W");
}

fn an_end_answers_unstarted_calls(rules: Rules) -> String {
    let mut heart = Heart::root().under(rules).then(send(1, "go")).then(calls(1, vec![writes(), writes(), blocking()]));
    heart.says(cancel())
}

#[test]
fn rule_3_hold_or_end_first_answers_every_unstarted_call() {
    let expected = "-1:cancelled -2:cancelled closing(cancelled) Done > Hc";
    assert_eq!(an_end_answers_unstarted_calls(Rules::ALL), expected);
}

#[test]
fn rule_3_held_run_with_nothing_open_takes_a_queued_input() {
    let mut heart = Heart::root_with(Limits { turns: 2, ..Limits::default() })
        .then(send(1, "go"))
        .then(calls(1, vec![background()]))
        .then(spawn(1, Mode::Background, &[(0, 0xB1)]))
        .then(calls(2, vec![reads()]))
        .then(send(5, "one more thing"));
    assert_eq!(heart.says(tool(2, 0, "read")), "-0:ok taken turn > W");
    assert_eq!(heart.state.run.as_ref().unwrap().spent, 0, "an input restarts the allowance");
}

fn a_new_activation_starts_unstarted_calls(rules: Rules) -> String {
    let heart = Heart::root().under(rules).then(send(1, "go")).then(calls(1, vec![writes(), writes()]));
    heart
        .refolded()
        .says(Command::Reactivated { calls: vec![FoundCall::plain(call(1, 1), writes())], owner_over: None })
}

#[test]
fn rule_4_activation_starts_unstarted_calls_and_runs_check() {
    assert_eq!(a_new_activation_starts_unstarted_calls(Rules::ALL), "-0:unknown +1 > W");
}

fn a_row_arrives_twice(rules: Rules) -> String {
    let mut heart = owner(rules).then(answers(2, "so far"));
    let first = heart.says(ended(0xB1, call(1, 0)));
    let again = heart.says(ended(0xB1, call(1, 0)));
    let after = heart.says(answers(3, "done"));
    format!("{first}; {again}; {after}")
}

#[test]
fn rule_5_a_row_is_taken_once() {
    let expected = "message[1] turn > W; S; answered ended(completed) > E";
    assert_eq!(a_row_arrives_twice(Rules::ALL), expected);
}

#[test]
fn rule_5_rows_of_owned_and_persons_runs_may_overtake() {
    let mut heart = owner(Rules::ALL).then(answers(2, "so far"));
    assert_eq!(heart.says(Command::OwnedEnded(vec![persons(0xB1, 2)])), "message[1] > Wr");
    assert_eq!(heart.says(ended(0xB1, call(1, 0))), "message[1] turn > W");
    assert_eq!(heart.says(Command::OwnedEnded(vec![persons(0xB1, 2)])), "S");
}

/// A quiet child whose first run is over.
fn quiet(rules: Rules) -> Heart {
    Heart::child().under(rules).then(admitted()).then(answers(1, "done"))
}

fn a_continue_comes_twice(rules: Rules) -> String {
    let mut heart = quiet(rules);
    let first = heart.says(continued(call(5, 0), None));
    let again = heart.says(continued(call(5, 0), None));
    heart = heart.then(Command::Admitted { run: RunNo(2), owner_over: None }).then(answers(2, "done"));
    format!("{first}; {again}; {}", heart.says(continued(call(5, 0), None)))
}

#[test]
fn rule_6_a_continue_is_answered_once() {
    assert_eq!(a_continue_comes_twice(Rules::ALL), "accepted opened > Q; S; S");
    let mut refused = Heart::child();
    assert_eq!(refused.says(continued(call(5, 0), None)), "continue_refused > Q");
    assert_eq!(refused.says(continued(call(5, 0), None)), "S");
    let mut quiet = refused.then(admitted()).then(answers(1, "done")).refolded();
    assert_eq!(quiet.says(continued(call(5, 0), None)), "S", "its owner was refused: it stays refused");
    assert_eq!(quiet.says(continued(call(6, 0), None)), "accepted opened > Q");
}

/// Returns the notifications and rows of a refusal.
fn a_refusal_is_told(rules: Rules) -> String {
    let mut heart = Heart::child().under(rules);
    let before = Before::of(&heart.state);
    let decision = heart.tell(continued(call(5, 0), None)).unwrap();
    let sent = decision.effects.iter().filter(|effect| matches!(effect, Effect::DeliverCompletion { .. })).count();
    let rows = rules.changes(&before, &heart.state, &decision.records, Stamp::default());
    format!("{sent} notified, {} put, {} taken", rows.put.len(), rows.take.len())
}

#[test]
fn rule_6_a_refusal_is_a_notice() {
    assert_eq!(a_refusal_is_told(Rules::ALL), "1 notified, 1 put, 1 taken");
}

#[test]
fn rule_6_the_owner_refuses_while_its_own_key_is_open() {
    let mut heart = owner(Rules::ALL).then(calls(2, vec![CallKind::Continue(Mode::Blocking)]));
    assert_eq!(heart.says(go_on(2, Mode::Blocking, &[(0, 0xB1)])), "+0 -0:error turn > W");
    let owned: Vec<_> = heart.state.run.unwrap().owned.into_keys().collect();
    assert_eq!(owned, [call(1, 0)]);
}

fn a_continue_of_an_owner_that_is_over(rules: Rules) -> String {
    quiet(rules).says(continued(call(5, 0), Some(OutcomeKind::Failed)))
}

#[test]
fn rule_7_a_continue_checks_that_its_owner_is_in_flight() {
    assert_eq!(a_continue_of_an_owner_that_is_over(Rules::ALL), "accepted opened ended(cancelled) > E");
}

fn a_continue_of_a_closed_session(rules: Rules) -> String {
    quiet(rules).then(Command::Close { by: By::Person }).says(continued(call(5, 0), None))
}

#[test]
fn a_closed_session_refuses_to_go_on() {
    assert_eq!(a_continue_of_a_closed_session(Rules::ALL), "continue_refused > E");
}

fn the_tree_is_cancelled_while_an_input_waits(rules: Rules) -> String {
    let mut heart = Heart::root().under(rules).then(send(1, "go")).then(send(2, "next"));
    let cancelled = heart.says(cancel_tree());
    format!("{cancelled}; {}", heart.says(attempt_failed(1, 1, ModelFail::Dropped)))
}

#[test]
fn rule_9_after_a_cancel_of_the_tree_the_queue_stands() {
    let expected = "closing(cancelled) Done > Hc; discarded ended(cancelled) > E";
    assert_eq!(the_tree_is_cancelled_while_an_input_waits(Rules::ALL), expected);
}

fn a_cancel_of_an_earlier_run(rules: Rules) -> String {
    quiet(rules).then(continued(call(5, 0), None)).says(owner_cancels(call(1, 0)))
}

#[test]
fn rule_5_a_cancel_is_for_the_run_that_its_key_opened() {
    assert_eq!(a_cancel_of_an_earlier_run(Rules::ALL), "S");
}

/// The children that an interrupt reaches after the call of 0xB1 was moved to the background.
fn an_interrupt_after_the_move(rules: Rules) -> String {
    let moved = Heart::root()
        .under(rules)
        .then(send(1, "go"))
        .then(calls(1, vec![blocking(), writes()]))
        .then(spawn(1, Mode::Blocking, &[(0, 0xB1)]))
        .then(Command::Background { call: call(1, 0) });
    reached(moved)
}

#[test]
fn rule_9_what_was_moved_to_the_background_is_in_the_background() {
    assert_eq!(an_interrupt_after_the_move(Rules::ALL), "");
}

fn admission_asks_for_the_owner(rules: Rules) -> String {
    let mut heart = Heart::child().under(rules);
    heart.says(Command::Admitted { run: RunNo(1), owner_over: Some(OutcomeKind::Cancelled) })
}

#[test]
fn rule_7_admission_checks_that_the_owner_is_in_flight() {
    assert_eq!(admission_asks_for_the_owner(Rules::ALL), "ended(cancelled) > E");
}

#[test]
fn rule_7_run_consumes_its_inputs_and_later_ones_open_the_next() {
    let mut alone = Heart::child();
    assert_eq!(alone.says(cancel()), "ended(cancelled) Done > E");
    let mut later = Heart::child().then(send(7, "a person asks"));
    assert_eq!(later.says(cancel()), "ended(cancelled) opened Done > Q");
    assert_eq!(later.state.run.unwrap().opened.inputs, [input_id(7)]);
}

fn a_slot_request_takes_its_input(rules: Rules) -> String {
    let mut heart = Heart::child()
        .under(rules)
        .then(admitted())
        .then(calls(1, vec![background()]))
        .then(spawn(1, Mode::Background, &[(0, 0xB1)]))
        .then(answers(2, "so far"));
    heart.says(steer(5, "and then"))
}

#[test]
fn rule_8_inputs_are_taken_in_the_batch_that_asks_for_the_slot() {
    assert_eq!(a_slot_request_takes_its_input(Rules::ALL), "accepted taken parked(slot) > Wr");
}

fn an_answer_of_another_attempt(rules: Rules) -> String {
    let mut heart = Heart::root().under(rules).then(send(1, "go"));
    heart.says(answer(1, 2, Some("late"), Vec::new(), Stop::End))
}

#[test]
fn rule_9_a_completion_that_is_not_awaited_is_stale() {
    assert_eq!(an_answer_of_another_attempt(Rules::ALL), "S");
}

fn an_end_tells_its_owner(rules: Rules) -> String {
    let mut heart = Heart::child().under(rules).then(admitted());
    let before = Before::of(&heart.state);
    let decision = heart.tell(answers(1, "done")).unwrap();
    let sent = decision.effects.iter().filter(|effect| matches!(effect, Effect::DeliverCompletion { .. })).count();
    let rows = rules.changes(&before, &heart.state, &decision.records, Stamp::default());
    format!("{sent} notified, {} rows", rows.put.len())
}

#[test]
fn an_end_obliges_its_owner_to_hear_of_it() {
    assert_eq!(an_end_tells_its_owner(Rules::ALL), "1 notified, 1 rows");
}

fn a_cancel_comes_late(rules: Rules) -> String {
    Heart::root().under(rules).then(send(1, "go")).then(answers(1, "done")).says(cancel())
}

#[test]
fn an_end_never_changes() {
    assert_eq!(a_cancel_comes_late(Rules::ALL), "AE(completed) > E");
}

fn a_fast_child_ends_before_its_sibling_is_born(rules: Rules) -> String {
    let mut heart = Heart::root()
        .under(rules)
        .then(send(1, "go"))
        .then(calls(1, vec![blocking(), blocking()]))
        .then(spawn(1, Mode::Blocking, &[(0, 0xB1)]));
    heart.says(ended(0xB1, call(1, 0)))
}

#[test]
fn open_calls_are_counted_from_the_answer() {
    assert_eq!(a_fast_child_ends_before_its_sibling_is_born(Rules::ALL), "result > W");
}

/// The children that an interrupt reaches in a run that waits for 0xB1 and has 0xB2 in the background.
fn an_interrupt_reaches(rules: Rules) -> String {
    let heart = Heart::root()
        .under(rules)
        .then(send(1, "go"))
        .then(calls(1, vec![blocking(), background()]))
        .then(spawn(1, Mode::Blocking, &[(0, 0xB1)]))
        .then(spawn(1, Mode::Background, &[(1, 0xB2)]));
    reached(heart)
}

/// The children whose runs an interrupt cancels.
fn reached(mut heart: Heart) -> String {
    let effects = heart.tell(interrupt()).unwrap().effects;
    let reached = effects.iter().filter_map(|effect| match effect {
        Effect::CancelChild { child, .. } => Some(child.0.as_u128()),
        _ => None,
    });
    reached.map(|child| format!("{child:x}")).collect::<Vec<_>>().join(" ")
}

#[test]
fn an_interrupt_reaches_every_blocking_child_and_no_other() {
    assert_eq!(an_interrupt_reaches(Rules::ALL), "b1");
}

#[test]
fn every_seeded_bug_shows() {
    use subtend_invariants::bugs::Bug;
    type Story = fn(Rules) -> String;
    let stories: [(Bug, Story); 20] = [
        (Bug::RowsLeftPending, rows_are_taken_at_a_boundary),
        (Bug::NoCheckAfterLast, the_last_child_is_followed_by_the_check),
        (Bug::CallsLeftOpen, an_end_answers_unstarted_calls),
        (Bug::UnstartedForgotten, a_new_activation_starts_unstarted_calls),
        (Bug::RowTakenTwice, a_row_arrives_twice),
        (Bug::OwnerNotChecked, admission_asks_for_the_owner),
        (Bug::SlotWithoutTaking, a_slot_request_takes_its_input),
        (Bug::StaleAccepted, an_answer_of_another_attempt),
        (Bug::NoOutbox, an_end_tells_its_owner),
        (Bug::EndTwice, a_cancel_comes_late),
        (Bug::OpenCallsFromLiveSet, a_fast_child_ends_before_its_sibling_is_born),
        (Bug::InterruptEndsAll, an_interrupt_reaches),
        (Bug::InterruptStopsHere, an_interrupt_reaches),
        (Bug::ContinueTwice, a_continue_comes_twice),
        (Bug::ContinueRefusedSilently, a_refusal_is_told),
        (Bug::ContinueOfOver, a_continue_of_an_owner_that_is_over),
        (Bug::QueueOpensAfterTreeCancel, the_tree_is_cancelled_while_an_input_waits),
        (Bug::ClosedTakesContinue, a_continue_of_a_closed_session),
        (Bug::CancelReachesNextRun, a_cancel_of_an_earlier_run),
        (Bug::BackgroundStaysBlocking, an_interrupt_after_the_move),
    ];
    // Scenarios of asks, budgets and branches are next to their tests.
    assert_eq!(stories.map(|(bug, _)| bug), Bug::ALL[..stories.len()]);
    for (bug, story) in stories {
        assert_ne!(story(Rules::without(bug)), story(Rules::ALL), "{bug:?} does not show");
    }
}

/// A seeded bug fails the scenario of its rule and no other: the test detects the rule, not general damage.
#[test]
fn a_seeded_bug_is_the_rule_alone() {
    use subtend_invariants::bugs::Bug;
    let with = |bug| Rules::without(bug);
    let live = || Heart::root().under(with(Bug::OpenCallsFromLiveSet)).then(send(1, "go"));
    let mut children = live();
    assert_eq!(children.says(calls(1, vec![blocking(), blocking()])), "answered > W", "none is born yet");
    assert_eq!(children.says(spawn(1, Mode::Blocking, &[(0, 0xB1)])), "+0 spawned > W");
    assert_eq!(live().then(calls(1, vec![reads(), reads()])).says(tool(1, 0, "read")), "-0:ok > W", "one is active");
    assert_eq!(live().says(answers(1, "done")), "answered ended(completed) > E", "it asks for none");
    let mut last = Heart::root().under(with(Bug::NoCheckAfterLast)).then(send(1, "go")).then(calls(1, vec![reads()]));
    assert_eq!(last.says(tool(1, 0, "read")), "-0:ok > W", "a tool is local work as a stream is");
    let mut slotted = Heart::child().under(with(Bug::SlotWithoutTaking)).then(admitted()).then(steer(5, "then"));
    assert_eq!(slotted.says(answers(1, "so far")), "answered taken turn > W", "it has its slot");
    let mut moved = Heart::root()
        .under(with(Bug::BackgroundStaysBlocking))
        .then(send(1, "go"))
        .then(calls(1, vec![blocking(), writes(), background()]));
    moved = moved.then(spawn(1, Mode::Blocking, &[(0, 0xB1)])).then(spawn(1, Mode::Background, &[(2, 0xB2)]));
    assert_eq!(
        reached(moved.then(Command::Background { call: call(1, 0) })),
        "b1",
        "0xB2 was in the background always"
    );
}
