//! Which record may follow: an invalid journal is refused with the reason.

use subtend_session::call::{CallEnd, CallKind};
use subtend_session::command::Command;
use subtend_session::ids::{AttemptNo, InputId, RunNo, TurnNo};
use subtend_session::outcome::By;
use subtend_session::place::Mode;
use subtend_session::record::{CallFinished, ContinueAsked, Lane, Prompt, QueueChange, Record, RunOpened};
use subtend_session::state::{Phase, State};

use crate::asks::{allow, child};
use crate::given::*;
use crate::guards::unfit;

const PUT_AWAY: Option<&str> = Some("the session is closed or deleted");
const WAITS_NOT: Option<&str> = Some("it names an input that does not wait");

fn closed() -> Heart {
    Heart::root().recorded(Record::SessionClosed { by: By::Person })
}

fn deleted(heart: Heart) -> Heart {
    heart.recorded(Record::SessionDeleted { by: By::Person })
}

fn accepted(n: u128) -> Record {
    Record::InputAccepted(Box::new(input(n, "hello", Lane::Send)))
}

fn opened(inputs: Vec<InputId>) -> Record {
    let heart = Heart::root().then(send(1, "go"));
    let opened = RunOpened { inputs, ..RunOpened::clone(&heart.state.run.unwrap().opened) };
    Record::RunOpened(Box::new(opened))
}

#[test]
fn what_is_put_away_takes_neither_an_input_nor_a_run() {
    assert_eq!((unfit(&Heart::root(), &accepted(1)), unfit(&Heart::root(), &opened(Vec::new()))), (None, None));
    for away in [closed(), deleted(Heart::root()), deleted(closed())] {
        assert_eq!((unfit(&away, &accepted(1)), unfit(&away, &opened(Vec::new()))), (PUT_AWAY, PUT_AWAY));
    }
}

#[test]
fn only_what_is_closed_and_not_deleted_is_reopened() {
    let reopened = Record::SessionReopened { by: By::Person };
    assert_eq!(unfit(&closed(), &reopened), None);
    for heart in [Heart::root(), deleted(Heart::root()), deleted(closed())] {
        assert_eq!(unfit(&heart, &reopened), Some("the session is not closed, or it is deleted"));
    }
}

#[test]
fn inputs_not_in_the_queue_are_not_taken_or_removed() {
    let heart = Heart::root().then(send(1, "go")).then(send(2, "next"));
    let taken = |ids: &[u128]| {
        let ids = ids.iter().map(|n| input_id(*n)).collect();
        unfit(&heart, &Record::InputsTaken { ids, run: RunNo(1), turn: TurnNo(2) })
    };
    assert_eq!((taken(&[2]), taken(&[]), taken(&[9]), taken(&[2, 9])), (None, WAITS_NOT, WAITS_NOT, WAITS_NOT));
    let removed = |n| {
        let change = QueueChange::Removed(vec![input_id(n)]);
        unfit(&heart, &Record::QueueChanged { change, by: By::Person })
    };
    assert_eq!((removed(2), removed(9)), (None, WAITS_NOT));
    let queued = Heart::root().recorded(accepted(1));
    assert_eq!(unfit(&queued, &opened(vec![input_id(1)])), None);
    assert_eq!(unfit(&queued, &opened(vec![input_id(9)])), WAITS_NOT);
}

#[test]
fn a_person_is_asked_for_what_is_due_and_was_not_allowed() {
    let ask = |ix| Record::AskOpened {
        call: call(1, ix),
        action: "fs.write".into(),
        resource: "a".into(),
        root: session(OWNER),
        deadline_at: None,
    };
    let not_due = Some("the call is not due, or was allowed");
    let works = Heart::root().then(send(1, "go")).then(calls(1, vec![writes(), writes()]));
    assert_eq!((unfit(&works, &ask(0)), unfit(&works, &ask(1))), (not_due, None), "the first has started");
    let allowed = child(vec![(writes(), Some("a"))]).then(allow(0));
    assert_eq!(unfit(&allowed, &ask(0)), not_due, "it waits for its slot");
}

fn finished(turn: u32, ix: u32, end: CallEnd) -> Record {
    let finished = CallFinished { call: call(turn, ix), end, content: "".into(), truncated_from: None, worked_ms: 0 };
    Record::CallFinished(Box::new(finished))
}

fn starts(turn: u32, ix: u32, kind: CallKind) -> Record {
    Record::CallStarted { call: call(turn, ix), kind: Box::new(kind), timeout_ms: None, access: None }
}

#[test]
fn a_call_starts_once_and_ends_once() {
    let heart =
        Heart::root().then(send(1, "go")).then(calls(1, vec![reads(), writes(), writes()])).then(tool(1, 0, "x"));
    assert_eq!(unfit(&heart, &starts(1, 2, writes())), None);
    assert_eq!(unfit(&heart, &starts(1, 1, writes())), Some("the call started before"));
    assert_eq!(unfit(&heart, &starts(1, 0, reads())), Some("the call has its result"));
    assert_eq!(unfit(&heart, &starts(1, 9, reads())), Some("there is no such call"));
    assert_eq!(unfit(&heart, &finished(1, 1, CallEnd::Ok)), None);
    assert_eq!(unfit(&heart, &finished(1, 0, CallEnd::Ok)), Some("the call has its result"));
    let asks = child(vec![(writes(), Some("a"))]);
    assert_eq!(unfit(&asks, &starts(1, 0, writes())), Some("a person is asked for the call"));
}

#[test]
fn only_a_blocking_call_is_moved_to_the_background() {
    let heart = Heart::root().then(send(1, "go")).then(calls(1, vec![blocking(), writes(), blocking()]));
    let heart = heart.then(spawn(1, Mode::Blocking, &[(0, 0xB1)]));
    let moved = |ix| unfit(&heart, &finished(1, ix, CallEnd::Backgrounded));
    let owns_none = Some("the call waits for no owned run");
    assert_eq!((moved(0), moved(1), moved(2)), (None, owns_none, owns_none));
}

#[test]
fn a_child_is_asked_to_go_on_while_no_run_of_it_is_owed() {
    // 0xB1 was reported; the end of 0xB2 is owed by a run that was lost.
    let lost = Heart::root()
        .then(send(1, "go"))
        .then(calls(1, vec![blocking(), background()]))
        .then(spawn(1, Mode::Blocking, &[(0, 0xB1)]))
        .then(spawn(1, Mode::Background, &[(1, 0xB2)]))
        .then(ended(0xB1, call(1, 0)))
        .then(Command::Lost { owner_survives: true, queue_stands: false })
        .then(send(2, "and now?"))
        .then(calls(3, vec![CallKind::Continue(Mode::Blocking), CallKind::Continue(Mode::Blocking)]))
        .recorded(starts(3, 0, CallKind::Continue(Mode::Blocking)));
    let request_record = |ix, child| {
        let (call, child, input, mode) = (call(3, ix), session(child), "continue".into(), Mode::Blocking);
        Record::ContinueAsked(Box::new(ContinueAsked { turns: None, tools: None, call, child, input, mode }))
    };
    let in_flight = Some("there is no such child, or its run is owned and in flight");
    assert_eq!((unfit(&lost, &request_record(0, 0xB1)), unfit(&lost, &request_record(0, 0xB2))), (None, in_flight));
    assert_eq!(
        (unfit(&lost, &request_record(0, 0xEE)), unfit(&lost, &request_record(1, 0xB1))),
        (in_flight, Some("its call did not start"))
    );
    let twice = lost.recorded(request_record(0, 0xB1)).recorded(starts(3, 1, CallKind::Continue(Mode::Blocking)));
    assert_eq!(unfit(&twice, &request_record(1, 0xB1)), in_flight);
}

#[test]
fn turns_follow_one_by_one_in_a_run_not_held_or_parked() {
    let starts = |turn, attempt| Record::TurnStarted {
        run: RunNo(1),
        turn: TurnNo(turn),
        attempt: AttemptNo(attempt),
        prompt: Prompt::Plain,
        reserved: None,
        model: "scripted".into(),
        compacts: None,
    };
    let aside = |heart: Heart| {
        let heart = heart.then(calls(1, vec![background()])).then(spawn(1, Mode::Background, &[(0, 0xB1)]));
        heart.then(answers(2, "so far"))
    };
    let rests = aside(Heart::root().then(send(1, "go")));
    let one_by_one = Some("turns are numbered one by one");
    assert_eq!(
        (unfit(&rests, &starts(3, 1)), unfit(&rests, &starts(3, 2)), unfit(&rests, &starts(4, 1))),
        (None, one_by_one, one_by_one)
    );
    let not_over = Some("the turn before it is not over");
    let streams = Heart::root().then(send(1, "go"));
    assert_eq!(unfit(&streams, &starts(2, 1)), not_over);
    assert_eq!(unfit(&streams.then(calls(1, vec![writes()])), &starts(2, 1)), not_over);
    let waits = Some("the run is held or waits");
    assert_eq!(unfit(&rests.then(interrupt()), &starts(3, 1)), waits);
    assert_eq!(unfit(&aside(Heart::child().then(admitted())), &starts(3, 1)), waits, "it gave its slot back");
}

#[test]
fn between_the_last_result_and_the_next_turn_a_run_works() {
    let heart = Heart::root()
        .then(send(1, "go"))
        .then(calls(1, vec![background(), reads()]))
        .then(spawn(1, Mode::Background, &[(0, 0xB1)]))
        .then(tool(1, 1, "read"));
    let until = heart.log.iter().rposition(|record| matches!(record, Record::TurnStarted { .. })).unwrap();
    let between = State::fold(session(ME), &heart.log[..until]).unwrap();
    assert_eq!((between.phase(), heart.state.phase()), (Phase::Working, Phase::Working));
}
