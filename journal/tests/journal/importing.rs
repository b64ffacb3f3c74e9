//! A killed import: nothing is visible, the error names a remedy, and only the same file completes it.

use std::io::BufRead as _;

use crate::scene::*;
use subtend_journal::ImportError;
use subtend_session::index::Inflight;

use crate::engines::{Kind, for_each_engine, run};
use crate::exporting::{export_of, forge_export, is_empty, read, values, write};

const STORE: &str = "SUBTEND_TEST_IMPORT_STORE";
const ENGINE: &str = "SUBTEND_TEST_IMPORT_ENGINE";
const FILE: &str = "SUBTEND_TEST_IMPORT_FILE";

/// Trees of the export: more than a thousand frames, which take four writes, followed by the rows.
const TREES: u128 = 150;
/// The process waits for its kill after this many frames, which are two writes.
const MIDDLE: u64 = 600;

/// Child process of the test below. Not a test.
#[test]
fn imports_until_it_is_killed() {
    let Some(store) = std::env::var_os(STORE) else { return };
    let journal = Kind::of(&std::env::var(ENGINE).unwrap()).open(Path::new(&store));
    let mut file = Cursor::new(std::fs::read(std::env::var_os(FILE).unwrap()).unwrap());
    // Frames are counted twice: folding and writing.
    let (mut last, mut writes) = (0, false);
    let imported = run(journal.import(&mut file, &ImportBounds::none(), &mut |at| {
        writes |= at.frames < last;
        last = at.frames;
        if writes && at.frames == MIDDLE {
            println!("\nin the middle");
            loop {
                std::thread::park();
            }
        }
    }));
    println!("\nover: {imported:?}");
}

fn kill_during_import(kind: Kind, store: &Path, file: &Path) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "importing::imports_until_it_is_killed", "--nocapture"])
        .env(STORE, store)
        .env(ENGINE, kind.name())
        .env(FILE, file)
        .envs(kind.environment())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let text = lines.find(|line| line == "in the middle" || line.starts_with("over: "));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(text.as_deref(), Some("in the middle"));
}

async fn killed_import_is_reported_hidden_and_repeated(kind: Kind) {
    let dir = tempfile::tempdir().unwrap();
    let (store, path) = (dir.path().join("store"), dir.path().join("all.jsonl"));
    let file = export_of(TREES).await;
    std::fs::write(&path, &file).unwrap();
    kill_during_import(kind, &store, &path);

    let journal = kind.open(&store);
    assert!(is_empty(&journal), "rows of the import exist");
    let left = journal.unfinished_import().unwrap();
    assert!(left.len() > 100 && left.len() < 2 * TREES as usize, "{} of {}", left.len(), 2 * TREES);
    let [text] = problems(&journal).try_into().unwrap();
    let wording =
        format!("an import that did not finish has left {} of its sessions, such as {}: ", left.len(), left[0]);
    assert!(text.starts_with(&wording) && text.contains("repeat it with its own file to complete it"), "{text}");
    // A kill of the second attempt does no harm either.
    drop(journal);
    kill_during_import(kind, &store, &path);
    let journal = kind.open(&store);
    assert_eq!(journal.unfinished_import().unwrap(), left);

    let mut lines = values(&file);
    lines[4]["frame"]["at_ms"] = 7.into();
    let other = read(&journal, &forge_export(lines)).await.unwrap_err();
    assert!(matches!(other, ImportError::Leftover { line: 5, .. }), "{other}");
    assert!(
        other.to_string().contains("repeat that import with its own file and options, or choose another store"),
        "{other}"
    );

    let tally = read(&journal, &file).await.unwrap();
    assert_eq!((tally.sessions, problems(&journal)), (2 * TREES as u64, Vec::<String>::new()));
    assert_eq!(journal.unfinished_import().unwrap(), []);
    assert!(write(&journal, Scope::Store) == file, "byte for byte");
    let twice = read(&journal, &file).await.unwrap_err().to_string();
    assert!(twice.contains("exists in this store; nothing was imported"), "{twice}");
}

/// As in a host, other sessions are written while the file is read and before the import becomes visible.
async fn h1_sessions_work_during_an_import(kind: Kind) {
    let dir = tempfile::tempdir().unwrap();
    let (journal, file) = (kind.open(&dir.path().join("store")), export_of(3).await);
    let mut own = family(&journal, 9_000, true);
    let (mut reads, rights) = (Cursor::new(&file), ImportBounds::none());
    let mut append_meanwhile = |_| {
        journal.append(one(own.root.input_frame())).unwrap();
    };
    let written = journal.write_import(&mut reads, &rights, &mut append_meanwhile).await.unwrap();
    assert_eq!(journal.heads().unwrap().len(), 2, "the import is already visible");
    journal.append(one(own.root.input_frame())).unwrap();
    let in_flight = written.in_flight();
    assert_eq!(journal.publish_import(written).await.unwrap().sessions, 6);
    let mut found = journal.inflight().unwrap();
    found.retain(|(session, _)| *session != own.root.id && *session != own.child.id);
    let runs = |rows: Vec<(SessionId, Inflight)>| rows.into_iter().map(|(id, row)| (id, row.run)).collect::<Vec<_>>();
    assert_eq!(runs(found), runs(in_flight));
    assert_eq!((journal.heads().unwrap().len(), problems(&journal)), (8, Vec::<String>::new()));
}

for_each_engine!(and postgres:
    killed_import_is_reported_hidden_and_repeated,
    h1_sessions_work_during_an_import,
);
