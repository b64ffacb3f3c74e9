use subtend_session::call::CallEnd;
use subtend_session::ids::{AttemptNo, Hash, InputId, RunNo, TurnNo};
use subtend_session::index::Head;
use subtend_session::outcome::Outcome;
use subtend_session::place::{Mode, OnRestart};
use subtend_session::record::{
    AnsweredBy, AskVerdict, CallFinished, Carrier, From, InputAccepted, Lane, Notice, NoticeTaken, RunEnded, RunOpened,
    Stop, ToolCall, TurnAnswered,
};
use subtend_session::state::Phase;
use subtend_session::usage::Usage;
use uuid::Uuid;

use super::super::line::Line;
use super::*;

const OWNER: SessionId = SessionId(Uuid::from_u128(1));
const CHILD: SessionId = SessionId(Uuid::from_u128(2));
const CALL: CallId = CallId { turn: TurnNo(1), ix: 0 };
const APPROVED: CallId = CallId { turn: TurnNo(2), ix: 1 };
const RUN: RunNo = RunNo(1);

fn opened(owner: Owner) -> Record {
    Record::RunOpened(Box::new(RunOpened {
        run: RUN,
        owner,
        inputs: Vec::new(),
        mode: Mode::Background,
        max_turns: 5,
        base_turns: 0,
        deadline_ms: None,
        wall_cap_at: None,
        on_restart: OnRestart::Fail,
        slot: false,
    }))
}

fn ended() -> Record {
    Record::RunEnded(Box::new(RunEnded {
        run: RUN,
        outcome: Outcome::Lost,
        result: None,
        returned: None,
        text: None,
        len: 0,
        hash: Hash::of(b""),
        turns: 0,
        usage_self: Usage::default(),
        usage_owned: Usage::default(),
        worked_ms: 0,
        keeps_queue: false,
        gave_up: None,
    }))
}

fn answered() -> Record {
    Record::TurnAnswered(Box::new(TurnAnswered {
        run: RUN,
        turn: CALL.turn,
        attempt: AttemptNo(1),
        text: None,
        reasoning: None,
        calls: vec![ToolCall { provider_id: "c".into(), tool: "task".into(), args: "{}".into() }],
        stop: Stop::Calls,
        model: None,
        usage: Usage::default(),
        answers: Vec::new(),
        worked_ms: 0,
        queued_ms: 0,
    }))
}

fn finished() -> Record {
    let finished =
        CallFinished { call: CALL, end: CallEnd::Ok, content: "".into(), truncated_from: None, worked_ms: 0 };
    Record::CallFinished(Box::new(finished))
}

fn noticed(carrier: Carrier) -> Record {
    let item = Notice {
        returned: false,
        child: CHILD,
        run: Some(RUN),
        key: Some(CALL),
        refused: None,
        outcome: Outcome::Lost,
        len: 0,
        hash: Hash::of(b""),
        prefix: "".into(),
        usage: Usage::default(),
        turns: 0,
        base_turns: 0,
        waking: true,
    };
    Record::NoticeTaken(Box::new(NoticeTaken { items: vec![item], carrier }))
}

fn owned() -> Owner {
    Owner::Run { session: OWNER, run: RUN, call: CALL }
}

/// Returns the findings of an owner and its child at rest, by kind.
fn found(owner: &[Record], child: &[Record]) -> Vec<(FindingKind, String)> {
    let sessions = Sessions::from([(OWNER, owner), (CHILD, child)]);
    let all = [
        (FindingKind::Duplicated, find_duplicates(&sessions)),
        (FindingKind::Missing, undelivered_ends(&sessions)),
        (FindingKind::NotEndedOnce, runs_without_one_end(&sessions)),
        (FindingKind::Dangling, open_calls(&sessions)),
    ];
    all.into_iter().flat_map(|(kind, what)| what.into_iter().map(move |what| (kind, what))).collect()
}

#[test]
fn tree_at_rest_has_no_findings() {
    let owner = [opened(Owner::Person), answered(), finished(), noticed(Carrier::Message), ended()];
    assert_eq!(found(&owner, &[opened(owned()), ended()]), []);
    // Tests a blocking call, whose notice is its result, and a background call with an await.
    for carrier in [Carrier::Result, Carrier::Await { call: CALL }] {
        let owner = [opened(Owner::Person), answered(), noticed(carrier), ended()];
        assert_eq!(found(&owner, &[opened(owned()), ended()]), []);
    }
}

#[test]
fn missing_or_duplicated_notice_is_found() {
    let child = [opened(owned()), ended()];
    let unnotified = [opened(Owner::Person), answered(), finished(), ended()];
    let what = format!("{OWNER} was never notified of run 1 of {CHILD}, which its call 1.0 opened");
    assert_eq!(found(&unnotified, &child), [(FindingKind::Missing, what)]);
    let notice = || noticed(Carrier::Message);
    let twice = [opened(Owner::Person), answered(), finished(), notice(), notice(), ended()];
    let what = format!("{OWNER} has 2 notices of its call 1.0");
    assert_eq!(found(&twice, &child), [(FindingKind::Duplicated, what)]);
}

#[test]
fn run_without_end_and_call_without_result_are_found() {
    let owner = [opened(Owner::Person), answered(), noticed(Carrier::Message)];
    let child = [opened(owned()), ended(), ended()];
    let expected = [
        (FindingKind::NotEndedOnce, format!("run 1 of {OWNER} has 0 ends")),
        (FindingKind::NotEndedOnce, format!("run 1 of {CHILD} has 2 ends")),
        (FindingKind::Dangling, format!("call 1.0 of {OWNER} has no result")),
    ];
    assert_eq!(found(&owner, &child), expected);
}

#[test]
fn missing_acknowledged_data_is_found() {
    let input = InputId(Uuid::from_u128(9));
    let mut acknowledged = Acknowledgements::default();
    let lines = [
        Line::Input(OWNER, input),
        Line::Ended(OWNER, RUN),
        Line::Cancelled(CHILD, RUN),
        Line::Interrupted(CHILD, RUN),
        Line::Branched(CHILD),
        Line::Approved(OWNER, APPROVED),
        Line::Seen(OWNER, Seq(3)),
        Line::Seen(OWNER, Seq(2)),
        Line::KillPoint,
    ];
    lines.into_iter().for_each(|line| acknowledged.record(line));
    assert_eq!(acknowledged.count(), 8);
    let accepted =
        Record::InputAccepted(Box::new(InputAccepted::new(input, From::Person, Lane::Send, "hello", Owner::Person)));
    let approval = Record::AskAnswered { call: APPROVED, verdict: AskVerdict::Allow, by: AnsweredBy::Person };
    let (owner, child) = ([accepted, opened(Owner::Person), ended(), approval], [opened(owned()), ended()]);
    assert_eq!(
        acknowledged.lost(&Sessions::from([(OWNER, &owner[..]), (CHILD, &child[..])]), &StoreHeads::default()),
        Vec::<String>::new()
    );
    let expected = [
        format!("the accepted input {input} of {OWNER} is missing"),
        format!("the reported end of run 1 of {OWNER} is missing"),
        format!("the cancel of run 1 of {CHILD} is missing"),
        format!("the interrupt of run 1 of {CHILD} is missing"),
        format!("the branch {CHILD} is missing"),
        format!("the verdict on call 2.1 of {OWNER} is missing"),
        format!("record 3 of {OWNER}, which a subscriber received, is missing: the last is 1"),
    ];
    assert_eq!(acknowledged.lost(&Sessions::from([(OWNER, &owner[1..2])]), &StoreHeads::default()), expected);
}

#[test]
fn reused_epoch_is_found() {
    assert_eq!(fencing_violation(OWNER, Seq(4), Epoch(2), Epoch(3)), None);
    let what = format!("record 5 of {OWNER} was written by a later process in epoch 2, but epoch 2 was already used");
    assert_eq!(fencing_violation(OWNER, Seq(4), Epoch(2), Epoch(2)), Some(what));
}

fn head() -> Head {
    Head {
        parent: None,
        root: OWNER,
        short: OWNER.short(),
        agent: "worker".into(),
        depth: 0,
        inspectable: true,
        last_seq: Seq(3),
        epoch: Epoch(1),
        state: Phase::Quiet,
        kind: None,
        closed: false,
        deleted: false,
        imported: false,
        last_outcome: None,
        title: "work".into(),
        created_ms: 0,
        updated_ms: 0,
    }
}

#[test]
fn j10_lost_deletion_and_remaining_erased_text_are_found() {
    let head = head();
    let mut acknowledged = Acknowledgements::default();
    acknowledged.record(Line::Input(OWNER, InputId(Uuid::from_u128(9))));
    acknowledged.record(Line::Deleting(OWNER));
    acknowledged.record(Line::Deleted(OWNER));
    let heads = StoreHeads::from([(OWNER, head.clone())]);
    let lost = acknowledged.lost(&Sessions::new(), &heads);
    assert_eq!(lost.first(), Some(&format!("the deletion of {OWNER} is missing")));
    let child = Head { parent: Some(OWNER), ..head.clone() }.erased();
    let heads = StoreHeads::from([(OWNER, head.erased()), (CHILD, child.clone())]);
    assert_eq!(acknowledged.lost(&Sessions::new(), &heads), Vec::<String>::new());
    let other = StoreHeads::from([(CHILD, Head { parent: None, ..child })]);
    let lost = Acknowledgements::default().lost(&Sessions::new(), &other);
    assert_eq!(lost, [format!("{CHILD} is deleted, but its deletion was not requested")]);

    let dir = tempfile::tempdir().expect("a directory");
    let store_dir = StoreDir::of("redb", dir.path());
    std::fs::create_dir_all(store_dir.store()).expect("a store");
    std::fs::write(store_dir.store().join("journal"), super::super::workload::secret(OWNER)).expect("a file");
    assert_eq!(
        acknowledged.find_erased_text(&store_dir),
        Vec::<String>::new(),
        "the store was not compacted after the deletion"
    );
    let mut compacting = Acknowledgements::default();
    compacting.record(Line::Compacted);
    acknowledged.add(compacting);
    let kept = acknowledged.find_erased_text(&store_dir);
    assert!(kept.len() == 1 && kept[0].ends_with(&format!("contains text of the erased session {OWNER}")), "{kept:?}");
}

#[test]
fn j10_partial_and_later_undone_deletions_are_found() {
    let head = head();
    let deleted = Head { deleted: true, ..head.clone() };
    let child = Head { parent: Some(OWNER), ..deleted.clone() };
    let mut acknowledged = Acknowledgements::default();
    acknowledged.record(Line::Deleting(OWNER));
    let whole = StoreHeads::from([(OWNER, deleted), (CHILD, child.clone())]);
    let part = StoreHeads::from([(OWNER, head.clone()), (CHILD, child)]);
    let none = StoreHeads::from([(OWNER, head.clone()), (CHILD, Head { parent: Some(OWNER), ..head })]);
    assert_eq!(acknowledged.lost(&Sessions::new(), &none), Vec::<String>::new());
    assert_eq!(acknowledged.lost(&Sessions::new(), &whole), Vec::<String>::new());
    let lost = acknowledged.lost(&Sessions::new(), &part);
    assert_eq!(lost, [format!("{CHILD} is deleted, but the session whose deletion was requested is not")]);
    // Deletions that are found after a kill must remain, and after a compaction their text must be erased.
    acknowledged.add_found(&whole);
    assert_eq!(acknowledged.lost(&Sessions::new(), &none), [format!("the deletion of {OWNER} is missing")]);
}
