//! Deletion and erasure: no export contains the text of a deleted session, and a compaction removes it from the store.

use crate::scene::*;
use subtend_journal::{Compacted, CompactionStep, DeferredErasure, audit, compact_store};

use crate::engines::{Kind, for_each_engine};
use crate::exporting::{memory, read, write};
use crate::files;

pub(crate) const SECRET: &str = "the-launch-code-is-0451";

/// Two trees: session 20, and root 10, which received the notice of its deleted child 11. The child had the secret.
pub(crate) fn with_deleted_child(journal: &Journal) -> Family {
    let mut family = family(journal, 10, true);
    journal.append(one(family.taken())).unwrap();
    append_input(journal, &mut family.child, SECRET);
    delete(journal, &mut family.child);
    let mut other = SessionWriter::new(id(20));
    journal.append(one(created_session(&mut other, None, false))).unwrap();
    family
}

pub(crate) fn append_input(journal: &Journal, writer: &mut SessionWriter, text: &str) {
    let n = writer.id.0.as_u128() * 1_000 + writer.records.len() as u128;
    let received = record(json!({"input_accepted": {
        "id": uuid::Uuid::from_u128(n), "from": "person", "lane": "send", "text": text, "as_owner": "person",
    }}));
    let frame = writer.frame_of(vec![received]);
    journal.append(one(frame)).unwrap();
}

/// Deletes the session together with its queue.
pub(crate) fn delete(journal: &Journal, writer: &mut SessionWriter) {
    let cleared = record(json!({"queue_changed": {"change": "cleared", "by": "person"}}));
    let deleted = record(json!({"session_deleted": {"by": "person"}}));
    let frame = writer.frame_of(vec![cleared, deleted]);
    journal.append(one(frame)).unwrap();
}

fn list_sessions(journal: &Journal) -> Vec<(SessionId, bool)> {
    journal.heads().unwrap().into_iter().map(|(session, head)| (session, head.deleted)).collect()
}

#[tokio::test]
async fn j10_export_omits_deleted_sessions() {
    let journal = memory();
    let family = with_deleted_child(&journal);
    if let Some(dir) = std::env::var_os("SUBTEND_WRITE_FIXTURES") {
        std::fs::write(Path::new(&dir).join("deleted.jsonl"), write(&journal, Scope::Store)).unwrap();
    }
    for scope in [Scope::Store, Scope::Tree(id(10))] {
        let file = write(&journal, scope);
        assert!(!String::from_utf8(file.clone()).unwrap().contains(SECRET), "{scope:?}");
        let other = memory();
        read(&other, &file).await.unwrap();
        assert_eq!(problems(&other), Vec::<String>::new());
        assert_eq!(other.records(id(10)).unwrap(), journal.records(id(10)).unwrap());
        assert!(other.records(family.child.id).is_err());
        assert!(write(&other, scope) == file, "{scope:?}: the second export differs");
    }
    let other = memory();
    read(&other, &write(&journal, Scope::Store)).await.unwrap();
    assert_eq!(list_sessions(&other), [(id(10), false), (id(11), true), (id(20), false)]);
}

/// Returns the files below `dir` that contain `text`.
fn files_with(dir: &Path, text: &str) -> Vec<String> {
    let found = files::take(dir).into_iter();
    let holds = |bytes: &[u8]| String::from_utf8_lossy(bytes).contains(text);
    found.filter(|file| holds(&file.bytes)).map(|file| file.path.display().to_string()).collect()
}

/// End of the log, records of the other sessions, export of the store, listed sessions, and the session of each frame.
type Others = (Lsn, Vec<Vec<Stored>>, Vec<u8>, Vec<(SessionId, bool)>, Vec<(Lsn, SessionId)>);

/// Reads all that a compaction must not change.
fn read_kept(journal: &Journal) -> Others {
    let records = [10, 20].map(|n| journal.records(id(n)).unwrap()).to_vec();
    let place = journal.last_appended();
    let frames = (1..=place.0).map(Lsn).filter_map(|lsn| Some((lsn, journal.frame_at(lsn).unwrap()?.0)));
    let kept = frames.filter(|(_, session)| *session != id(11)).collect();
    (place, records, write(journal, Scope::Store), list_sessions(journal), kept)
}

/// The store of [`with_deleted_child`]; the child also has a blob, and a crash has left another one.
async fn stored(kind: Kind, dir: &Path) {
    let journal = kind.open(dir);
    let mut family = family(&journal, 10, true);
    journal.append(one(family.taken())).unwrap();
    append_input(&journal, &mut family.child, SECRET);
    append_input(&journal, &mut family.child, &SECRET.repeat(48 << 10));
    append_input(&journal, &mut family.root, &"kept ".repeat(220 << 10));
    delete(&journal, &mut family.child);
    let mut other = SessionWriter::new(id(20));
    journal.append(one(created_session(&mut other, None, false))).unwrap();
    journal.close().await.unwrap();
    let shelf = dir.join("blobs/ab");
    std::fs::create_dir_all(&shelf).unwrap();
    std::fs::write(shelf.join("abababababababababababababababab"), SECRET).unwrap();
    std::fs::write(shelf.join("abababababababababababababababac.making"), SECRET).unwrap();
}

async fn check_erasure(kind: Kind, dir: &Path, before: &Others) {
    let journal = kind.open(dir);
    assert_eq!(problems(&journal), Vec::<String>::new());
    audit(&journal, false).unwrap();
    assert!(read_kept(&journal) == *before);
    journal.close().await.unwrap();
}

async fn j10_compaction_erases_every_byte(kind: Kind) {
    let dir = tempfile::tempdir().unwrap();
    stored(kind, dir.path()).await;
    let journal = kind.open(dir.path());
    let before = read_kept(&journal);
    journal.close().await.unwrap();
    assert!(files_with(dir.path(), SECRET).len() >= 4, "expected the store, a blob and two blobs without a row");
    let mut steps = Vec::new();
    let done = compact_store(&kind.spec(dir.path()), &Options::default(), &mut |step| steps.push(step)).unwrap();
    assert_eq!(done, Compacted { erased: 1, frames: 6, blobs: 3, deferred: vec![] });
    assert_eq!(files_with(dir.path(), SECRET), Vec::<String>::new());
    check_erasure(kind, dir.path(), &before).await;
    assert_eq!(files_with(dir.path(), SECRET), Vec::<String>::new(), "the text is back after opening");
    let journal = kind.open(dir.path());
    assert!(matches!(journal.records(id(11)), Err(ReadError::NoSuchSession(_))));
    assert!(journal.activate(id(11)).is_err());
    // New frames follow the last one.
    let mut third = SessionWriter::new(id(30));
    let appended = journal.append(one(created_session(&mut third, None, false))).unwrap();
    assert_eq!(appended.first, before.0.next());
    journal.close().await.unwrap();
    let again = compact_store(&kind.spec(dir.path()), &Options::default(), &mut |_| {}).unwrap();
    assert_eq!(again, Compacted::default(), "erased sessions are counted twice");
}

/// Kills a compaction at each step: the text is erased or the old store is complete. Another one erases it.
async fn j10_kill_at_any_step_leaves_a_whole_store(kind: Kind) {
    for at in 0.. {
        let dir = tempfile::tempdir().unwrap();
        stored(kind, dir.path()).await;
        let journal = kind.open(dir.path());
        let before = read_kept(&journal);
        journal.close().await.unwrap();
        let (mut step, mut whole) = (0, false);
        let killed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            compact_store(&kind.spec(dir.path()), &Options::default(), &mut |now| {
                whole |= now == CompactionStep::Whole;
                if step == at {
                    std::panic::resume_unwind(Box::new("killed"));
                }
                step += 1;
            })
        }))
        .is_err();
        let read = open_store_to_read(&kind.spec(dir.path()), Options::default(), &mut |_| {}).unwrap();
        assert!(read_kept(&read) == before, "step {at}");
        assert_eq!(read.records(id(11)).is_err(), whole, "step {at}");
        read.close().await.unwrap();
        check_erasure(kind, dir.path(), &before).await;
        if whole {
            assert_eq!(files_with(dir.path(), SECRET), Vec::<String>::new(), "step {at}: the opening completes it");
        } else {
            assert_eq!(kind.open(dir.path()).records(id(11)).unwrap().len(), 12, "step {at}");
        }
        compact_store(&kind.spec(dir.path()), &Options::default(), &mut |_| {}).unwrap();
        assert_eq!(files_with(dir.path(), SECRET), Vec::<String>::new(), "step {at}");
        check_erasure(kind, dir.path(), &before).await;
        if !killed {
            assert!(at >= 5, "only {at} steps");
            return;
        }
    }
}

pub(crate) async fn j10_session_with_an_obligation_is_not_erased(kind: Kind) {
    let dir = tempfile::tempdir().unwrap();
    let journal = kind.open(dir.path());
    let mut family = family(&journal, 10, true);
    delete(&journal, &mut family.child);
    journal.close().await.unwrap();
    let done = compact_store(&kind.spec(dir.path()), &Options::default(), &mut |_| {}).unwrap();
    let why = format!("session {} has not received what it sent", id(10));
    assert_eq!(done, Compacted { deferred: vec![DeferredErasure { session: id(11), why }], ..Compacted::default() });
    let journal = kind.open(dir.path());
    assert_eq!((problems(&journal), journal.outbox().unwrap().len()), (vec![], 1));
    let epoch = journal.activate(id(10)).unwrap().epoch;
    family.root.epoch = epoch;
    let taken = family.taken();
    journal.append(one(taken)).unwrap();
    journal.close().await.unwrap();
    let done = compact_store(&kind.spec(dir.path()), &Options::default(), &mut |_| {}).unwrap();
    assert_eq!(done, Compacted { erased: 1, frames: 4, ..Compacted::default() });
}

for_each_engine!(
    j10_compaction_erases_every_byte,
    j10_kill_at_any_step_leaves_a_whole_store,
    j10_session_with_an_obligation_is_not_erased,
);

/// The deletion of a tree is durable once that of its root is.
#[tokio::test]
async fn j10_sessions_below_a_deleted_one_count_as_deleted() {
    let journal = memory();
    let mut family = family(&journal, 10, true);
    journal.append(one(family.taken())).unwrap();
    append_input(&journal, &mut family.child, SECRET);
    let ended = record(json!({"run_ended": {
        "run": 1, "outcome": "lost", "result": null, "text": null, "len": 0, "hash": Hash::of(b""),
        "turns": 1, "usage_self": {}, "usage_owned": {}, "worked_ms": 3,
    }}));
    let frame = family.root.frame_of(vec![ended]);
    journal.append(one(frame)).unwrap();
    delete(&journal, &mut family.root);
    assert_eq!(journal.unfinished_deletions().unwrap().into_iter().collect::<Vec<_>>(), [id(10)]);
    assert_eq!(list_sessions(&journal), [(id(10), true), (id(11), true)]);
    assert!(!String::from_utf8(write(&journal, Scope::Store)).unwrap().contains(SECRET));
    assert!(journal.export(Scope::Tree(id(11)), &mut Vec::new(), &mut |_| {}).is_err());
    delete(&journal, &mut family.child);
    assert!(journal.unfinished_deletions().unwrap().is_empty());
}
