//! Checks before a store opens.

use crate::scene::*;
use subtend_journal::discard_store;

use crate::engines::{Kind, for_each_engine};
use crate::files;

async fn store_in_use_names_its_process(kind: Kind) {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("deep").join("store");
    let journal = kind.open(&store);
    let refused = kind.try_open(&store).unwrap_err();
    let OpenError::InUse { path, pid, boot } = &refused else { panic!("{refused}") };
    assert_eq!((path, pid), (&store, &std::process::id().to_string()));
    assert_ne!(boot, "unknown");
    assert!(refused.to_string().contains(&format!("is in use by process {pid}")), "{refused}");
    journal.close().await.unwrap();
    assert_eq!(kind.open(&store).durable(), Lsn(0));
}

async fn dropping_the_last_handle_drains_and_unlocks_the_store(kind: Kind) {
    let dir = tempfile::tempdir().unwrap();
    let journal = kind.open(dir.path());
    let mut writer = SessionWriter::new(id(1));
    journal.append(one(created_session(&mut writer, None, true))).unwrap();
    drop(journal);
    assert_eq!(kind.open(dir.path()).records(id(1)).unwrap().len(), 3);
}

/// Row of `meta` with its checksum.
fn seal_row(name: &[u8], value: u64) -> Vec<u8> {
    let value = value.to_be_bytes();
    let sum = crc32c::crc32c_append(crc32c::crc32c_append(crc32c::crc32c(b"meta"), name), &value);
    [sum.to_be_bytes().as_slice(), &value].concat()
}

/// Writes an unknown format number.
fn write_unknown_format(kind: Kind, entry: &Path) {
    match kind {
        Kind::Redb => {
            let db = ::redb::Database::create(entry.join("journal.redb")).unwrap();
            let txn = db.begin_write().unwrap();
            let meta = ::redb::TableDefinition::<&str, u64>::new("meta");
            txn.open_table(meta).unwrap().insert("format", 2).unwrap();
            txn.commit().unwrap();
        }
        Kind::Sled => {
            let db = ::sled::Config::new().path(entry).segment_size(4 << 20).open().unwrap();
            db.insert(b"mformat", seal_row(b"format", 2)).unwrap();
            db.flush().unwrap();
        }
        Kind::Postgres => kind.has_no_directory(),
    }
}

async fn newer_format_is_refused(kind: Kind) {
    let dir = tempfile::tempdir().unwrap();
    drop(kind.open(dir.path()));
    write_unknown_format(kind, &dir.path().join(kind.entry()));
    let refused = kind.try_open(dir.path()).unwrap_err();
    assert!(matches!(refused, OpenError::Newer { found: 2, known: 1 }), "{refused:?}");
}

async fn store_of_another_engine_is_refused(kind: Kind) {
    let dir = tempfile::tempdir().unwrap();
    drop(kind.open(dir.path()));
    for other in Kind::ALL.into_iter().filter(|other| *other != kind) {
        let refused = other.try_open(dir.path()).unwrap_err().to_string();
        let (path, name, wanted) = (dir.path().display(), kind.name(), other.name());
        let text = format!(
            "{path} is a store of the engine {name}, not {wanted}: name it `{name}:PATH`, or choose another directory"
        );
        assert_eq!(refused, text);
    }
    assert_eq!(kind.open(dir.path()).durable(), Lsn(0));
}

async fn store_that_ends_before_its_mark_is_refused(kind: Kind) {
    let dir = tempfile::tempdir().unwrap();
    let entry = dir.path().join(kind.entry());
    let journal = kind.open(dir.path());
    let mut one_ = SessionWriter::new(id(1));
    journal.append(one(created_session(&mut one_, None, true))).unwrap();
    journal.close().await.unwrap();
    let old = files::take(&entry);
    let journal = kind.open(dir.path());
    family(&journal, 10, true);
    journal.close().await.unwrap();
    std::fs::remove_dir_all(&entry).unwrap();
    files::put(&entry, &old);

    let refused = kind.try_open(dir.path()).unwrap_err();
    assert!(matches!(refused, OpenError::Behind { found: Lsn(1), watermark: Lsn(8) }), "{refused:?}");
    let journal = kind.open_accepting_loss(dir.path()).unwrap();
    assert_eq!((journal.durable(), journal.records(id(1)).unwrap().len()), (Lsn(1), 3));
    journal.close().await.unwrap();
    assert_eq!(kind.open(dir.path()).durable(), Lsn(1));
}

async fn missing_store_counts_as_a_lost_tail(kind: Kind) {
    let dir = tempfile::tempdir().unwrap();
    let journal = kind.open(dir.path());
    journal.append(one(created_session(&mut SessionWriter::new(id(1)), None, true))).unwrap();
    drop(journal);
    std::fs::remove_dir_all(dir.path().join(kind.entry())).unwrap();
    let refused = kind.try_open(dir.path()).unwrap_err();
    assert!(matches!(refused, OpenError::Behind { found: Lsn(0), watermark: Lsn(1) }), "{refused:?}");
}

/// A store with frames remains.
async fn store_that_was_never_written_to_can_be_discarded(kind: Kind) {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    assert!(!discard_store(&kind.spec(&store)).unwrap(), "the store is missing");
    let journal = kind.open(&store);
    assert!(matches!(discard_store(&kind.spec(&store)), Err(OpenError::InUse { .. })));
    journal.close().await.unwrap();
    assert!(discard_store(&kind.spec(&store)).unwrap());
    assert!(!store.exists());
    let journal = kind.open(&store);
    journal.append(one(created_session(&mut SessionWriter::new(id(1)), None, true))).unwrap();
    journal.close().await.unwrap();
    assert!(!discard_store(&kind.spec(&store)).unwrap());
    assert_eq!(kind.open(&store).durable(), Lsn(1));
}

/// Without the watermark a lost tail would go unnoticed.
async fn missing_mark_is_reported(kind: Kind) {
    let dir = tempfile::tempdir().unwrap();
    let mark = dir.path().join("WATERMARK");
    drop(kind.open(dir.path()));
    assert!(!std::fs::read(&mark).unwrap().is_empty(), "a new store has no watermark");
    let journal = kind.open(dir.path());
    family(&journal, 10, true);
    journal.close().await.unwrap();
    std::fs::write(&mark, b"").unwrap();
    let refused = kind.try_open(dir.path()).unwrap_err().to_string();
    assert!(refused.contains("WATERMARK is empty, so a lost tail would go unnoticed"), "{refused}");
    std::fs::remove_file(&mark).unwrap();
    let refused = kind.try_open(dir.path()).unwrap_err().to_string();
    assert!(refused.contains("WATERMARK is missing") && refused.contains("--accept-loss"), "{refused}");
    kind.open_accepting_loss(dir.path()).unwrap().close().await.unwrap();
    assert_eq!(kind.open(dir.path()).durable(), Lsn(7));
}

/// Nothing is appended or closed after the batch.
async fn mark_is_written_without_later_appends(kind: Kind) {
    let (dir, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let journal = kind.open(dir.path());
    family(&journal, 10, true);
    journal.settled().await.unwrap();
    let mark = || std::fs::read(dir.path().join("WATERMARK")).unwrap();
    let (unmarked, begun) = (mark(), tokio::time::Instant::now());
    let marked = loop {
        let now = mark();
        if now != unmarked {
            break now;
        }
        assert!(begun.elapsed().as_secs() < 10, "the watermark was not written in time");
        std::thread::yield_now();
    };
    std::fs::write(copy.path().join("WATERMARK"), marked).unwrap();
    let refused = kind.try_open(copy.path()).unwrap_err();
    assert!(matches!(refused, OpenError::Behind { found: Lsn(0), watermark: Lsn(7) }), "{refused:?}");
}

/// A creation that was killed leaves some files under the temporary name, the last one truncated.
async fn store_killed_during_its_creation_is_created_again(kind: Kind) {
    let whole = tempfile::tempdir().unwrap();
    drop(kind.open(whole.path()));
    let made = files::take(&whole.path().join(kind.entry()));
    let state = |ix: usize, cut: usize| -> Vec<files::FileImage> {
        made[..ix].iter().cloned().chain([made[ix].cut(cut.min(made[ix].len))]).collect()
    };
    let left: Vec<Vec<files::FileImage>> = if kind == Kind::Redb {
        let len = made[0].len;
        [0, 1, 8, 320, 4_096, len / 2, len - 1, len].map(|cut| state(0, cut)).into()
    } else {
        (0..made.len()).step_by(made.len().div_ceil(8)).map(|ix| state(ix, made[ix].bytes.len() / 2)).collect()
    };
    let mut refused = 0;
    for (n, left) in left.iter().enumerate() {
        let dir = tempfile::tempdir().unwrap();
        let making = match kind {
            Kind::Redb => {
                let file = files::FileImage { path: "journal.making".into(), ..left[0].clone() };
                files::put(&dir.path().join("redb-4"), [&file]);
                dir.path().join("redb-4/journal.making")
            }
            Kind::Sled => {
                let making = dir.path().join(format!("{}.making", kind.entry()));
                files::put(&making, left);
                making
            }
            Kind::Postgres => kind.has_no_directory(),
        };
        assert_eq!(kind.open(dir.path()).durable(), Lsn(0), "state {n}");
        assert!(!making.exists(), "state {n}");
        // Negative control: under its final name such a store is refused as damaged.
        let torn = tempfile::tempdir().unwrap();
        files::put(&torn.path().join(kind.entry()), left);
        refused += usize::from(kind.try_open(torn.path()).is_err());
    }
    assert!(refused >= 2, "{refused} of {} incomplete stores are refused", left.len());
}

for_each_engine!(
    store_in_use_names_its_process,
    dropping_the_last_handle_drains_and_unlocks_the_store,
    newer_format_is_refused,
    store_of_another_engine_is_refused,
    store_that_ends_before_its_mark_is_refused,
    missing_store_counts_as_a_lost_tail,
    store_that_was_never_written_to_can_be_discarded,
    missing_mark_is_reported,
    mark_is_written_without_later_appends,
    store_killed_during_its_creation_is_created_again,
);

#[test]
fn store_in_memory_is_new_each_time() {
    let open = || -> Journal { open_store(&StoreSpec::Memory).unwrap() };
    let journal = open();
    journal.append(one(created_session(&mut SessionWriter::new(id(1)), None, true))).unwrap();
    assert_eq!((journal.durable(), open().durable()), (Lsn(1), Lsn(0)));
    let info = journal.info();
    assert_eq!((info.engine, info.path, info.syncs, info.batches), ("memory", None, 0, 1));
}
