//! Rules of every cell of the table: each scenario runs with all rules and with a seeded bug. The results must differ.

use crate::given::*;

/// Returns a root whose turn 2 streams, with the background child 0xB1 in flight by call 1.0.
fn owner(rules: Rules) -> Heart {
    Heart::root().with_rules(rules).then(send(1, "go")).then(calls(1, vec![background()])).then(spawn(
        1,
        Mode::Background,
        &[(0, 0xB1)],
    ))
}

fn rows_are_taken_at_a_boundary(rules: Rules) -> String {
    let mut heart = owner(rules).then(calls(2, vec![reads()])).then(ended(0xB1, call(1, 0)));
    heart.summary(tool(2, 0, "read"))
}

fn rows_are_taken_at_an_end(rules: Rules) -> String {
    let mut heart = owner(rules).then(ended(0xB1, call(1, 0)));
    heart.summary(answer(2, 1, Some("no"), Vec::new(), Stop::Refused))
}

#[test]
fn rule_1_every_boundary_and_end_first_takes_all_pending_rows() {
    assert_eq!(rows_are_taken_at_a_boundary(Rules::ALL), "-0:ok message[1] turn > W");
    assert_eq!(rows_are_taken_at_an_end(Rules::ALL), "answered message[1] ended(failed) > E");
}

fn end_of_the_last_child_runs_the_check(rules: Rules) -> String {
    let mut heart = Heart::root().with_rules(rules).then(send(1, "go")).then(calls(1, vec![blocking()])).then(spawn(
        1,
        Mode::Blocking,
        &[(0, 0xB1)],
    ));
    heart.summary(ended(0xB1, call(1, 0)))
}

#[test]
fn rule_2_removing_the_last_open_call_runs_the_check() {
    assert_eq!(end_of_the_last_child_runs_the_check(Rules::ALL), "result turn > W");
}

fn end_answers_unstarted_calls(rules: Rules) -> String {
    let mut heart =
        Heart::root().with_rules(rules).then(send(1, "go")).then(calls(1, vec![writes(), writes(), blocking()]));
    heart.summary(cancel())
}

#[test]
fn rule_3_hold_or_end_first_answers_every_unstarted_call() {
    let expected = "-1:cancelled -2:cancelled closing(cancelled) Done > Hc";
    assert_eq!(end_answers_unstarted_calls(Rules::ALL), expected);
}

#[test]
fn rule_3_held_run_with_nothing_open_takes_a_queued_input() {
    let mut heart = Heart::root_with(Limits { turns: 2, ..Limits::default() })
        .then(send(1, "go"))
        .then(calls(1, vec![background()]))
        .then(spawn(1, Mode::Background, &[(0, 0xB1)]))
        .then(calls(2, vec![reads()]))
        .then(send(5, "one more thing"));
    assert_eq!(heart.summary(tool(2, 0, "read")), "-0:ok taken turn > W");
    assert_eq!(heart.state.run.as_ref().unwrap().spent, 0, "an input restarts the allowance");
}

fn new_activation_starts_unstarted_calls(rules: Rules) -> String {
    let heart = Heart::root().with_rules(rules).then(send(1, "go")).then(calls(1, vec![writes(), writes()]));
    heart
        .refolded()
        .summary(Command::Reactivated { calls: vec![FoundCall::plain(call(1, 1), writes())], owner_ended: None })
}

#[test]
fn rule_4_activation_starts_unstarted_calls_and_runs_check() {
    assert_eq!(new_activation_starts_unstarted_calls(Rules::ALL), "-0:unknown +1 > W");
}

fn row_arrives_twice(rules: Rules) -> String {
    let mut heart = owner(rules).then(answers(2, "so far"));
    let first = heart.summary(ended(0xB1, call(1, 0)));
    let again = heart.summary(ended(0xB1, call(1, 0)));
    let after = heart.summary(answers(3, "done"));
    format!("{first}; {again}; {after}")
}

#[test]
fn rule_5_row_is_taken_once() {
    let expected = "message[1] turn > W; S; answered ended(completed) > E";
    assert_eq!(row_arrives_twice(Rules::ALL), expected);
}

#[test]
fn rule_5_rows_of_owned_and_persons_runs_may_overtake() {
    let mut heart = owner(Rules::ALL).then(answers(2, "so far"));
    assert_eq!(heart.summary(Command::OwnedEnded(vec![persons_end(0xB1, 2)])), "message[1] > Wr");
    assert_eq!(heart.summary(ended(0xB1, call(1, 0))), "message[1] turn > W");
    assert_eq!(heart.summary(Command::OwnedEnded(vec![persons_end(0xB1, 2)])), "S");
}

/// Returns a quiet child whose first run has ended.
fn quiet(rules: Rules) -> Heart {
    Heart::child().with_rules(rules).then(admitted()).then(answers(1, "done"))
}

fn continue_arrives_twice(rules: Rules) -> String {
    let mut heart = quiet(rules);
    let first = heart.summary(continued(call(5, 0), None));
    let again = heart.summary(continued(call(5, 0), None));
    heart = heart.then(Command::Admitted { run: RunNo(2), owner_ended: None }).then(answers(2, "done"));
    format!("{first}; {again}; {}", heart.summary(continued(call(5, 0), None)))
}

#[test]
fn rule_6_continue_is_answered_once() {
    assert_eq!(continue_arrives_twice(Rules::ALL), "accepted opened > Q; S; S");
    let mut refused = Heart::child();
    assert_eq!(refused.summary(continued(call(5, 0), None)), "continue_refused > Q");
    assert_eq!(refused.summary(continued(call(5, 0), None)), "S");
    let mut quiet = refused.then(admitted()).then(answers(1, "done")).refolded();
    assert_eq!(quiet.summary(continued(call(5, 0), None)), "S", "a refused row stays refused");
    assert_eq!(quiet.summary(continued(call(6, 0), None)), "accepted opened > Q");
}

fn refusal_notifies_owner(rules: Rules) -> String {
    let mut heart = Heart::child().with_rules(rules);
    let before = Before::of(&heart.state);
    let decision = heart.decide(continued(call(5, 0), None)).unwrap();
    let sent = decision.effects.iter().filter(|effect| matches!(effect, Effect::DeliverCompletion { .. })).count();
    let rows = rules.changes(&before, &heart.state, &decision.records, Stamp::default());
    format!("{sent} notified, {} put, {} taken", rows.put.len(), rows.take.len())
}

#[test]
fn rule_6_refusal_is_a_notice() {
    assert_eq!(refusal_notifies_owner(Rules::ALL), "1 notified, 1 put, 1 taken");
}

#[test]
fn rule_6_owner_refuses_continue_while_its_key_is_open() {
    let mut heart = owner(Rules::ALL).then(calls(2, vec![CallKind::Continue(Mode::Blocking)]));
    assert_eq!(heart.summary(continue_children(2, Mode::Blocking, &[(0, 0xB1)])), "+0 -0:error turn > W");
    let owned: Vec<_> = heart.state.run.unwrap().owned.into_keys().collect();
    assert_eq!(owned, [call(1, 0)]);
}

fn continue_of_an_ended_owner(rules: Rules) -> String {
    quiet(rules).summary(continued(call(5, 0), Some(OutcomeKind::Failed)))
}

#[test]
fn rule_7_continue_checks_its_owner() {
    assert_eq!(continue_of_an_ended_owner(Rules::ALL), "accepted opened ended(cancelled) > E");
}

fn continue_of_a_closed_session(rules: Rules) -> String {
    quiet(rules).then(Command::Close { by: Initiator::Person }).summary(continued(call(5, 0), None))
}

#[test]
fn closed_session_refuses_to_continue() {
    assert_eq!(continue_of_a_closed_session(Rules::ALL), "continue_refused > E");
}

fn cancel_tree_with_a_queued_input(rules: Rules) -> String {
    let mut heart = Heart::root().with_rules(rules).then(send(1, "go")).then(send(2, "next"));
    let cancelled = heart.summary(cancel_tree());
    format!("{cancelled}; {}", heart.summary(attempt_failed(1, 1, ModelFail::Dropped)))
}

#[test]
fn rule_9_cancel_of_the_tree_keeps_the_queue() {
    let expected = "closing(cancelled) Done > Hc; discarded ended(cancelled) > E";
    assert_eq!(cancel_tree_with_a_queued_input(Rules::ALL), expected);
}

fn cancel_of_an_earlier_run(rules: Rules) -> String {
    quiet(rules).then(continued(call(5, 0), None)).summary(owner_cancels(call(1, 0)))
}

#[test]
fn rule_5_cancel_applies_to_the_run_of_its_key() {
    assert_eq!(cancel_of_an_earlier_run(Rules::ALL), "S");
}

/// Returns the children that an interrupt cancels after the call of 0xB1 was moved to the background.
fn interrupt_after_backgrounding(rules: Rules) -> String {
    let moved = Heart::root()
        .with_rules(rules)
        .then(send(1, "go"))
        .then(calls(1, vec![blocking(), writes()]))
        .then(spawn(1, Mode::Blocking, &[(0, 0xB1)]))
        .then(Command::Background { call: call(1, 0) });
    interrupted_children(moved)
}

#[test]
fn rule_9_interrupt_keeps_a_backgrounded_run() {
    assert_eq!(interrupt_after_backgrounding(Rules::ALL), "");
}

fn admission_with_an_ended_owner(rules: Rules) -> String {
    let mut heart = Heart::child().with_rules(rules);
    heart.summary(Command::Admitted { run: RunNo(1), owner_ended: Some(OutcomeKind::Cancelled) })
}

#[test]
fn rule_7_admission_checks_the_owner() {
    assert_eq!(admission_with_an_ended_owner(Rules::ALL), "ended(cancelled) > E");
}

#[test]
fn rule_7_run_consumes_its_inputs_and_later_ones_open_the_next() {
    let mut alone = Heart::child();
    assert_eq!(alone.summary(cancel()), "ended(cancelled) Done > E");
    let mut later = Heart::child().then(send(7, "a person asks"));
    assert_eq!(later.summary(cancel()), "ended(cancelled) opened Done > Q");
    assert_eq!(later.state.run.unwrap().opened.inputs, [input_id(7)]);
}

fn slot_request_takes_its_input(rules: Rules) -> String {
    let mut heart = Heart::child()
        .with_rules(rules)
        .then(admitted())
        .then(calls(1, vec![background()]))
        .then(spawn(1, Mode::Background, &[(0, 0xB1)]))
        .then(answers(2, "so far"));
    heart.summary(steer(5, "and then"))
}

#[test]
fn rule_8_inputs_are_taken_with_the_slot_request() {
    assert_eq!(slot_request_takes_its_input(Rules::ALL), "accepted taken parked(slot) > Wr");
}

fn answer_of_another_attempt(rules: Rules) -> String {
    let mut heart = Heart::root().with_rules(rules).then(send(1, "go"));
    heart.summary(answer(1, 2, Some("late"), Vec::new(), Stop::End))
}

#[test]
fn rule_9_unawaited_completion_is_stale() {
    assert_eq!(answer_of_another_attempt(Rules::ALL), "S");
}

fn end_notifies_owner(rules: Rules) -> String {
    let mut heart = Heart::child().with_rules(rules).then(admitted());
    let before = Before::of(&heart.state);
    let decision = heart.decide(answers(1, "done")).unwrap();
    let sent = decision.effects.iter().filter(|effect| matches!(effect, Effect::DeliverCompletion { .. })).count();
    let rows = rules.changes(&before, &heart.state, &decision.records, Stamp::default());
    format!("{sent} notified, {} rows", rows.put.len())
}

#[test]
fn end_adds_a_notice_row_for_its_owner() {
    assert_eq!(end_notifies_owner(Rules::ALL), "1 notified, 1 rows");
}

fn late_cancel(rules: Rules) -> String {
    Heart::root().with_rules(rules).then(send(1, "go")).then(answers(1, "done")).summary(cancel())
}

#[test]
fn recorded_end_never_changes() {
    assert_eq!(late_cancel(Rules::ALL), "AE(completed) > E");
}

fn fast_child_ends_before_its_sibling_is_spawned(rules: Rules) -> String {
    let mut heart = Heart::root()
        .with_rules(rules)
        .then(send(1, "go"))
        .then(calls(1, vec![blocking(), blocking()]))
        .then(spawn(1, Mode::Blocking, &[(0, 0xB1)]));
    heart.summary(ended(0xB1, call(1, 0)))
}

#[test]
fn open_calls_are_counted_from_the_answer() {
    assert_eq!(fast_child_ends_before_its_sibling_is_spawned(Rules::ALL), "result > W");
}

/// Returns the children that an interrupt cancels in a run that waits for 0xB1 and has 0xB2 in the background.
fn interrupt_with_both_kinds_of_children(rules: Rules) -> String {
    let heart = Heart::root()
        .with_rules(rules)
        .then(send(1, "go"))
        .then(calls(1, vec![blocking(), background()]))
        .then(spawn(1, Mode::Blocking, &[(0, 0xB1)]))
        .then(spawn(1, Mode::Background, &[(1, 0xB2)]));
    interrupted_children(heart)
}

fn interrupted_children(mut heart: Heart) -> String {
    let effects = heart.decide(interrupt()).unwrap().effects;
    let interrupted_children = effects.iter().filter_map(|effect| match effect {
        Effect::CancelChild { child, .. } => Some(child.0.as_u128()),
        _ => None,
    });
    interrupted_children.map(|child| format!("{child:x}")).collect::<Vec<_>>().join(" ")
}

#[test]
fn interrupt_cancels_only_blocking_children() {
    assert_eq!(interrupt_with_both_kinds_of_children(Rules::ALL), "b1");
}

#[test]
fn every_seeded_bug_is_detected() {
    use subtend_invariants::bugs::Bug;
    type Scenario = fn(Rules) -> String;
    let scenarios: [(Bug, Scenario); 20] = [
        (Bug::RowsLeftPending, rows_are_taken_at_a_boundary),
        (Bug::NoCheckAfterLast, end_of_the_last_child_runs_the_check),
        (Bug::CallsLeftOpen, end_answers_unstarted_calls),
        (Bug::UnstartedForgotten, new_activation_starts_unstarted_calls),
        (Bug::RowTakenTwice, row_arrives_twice),
        (Bug::OwnerNotChecked, admission_with_an_ended_owner),
        (Bug::SlotWithoutTaking, slot_request_takes_its_input),
        (Bug::StaleAccepted, answer_of_another_attempt),
        (Bug::NoOutbox, end_notifies_owner),
        (Bug::EndTwice, late_cancel),
        (Bug::OpenCallsFromLiveSet, fast_child_ends_before_its_sibling_is_spawned),
        (Bug::InterruptEndsAll, interrupt_with_both_kinds_of_children),
        (Bug::InterruptStopsHere, interrupt_with_both_kinds_of_children),
        (Bug::ContinueTwice, continue_arrives_twice),
        (Bug::ContinueRefusedSilently, refusal_notifies_owner),
        (Bug::ContinueOfOver, continue_of_an_ended_owner),
        (Bug::QueueOpensAfterTreeCancel, cancel_tree_with_a_queued_input),
        (Bug::ClosedTakesContinue, continue_of_a_closed_session),
        (Bug::CancelReachesNextRun, cancel_of_an_earlier_run),
        (Bug::BackgroundStaysBlocking, interrupt_after_backgrounding),
    ];
    // The scenarios of asks, budgets and branches are in the modules of those tests.
    assert_eq!(scenarios.map(|(bug, _)| bug), Bug::ALL[..scenarios.len()]);
    for (bug, scenario) in scenarios {
        assert_ne!(scenario(Rules::without(bug)), scenario(Rules::ALL), "{bug:?} does not show");
    }
}

/// Each seeded bug changes only the scenario of its rule: a test detects the broken rule rather than general damage.
#[test]
fn seeded_bug_breaks_only_its_rule() {
    use subtend_invariants::bugs::Bug;
    let with = |bug| Rules::without(bug);
    let live = || Heart::root().with_rules(with(Bug::OpenCallsFromLiveSet)).then(send(1, "go"));
    let mut children = live();
    assert_eq!(children.summary(calls(1, vec![blocking(), blocking()])), "answered > W", "no child is spawned yet");
    assert_eq!(children.summary(spawn(1, Mode::Blocking, &[(0, 0xB1)])), "+0 spawned > W");
    assert_eq!(
        live().then(calls(1, vec![reads(), reads()])).summary(tool(1, 0, "read")),
        "-0:ok > W",
        "one tool is active"
    );
    assert_eq!(live().summary(answers(1, "done")), "answered ended(completed) > E", "the answer has no calls");
    let mut last =
        Heart::root().with_rules(with(Bug::NoCheckAfterLast)).then(send(1, "go")).then(calls(1, vec![reads()]));
    assert_eq!(last.summary(tool(1, 0, "read")), "-0:ok > W", "a tool is local work too");
    let mut slotted = Heart::child().with_rules(with(Bug::SlotWithoutTaking)).then(admitted()).then(steer(5, "then"));
    assert_eq!(slotted.summary(answers(1, "so far")), "answered taken turn > W", "the run has its slot");
    let mut moved = Heart::root()
        .with_rules(with(Bug::BackgroundStaysBlocking))
        .then(send(1, "go"))
        .then(calls(1, vec![blocking(), writes(), background()]));
    moved = moved.then(spawn(1, Mode::Blocking, &[(0, 0xB1)])).then(spawn(1, Mode::Background, &[(2, 0xB2)]));
    assert_eq!(
        interrupted_children(moved.then(Command::Background { call: call(1, 0) })),
        "b1",
        "0xB2 was always in the background"
    );
}
