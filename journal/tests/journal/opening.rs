//! What is checked before a store opens.

use std::path::Path;

use subtend_journal::{Journal, OpenError, Options, StoreSpec, open_store, open_store_with};
use subtend_session::ids::Lsn;

use crate::scene::{Teller, born, family, id, one};

fn spec(dir: &Path) -> StoreSpec {
    StoreSpec::parse(&format!("redb:{}", dir.display())).unwrap()
}

fn open(dir: &Path) -> Journal {
    open_store(&spec(dir)).unwrap()
}

#[tokio::test]
async fn a_store_in_use_names_its_process() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("deep").join("store");
    let journal = open(&store);
    let refused = open_store(&spec(&store)).unwrap_err();
    let OpenError::InUse { path, pid, boot } = &refused else { panic!("{refused}") };
    assert_eq!((path, pid), (&store, &std::process::id().to_string()));
    assert_ne!(boot, "unknown");
    assert!(refused.to_string().contains(&format!("is in use by process {pid}")), "{refused}");
    journal.close().await.unwrap();
    assert_eq!(open(&store).durable(), Lsn(0));
}

#[tokio::test]
async fn dropping_the_last_handle_drains_and_lets_the_store_go() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path());
    let mut teller = Teller::new(id(1));
    journal.append(one(born(&mut teller, None, true))).unwrap();
    drop(journal);
    assert_eq!(open(dir.path()).records(id(1)).unwrap().len(), 3);
}

#[test]
fn a_newer_format_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()));
    let db = ::redb::Database::create(dir.path().join("redb-4/journal.redb")).unwrap();
    let txn = db.begin_write().unwrap();
    let meta = ::redb::TableDefinition::<&str, u64>::new("meta");
    txn.open_table(meta).unwrap().insert("format", 2).unwrap();
    txn.commit().unwrap();
    drop(db);
    let refused = open_store(&spec(dir.path())).unwrap_err();
    assert!(matches!(refused, OpenError::Newer { found: 2, known: 1 }), "{refused:?}");
}

#[tokio::test]
async fn a_store_behind_what_was_acknowledged_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("redb-4/journal.redb");
    let journal = open(dir.path());
    let mut one_ = Teller::new(id(1));
    journal.append(one(born(&mut one_, None, true))).unwrap();
    journal.close().await.unwrap();
    let old = std::fs::read(&file).unwrap();
    let journal = open(dir.path());
    family(&journal, 10, true);
    journal.close().await.unwrap();
    std::fs::write(&file, old).unwrap();

    let refused = open_store(&spec(dir.path())).unwrap_err();
    assert!(matches!(refused, OpenError::Behind { found: Lsn(1), watermark: Lsn(8) }), "{refused:?}");
    let accept = Options { accept_loss: true, ..Options::default() };
    let journal = open_store_with(&spec(dir.path()), accept).unwrap();
    assert_eq!((journal.durable(), journal.records(id(1)).unwrap().len()), (Lsn(1), 3));
    journal.close().await.unwrap();
    assert_eq!(open(dir.path()).durable(), Lsn(1));
}

#[test]
fn a_lost_file_is_a_lost_tail() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path());
    journal.append(one(born(&mut Teller::new(id(1)), None, true))).unwrap();
    drop(journal);
    std::fs::remove_file(dir.path().join("redb-4/journal.redb")).unwrap();
    let refused = open_store(&spec(dir.path())).unwrap_err();
    assert!(matches!(refused, OpenError::Behind { found: Lsn(0), watermark: Lsn(1) }), "{refused:?}");
}

#[test]
fn a_store_in_memory_is_new_each_time() {
    let journal = open_store(&StoreSpec::Memory).unwrap();
    journal.append(one(born(&mut Teller::new(id(1)), None, true))).unwrap();
    assert_eq!((journal.durable(), open_store(&StoreSpec::Memory).unwrap().durable()), (Lsn(1), Lsn(0)));
    let info = journal.info();
    assert_eq!((info.engine, info.path, info.syncs, info.batches), ("memory", None, 0, 1));
}

/// What a process that is killed while it makes a store leaves of it: the first bytes of the file, under its first name.
#[test]
fn a_store_that_was_killed_while_it_was_made_is_made_again() {
    let whole = tempfile::tempdir().unwrap();
    drop(open(whole.path()));
    let bytes = std::fs::read(whole.path().join("redb-4/journal.redb")).unwrap();
    let mut refused = 0;
    for cut in [0, 1, 8, 320, 4_096, bytes.len() / 2, bytes.len() - 1, bytes.len()] {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("redb-4")).unwrap();
        let left = dir.path().join("redb-4/journal.making");
        std::fs::write(&left, &bytes[..cut]).unwrap();
        assert_eq!(open(dir.path()).durable(), Lsn(0), "cut at {cut}");
        assert!(!left.exists(), "cut at {cut}");
        // The control: under its last name such a file is refused as damaged.
        let torn = tempfile::tempdir().unwrap();
        std::fs::create_dir(torn.path().join("redb-4")).unwrap();
        std::fs::write(torn.path().join("redb-4/journal.redb"), &bytes[..cut]).unwrap();
        refused += usize::from(open_store(&spec(torn.path())).is_err());
    }
    assert!(refused >= 3, "{refused} of 8 beginnings are refused where a whole store is expected");
}
