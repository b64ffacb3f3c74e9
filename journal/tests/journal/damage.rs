//! Damaged files cause a typed error or a report, but never a panic or wrong data.

use crate::scene::*;
use ::redb::ReadableTable as _;
use subtend_session::index::{Head, Inflight};

use crate::engines::{Kind, for_each_engine};
use crate::files::{self, FileImage};

const FAMILIES: u128 = 20;
/// Number of flipped bits in all files, and the minimum in each.
const FLIPS: usize = 80;
const FLIPS_EACH: usize = 3;

#[derive(PartialEq)]
struct Contents {
    records: Vec<Vec<Stored>>,
    heads: Vec<(SessionId, Head)>,
    inflight: Vec<(SessionId, Inflight)>,
    outbox: Vec<(Row, Lsn)>,
}

#[derive(PartialEq)]
enum Inspection {
    /// The store does not open, cannot be read, or its verification reports damage.
    Noticed,
    Sound(Box<Contents>),
}

fn sessions() -> impl Iterator<Item = SessionId> {
    (0..FAMILIES).flat_map(|n| [id(10 * n + 1), id(10 * n + 2)])
}

fn contents(journal: &Journal) -> Result<Contents, subtend_journal::ReadError> {
    Ok(Contents {
        records: sessions().map(|id| journal.records(id)).collect::<Result<_, _>>()?,
        heads: journal.heads()?,
        inflight: journal.inflight()?,
        outbox: journal.outbox()?,
    })
}

fn inspect(journal: Result<Journal, OpenError>) -> Inspection {
    let Ok(journal) = journal else { return Inspection::Noticed };
    let sound = journal.verify(&mut |_| {}).is_ok_and(|report| report.problems.is_empty());
    match contents(&journal) {
        Ok(contents) if sound => Inspection::Sound(Box::new(contents)),
        _ => Inspection::Noticed,
    }
}

struct Original {
    kind: Kind,
    _dir: tempfile::TempDir,
    path: PathBuf,
    files: Vec<FileImage>,
    contents: Contents,
}

fn original(kind: Kind) -> Original {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let journal = kind.open(&path);
    for n in 0..FAMILIES {
        family(&journal, 10 * n + 1, n == 0);
    }
    drop(journal);
    let journal = kind.open(&path);
    let contents = contents(&journal).unwrap();
    drop(journal);
    let files = files::take(&path.join(kind.entry()));
    Original { kind, _dir: dir, path, files, contents }
}

/// Opens a copy of the store with `file` replaced.
fn with(original: &Original, file: &FileImage) -> Inspection {
    let dir = tempfile::tempdir().unwrap();
    std::fs::copy(original.path.join("WATERMARK"), dir.path().join("WATERMARK")).unwrap();
    let others = original.files.iter().filter(|other| other.path != file.path);
    files::put(&dir.path().join(original.kind.entry()), others.chain([file]));
    inspect(original.kind.try_open(dir.path()))
}

/// Deterministic sample positions.
fn sample_positions(count: usize, bound: usize) -> impl Iterator<Item = usize> {
    let step = |state: u64| state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    let states = std::iter::successors(Some(42), move |state| Some(step(*state)));
    states.take(count).map(move |state| (state >> 33) as usize % bound)
}

async fn flipped_bit_is_noticed_or_harmless(kind: Kind) {
    let original = original(kind);
    let mut noticed = 0;
    let mut tries = 0;
    let each = FLIPS_EACH.max(FLIPS / original.files.len());
    for file in original.files.iter().filter(|file| !file.bytes.is_empty()) {
        // Zeros are mostly free space, where a flip has no effect.
        let used: Vec<usize> = (0..file.bytes.len()).filter(|at| file.bytes[*at] != 0).collect();
        for (n, ix) in sample_positions(each, used.len()).enumerate() {
            tries += 1;
            match with(&original, &file.with_flipped_bit(used[ix], n % 8)) {
                Inspection::Noticed => noticed += 1,
                Inspection::Sound(contents) => {
                    let same = *contents == original.contents;
                    assert!(same, "bit {} of byte {} of {} changes the content", n % 8, used[ix], file.path.display());
                }
            }
        }
    }
    assert!(noticed > 15, "only {noticed} of {tries} flips are noticed");
}

/// Truncates the file, and its used part.
async fn torn_tail_is_noticed_or_harmless(kind: Kind) {
    let original = original(kind);
    for file in original.files.iter().filter(|file| file.len > 0) {
        let (len, end) = (file.len, file.bytes.len());
        let mut torn: Vec<FileImage> = Vec::new();
        for back in [1, 7, 64, 512, 1500, 4096] {
            torn.extend([file.cut(len.saturating_sub(back)), file.cut(end.saturating_sub(back))]);
            torn.extend(end.checked_sub(back).map(|at| file.with_flipped_bit(at, back % 8)));
        }
        // Short files are often truncated to nothing.
        torn.dedup();
        for torn in torn {
            match with(&original, &torn) {
                Inspection::Noticed => {}
                Inspection::Sound(contents) => {
                    let same = *contents == original.contents;
                    assert!(same, "{} with {} of {len} bytes has other content", file.path.display(), torn.len);
                }
            }
        }
    }
}

async fn cut_file_is_noticed_or_harmless(kind: Kind) {
    let original = original(kind);
    for file in original.files.iter().filter(|file| file.len > 0) {
        for keep in [0, file.bytes.len() / 3, file.bytes.len() / 2, file.bytes.len().saturating_sub(20_000)] {
            match with(&original, &file.cut(keep)) {
                Inspection::Noticed => {}
                Inspection::Sound(contents) => {
                    let same = *contents == original.contents;
                    assert!(
                        same,
                        "the first {keep} of {} bytes of {} are read as other records",
                        file.len,
                        file.path.display()
                    );
                }
            }
        }
    }
}

async fn foreign_bytes_are_not_a_store(kind: Kind) {
    let original = original(kind);
    let main = original.files.iter().max_by_key(|file| file.bytes.len()).unwrap();
    let foreign = b"SQLite format 3\0".repeat(4096);
    let foreign = FileImage { len: foreign.len(), bytes: foreign, ..main.clone() };
    assert!(with(&original, &foreign) == Inspection::Noticed, "{} of another store", main.path.display());
    assert!(with(&original, &main.cut(0)) == Inspection::Noticed, "an empty {} is a lost tail", main.path.display());
    let contents = contents(&kind.open(&original.path)).unwrap();
    assert!(with(&original, main) == Inspection::Sound(Box::new(contents)), "the original file is not accepted");
}

/// Changes a frame so that the engine's checks do not notice it.
pub(crate) fn change_frame(kind: Kind, entry: &Path, lsn: u64, spoil: impl FnOnce(&mut Vec<u8>)) {
    match kind {
        Kind::Redb => {
            let db = ::redb::Database::create(entry.join("journal.redb")).unwrap();
            let txn = db.begin_write().unwrap();
            let mut log = txn.open_table(::redb::TableDefinition::<u64, &[u8]>::new("log")).unwrap();
            let mut frame = log.get(lsn).unwrap().unwrap().value().to_vec();
            spoil(&mut frame);
            log.insert(lsn, frame.as_slice()).unwrap();
            drop(log);
            txn.commit().unwrap();
        }
        Kind::Sled => {
            let db = ::sled::Config::new().path(entry).segment_size(4 << 20).open().unwrap();
            let key = [b"l".as_slice(), &lsn.to_be_bytes()].concat();
            let mut frame = db.get(&key).unwrap().unwrap().to_vec();
            spoil(&mut frame);
            db.insert(key, frame).unwrap();
            db.flush().unwrap();
        }
        Kind::Postgres => kind.has_no_directory(),
    }
}

/// Replaces the head of a session.
fn replace_head(kind: Kind, entry: &Path, session: SessionId) {
    let (key, other) = (session.0.as_bytes(), b"no head at all".as_slice());
    match kind {
        Kind::Redb => {
            let db = ::redb::Database::create(entry.join("journal.redb")).unwrap();
            let txn = db.begin_write().unwrap();
            let mut heads = txn.open_table(::redb::TableDefinition::<&[u8; 16], &[u8]>::new("head")).unwrap();
            assert!(heads.insert(key, other).unwrap().is_some());
            drop(heads);
            txn.commit().unwrap();
        }
        Kind::Sled => {
            let db = ::sled::Config::new().path(entry).segment_size(4 << 20).open().unwrap();
            assert!(db.insert([b"h".as_slice(), key].concat(), other).unwrap().is_some());
            db.flush().unwrap();
        }
        Kind::Postgres => kind.has_no_directory(),
    }
}

/// The tree of a child with a damaged head is known from its first frame and its parent.
async fn damaged_head_excludes_only_its_tree(kind: Kind) {
    let original = original(kind);
    replace_head(kind, &original.path.join(kind.entry()), id(32));
    let journal = kind.open(&original.path);
    let refused = journal.export(Scope::Store, &mut Vec::new(), &mut |_| {}).unwrap_err().to_string();
    assert!(refused.contains("`head` is corrupt"), "{refused}");
    let mut out = Vec::new();
    let (tally, skipped) = journal.export_sound(&mut out, &mut |_| {}).unwrap();
    let skipped: Vec<_> = skipped.iter().map(|one| (one.session, one.root, one.sessions)).collect();
    assert_eq!((tally.sessions, skipped), (2 * FAMILIES as u64 - 2, vec![(id(32), id(31), 2)]));
    let other = Journal::open(Box::new(Memory::new()), Options::default()).unwrap();
    assert_eq!(other.import(&mut Cursor::new(out), &ImportBounds::none(), &mut |_| {}).await.unwrap(), tally);
}

async fn damage_to_one_session_leaves_the_others(kind: Kind) {
    let original = original(kind);
    let needle = format!("\"short\":\"{}\"", id(31).short());
    // The first of seven frames of the fourth family.
    change_frame(kind, &original.path.join(kind.entry()), 22, |frame| {
        let at = frame.windows(needle.len()).position(|at| at == needle.as_bytes()).unwrap();
        frame[at + 10] ^= 1;
    });
    let journal = kind.open(&original.path);
    for session in sessions() {
        let read = journal.records(session).map_err(|error| error.to_string());
        if session == id(31) {
            let text = read.unwrap_err();
            assert!(text.starts_with(&format!("session {session} is damaged at record 1 (lsn 22)")), "{text}");
        } else {
            assert!(read.is_ok(), "{read:?}");
        }
    }
    let report = journal.verify(&mut |_| {}).unwrap();
    let contents: Vec<_> = report.problems.iter().filter_map(|problem| problem.session).collect();
    assert_eq!(contents, vec![id(31), id(31)], "{:?}", report.problems);
    // An export of the whole store names the damage, and `export_sound` writes all other trees completely.
    let refused = journal.export(Scope::Store, &mut Vec::new(), &mut |_| {}).unwrap_err().to_string();
    assert!(refused.starts_with(&format!("session {} is damaged at record 1 (lsn 22)", id(31))), "{refused}");
    let mut out = Vec::new();
    let (tally, skipped) = journal.export_sound(&mut out, &mut |_| {}).unwrap();
    let skipped: Vec<_> = skipped.iter().map(|one| (one.session, one.root, one.sessions, &*one.why)).collect();
    let why = journal.records(id(31)).unwrap_err().to_string();
    assert_eq!((tally.sessions, skipped), (2 * FAMILIES as u64 - 2, vec![(id(31), id(31), 2, &*why)]));
    let other = Journal::open(Box::new(Memory::new()), Options::default()).unwrap();
    assert_eq!(other.import(&mut Cursor::new(out), &ImportBounds::none(), &mut |_| {}).await.unwrap(), tally);
    assert_eq!(other.verify(&mut |_| {}).unwrap().problems, vec![]);
}

for_each_engine!(
    flipped_bit_is_noticed_or_harmless,
    torn_tail_is_noticed_or_harmless,
    cut_file_is_noticed_or_harmless,
    foreign_bytes_are_not_a_store,
    damaged_head_excludes_only_its_tree,
    damage_to_one_session_leaves_the_others,
);
