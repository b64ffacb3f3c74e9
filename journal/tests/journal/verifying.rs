//! Verification reports each possible error in the index rows.

use crate::scene::*;
use subtend_session::index::{InflightChange, RowKey, RowKind};

fn journal() -> Journal {
    Journal::open(Box::new(Memory::new()), Options::default()).unwrap()
}

/// Returns the problem of a store whose last frame was altered. There must be exactly one.
fn problem_after(spoil: impl FnOnce(&Family, &mut Frame)) -> String {
    let journal = journal();
    let mut family = family(&journal, 10, true);
    let mut frame = family.taken();
    spoil(&family, &mut frame);
    journal.append(one(frame)).unwrap();
    let found = problems(&journal);
    assert_eq!(found.len(), 1, "{found:#?}");
    found.concat()
}

#[test]
fn row_that_was_not_removed_is_reported() {
    let text = problem_after(|_, frame| frame.changes.take.clear());
    assert!(text.contains("`outbox` holds") && text.ends_with("expected none"), "{text}");
}

#[test]
fn missing_row_is_reported() {
    let journal = journal();
    let mut writer = SessionWriter::new(id(11));
    let mut creation = created_session(&mut writer, Some(id(10)), true);
    creation.changes.child_of = None;
    writer.opened_lsn = journal.append(one(creation)).unwrap().last;
    let mut ended = writer.frame_of(vec![record(serde_json::json!({"run_ended": {
        "run": 1, "outcome": "lost", "len": 0, "hash": Hash::of(b""), "turns": 0,
        "usage_self": {}, "usage_owned": {}, "worked_ms": 0,
    }}))]);
    ended.changes.put.clear();
    journal.append(one(ended)).unwrap();
    let found = problems(&journal);
    assert_eq!(found.len(), 2, "{found:#?}");
    assert!(found[0].ends_with(&format!("it is below {}, and `kid` does not name it", id(10))), "{}", found[0]);
    assert!(found[1].contains("`outbox` lacks"), "{}", found[1]);
}

#[test]
fn row_without_a_record_is_reported() {
    let key = RowKey::Call(CallId { turn: TurnNo(9), ix: 9 });
    let row = Row { to: id(10), from: id(11), kind: RowKind::Cancel, key };
    let text = problem_after(|_, frame| frame.changes.put.push(row));
    assert!(text.contains("`outbox` holds") && text.ends_with("expected none"), "{text}");
}

#[test]
fn stale_head_is_reported() {
    let text = problem_after(|_, frame| frame.changes.head = None);
    assert!(text.contains("`head` is") && text.contains("last_seq: Seq(9)"), "{text}");
}

#[test]
fn open_run_without_a_row_is_reported() {
    let words = problem_after(|_, frame| frame.changes.inflight = InflightChange::Delete);
    assert!(words.contains("`inflight` is None, expected Some"), "{words}");
}

#[test]
fn child_row_without_a_record_is_reported() {
    let text = problem_after(|family, frame| frame.changes.child_of = Some(family.child.id));
    assert!(text.ends_with(&format!("`kid` names it below {}, its records do not", id(11))), "{text}");
}

#[test]
fn body_with_another_hash_is_reported() {
    let text = problem_after(|_, frame| frame.changes.defs.push((Hash([3; 16]), "\"other\"".into())));
    assert!(text.contains("the body 03030303030303030303030303030303 does not match its hash"), "{text}");
}

#[test]
fn invalid_records_are_reported_and_the_rest_is_checked() {
    let journal = journal();
    let mut bad = SessionWriter::new(id(1));
    journal.append(one(created_session(&mut bad, None, true))).unwrap();
    let mut frame = bad.rows();
    frame.records = vec![record(serde_json::json!({"run_started": {"run": 7, "slot": false}}))];
    journal.append(one(frame)).unwrap();
    family(&journal, 10, false);
    let report = journal.verify(&mut |_| {}).unwrap();
    assert_eq!((report.sessions, report.frames, report.records), (3, 9, 21));
    assert_eq!(report.problems.len(), 1, "{:#?}", report.problems);
    assert!(report.problems[0].to_string().contains("record 4: run_started does not fit"), "{}", report.problems[0]);
}
