use crate::given::*;
use subtend_session::creation;
use subtend_session::ids::{Epoch, Lsn};
use subtend_session::index::{
    Changes, Head, Inflight, InflightChange, cancel_by, continue_input, creation as creation_rows, defs, head,
    inflight, notice_from, rows,
};
use subtend_session::place::Service;
use subtend_session::record::ContinueAsked;

fn stamp() -> Stamp {
    Stamp { epoch: Epoch(3), starts: 0, opened_lsn: Lsn(70), created_ms: 5, updated_ms: 9 }
}

fn frame(heart: &mut Heart, command: Command) -> Changes {
    let before = Before::of(&heart.state);
    let decision = heart.decide(command).unwrap();
    changes(&before, &heart.state, &decision.records, stamp())
}

fn row(to: u128, from: u128, kind: RowKind, key: RowKey) -> Row {
    Row { to: session(to), from: session(from), kind, key }
}

#[test]
fn run_has_a_boot_scan_row_from_opening_to_end() {
    let mut heart = Heart::child();
    let started = frame(&mut heart, admitted());
    let InflightChange::Put(inflight) = started.inflight else { panic!("no row") };
    assert_eq!((inflight.run, inflight.state, inflight.depth), (RunNo(1), Phase::Working, 1));
    assert_eq!((inflight.root, inflight.opened_lsn, inflight.epoch), (session(OWNER), Lsn(70), Epoch(3)));
    assert_eq!((inflight.deadline_left_ms, inflight.wall_cap_at), (Some(480_000), Some(9_000_000)));
    let ended = frame(&mut heart, answers(1, "done"));
    assert_eq!(ended.inflight, InflightChange::Delete);
    let head = ended.head.unwrap();
    assert_eq!((head.state, head.last_outcome), (Phase::Quiet, Some(OutcomeKind::Completed)));
    assert_eq!((head.last_seq, &*head.title, head.parent), (Seq(8), "task", Some(session(OWNER))));
    assert_eq!(ended.put, [row(OWNER, ME, RowKind::Notice, RowKey::Call(call(1, 0)))]);
    assert_eq!(ended.take, []);
}

#[test]
fn new_session_rows_equal_those_of_its_fold() {
    let mut heart = Heart::root().then(send(1, "go")).then(calls(1, vec![blocking()]));
    let new = heart.decide(spawn(1, Mode::Blocking, &[(0, 0xB1)])).unwrap().new_sessions.remove(0);
    let rows = creation_rows(&new, stamp());
    let child = Heart::from_records(new.session, new.records);
    let folded = changes(&Before::default(), &child.state, &child.log, stamp());
    assert_eq!(rows, folded);
    assert_eq!(rows.child_of, Some(session(ME)));
    let root = creation::root(session(9), created(Place::Root, Limits::default()));
    assert_eq!(
        (creation_rows(&root, stamp()).inflight, creation_rows(&root, stamp()).child_of),
        (InflightChange::Keep, None)
    );
}

#[test]
fn title_of_many_lines_is_one_line() {
    let mut heart = Heart::root();
    let head = frame(&mut heart, send(1, "count\n\n  the lines\nof it")).head.unwrap();
    assert_eq!(&*head.title, "count the lines of it");
    // Earlier versions stored line breaks in titles.
    let mut old = serde_json::to_value(&*head).unwrap();
    old["title"] = "count\n\n  the lines\nof it".into();
    assert_eq!(serde_json::from_value::<Head>(old).unwrap(), *head);
}

#[test]
fn taken_notices_take_their_rows_and_crossed_cancel_rows() {
    let mut heart = Heart::root().then(send(1, "go")).then(calls(1, vec![blocking(), blocking()])).then(spawn(
        1,
        Mode::Blocking,
        &[(0, 0xB1), (1, 0xB2)],
    ));
    let taken = frame(&mut heart, ended(0xB1, call(1, 0)));
    assert_eq!(taken.take, [row(ME, 0xB1, RowKind::Notice, RowKey::Call(call(1, 0)))]);
    let ask = Record::CancelAsked { call: None, child: session(0xB2), key: call(1, 1) };
    let mut heart = heart.recorded(ask);
    let taken = frame(&mut heart, ended(0xB2, call(1, 1)));
    let key = RowKey::Call(call(1, 1));
    assert_eq!(taken.take, [row(ME, 0xB2, RowKind::Notice, key), row(0xB2, ME, RowKind::Cancel, key)]);
    let persons = frame(&mut heart, Command::OwnedEnded(vec![persons_end(0xB1, 2)]));
    assert_eq!(persons.take, [], "the notice waits for the boundary");
}

#[test]
fn requests_between_sessions_are_rows() {
    let request = Record::ContinueAsked(Box::new(ContinueAsked {
        turns: None,
        tools: None,
        call: call(4, 0),
        child: session(0xB1),
        input: "continue".into(),
        mode: Mode::Blocking,
    }));
    let refused = Record::ContinueRefused { owner: session(OWNER), key: call(5, 0), why: ContinueRefusal::InFlight };
    let mut out = Changes::default();
    rows(session(ME), &Place::Root, None, &[request, refused], &mut out);
    assert_eq!(
        out.put,
        [
            row(0xB1, ME, RowKind::Continue, RowKey::Call(call(4, 0))),
            row(OWNER, ME, RowKind::Notice, RowKey::Call(call(5, 0))),
        ]
    );
    assert_eq!(out.take, [row(ME, OWNER, RowKind::Continue, RowKey::Call(call(5, 0)))]);
}

#[test]
fn notice_equals_the_end_record_for_the_owner() {
    let mut heart = Heart::child().then(admitted());
    let decision = heart.decide(answers(1, "done")).unwrap();
    let Some(Record::RunEnded(ended)) = decision.records.last() else { panic!("no end") };
    let owner = Owner::Run { session: session(OWNER), run: RunNo(1), call: call(1, 0) };
    let place = &heart.state.created.place;
    let opened = heart.log.iter().find_map(|record| match record {
        Record::RunOpened(opened) => Some((**opened).clone()),
        _ => None,
    });
    let first = opened.expect("the run was opened");
    let with_owner = |owner: Owner| RunOpened { owner, base_turns: 3, ..first.clone() };
    let (to, notice) = notice_from(session(ME), place, &first, ended).unwrap();
    assert_eq!(first.owner, owner);
    assert_eq!(
        (to, notice.key, notice.waking, notice.len, notice.hash),
        (session(OWNER), Some(call(1, 0)), true, 4, ended.hash)
    );
    assert!(decision.effects.contains(&Effect::DeliverCompletion { to, notice: Box::new(notice) }));
    let row_of = |owner| {
        notice_from(session(ME), place, &with_owner(owner), ended).map(|(to, notice)| (to, notice.key, notice.waking))
    };
    assert_eq!(row_of(Owner::Person), Some((session(OWNER), None, false)));
    assert_eq!(row_of(Owner::Detached { by_host: true }), Some((session(OWNER), None, false)));
    assert_eq!(row_of(Owner::Host(Service::Title)), None);
    assert_eq!(notice_from(session(ME), &Place::Root, &with_owner(Owner::Person), ended), None);
    let mut by_person = (**ended).clone();
    by_person.outcome = Outcome::Cancelled { by: Initiator::Person };
    let (_, notice) = notice_from(session(ME), place, &with_owner(owner), &by_person).unwrap();
    assert!(!notice.waking, "an end caused by a person does not wake a run");
    assert_eq!((notice.turns, notice.base_turns), (1, 3), "the notice has the turns of earlier runs");
}

#[test]
fn bodies_become_definitions_named_by_hash() {
    let created = created(Place::Root, Limits::default());
    let bodies = defs(&created).unwrap();
    assert_eq!(bodies.len(), 3);
    for (hash, body) in bodies {
        assert_eq!(subtend_session::ids::Hash::of(body.as_bytes()), hash);
    }
}

#[test]
fn row_content_is_stable_over_deliveries() {
    // The id is part of the format: a row that is repeated after an update must have the same id.
    let input = continue_input(session(OWNER), call(5, 0)).to_string();
    assert_eq!(input, "9d991764-32fa-89f9-a311-bb1a9834945d");
    assert_ne!(continue_input(session(OWNER), call(5, 1)).to_string(), input);
    assert_ne!(continue_input(session(ME), call(5, 0)).to_string(), input);
    assert_eq!(cancel_by(Some(call(4, 0))), Initiator::Model { call: call(4, 0) });
    assert_eq!(cancel_by(None), Initiator::Owner { outcome: OutcomeKind::Interrupted });
    let refused = refusal_from(session(ME), call(5, 0), ContinueRefusal::Closed);
    let outcome = Outcome::Failed { kind: FailKind::NotContinued { why: ContinueRefusal::Closed } };
    assert_eq!((refused.run, refused.key, refused.outcome, refused.waking), (None, Some(call(5, 0)), outcome, true));
}

#[test]
fn head_row_has_the_kind_of_branch() {
    let kind = |heart: &Heart| head(&heart.state, Epoch(1), 5, 9).kind;
    assert_eq!((kind(&Heart::child()), kind(&Heart::root())), (Some(BranchKind::Subagent), None));
}

#[test]
fn frame_without_a_run_keeps_the_boot_scan_row() {
    let mut heart = Heart::root();
    let closed = frame(&mut heart, Command::Close { by: Initiator::Person });
    assert_eq!(closed.inflight, InflightChange::Keep);
}

#[test]
fn boot_scan_row_counts_activation_starts() {
    let heart = Heart::child();
    let row = Inflight {
        limited_until: None,
        run: RunNo(1),
        state: Phase::Queued,
        owner: Owner::Run { session: session(OWNER), run: RunNo(1), call: call(1, 0) },
        root: session(OWNER),
        depth: 1,
        opened_lsn: Lsn(70),
        deadline_left_ms: Some(480_000),
        wall_cap_at: Some(9_000_000),
        on_restart: OnRestart::Fail,
        epoch: Epoch(3),
        starts: 2,
    };
    assert_eq!(inflight(&heart.state, Lsn(70), Epoch(3), 2), Some(row));
    assert_eq!(inflight(&Heart::root().state, Lsn(70), Epoch(3), 2), None);
}

#[test]
fn only_a_branch_records_inherited_messages() {
    let written = |created: &SessionCreated| {
        let json = serde_json::to_value(created).unwrap();
        json.get("inherited").map(|messages| messages.as_array().unwrap().len())
    };
    let plain = created(Place::Root, Limits::default());
    let heart = Heart::root().then(send(1, "one")).then(answers(1, "first"));
    let branch = SessionCreated { inherited: heart.state.transcript, ..plain.clone() };
    assert_eq!((written(&plain), written(&branch)), (None, Some(2)));
}
