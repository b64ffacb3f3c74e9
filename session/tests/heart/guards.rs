//! Conditions of decisions and of the fold that no other test covers.

use crate::given::*;
use subtend_session::decide::arrive;
use subtend_session::record::{Carrier, From, NoticeTaken};

/// Returns why `record` may not follow in the journal of `heart`.
pub(crate) fn unfit(heart: &Heart, record: &Record) -> Option<&'static str> {
    let fold = State::fold(session(ME), heart.log.iter().chain([record]));
    fold.err().map(|error| match error {
        subtend_session::state::FoldError::Illegal { why, .. } => why,
        other => panic!("{other}"),
    })
}

#[test]
fn unrequested_slot_is_stale() {
    let mut heart = Heart::child().then(admitted());
    assert_eq!(heart.decide(admitted()), Err(Rejection::Stale("a slot")));
    let mut held = Heart::child().then(admitted()).then(calls(1, vec![writes()])).then(interrupt());
    assert_eq!(held.decide(admitted()), Err(Rejection::Stale("a slot")));
}

#[test]
fn activation_requests_only_an_awaited_slot() {
    let asks = |heart: Heart| {
        let mut heart = heart.refolded();
        let decision = heart.decide(Command::Reactivated { calls: Vec::new(), owner_ended: None }).unwrap();
        let slots = decision.effects.into_iter().filter_map(|effect| match effect {
            Effect::RequestSlot { resumed, .. } => Some(resumed),
            _ => None,
        });
        slots.collect::<Vec<_>>()
    };
    assert_eq!(asks(Heart::child()), vec![false]);
    assert_eq!(asks(Heart::child().then(admitted())), Vec::<bool>::new());
    assert_eq!(asks(Heart::root().then(send(1, "go"))), Vec::<bool>::new());
}

#[test]
fn grace_without_owned_runs_cancels_only_local_work() {
    let mut heart = Heart::root().then(send(1, "go")).then(calls(1, vec![writes()])).then(cancel());
    let decision = heart.decide(Command::Deadline(Deadline::Grace(RunNo(1)))).unwrap();
    assert!(decision.effects.contains(&Effect::CancelLocal), "{:?}", decision.effects);
    assert!(
        !decision.effects.iter().any(|effect| matches!(effect, Effect::CancelOwned { .. })),
        "{:?}",
        decision.effects
    );
}

#[test]
fn end_of_a_queued_run_releases_only_its_own_slot_request() {
    let disarms = |mut heart: Heart, command: Command| {
        let decision = heart.decide(command).unwrap();
        decision.effects.contains(&Effect::Disarm { deadline: Deadline::Queue(RunNo(1)) })
    };
    assert!(disarms(Heart::child(), cancel()));
    assert!(!disarms(Heart::child().then(admitted()), answers(1, "done")));
}

#[test]
fn run_is_parked_only_for_a_new_reason_and_not_while_held() {
    let parked = |why| Record::RunParked { run: RunNo(1), why, worked_ms: 0 };
    let heart = Heart::child().then(admitted()).then(calls(1, vec![blocking()])).then(spawn(1, MODE, &[(0, 0xB1)]));
    let reason = heart.state.run.as_ref().and_then(|run| run.parked).expect("the run is parked");
    let other = if reason == Park::Slot { Park::Ask } else { Park::Slot };
    assert_eq!(unfit(&heart, &parked(reason)), Some("the run waits for that, or is held"));
    assert_eq!(unfit(&heart, &parked(other)), None);
    let held = heart.then(interrupt());
    assert_eq!(unfit(&held, &parked(other)), Some("the run waits for that, or is held"));
}

#[test]
fn only_the_current_attempt_is_answered_or_discarded() {
    let heart = Heart::root().then(send(1, "go"));
    let answered = heart.clone().then(answers(1, "there"));
    let answer = answered.log.iter().find(|record| matches!(record, Record::TurnAnswered(_))).expect("an answer");
    assert_eq!(unfit(&heart, answer), None);
    let Record::TurnAnswered(answer) = answer else { panic!("no answer") };
    let mut other = answer.clone();
    other.attempt = AttemptNo(2);
    assert_eq!(unfit(&heart, &Record::TurnAnswered(other)), Some("no such attempt is awaited"));
    let mut other = answer.clone();
    other.turn = other.turn.next();
    assert_eq!(unfit(&heart, &Record::TurnAnswered(other)), Some("no such attempt is awaited"));
    assert_eq!(unfit(&answered, &Record::TurnAnswered(answer.clone())), Some("the run is not in flight"));
}

#[test]
fn usage_sum_with_an_unknown_part_is_unreliable() {
    let sure = Usage { input: 1, output: 2, ..Usage::default() };
    let add = |mut one: Usage, other: Usage| {
        one.add(&other);
        (one.tokens(), one.unreliable)
    };
    assert_eq!(add(sure, sure), (6, false));
    assert_eq!(add(sure, Usage { unreliable: true, ..sure }), (6, true));
    assert_eq!(add(Usage { unreliable: true, ..sure }, sure), (6, true));
    assert_eq!(add(Usage { unreliable: true, ..sure }, Usage { unreliable: true, ..sure }), (6, true));
}

const MODE: subtend_session::place::Mode = subtend_session::place::Mode::Blocking;

#[test]
fn full_queue_rejects_input_in_every_queueing_phase() {
    let full = || Heart::child_with(Limits { queue: 1, ..Limits::default() }, 50);
    let works = || full().then(admitted());
    let waits = || works().then(calls(1, vec![blocking()])).then(spawn(1, MODE, &[(0, 0xB1)]));
    let aside = || works().then(calls(1, vec![CHILD])).then(spawn(1, BACKGROUND, &[(0, 0xB1)]));
    let columns = [
        ("Q", full()),
        ("W", works()),
        ("Wm", waits()),
        ("Wr", aside().then(answers(2, "so far"))),
        ("Hi", waits().then(interrupt())),
        ("Hi", works().then(calls(1, vec![writes()])).then(interrupt())),
        ("Hc", works().then(cancel())),
    ];
    for (column, heart) in columns {
        let mut heart = heart.then(send(70, "waits"));
        assert_eq!(crate::given::column(heart.state.phase()), column);
        let busy = Rejection::Busy { what: "the session's queue", limit: 1 };
        assert_eq!(heart.decide(send(71, "one too many")), Err(busy), "{column}");
    }
    let mut quiet = works().then(send(70, "waits")).then(cancel_tree()).then(answers(1, "late"));
    assert_eq!(
        quiet.summary(send(71, "continue")),
        "accepted opened > Q",
        "opening a run takes an input from the queue"
    );
}

#[test]
fn reopening_records_the_originator_of_the_input() {
    let reopened = |from| {
        let mut heart = Heart::root().recorded(Record::SessionClosed { by: Initiator::Person });
        let Command::Submit(mut input) = send(1, "hello") else { panic!("no input") };
        input.from = from;
        heart.decide(Command::Submit(input)).unwrap().records.remove(0)
    };
    assert_eq!(reopened(From::Person), Record::SessionReopened { by: Initiator::Person });
    assert_eq!(reopened(From::Host), Record::SessionReopened { by: Initiator::Host });
}

#[test]
fn answer_schema_may_fill_its_limit() {
    let Command::Submit(mut input) = send(1, "a person?") else { panic!("no input") };
    input.format = Some("x".repeat(64 << 10).into());
    assert!(Heart::root().decide(Command::Submit(input)).is_ok());
}

#[test]
fn arrived_rows_are_taken_without_the_check_after_an_end() {
    let heart = Heart::root().then(send(1, "go")).then(calls(1, vec![blocking()])).then(spawn(1, MODE, &[(0, 0xB1)]));
    let mut state = heart.refolded().state;
    let row = notice(0xB1, call(1, 0), Outcome::Completed, "done");
    let taken = NoticeTaken { items: vec![row.clone()], carrier: Carrier::Result };
    let expected = Decision {
        records: vec![Record::NoticeTaken(Box::new(taken))],
        effects: vec![Effect::Unload],
        ..Decision::default()
    };
    assert_eq!(arrive(&mut state, vec![row.clone()], clock()), expected, "no turn follows");
    assert_eq!(arrive(&mut state, vec![row], clock()), Decision::default(), "a row is taken once");
}

#[test]
fn await_of_all_ignores_ends_of_other_runs() {
    let heart = Heart::root().then(send(1, "go")).then(calls(1, vec![CHILD])).then(spawn(1, BACKGROUND, &[(0, 0xB1)]));
    let mut heart = heart.then(calls(2, vec![CallKind::Await { all: true, runs: Vec::new() }]));
    assert_eq!(heart.summary(Command::OwnedEnded(vec![persons_end(0xB1, 2)])), "> Wm");
    assert_eq!(heart.summary(ended(0xB1, call(1, 0))), "await[1] message[1] turn > W");
}

const CHILD: CallKind = CallKind::Child(BACKGROUND);
const BACKGROUND: subtend_session::place::Mode = subtend_session::place::Mode::Background;
