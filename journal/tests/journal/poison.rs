//! Failing stores acknowledge nothing. Also tests the number of commits per group.

use crate::scene::*;
use subtend_journal::faulty::Faults;

use crate::engines::{Kind, for_each_engine};

fn open(inner: Box<dyn Engine>, options: Options) -> (Journal, Faults) {
    let (engine, faults) = Faulty::new(inner);
    (Journal::open(Box::new(engine), options).unwrap(), faults)
}

/// Returns which of the sessions 1, 2 and 3 exist.
fn existing_sessions(journal: &Journal) -> Vec<bool> {
    (1..4).map(|n| journal.records(id(n)).is_ok()).collect()
}

/// Creates sessions 1 and 2, each in its own write, and tries to create session 3. The second write has the fault.
async fn check_second_write_fails(journal: &Journal, faults: &Faults, text: &str) {
    for n in 1..3 {
        journal.append(one(created_session(&mut SessionWriter::new(id(n)), None, true))).unwrap();
        if n == 1 {
            journal.settled().await.unwrap();
        }
    }
    let poisoned = journal.wait(Lsn(2)).await.unwrap_err().to_string();
    assert_eq!(poisoned, format!("the journal is poisoned, open the store again: injected fault: {text}"));
    assert_eq!(journal.on_poison().await.to_string(), poisoned);
    assert_eq!(journal.poisoned().map(|poisoned| poisoned.to_string()), Some(poisoned));
    assert_eq!(journal.durable(), Lsn(1));
    assert!(journal.wait(Lsn(1)).await.is_ok());
    let refused = journal.append(one(created_session(&mut SessionWriter::new(id(3)), None, true)));
    assert!(matches!(refused, Err(AppendError::Poisoned(_))), "{refused:?}");
    assert_eq!(faults.writes(), 2, "a poisoned journal wrote again");
}

async fn failed_write_ends_all_acknowledgement(kind: Kind) {
    let dir = tempfile::tempdir().unwrap();
    let (journal, faults) = open(kind.engine(dir.path()), Options::default());
    faults.fail_write(2);
    check_second_write_fails(&journal, &faults, "a write fails").await;
    assert!(journal.close().await.is_err());
    let (journal, _) = open(kind.engine(dir.path()), Options::default());
    assert_eq!(existing_sessions(&journal), [true, false, false]);
}

async fn failed_sync_acknowledges_nothing(kind: Kind) {
    let dir = tempfile::tempdir().unwrap();
    let (journal, faults) = open(kind.engine(dir.path()), Options::default());
    faults.fail_sync(2);
    check_second_write_fails(&journal, &faults, "a sync fails").await;
    drop(journal);
    // An unacknowledged tail may exist.
    let (journal, _) = open(kind.engine(dir.path()), Options::default());
    assert_eq!(existing_sessions(&journal), [true, true, false]);
    assert_eq!(journal.verify(&mut |_| {}).unwrap().problems, vec![]);
}

#[test]
fn engine_without_a_thread_fails_the_append() {
    let (journal, faults) = open(Box::new(Memory::new()), Options::default());
    faults.fail_write(2);
    journal.append(one(created_session(&mut SessionWriter::new(id(1)), None, true))).unwrap();
    let refused = journal.append(one(created_session(&mut SessionWriter::new(id(2)), None, true)));
    assert!(matches!(refused, Err(AppendError::Poisoned(_))), "{refused:?}");
    assert_eq!(journal.durable(), Lsn(1));
    assert_eq!(existing_sessions(&journal), [true, false, false]);
}

async fn batches_queued_during_a_sync_are_one_commit(kind: Kind) {
    let dir = tempfile::tempdir().unwrap();
    let (journal, faults) = open(kind.engine(dir.path()), Options::default());
    let held = faults.hold_writes();
    for n in 1..=200 {
        journal.append(one(created_session(&mut SessionWriter::new(id(n)), None, n == 1))).unwrap();
        if n == 1 {
            faults.wait_for_writes(1);
        }
    }
    assert_eq!(journal.durable(), Lsn(0));
    drop(held);
    journal.settled().await.unwrap();
    assert_eq!((faults.writes(), journal.info().syncs, journal.info().batches), (2, 2, 200));
}

async fn batch_is_never_split_over_commits(kind: Kind) {
    let dir = tempfile::tempdir().unwrap();
    let (journal, faults) = open(kind.engine(dir.path()), Options::default());
    let frames = (1..=5000).map(|n| created_session(&mut SessionWriter::new(id(n)), None, n == 1)).collect();
    journal.append(Batch { frames }).unwrap();
    journal.settled().await.unwrap();
    assert_eq!((faults.writes(), journal.durable()), (1, Lsn(5000)));
}

async fn slow_disk_causes_pressure_and_then_refusals(kind: Kind) {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { queue_bytes: 20_000, ..Options::default() };
    let (journal, faults) = open(kind.engine(dir.path()), options);
    journal.wait_for_room().await;
    let held = faults.hold_writes();
    let (mut appended, mut pressures) = (0, vec![]);
    let full = loop {
        match journal.append(one(created_session(&mut SessionWriter::new(id(appended + 1)), None, false))) {
            Ok(_) => appended += 1,
            Err(error) => break error,
        }
        pressures.push(journal.pressure());
    };
    // Pressure begins at a quarter of the bytes, and refusals at all of them. All batches have the same size.
    let quiet = pressures.iter().take_while(|pressures| !**pressures).count();
    assert!(pressures[quiet..].iter().all(|pressures| *pressures), "{pressures:?}");
    assert!(quiet > 1 && (3..=4).contains(&(pressures.len() / (quiet + 1))), "{pressures:?}");
    assert!(matches!(full, AppendError::Full { limit: 20_000, .. }), "{full:?}");
    drop(held);
    journal.wait_for_room().await;
    assert!(!journal.pressure());
    // A refused batch leaves no gap.
    journal.append(one(created_session(&mut SessionWriter::new(id(appended + 1)), None, false))).unwrap();
    journal.settled().await.unwrap();
    assert_eq!(journal.heads().unwrap().len() as u128, appended + 1);
}

async fn row_changes_take_an_lsn_but_no_frame(kind: Kind) {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = open(kind.engine(dir.path()), Options::default());
    let mut writer = SessionWriter::new(id(1));
    writer.opened_lsn = journal.append(one(created_session(&mut writer, None, true))).unwrap().last;
    journal.append(one(writer.rows())).unwrap();
    journal.append(one(writer.rows())).unwrap();
    journal.append(one(writer.frame_of(start(id(1))))).unwrap();
    journal.settled().await.unwrap();
    let frames: Vec<bool> = (1..5).map(|lsn| journal.frame_at(Lsn(lsn)).unwrap().is_some()).collect();
    assert_eq!(frames, [true, false, false, true]);
    assert_eq!(journal.verify(&mut |_| {}).unwrap().problems, vec![]);
}

for_each_engine!(and postgres:
    failed_write_ends_all_acknowledgement,
    failed_sync_acknowledges_nothing,
    batches_queued_during_a_sync_are_one_commit,
    batch_is_never_split_over_commits,
    slow_disk_causes_pressure_and_then_refusals,
    row_changes_take_an_lsn_but_no_frame,
);
