//! Damaged files: a typed error, or a verification that tells it; never a panic, never other data than was written (J-8).

use std::path::{Path, PathBuf};

use subtend_journal::{Journal, OpenError, StoreSpec, Stored, open_store};
use subtend_session::ids::{Lsn, SessionId};
use subtend_session::index::{Head, Inflight, Row};

use crate::scene::{family, id};

const FAMILIES: u128 = 20;

/// All that a store tells.
#[derive(Debug, PartialEq)]
struct Told {
    records: Vec<Vec<Stored>>,
    heads: Vec<(SessionId, Head)>,
    inflight: Vec<(SessionId, Inflight)>,
    outbox: Vec<(Row, Lsn)>,
}

/// What a look at a store ends with.
#[derive(Debug, PartialEq)]
enum Look {
    /// It does not open, or is not read, or its verification tells of damage.
    Noticed,
    /// It is sound.
    Sound(Box<Told>),
}

fn sessions() -> impl Iterator<Item = SessionId> {
    (0..FAMILIES).flat_map(|n| [id(10 * n + 1), id(10 * n + 2)])
}

fn tell(journal: &Journal) -> Result<Told, subtend_journal::ReadError> {
    Ok(Told {
        records: sessions().map(|id| journal.records(id)).collect::<Result<_, _>>()?,
        heads: journal.heads()?,
        inflight: journal.inflight()?,
        outbox: journal.outbox()?,
    })
}

fn look(journal: Result<Journal, OpenError>) -> Look {
    let Ok(journal) = journal else { return Look::Noticed };
    let sound = journal.verify(&mut |_| {}).is_ok_and(|report| report.problems.is_empty());
    match tell(&journal) {
        Ok(told) if sound => Look::Sound(Box::new(told)),
        _ => Look::Noticed,
    }
}

/// A store of some families that was closed, and what it tells.
struct Original {
    _dir: tempfile::TempDir,
    path: PathBuf,
    file: Vec<u8>,
    told: Told,
}

fn original() -> Original {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let journal = open_store(&StoreSpec::Redb(path.clone())).unwrap();
    for n in 0..FAMILIES {
        family(&journal, 10 * n + 1, n == 0);
    }
    drop(journal);
    let journal = open_store(&StoreSpec::Redb(path.clone())).unwrap();
    let told = tell(&journal).unwrap();
    drop(journal);
    let file = std::fs::read(path.join("redb-4/journal.redb")).unwrap();
    Original { _dir: dir, path, file, told }
}

/// Opens a copy of the store with `file` in place of its own.
fn with(original: &Original, file: &[u8]) -> Look {
    let dir = tempfile::tempdir().unwrap();
    let inner = dir.path().join("redb-4");
    std::fs::create_dir_all(&inner).unwrap();
    std::fs::copy(original.path.join("WATERMARK"), dir.path().join("WATERMARK")).unwrap();
    std::fs::write(inner.join("journal.redb"), file).unwrap();
    look(open_store(&StoreSpec::Redb(Path::new(dir.path()).to_owned())))
}

/// A few numbers that are the same in every run.
fn scattered(count: usize, bound: usize) -> impl Iterator<Item = usize> {
    let step = |state: u64| state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    let states = std::iter::successors(Some(42), move |state| Some(step(*state)));
    states.take(count).map(move |state| (state >> 33) as usize % bound)
}

#[test]
fn a_flipped_bit_is_noticed_or_harmless() {
    let original = original();
    // Bytes that are zero are mostly free space, where a flip says nothing.
    let used: Vec<usize> = (0..original.file.len()).filter(|at| original.file[*at] != 0).collect();
    let mut noticed = 0;
    for (n, ix) in scattered(80, used.len()).enumerate() {
        let mut file = original.file.clone();
        file[used[ix]] ^= 1 << (n % 8);
        match with(&original, &file) {
            Look::Noticed => noticed += 1,
            Look::Sound(told) => assert_eq!(*told, original.told, "bit {} of byte {}", n % 8, used[ix]),
        }
    }
    assert!(noticed > 15, "only {noticed} of 80 flips hit something");
}

#[test]
fn a_cut_file_is_noticed_or_harmless() {
    let original = original();
    let len = original.file.len();
    let end = original.file.iter().rposition(|byte| *byte != 0).unwrap_or(0);
    for cut in [1, 7, 64, 512, 1500, 4096, 20_000] {
        for keep in [len - cut, end.saturating_sub(cut), end - end.min(cut * 7)] {
            match with(&original, &original.file[..keep]) {
                Look::Noticed => {}
                Look::Sound(told) => assert_eq!(*told, original.told, "the first {keep} of {len} bytes"),
            }
        }
    }
}

#[test]
fn bytes_of_something_else_are_no_store() {
    let original = original();
    let foreign = b"SQLite format 3\0".repeat(4096);
    assert_eq!(with(&original, &foreign), Look::Noticed);
    assert_eq!(with(&original, b""), Look::Noticed, "an empty file is a lost tail");
    assert_eq!(with(&original, &original.file), Look::Sound(Box::new(tell_again(&original))));
}

fn tell_again(original: &Original) -> Told {
    let journal = open_store(&StoreSpec::Redb(original.path.clone())).unwrap();
    tell(&journal).unwrap()
}

/// One session's damaged frame concerns that session alone.
#[test]
fn damage_to_one_session_leaves_the_others() {
    let original = original();
    let needle = id(31).short().to_string();
    let mut file = original.file.clone();
    // Every copy of the birth's JSON, also those in pages that are free by now.
    let needle = format!("\"short\":\"{needle}\",\"agent\":\"explore\",\"agent_hash\"");
    let places: Vec<usize> =
        file.windows(needle.len()).enumerate().filter(|(_, at)| *at == needle.as_bytes()).map(|(at, _)| at).collect();
    assert!(!places.is_empty());
    places.iter().for_each(|at| file[at + 10] ^= 1);
    std::fs::write(original.path.join("redb-4/journal.redb"), file).unwrap();
    let Original { path, _dir, .. } = original;
    let journal = open_store(&StoreSpec::Redb(path)).unwrap();
    for session in sessions() {
        let read = journal.records(session).map_err(|error| error.to_string());
        if session == id(31) {
            let words = read.unwrap_err();
            assert!(words.starts_with(&format!("session {session} is damaged at record 1 (lsn ")), "{words}");
        } else {
            assert!(read.is_ok(), "{read:?}");
        }
    }
    let report = journal.verify(&mut |_| {}).unwrap();
    let told: Vec<_> = report.problems.iter().filter_map(|problem| problem.session).collect();
    assert_eq!(told, vec![id(31), id(31)], "{:?}", report.problems);
}
