//! Exports and imports: identical bytes for every engine; an incomplete export is refused and leaves nothing.

use crate::scene::*;
use subtend_journal::{ImportError, Tally};
use subtend_session::place::{BranchKind, Place};

pub(crate) fn memory() -> Journal {
    Journal::open(Box::new(Memory::new()), Options::default()).unwrap()
}

/// Stores of all built-in engines, by name.
pub(crate) fn stores(dir: &Path) -> Vec<(&'static str, StoreSpec)> {
    let spec = |engine: &'static str| match engine {
        "memory" => StoreSpec::parse(engine).ok(),
        "postgres" => Some(crate::server::shard_of(dir)),
        _ => StoreSpec::parse(&format!("{engine}:{}", dir.join(engine).display())).ok(),
    };
    let mut engines = vec!["memory", "redb", "sled"];
    if crate::SERVER {
        engines.push("postgres");
    }
    engines.into_iter().filter_map(|engine| Some((engine, spec(engine)?))).collect()
}

pub(crate) fn write(journal: &Journal, scope: Scope) -> Vec<u8> {
    let mut out = Vec::new();
    journal.export(scope, &mut out, &mut |_| {}).unwrap();
    out
}

pub(crate) async fn read(journal: &Journal, bytes: &[u8]) -> Result<Tally, ImportError> {
    journal.import(&mut BufReader::new(Cursor::new(bytes)), &ImportBounds::none(), &mut |_| {}).await
}

/// Writes `count` trees. In all but the first, the notice of the child is not delivered.
pub(crate) async fn write_trees(journal: &Journal, count: u128) {
    for n in 0..count {
        let mut family = family(journal, 10 * n + 10, n == 0);
        if n == 0 {
            journal.append(one(family.taken())).unwrap();
        }
    }
    journal.settled().await.unwrap();
}

pub(crate) async fn export_of(count: u128) -> Vec<u8> {
    let journal = memory();
    write_trees(&journal, count).await;
    write(&journal, Scope::Store)
}

pub(crate) fn is_empty(journal: &Journal) -> bool {
    let rows = (journal.heads().unwrap().len(), journal.inflight().unwrap().len(), journal.outbox().unwrap().len());
    rows == (0, 0, 0) && (0..9).all(|n| journal.children(id(10 * n + 10)).unwrap().is_empty())
}

#[tokio::test]
async fn imported_export_is_exported_byte_for_byte_by_every_engine() {
    let dir = tempfile::tempdir().unwrap();
    let mut files = Vec::new();
    for (engine, spec) in stores(&dir.path().join("from")) {
        let journal = open_store(&spec).unwrap();
        write_trees(&journal, 3).await;
        let files_of = [Scope::Store, Scope::Tree(id(21))].map(|scope| write(&journal, scope));
        for (to, spec) in stores(&dir.path().join(engine)) {
            let other = open_store(&spec).unwrap();
            let tally = read(&other, &files_of[0]).await.unwrap();
            assert_eq!(tally, Tally { sessions: 6, frames: 22, records: 52, defs: 3, deleted: 0 }, "{engine} to {to}");
            assert_eq!(problems(&other), Vec::<String>::new(), "{engine} to {to}");
            assert!(write(&other, Scope::Store) == files_of[0], "{engine} to {to}");
            assert!(write(&other, Scope::Tree(id(20))) == files_of[1], "{engine} to {to}: a tree");
            assert_eq!(other.inflight().unwrap().len(), 3, "the roots are no longer in flight");
            for (row, lsn) in other.outbox().unwrap() {
                let (session, frame) = other.frame_at(lsn).unwrap().expect("the frame of the obligation");
                assert_eq!(session, row.from);
                assert!(frame.iter().any(|stored| matches!(stored.record, Record::RunEnded(_))), "{frame:?}");
            }
            assert_eq!(other.outbox().unwrap().len(), 2);
            for session in [10, 11, 20, 21, 30, 31].map(id) {
                assert_eq!(other.records(session).unwrap(), journal.records(session).unwrap());
            }
        }
        files.push(files_of);
    }
    assert!(files.len() >= 3 && files.iter().all(|of| *of == files[0]), "the engines export different bytes");
}

#[tokio::test]
async fn export_of_an_undamaged_store_omits_nothing() {
    let journal = memory();
    write_trees(&journal, 3).await;
    let mut out = Vec::new();
    let (tally, skipped) = journal.export_sound(&mut out, &mut |_| {}).unwrap();
    assert_eq!((tally.sessions, skipped), (6, vec![]));
    assert!(out == write(&journal, Scope::Store));
}

#[tokio::test]
async fn export_of_a_tree_contains_only_its_sessions() {
    let journal = memory();
    write_trees(&journal, 3).await;
    let other = memory();
    read(&other, &write(&journal, Scope::Tree(id(21)))).await.unwrap();
    let imported: Vec<SessionId> = other.heads().unwrap().into_iter().map(|(session, _)| session).collect();
    assert_eq!(imported, [id(20), id(21)]);
    read(&other, &write(&journal, Scope::Tree(id(10)))).await.unwrap();
    assert_eq!(problems(&other), Vec::<String>::new());
    assert!(journal.export(Scope::Tree(id(99)), &mut Vec::new(), &mut |_| {}).is_err());
}

#[tokio::test]
async fn imported_session_can_continue() {
    let (journal, file) = (memory(), export_of(2).await);
    read(&journal, &file).await.unwrap();
    let activation = journal.activate(id(20)).unwrap();
    assert_eq!((activation.epoch.0, activation.next_seq.0), (2, 10));
    assert_eq!(
        activation.inflight.unwrap().opened_lsn,
        Lsn(9),
        "the run's place in the queue is not that of its frame"
    );
}

/// Negative control: one byte flipped, or one line dropped, repeated or moved, at every position.
#[tokio::test]
async fn changed_export_is_refused_and_imports_nothing() {
    let file = export_of(2).await;
    let lines: Vec<&[u8]> = file.split_inclusive(|byte| *byte == b'\n').collect();
    let journal = memory();
    let mut refused = Vec::new();
    for at in (0..file.len()).step_by(11) {
        let mut bytes = file.clone();
        bytes[at] ^= 1 << (at % 8);
        refused.push((format!("byte {at}"), bytes, None));
    }
    for n in 0..lines.len() {
        let without = [&lines[..n], &lines[n + 1..]].concat();
        let doubled = [&lines[..=n], &lines[n..]].concat();
        // The expected line of the error. An error only at the last line, from the sum of the file, is not enough.
        let here = (n + 1 < lines.len()).then_some(n as u64 + 1);
        refused.push((format!("without line {}", n + 1), without.concat(), here));
        refused.push((format!("line {} twice", n + 1), doubled.concat(), here.map(|here| here + 1)));
        if n > 0 {
            let mut moved = lines.clone();
            moved.swap(n - 1, n);
            refused.push((format!("lines {n} and {} swapped", n + 1), moved.concat(), Some(n as u64)));
        }
    }
    refused.push(("an empty line at the end".into(), [&file[..], b"\n"].concat(), Some(lines.len() as u64)));
    for (what, bytes, here) in refused {
        let error = read(&journal, &bytes).await.expect_err(&what);
        let (ImportError::Damaged { line: named, .. }
        | ImportError::Truncated { line: named }
        | ImportError::Newer { line: named, .. }) = error
        else {
            panic!("{what}: {error}")
        };
        assert_eq!(named, here.unwrap_or(named), "{what}");
    }
    assert_eq!(journal.last_appended(), Lsn(0), "a refused import wrote frames");
    read(&journal, &file).await.unwrap();
}

#[tokio::test]
async fn export_truncated_anywhere_is_refused() {
    let file = export_of(1).await;
    let journal = memory();
    for end in (0..file.len()).rev().step_by(7) {
        let error = read(&journal, &file[..end]).await.expect_err("cut").to_string();
        assert!(error.starts_with("the export is truncated in or after line "), "{end}: {error}");
    }
    assert_eq!(journal.last_appended(), Lsn(0));
}

/// Seals, numbers and sums lines like a handwritten export.
pub(crate) fn forge_export(lines: impl IntoIterator<Item = serde_json::Value>) -> Vec<u8> {
    let (mut out, mut sum) = (Vec::new(), blake3::Hasher::new());
    for (n, mut line) in lines.into_iter().enumerate() {
        let fields = line.as_object_mut().unwrap();
        fields.remove("crc");
        fields.insert("n".into(), (n + 1).into());
        if let Some(end) = fields.get_mut("end") {
            end["sum"] = sum.finalize().to_hex().as_str().into();
        }
        let mut bytes = serde_json::to_vec(&line).unwrap();
        bytes.pop();
        let crc = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(format!(",\"crc\":\"{crc:08x}\"}}\n").as_bytes());
        sum.update(&bytes);
        out.extend(bytes);
    }
    out
}

pub(crate) fn values(file: &[u8]) -> Vec<serde_json::Value> {
    let lines = file.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).unwrap()).collect()
}

#[tokio::test]
async fn file_with_valid_checksums_but_invalid_records_is_refused() {
    type Spoil = fn(&mut Vec<serde_json::Value>);
    let cases: [(&str, Spoil); 9] = [
        ("starts at record 7, but record 4 comes next", |lines| drop(lines.remove(5))),
        ("does not match the hash", |lines| lines[1]["def"]["body"] = "\"other\"".into()),
        ("is not in the store", |lines| {
            lines.remove(1);
            lines.last_mut().unwrap()["end"]["tally"]["defs"] = 2.into();
        }),
        ("does not fit", |lines| lines[5]["frame"]["records"][0]["run_started"]["run"] = 7.into()),
        ("it counts", |lines| lines.last_mut().unwrap()["end"]["tally"]["records"] = 7.into()),
        ("of a newer format: export 2", |lines| lines[0]["export"]["format"] = 2.into()),
        ("of a newer format: unknown variant `run_flown`", |lines| {
            lines[5]["frame"]["records"][0] = serde_json::json!({"run_flown": {}});
        }),
        ("was never a format", |lines| lines[0]["export"]["format"] = 0.into()),
        ("but the export has the tree of", |lines| {
            lines[0]["export"]["what"] = serde_json::json!({"tree": id(11)});
        }),
    ];
    let file = export_of(1).await;
    let journal = memory();
    for (text, spoil) in cases {
        let mut lines = values(&file);
        spoil(&mut lines);
        let error = read(&journal, &forge_export(lines)).await.expect_err(text).to_string();
        assert!(error.contains(text), "{text}: {error}");
    }
    assert_eq!(journal.last_appended(), Lsn(0));
    read(&journal, &forge_export(values(&file))).await.unwrap();
}

/// Sessions are read in the order of their ids: those of the first tree, which come after the bodies, have read them
/// before. The control: the same order of frames after the bodies.
#[tokio::test]
async fn body_of_a_later_line_is_refused() {
    let mut lines = values(&export_of(2).await);
    let (header, end) = (lines.remove(0), lines.pop().unwrap());
    let (bodies, frames): (Vec<_>, Vec<_>) = lines.into_iter().partition(|line| line.get("def").is_some());
    let of_first = [id(10), id(11)].map(|id| serde_json::json!(id));
    let is_first = |line: &serde_json::Value| of_first.contains(&line["frame"]["session"]);
    let (first, second): (Vec<_>, Vec<_>) = frames.into_iter().partition(is_first);
    assert!(!first.is_empty() && !second.is_empty());
    let file = |parts: [&[serde_json::Value]; 3]| {
        forge_export([std::slice::from_ref(&header), &parts.concat(), std::slice::from_ref(&end)].concat())
    };
    let journal = memory();
    let error = read(&journal, &file([&second, &bodies, &first])).await.expect_err("no body").to_string();
    assert!(
        error.starts_with("line 2 of the export is damaged: the body ") && error.contains("is not in the store"),
        "{error}"
    );
    assert_eq!(journal.last_appended(), Lsn(0));
    read(&journal, &file([&bodies, &second, &first])).await.unwrap();
}

#[tokio::test]
async fn child_without_its_parent_is_refused() {
    let journal = memory();
    journal.append(one(created_session(&mut SessionWriter::new(id(11)), Some(id(10)), true))).unwrap();
    let file = write(&journal, Scope::Store);
    let error = read(&memory(), &file).await.expect_err("an incomplete tree").to_string();
    assert!(error.contains(&format!("{} is a child of {}", id(11), id(10))), "{error}");
}

/// A long chain of branches would exhaust the stack of views. Controls: the maximum length, and siblings.
#[tokio::test]
async fn import_refuses_too_long_chains_of_branches() {
    // Each session is a branch of the one that `parent` names; session 1000 is their root.
    let of = async |branches: u128, parent: fn(u128) -> u128| {
        let journal = memory();
        journal.append(one(created_session(&mut SessionWriter::new(id(1_000)), None, true))).unwrap();
        for n in 1_001..=1_000 + branches {
            let mut branch = SessionWriter::new(id(n));
            let mut created = creation(branch.id, Some(id(1_000))).swap_remove(0);
            let Record::SessionCreated(record) = &mut created else { panic!("no creation") };
            let Place::Child { parent: above, kind, depth, .. } = &mut record.place else { panic!("no child") };
            (*above, *kind, *depth) = (id(parent(n)), BranchKind::Human, 0);
            journal.append(one(branch.frame_of(vec![created]))).unwrap();
        }
        journal.settled().await.unwrap();
        read(&memory(), &write(&journal, Scope::Store)).await.map(|tally| tally.sessions)
    };
    type ParentOf = fn(u128) -> u128;
    let attacks: [(u128, ParentOf); 3] = [(1_001, |n| n - 1), (2, |n| 2_003 - n), (1, |n| n)];
    for (branches, parent) in attacks {
        let refused = of(branches, parent).await.expect_err("a chain").to_string();
        assert!(refused.contains("is below itself, or more than 1000 sessions are above it"), "{refused}");
    }
    assert_eq!(of(1_000, |n| n - 1).await.unwrap(), 1_001);
    assert_eq!(of(1_001, |_| 1_000).await.unwrap(), 1_002, "siblings");
}

#[tokio::test]
async fn existing_session_is_not_imported_again() {
    let (journal, file) = (memory(), export_of(2).await);
    read(&journal, &file).await.unwrap();
    let before = journal.last_appended();
    let error = read(&journal, &file).await.expect_err("a duplicate");
    assert!(matches!(error, ImportError::Exists(session) if session == id(10)), "{error}");
    assert_eq!(journal.last_appended(), before);
    assert!(write(&journal, Scope::Store) == file);
}

/// Kills before and after each write: nothing is visible, and a second import completes.
#[tokio::test]
async fn import_is_atomic_and_can_be_repeated() {
    let file = export_of(90).await;
    let mut kills = 0;
    for (n, applied) in (1..9).flat_map(|n| [(n, false), (n, true)]) {
        let store = Memory::new();
        let (engine, faults) = Faulty::new(Box::new(store.clone()));
        let journal = Journal::open(Box::new(engine), Options::default()).unwrap();
        if applied {
            faults.fail_sync(n)
        } else {
            faults.fail_write(n)
        }
        let done = read(&journal, &file).await;
        let last = faults.writes() == 4;
        drop(journal);
        let journal = Journal::open(Box::new(store), Options::default()).unwrap();
        if done.is_ok() {
            assert!(n > 4, "write {n} failed");
            continue;
        }
        kills += 1;
        if last && applied {
            assert_eq!(problems(&journal), Vec::<String>::new(), "everything was written without an error");
            continue;
        }
        assert!(is_empty(&journal), "write {n}");
        let left = journal.unfinished_import().unwrap();
        let expected_text =
            |first| format!("an import that did not finish has left {} of its sessions, such as {first}: ", left.len());
        match (left.first(), problems(&journal).as_slice()) {
            (None, []) => {}
            (Some(first), [text]) => {
                assert!(text.starts_with(&expected_text(first)) && text.contains("repeat it"), "{text}")
            }
            (left, result) => panic!("{left:?}: {result:?}"),
        }
        assert_eq!(left.is_empty(), n == 1 && !applied, "write {n}");
        assert!(write(&journal, Scope::Store).len() < 600, "the export contains an incomplete session");
        read(&journal, &file).await.unwrap();
        assert_eq!((problems(&journal), journal.unfinished_import().unwrap()), (Vec::new(), Vec::new()));
        assert!(write(&journal, Scope::Store) == file, "write {n}");
    }
    assert_eq!(kills, 8, "three writes of frames and one of rows, each with two kills");
}

#[tokio::test]
async fn import_does_not_continue_another_one() {
    let file = export_of(90).await;
    let store = Memory::new();
    let (engine, faults) = Faulty::new(Box::new(store.clone()));
    faults.fail_write(2);
    read(&Journal::open(Box::new(engine), Options::default()).unwrap(), &file).await.expect_err("killed");
    let journal = Journal::open(Box::new(store), Options::default()).unwrap();
    let mut lines = values(&file);
    lines[4]["frame"]["at_ms"] = 7.into();
    let error = read(&journal, &forge_export(lines)).await.expect_err("another file");
    assert!(matches!(error, ImportError::Leftover { line: 5, .. }), "{error}");
    read(&journal, &file).await.unwrap();
}

#[tokio::test]
async fn only_undamaged_trees_can_be_exported() {
    let journal = memory();
    write_trees(&journal, 2).await;
    let mut family = family(&journal, 50, false);
    let mut frame = family.taken();
    frame.changes.head = None;
    journal.append(one(frame)).unwrap();
    let error = journal.export(Scope::Store, &mut Vec::new(), &mut |_| {}).expect_err("damaged").to_string();
    assert!(error.starts_with(&format!("session {} is damaged at record 11", id(50))), "{error}");
    journal.export(Scope::Tree(id(51)), &mut Vec::new(), &mut |_| {}).expect_err("the same tree");
    let other = memory();
    read(&other, &write(&journal, Scope::Tree(id(10)))).await.unwrap();
}
