//! Stores that others made: opening one reads, writes and removes nothing outside of it, and waits for nothing.

use std::os::unix::fs::symlink;

use subtend_journal::compact_store;
use subtend_journal::engine::{Group, GroupFrame, Payload};
use subtend_journal::error::EngineError;
use subtend_journal::redb::Redb;
use subtend_session::ids::Epoch;
use subtend_session::index::Changes;

use crate::blobs::{blobs, input_frame, records, sizes, stored};
use crate::damage::change_frame;
use crate::engines::{CACHE, Kind, for_each_engine};
use crate::files;
use crate::medium::Medium;
use crate::scene::*;

/// A file outside of the store with the name of a blob.
const OUTSIDE: &str = "ab/abababababababababababababababab";

fn compacted(kind: Kind, store: &Path) -> PathBuf {
    store.join(format!("{}.compacted", kind.entry()))
}

/// A store with blobs and a finished compaction, in `given` of a directory that also has other files.
fn given(kind: Kind) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("given");
    stored(kind, &store);
    files::put(&compacted(kind, &store), &files::take(&store.join(kind.entry())));
    for path in [OUTSIDE, "src/main.rs", "kept/LOCK"] {
        let path = dir.path().join("outside").join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "of the person").unwrap();
    }
    (dir, store)
}

/// Tries each way to open the store in `store`.
fn open_in_each_way(kind: Kind, store: &Path) -> [Result<(), OpenError>; 3] {
    let spec = kind.spec(store);
    [
        open_store_to_read(&spec, Options::default(), &mut |_| {}).map(drop),
        compact_store(&spec, &Options::default(), &mut |_| {}).map(drop),
        kind.try_open(store).map(drop),
    ]
}

fn refusals(kind: Kind, store: &Path, path: &Path) -> [String; 3] {
    open_in_each_way(kind, store).map(|opened| match opened {
        Err(OpenError::Irregular { path: named, found }) if named == path => found.to_owned(),
        other => panic!("{}: {other:?}", path.display()),
    })
}

/// Returns the entries that openings use: of each store, of the engine, and of its finished compaction.
fn entries(kind: Kind, store: &Path) -> Vec<PathBuf> {
    let (entry, compacted) = (store.join(kind.entry()), compacted(kind, store));
    let files = files::take(store).into_iter().map(|file| store.join(file.path));
    let files = files.filter(|file| !file.starts_with(store.join("blobs")));
    let shelf = blobs(store)[0].parent().unwrap().to_owned();
    files.chain([store.join("blobs"), shelf, entry, compacted]).collect()
}

/// The control: without the link, each way opens the store.
async fn links_in_a_given_store_are_refused(kind: Kind) {
    let (dir, store) = given(kind);
    let (paths, outside, moved) = (entries(kind, &store), dir.path().join("outside"), dir.path().join("moved"));
    let before = files::take(&outside);
    assert!(paths.len() >= 8, "{paths:?}");
    for path in paths {
        let target = if path.is_dir() { outside.clone() } else { outside.join("kept/LOCK") };
        std::fs::rename(&path, &moved).unwrap();
        symlink(&target, &path).unwrap();
        assert_eq!(refusals(kind, &store, &path), ["a link"; 3]);
        assert!(files::take(&outside) == before, "{}", path.display());
        std::fs::remove_file(&path).unwrap();
        std::fs::rename(&moved, &path).unwrap();
    }
    open_in_each_way(kind, &store).into_iter().for_each(Result::unwrap);
}

/// Without the check, opening a pipe waits until another process writes to it. The control: files in place of the pipes.
async fn pipes_in_a_given_store_are_refused(kind: Kind) {
    let (dir, store) = given(kind);
    let moved = dir.path().join("moved");
    for path in entries(kind, &store).into_iter().filter(|path| path.is_file()) {
        std::fs::rename(&path, &moved).unwrap();
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        assert_eq!(refusals(kind, &store, &path), ["a pipe, a socket or a device"; 3]);
        std::fs::rename(&moved, &path).unwrap();
    }
    open_in_each_way(kind, &store).into_iter().for_each(Result::unwrap);
}

/// The control: files with names of blobs, which no row names, are removed.
async fn finished_compaction_removes_only_blobs(kind: Kind) {
    let (_dir, store) = given(kind);
    let named = blobs(&store);
    let removed = [OUTSIDE, "ab/abababababababababababababababac.making"];
    let kept = ["src/abababababababababababababababab", "ab/main.rs", "ab/abababababababababababababababab.rs"];
    for path in removed.iter().chain(&kept) {
        let path = store.join("blobs").join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "of the person").unwrap();
    }
    let directory = store.join("blobs/ab/cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd");
    std::fs::create_dir(&directory).unwrap();
    drop(kind.open(&store));
    let mut expected: Vec<_> = named.into_iter().chain(kept.map(|path| store.join("blobs").join(path))).collect();
    expected.sort();
    assert_eq!((blobs(&store), directory.is_dir()), (expected, true));
}

/// The author of a store may know what the next large body is. The control: the blob is written.
async fn blobs_are_not_written_through_links(kind: Kind) {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let append = |store: &Path, blob: Option<&Path>| {
        let mut writer = SessionWriter::new(id(1));
        let journal = kind.open(store);
        journal.append(one(created_session(&mut writer, None, true))).unwrap();
        let frame = input_frame(&mut writer, sizes(kind).1);
        if let Some(blob) = blob {
            std::fs::create_dir_all(blob.parent().unwrap()).unwrap();
            assert!(Command::new("mkfifo").arg(blob).status().unwrap().success());
            symlink(dir.path().join("victim"), blob.with_added_extension("making")).unwrap();
        }
        journal.append(one(frame)).unwrap();
        writer
    };
    append(other.path(), None);
    let (store, victim) = (dir.path().join("given"), dir.path().join("victim"));
    std::fs::write(&victim, "of the person").unwrap();
    let blob = store.join(blobs(other.path())[0].strip_prefix(other.path()).unwrap());
    let writer = append(&store, Some(&blob));
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "of the person");
    assert_eq!(records(&kind.open(&store), id(1)), Ok(writer.records));
    assert_eq!(blobs(&store), [blob]);
}

/// The author of a store chooses the length that a frame names, and a sparse file of that length. The control: a possible length, with
/// which the file is read.
async fn length_of_a_blob_is_bounded(kind: Kind) {
    const MOST: u64 = 64 << 20;
    for (len, why) in [(MOST + 1, "has 67108865 bytes, above the limit of 67108864"), (MOST, "does not match its hash")]
    {
        let (_dir, store) = given(kind);
        std::fs::remove_dir_all(compacted(kind, &store)).unwrap();
        for blob in blobs(&store) {
            std::fs::File::options().write(true).open(blob).unwrap().set_len(len).unwrap();
        }
        change_frame(kind, &store.join(kind.entry()), 6, |frame| {
            frame[68..76].copy_from_slice(&len.to_be_bytes());
            let sum = crc32c::crc32c_append(crc32c::crc32c(&frame[..48]), &frame[52..]);
            frame[48..52].copy_from_slice(&sum.to_be_bytes());
        });
        let error = records(&kind.open(&store), id(2)).unwrap_err();
        assert!(error.contains(why), "{error}");
    }
}

/// The start of the watermark is read, whatever follows it. The control: without the start, the file is damaged.
async fn only_the_start_of_a_watermark_is_read(kind: Kind) {
    let (_dir, store) = given(kind);
    let mark = std::fs::File::options().write(true).open(store.join("WATERMARK")).unwrap();
    mark.set_len(1 << 40).unwrap();
    drop(kind.open(&store));
    mark.set_len(0).unwrap();
    mark.set_len(1 << 40).unwrap();
    let refused = kind.try_open(&store).unwrap_err();
    assert!(matches!(refused, OpenError::Watermark { state: "is damaged", .. }), "{refused}");
}

for_each_engine!(
    links_in_a_given_store_are_refused,
    pipes_in_a_given_store_are_refused,
    finished_compaction_removes_only_blobs,
    blobs_are_not_written_through_links,
    length_of_a_blob_is_bounded,
    only_the_start_of_a_watermark_is_read,
);

/// Writes a frame, which is an error if there is one.
fn write_frame(engine: &dyn Engine, lsn: u64) -> Result<(), EngineError> {
    let (session, payload) = (id(10), Payload::Bytes(vec![0; 60]));
    let (first_seq, epoch, changes) = (Seq(lsn), Epoch(1), Changes::default());
    let frame = GroupFrame { lsn: Lsn(lsn), session, first_seq, count: 1, epoch, at_ms: AT_MS, payload, changes };
    engine.write(Group { frames: vec![frame] })
}

/// The commit of closing can abort the process on damaged pages, before a command has reported anything. The control: after writes that
/// worked, the engine commits when it is closed.
#[test]
fn engine_that_may_be_damaged_closes_without_a_commit() {
    for (wrote, failed) in [(true, false), (false, false), (true, true), (false, true)] {
        let medium = Medium::default();
        let open = || Redb::over(medium.clone(), CACHE).unwrap();
        write_frame(&open(), 1).unwrap();
        let engine = open();
        if wrote {
            write_frame(&engine, 2).unwrap();
        }
        if failed {
            write_frame(&engine, 1).unwrap_err();
        }
        let before = medium.steps();
        drop(engine);
        assert_eq!(medium.steps() > before, wrote && !failed, "{wrote} {failed}");
        assert_eq!(open().last_lsn().unwrap(), Lsn(1 + u64::from(wrote)));
    }
}
