use crate::given::*;
use proptest::prelude::*;
use subtend_session::compaction;
use subtend_session::state::{Alternative, Alternatives, MessageRange};

use crate::alternatives::{completed, regenerate, step, switch};
use crate::branches::{CHILD, human, inherits, points, refusal, shown_messages, talked};

fn roll_back(run: Option<u32>) -> Command {
    Command::RollBack { run: run.map(RunNo), by: Initiator::Person }
}

fn rolled_back(run: u32) -> Record {
    Record::RolledBack { run: RunNo(run), by: Initiator::Person }
}

/// Returns a session with a completed run, and a cancelled run with a tool call and a steering input.
fn failed() -> Heart {
    let heart = Heart::root().then(send(1, "one")).then(answers(1, "first")).then(send(2, "two"));
    let tool_used = heart.then(calls(2, vec![reads()])).then(steer(3, "left")).then(tool(2, 0, "read"));
    tool_used.then(cancel()).then(attempt_failed(3, 1, ModelFail::Dropped))
}

/// Returns a truncated answer. The second in a row fails the run.
fn cut(turn: u32, text: &str) -> Command {
    answer(turn, 1, Some(text), Vec::new(), Stop::Length)
}

fn visible_text(heart: &Heart) -> String {
    shown_messages(&visible(&heart.state))
}

const ALL: &str = "U:one A:first U:two A+1 R:read U:left";

#[test]
fn rollback_hides_messages_and_keeps_the_journal() {
    let mut heart = failed();
    assert_eq!(visible_text(&heart), ALL);
    let decision = heart.decide(roll_back(None)).unwrap();
    assert_eq!((decision.records, decision.reply), (vec![rolled_back(2)], Reply::Done(RunNo(2))));
    assert_eq!(visible_text(&heart), "U:one A:first");
    assert_eq!(shown_messages(&heart.state.transcript), ALL, "nothing is deleted");
    assert_eq!(visible_text(&heart.refolded()), "U:one A:first", "the messages stay hidden after a restart");
    let heart = heart.then(send(4, "three"));
    assert_eq!(
        shown_messages(&context(&heart.state).messages),
        "U:one A:first U:three",
        "a later run continues from the visible messages"
    );
}

#[test]
fn repeated_rollback_changes_nothing() {
    let mut heart = failed().then(roll_back(Some(2)));
    let before = heart.state.clone();
    for run in [None, Some(2)] {
        let decision = heart.decide(roll_back(run)).unwrap();
        assert_eq!((decision.records, decision.reply), (Vec::new(), Reply::Done(RunNo(2))));
        assert_eq!(heart.state, before);
    }
}

#[test]
fn rollback_of_a_completed_or_unknown_run_is_refused() {
    let mut heart = Heart::root();
    assert_eq!(refusal(&mut heart, roll_back(None)), "the session has no run to roll back");
    let mut heart = failed();
    let completed = "run 1 completed: only a run that did not complete can be rolled back; branch off before it, or \
                     regenerate its answer";
    assert_eq!(refusal(&mut heart, roll_back(Some(1))), completed);
    for none in [0, 3] {
        let why = format!("the session has no run {none}: its runs are 1 to 2");
        assert_eq!(refusal(&mut heart, roll_back(Some(none))), why);
    }
    let mut heart = heart.then(send(4, "three"));
    let why = "a run is in flight: wait for its end, or cancel it";
    assert_eq!(heart.decide(roll_back(Some(2))), Err(Rejection::Working { command: "roll back", why }));
}

#[test]
fn rollback_hides_only_its_own_run() {
    let heart = failed().then(send(4, "three")).then(cancel()).then(attempt_failed(4, 1, ModelFail::Dropped));
    let heart = heart.then(send(5, "four")).then(answers(5, "fourth"));
    assert_eq!(visible_text(&heart), format!("{ALL} U:three U:four A:fourth"));
    let heart = heart.then(roll_back(Some(2)));
    assert_eq!(visible_text(&heart), "U:one A:first U:three U:four A:fourth");
    assert_eq!(visible_text(&heart.then(roll_back(Some(3)))), "U:one A:first U:four A:fourth");
}

fn branch_after_rollback(rules: Rules) -> String {
    let mut heart = failed().with_rules(rules).then(roll_back(None)).then(send(4, "three")).then(answers(4, "third"));
    inherits(&mut heart, human(CHILD, None))
}

#[test]
fn later_branch_omits_rolled_back_messages() {
    assert_eq!(branch_after_rollback(Rules::ALL), "U:one A:first U:three A:third");
}

#[test]
fn seeded_bug_of_rollbacks_is_detected() {
    use subtend_invariants::bugs::Bug;
    let rules = Rules::without(Bug::RolledBackSeen);
    assert_eq!(branch_after_rollback(rules), format!("{ALL} U:three A:third"));
}

#[test]
fn hidden_messages_refuse_branch_and_regenerate() {
    let mut heart = failed();
    let [_, _, user, answer, _] = points(&heart)[..] else { panic!() };
    let mut heart = heart.decide(roll_back(None)).map(|_| heart).unwrap();
    let why = |at: u64| format!("message {at} is hidden, because run 2 was rolled back: choose a visible message");
    for at in [user, answer] {
        assert_eq!(refusal(&mut heart, human(CHILD, Some(at))), why(at));
    }
    assert_eq!(refusal(&mut heart, regenerate(CHILD, Some(answer))), why(answer));
    assert_eq!(inherits(&mut heart, regenerate(CHILD, None)), "", "the last visible answer is regenerated");
}

#[test]
fn alternatives_within_a_rolled_back_run_are_hidden_with_it() {
    // The answer of run 1 and an answer of run 2 each have an alternative. Run 2 fails after its answer.
    let heart = Heart::root().then(send(1, "one")).then(answers(1, "first")).then(regenerate(CHILD, None));
    let heart = heart.then(completed(CHILD, "other"));
    let heart = heart.then(send(2, "two")).then(cut(2, "half")).then(cut(3, "more"));
    assert_eq!(visible_text(&heart), "U:one A:other U:two A:half P A:more");
    let last = *points(&heart).last().unwrap();
    let heart = heart.then(regenerate(0xC2, Some(last))).then(completed(0xC2, "whole"));
    assert_eq!(visible_text(&heart), "U:one A:other U:two A:whole");
    let mut heart = heart.then(roll_back(None));
    assert_eq!(visible_text(&heart), "U:one A:other");
    let why = format!("message {last} is hidden, because run 2 was rolled back: choose a visible message");
    let back = |of| Command::Switch { of, to: SwitchTo::Index(0), by: Initiator::Person };
    assert_eq!(refusal(&mut heart, back(Some(Seq(last)))), why);
    assert_eq!(
        visible_text(&heart.clone().then(back(None))),
        "U:one A:first",
        "the last visible answer keeps its alternatives"
    );
    let heart = heart.then(send(3, "three")).then(answers(4, "third"));
    let mut heart = heart.then(regenerate(0xC3, None));
    assert_eq!(visible_text(&heart), "U:one A:other U:three A:third");
    heart.decide(completed(0xC3, "3")).unwrap();
    assert_eq!(visible_text(&heart), "U:one A:other U:three A:3");
    assert_eq!(visible_text(&heart.then(switch(SwitchTo::Previous))), "U:one A:other U:three A:third");
}

#[test]
fn answer_before_a_hidden_run_is_the_last_again() {
    let heart = Heart::root().then(send(1, "one")).then(answers(1, "first")).then(regenerate(CHILD, None));
    let heart = heart.then(send(2, "two")).then(cancel()).then(attempt_failed(2, 1, ModelFail::Dropped));
    let said_later = heart.clone().then(completed(CHILD, "other"));
    assert_eq!(visible_text(&said_later), "U:one A:first U:two", "a message follows the answer");
    assert_eq!(visible_text(&heart.then(roll_back(None)).then(completed(CHILD, "other"))), "U:one A:other");
}

#[test]
fn answer_before_a_hidden_run_regenerates_from_its_question() {
    let heart = talked().then(send(3, "three")).then(cancel()).then(attempt_failed(3, 1, ModelFail::Dropped));
    let first = points(&heart)[1];
    let mut heart = heart.then(roll_back(None));
    assert_eq!(inherits(&mut heart, regenerate(CHILD, Some(first))), "");
    assert_eq!(inherits(&mut heart, regenerate(0xC2, None)), "U:one A:first");
}

#[test]
fn notices_outside_a_run_are_not_rolled_back() {
    let owner = Heart::child().then(admitted()).then(calls(1, vec![background()]));
    let owner = owner.then(spawn(1, Mode::Background, &[(0, 0xB1)]));
    let owner = owner.then(Command::Lost { owner_survives: true, keeps_queue: false }).then(send(2, "two"));
    let child = owner.then(ended(0xB1, call(1, 0))).then(cancel());
    let end = child.state.transcript.len();
    assert_eq!(child.state.message_ranges[&RunNo(2)], MessageRange { from: end, to: end, hidden: false });
    assert!(visible_text(&child.then(roll_back(None))).ends_with('N'));
    let waiting = Heart::root().then(send(1, "one")).then(calls(1, vec![background()]));
    let lost = waiting.then(spawn(1, Mode::Background, &[(0, 0xB1)]));
    let lost = lost.then(Command::Lost { owner_survives: true, keeps_queue: false });
    let heart = lost.then(ended(0xB1, call(1, 0))).then(roll_back(None));
    assert_eq!(visible_text(&heart), "N", "the late notice is a message and not a call's result");
}

#[test]
fn records_that_no_decision_writes_do_not_fold() {
    let heart = failed();
    let fold = |more: &[Record]| State::fold(heart.state.id, heart.log.iter().chain(more)).map(drop).is_ok();
    assert!(fold(&[rolled_back(2)]));
    assert!(!fold(&[rolled_back(2), rolled_back(2)]), "twice");
    assert!(!fold(&[rolled_back(1)]), "the run completed");
    assert!(!fold(&[rolled_back(3)]), "unknown run");
    assert!(!fold(&[Record::SessionDeleted { by: Initiator::Person }, rolled_back(2)]), "the session is deleted");
    let working = heart.clone().then(send(4, "three"));
    assert!(State::fold(working.state.id, working.log.iter().chain(&[rolled_back(2)])).is_err(), "a run is in flight");
}

/// Returns the records of visible messages, computed from the journal without those of rolled-back runs.
fn without_hidden(heart: &Heart) -> Vec<Seq> {
    let hidden: Vec<RunNo> = heart
        .log
        .iter()
        .filter_map(|record| match record {
            Record::RolledBack { run, .. } => Some(*run),
            _ => None,
        })
        .collect();
    let mut current = RunNo(0);
    let mut shown_messages = Vec::new();
    for (seq, record) in (1..).map(Seq).zip(&heart.log) {
        match record {
            Record::RunStarted { run, .. } => current = *run,
            Record::RunEnded(_) => current = RunNo(0),
            Record::InputsTaken { .. } | Record::TurnAnswered(_) if !hidden.contains(&current) => {
                shown_messages.push(seq)
            }
            _ => {}
        }
    }
    shown_messages
}

/// An export has thousands of rolled-back runs and of selected alternatives. What a model sees takes time in proportion to their number, and so
/// does the choice of what a compaction hides. The control: without selected alternatives the original answers are seen.
#[test]
fn many_hidden_runs_and_alternatives_are_read_in_one_pass() {
    const EACH: u32 = 20_000;
    let mut state = Heart::root().state;
    let user = |seq| Message::User { seq: Seq(seq), text: "ask".into() };
    let answer =
        |seq| Message::Assistant { seq: Seq(seq), text: Some("one".into()), reasoning: None, calls: [].into() };
    let seqs = (EACH..2 * EACH).map(|n| (u64::from(2 * n), u64::from(2 * n + 1)));
    let kept = seqs.clone().flat_map(|(asked, answered)| [user(asked), answer(answered)]);
    state.transcript = Arc::new((0..EACH).map(|n| user(u64::from(n))).chain(kept).collect());
    for (at, run) in (0..EACH as usize).zip(1..) {
        state.message_ranges.insert(RunNo(run), MessageRange { from: at, to: at + 1, hidden: true });
    }
    let all = |answer: &str| vec![format!("U:ask A:{answer}"); EACH as usize].join(" ");
    assert_eq!(shown_messages(&visible(&state)), all("one"));
    for (_, answered) in seqs {
        let other = Alternative { child: session(CHILD), text: Some("other".into()), by: Initiator::Person };
        state.alternatives.insert(Seq(answered), Alternatives { branches: vec![other], active: 1 });
    }
    assert_eq!(shown_messages(&visible(&state)), all("other"));
    assert!(compaction::plan(&state).is_some_and(|cut| cut.upto > u64::from(EACH)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// The visible messages are those of runs that are not rolled back, and each call has its result.
    #[test]
    fn rollback_hides_only_its_messages_in_random_histories(
        steps in proptest::collection::vec((any::<(u8, u8, u8)>(), 0_u8..6), 0..60),
    ) {
        let mut heart = Heart::root();
        for (one, run) in steps {
            if run > 0 && heart.state.run.is_none() {
                let before = heart.state.transcript.clone();
                drop(heart.decide(roll_back(Some(u32::from(run)))));
                prop_assert_eq!(&before, &heart.state.transcript);
            }
            step(&mut heart, one);
            let shown = visible(&heart.state);
            let point = |message: &Message| match message {
                Message::User { seq, .. } | Message::Assistant { seq, .. } => Some(*seq),
                _ => None,
            };
            let originals = heart.state.alternatives.values().all(|alternatives| alternatives.active == 0);
            if originals {
                let mut shown_messages: Vec<Seq> = shown.iter().filter_map(point).collect();
                shown_messages.dedup();
                prop_assert_eq!(shown_messages, without_hidden(&heart));
            }
            let mut open = 0_usize;
            for message in shown.iter() {
                match message {
                    Message::Result { .. } => {
                        prop_assert!(open > 0, "a result has its call");
                        open -= 1;
                    }
                    Message::Assistant { calls, .. } => {
                        prop_assert_eq!(open, 0, "a call has its result before the next answer");
                        open = calls.len();
                    }
                    _ => {}
                }
            }
        }
    }
}
