//! The order of records: the fold refuses an invalid journal with the reason.

use crate::given::*;
use subtend_session::record::{ContinueAsked, Prompt};

use crate::asks::{allow, child};
use crate::guards::unfit;

const CLOSED_OR_DELETED: Option<&str> = Some("the session is closed or deleted");
const NOT_QUEUED: Option<&str> = Some("it names an input that is not queued");

fn closed() -> Heart {
    Heart::root().recorded(Record::SessionClosed { by: Initiator::Person })
}

fn deleted(heart: Heart) -> Heart {
    heart.recorded(Record::SessionDeleted { by: Initiator::Person })
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
fn closed_or_deleted_session_takes_no_input_or_run() {
    assert_eq!((unfit(&Heart::root(), &accepted(1)), unfit(&Heart::root(), &opened(Vec::new()))), (None, None));
    for heart in [closed(), deleted(Heart::root()), deleted(closed())] {
        assert_eq!(
            (unfit(&heart, &accepted(1)), unfit(&heart, &opened(Vec::new()))),
            (CLOSED_OR_DELETED, CLOSED_OR_DELETED)
        );
    }
}

#[test]
fn only_a_closed_session_is_reopened() {
    let reopened = Record::SessionReopened { by: Initiator::Person };
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
    assert_eq!((taken(&[2]), taken(&[]), taken(&[9]), taken(&[2, 9])), (None, NOT_QUEUED, NOT_QUEUED, NOT_QUEUED));
    let removed = |n| {
        let change = QueueChange::Removed(vec![input_id(n)]);
        unfit(&heart, &Record::QueueChanged { change, by: Initiator::Person })
    };
    assert_eq!((removed(2), removed(9)), (None, NOT_QUEUED));
    let queued = Heart::root().recorded(accepted(1));
    assert_eq!(unfit(&queued, &opened(vec![input_id(1)])), None);
    assert_eq!(unfit(&queued, &opened(vec![input_id(9)])), NOT_QUEUED);
}

#[test]
fn ask_opens_only_for_a_due_call_without_approval() {
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
    assert_eq!(unfit(&allowed, &ask(0)), not_due, "the approved call waits for a slot");
}

fn finished(turn: u32, ix: u32, end: CallEnd) -> Record {
    let finished = CallFinished { call: call(turn, ix), end, content: "".into(), truncated_from: None, worked_ms: 0 };
    Record::CallFinished(Box::new(finished))
}

fn starts(turn: u32, ix: u32, kind: CallKind) -> Record {
    Record::CallStarted { call: call(turn, ix), kind: Box::new(kind), timeout_ms: None, access: None }
}

#[test]
fn call_starts_once_and_ends_once() {
    let heart =
        Heart::root().then(send(1, "go")).then(calls(1, vec![reads(), writes(), writes()])).then(tool(1, 0, "x"));
    assert_eq!(unfit(&heart, &starts(1, 2, writes())), None);
    assert_eq!(unfit(&heart, &starts(1, 1, writes())), Some("the call started before"));
    assert_eq!(unfit(&heart, &starts(1, 0, reads())), Some("the call has its result"));
    assert_eq!(unfit(&heart, &starts(1, 9, reads())), Some("the call does not exist"));
    assert_eq!(unfit(&heart, &finished(1, 1, CallEnd::Ok)), None);
    assert_eq!(unfit(&heart, &finished(1, 0, CallEnd::Ok)), Some("the call has its result"));
    let asks = child(vec![(writes(), Some("a"))]);
    assert_eq!(unfit(&asks, &starts(1, 0, writes())), Some("the call awaits approval"));
}

#[test]
fn only_a_blocking_child_call_moves_to_background() {
    let heart = Heart::root().then(send(1, "go")).then(calls(1, vec![blocking(), writes(), blocking()]));
    let heart = heart.then(spawn(1, Mode::Blocking, &[(0, 0xB1)]));
    let moved = |ix| unfit(&heart, &finished(1, ix, CallEnd::Backgrounded));
    let owns_none = Some("the call does not wait for an owned run");
    assert_eq!((moved(0), moved(1), moved(2)), (None, owns_none, owns_none));
}

#[test]
fn child_is_continued_only_without_an_open_run() {
    // The end of 0xB1 was taken. The end of 0xB2 is owed to a lost run.
    let lost = Heart::root()
        .then(send(1, "go"))
        .then(calls(1, vec![blocking(), background()]))
        .then(spawn(1, Mode::Blocking, &[(0, 0xB1)]))
        .then(spawn(1, Mode::Background, &[(1, 0xB2)]))
        .then(ended(0xB1, call(1, 0)))
        .then(Command::Lost { owner_survives: true, keeps_queue: false })
        .then(send(2, "and now?"))
        .then(calls(3, vec![CallKind::Continue(Mode::Blocking), CallKind::Continue(Mode::Blocking)]))
        .recorded(starts(3, 0, CallKind::Continue(Mode::Blocking)));
    let request_record = |ix, child| {
        let (call, child, input, mode) = (call(3, ix), session(child), "continue".into(), Mode::Blocking);
        Record::ContinueAsked(Box::new(ContinueAsked { turns: None, tools: None, call, child, input, mode }))
    };
    let in_flight = Some("the child does not exist, or its run is owned and in flight");
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
    let not_ended = Some("the turn before it has not ended");
    let streams = Heart::root().then(send(1, "go"));
    assert_eq!(unfit(&streams, &starts(2, 1)), not_ended);
    assert_eq!(unfit(&streams.then(calls(1, vec![writes()])), &starts(2, 1)), not_ended);
    let waits = Some("the run is held or waits");
    assert_eq!(unfit(&rests.then(interrupt()), &starts(3, 1)), waits);
    assert_eq!(unfit(&aside(Heart::child().then(admitted())), &starts(3, 1)), waits, "its slot is released");
}

#[test]
fn run_works_between_last_result_and_next_turn() {
    let heart = Heart::root()
        .then(send(1, "go"))
        .then(calls(1, vec![background(), reads()]))
        .then(spawn(1, Mode::Background, &[(0, 0xB1)]))
        .then(tool(1, 1, "read"));
    let until = heart.log.iter().rposition(|record| matches!(record, Record::TurnStarted { .. })).unwrap();
    let between = State::fold(session(ME), &heart.log[..until]).unwrap();
    assert_eq!((between.phase(), heart.state.phase()), (Phase::Working, Phase::Working));
}
