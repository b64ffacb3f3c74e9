//! Opening read-only changes nothing, in any state that the last process left.

use crate::engines::{Kind, for_each_engine};
use crate::files::{self, FileImage};
use crate::scene::*;

fn read(kind: Kind, dir: &Path) -> Result<Journal, OpenError> {
    open_store_to_read(&kind.spec(dir), Options::default(), &mut |_| {})
}

/// All files except the lock.
fn list_files(dir: &Path) -> Vec<FileImage> {
    files::take(dir).into_iter().filter(|file| file.path != Path::new("LOCK")).collect()
}

/// Copies the files of a killed process.
async fn copy_killed(kind: Kind, dir: &Path) -> PathBuf {
    let (whole, left) = (dir.join("whole"), dir.join("left"));
    let journal = kind.open(&whole);
    family(&journal, 10, true);
    journal.settled().await.unwrap();
    files::put(&left, &files::take(&whole));
    left
}

async fn reading_does_not_change_the_store(kind: Kind) {
    let dir = tempfile::tempdir().unwrap();
    let left = copy_killed(kind, dir.path()).await;
    let before = list_files(&left);
    let journal = read(kind, &left).unwrap();
    assert_eq!(journal.verify(&mut |_| {}).unwrap().problems, vec![]);
    assert_eq!((journal.durable(), journal.heads().unwrap().len()), (Lsn(7), 2));
    drop(journal);
    assert!(list_files(&left) == before, "a file of the store has changed");
    // Negative control: writing changes the files.
    let journal = kind.open(&left);
    journal.append(one(created_session(&mut SessionWriter::new(id(9)), None, true))).unwrap();
    journal.close().await.unwrap();
    let changed: Vec<_> = list_files(&left).into_iter().filter(|file| !before.contains(file)).collect();
    assert!(changed.iter().any(|file| file.path.starts_with(kind.entry())), "{}", changed.len());
}

async fn store_opened_to_read_refuses_writes(kind: Kind) {
    let dir = tempfile::tempdir().unwrap();
    let left = copy_killed(kind, dir.path()).await;
    let before = list_files(&left);
    let journal = read(kind, &left).unwrap();
    let appended = journal.append(one(created_session(&mut SessionWriter::new(id(1)), None, true))).unwrap();
    let refused = journal.wait(appended.last).await.unwrap_err().to_string();
    assert!(refused.contains("the store was opened read-only"), "{refused}");
    drop(journal);
    assert!(list_files(&left) == before);
}

async fn store_opened_to_read_is_locked_for_others(kind: Kind) {
    let dir = tempfile::tempdir().unwrap();
    drop(kind.open(dir.path()));
    let journal = read(kind, dir.path()).unwrap();
    assert!(matches!(kind.try_open(dir.path()), Err(OpenError::InUse { .. })));
    drop(journal);
    let journal = kind.open(dir.path());
    assert!(matches!(read(kind, dir.path()), Err(OpenError::InUse { .. })));
    drop(journal);
}

async fn reading_does_not_create_a_missing_store(kind: Kind) {
    let dir = tempfile::tempdir().unwrap();
    let refused = read(kind, &dir.path().join("none")).unwrap_err().to_string();
    assert!(refused.contains("No such file or directory"), "{refused}");
    assert!(!dir.path().join("none").exists());

    let journal = kind.open(dir.path());
    family(&journal, 10, true);
    journal.close().await.unwrap();
    std::fs::remove_dir_all(dir.path().join(kind.entry())).unwrap();
    let refused = read(kind, dir.path()).unwrap_err();
    assert!(matches!(refused, OpenError::Behind { found: Lsn(0), watermark: Lsn(7) }), "{refused:?}");
    assert!(!dir.path().join(kind.entry()).exists());
}

async fn lost_tail_is_reported_at_every_opening(kind: Kind) {
    let dir = tempfile::tempdir().unwrap();
    let journal = kind.open(dir.path());
    family(&journal, 10, true);
    journal.close().await.unwrap();
    std::fs::remove_file(dir.path().join("WATERMARK")).unwrap();
    let before = list_files(dir.path());
    let refused = read(kind, dir.path()).unwrap_err().to_string();
    assert!(refused.contains("WATERMARK is missing"), "{refused}");
    let accepted = Options { accept_loss: true, ..Options::default() };
    let journal = open_store_to_read(&kind.spec(dir.path()), accepted, &mut |_| {}).unwrap();
    assert_eq!(journal.durable(), Lsn(7));
    drop(journal);
    assert!(list_files(dir.path()) == before, "opening read-only accepted a loss");
}

for_each_engine!(
    reading_does_not_change_the_store,
    store_opened_to_read_refuses_writes,
    store_opened_to_read_is_locked_for_others,
    reading_does_not_create_a_missing_store,
    lost_tail_is_reported_at_every_opening,
);
