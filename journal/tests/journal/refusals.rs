//! A failed sync, a full disk, and a directory without write access: nothing is acknowledged, and acknowledged frames remain. The kernel
//! injects the first two, which proves that an engine's sync is a system call and that its failure is noticed.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;

use crate::scene::*;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter_all_threads,
};

use crate::engines::{Kind, for_each_engine};

const STORE: &str = "SUBTEND_TEST_REFUSED_STORE";
const ENGINE: &str = "SUBTEND_TEST_REFUSED_ENGINE";
const ORDER: &str = "SUBTEND_TEST_REFUSED_ORDER";

/// Batches before the failure, and attempts after it.
const BEFORE: u128 = 5;
const AFTER: u128 = 5;

#[cfg(target_arch = "x86_64")]
mod calls {
    /// fsync, fdatasync.
    pub(super) const SYNC: &[i64] = &[74, 75];
    /// write, pwrite64, writev, pwritev, pwritev2; ftruncate and fallocate, whose first argument is also the file.
    pub(super) const WRITE: &[i64] = &[1, 18, 20, 296, 328, 77, 285];
}
#[cfg(not(target_arch = "x86_64"))]
mod calls {
    pub(super) const SYNC: &[i64] = &[82, 83];
    pub(super) const WRITE: &[i64] = &[64, 68, 66, 70, 287, 46, 47];
}

const EIO: u32 = 5;
const ENOSPC: u32 = 28;

/// Fails these calls from here on, except for the standard files.
fn refuse(calls: &[i64], error: u32) {
    let files = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Gt, 2).unwrap();
    let rule = SeccompRule::new(vec![files]).unwrap();
    let rules: BTreeMap<_, _> = calls.iter().map(|call| (*call, vec![rule.clone()])).collect();
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(error), arch).unwrap();
    apply_filter_all_threads(&BpfProgram::try_from(filter).unwrap()).unwrap();
}

/// Child process of the tests below. Not a test.
#[test]
fn writes_until_it_is_refused() {
    let Some(store) = std::env::var_os(STORE) else { return };
    let (store, order) = (Path::new(&store), std::env::var(ORDER).unwrap());
    let kind = Kind::of(&std::env::var(ENGINE).unwrap());
    let (sort, order) = order.split_once(", ").unwrap();
    let opened = match sort {
        "as it is" => kind.try_open(store),
        "to be read" => match open_store_to_read(&kind.spec(store), Options::default(), &mut |_| {}) {
            Ok(journal) => return println!("\nno store: read up to {}", journal.durable()),
            Err(error) => Err(error),
        },
        "unsynced" => Journal::open(kind.without_sync(store), Options::default()),
        "blobs alone are synced" => {
            let blobs = Blobs::new(Arc::from(kind.without_sync(store)), store.join("blobs"));
            Journal::open(Box::new(blobs), Options::default())
        }
        other => panic!("{other}"),
    };
    let journal = match opened {
        Ok(journal) => journal,
        Err(error) => return println!("\nno store: {error}"),
    };
    for n in 1..=BEFORE + AFTER {
        if n == BEFORE + 1 {
            match order {
                "no sync" => refuse(calls::SYNC, EIO),
                "full disk" => refuse(calls::WRITE, ENOSPC),
                other => panic!("{other}"),
            }
        }
        let mut creation = created_session(&mut SessionWriter::new(id(n)), None, n == 1);
        if n == BEFORE + 1 && sort == "blobs alone are synced" {
            // Larger than any engine takes, so that it becomes a blob.
            let text = format!("\"{}\"", "be brief ".repeat(200_000));
            creation.changes.defs.push((Hash::of(text.as_bytes()), text.into()));
        }
        let appended = journal.append(one(creation));
        match appended.map(|appended| crate::engines::run(journal.wait(appended.last))) {
            Ok(Ok(())) => println!("\nacked {n}"),
            Ok(Err(error)) => {
                println!("\npoisoned {n}{}: {error}", if error.0.is_full() { ", disk full" } else { "" })
            }
            Err(error) => println!("\nnot taken {n}: {error}"),
        }
    }
    // Exits without closing the journal.
    std::process::exit(0);
}

/// Returns the lines that the process prints.
fn output_lines(command: &mut Command) -> Vec<String> {
    let output = command
        .args(["--exact", "refusals::writes_until_it_is_refused", "--nocapture"])
        .stderr(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let prefixes = ["acked ", "poisoned ", "not taken ", "no store: "];
    text.lines().filter(|line| prefixes.iter().any(|word| line.starts_with(word))).map(str::to_owned).collect()
}

fn run_child(kind: Kind, store: &Path, order: &str) -> Vec<String> {
    let mut command = Command::new(std::env::current_exe().unwrap());
    output_lines(command.env(STORE, store).env(ENGINE, kind.name()).env(ORDER, order))
}

/// The batch after the fifth is refused, and all acknowledged ones remain.
fn check_refusals(kind: Kind, order: &str, room: &str, why: &str) {
    let dir = tempfile::tempdir().unwrap();
    let messages = run_child(kind, dir.path(), order);
    let acked: Vec<String> = (1..=BEFORE).map(|n| format!("acked {n}")).collect();
    let (before, after) = messages.split_at(BEFORE as usize);
    assert_eq!(before, acked, "{messages:#?}");
    assert_eq!(after.len(), AFTER as usize, "{messages:#?}");
    assert!(
        after[0].starts_with(&format!("poisoned 6{room}: the journal is poisoned")) && after[0].contains(why),
        "{}",
        after[0]
    );
    assert!(after[1..].iter().all(|line| line.starts_with("not taken ")), "{after:#?}");

    let journal = kind.open(dir.path());
    assert_eq!(journal.verify(&mut |_| {}).unwrap().problems, vec![]);
    for n in 1..=BEFORE {
        assert_eq!(journal.records(id(n)).unwrap().len(), 3, "{n}");
    }
}

async fn sync_that_fails_acknowledges_nothing(kind: Kind) {
    check_refusals(kind, "as it is, no sync", "", "Input/output error");
}

async fn full_disk_acknowledges_nothing(kind: Kind) {
    check_refusals(kind, "as it is, full disk", ", disk full", "No space left on device");
}

/// Negative control: an engine without its sync continues.
async fn engine_without_its_sync_is_noticed(kind: Kind) {
    let dir = tempfile::tempdir().unwrap();
    let messages = run_child(kind, dir.path(), "unsynced, no sync");
    assert_eq!(messages, (1..=BEFORE + AFTER).map(|n| format!("acked {n}")).collect::<Vec<_>>());

    let journal = Journal::open(kind.without_sync(tempfile::tempdir().unwrap().path()), Options::default()).unwrap();
    journal.append(one(created_session(&mut SessionWriter::new(id(1)), None, true))).unwrap();
    journal.settled().await.unwrap();
    assert_eq!(journal.info().syncs, 0);
}

/// A blob is synced before the row that refers to it. Nothing else is synced here.
async fn row_of_an_unsynced_blob_is_not_written(kind: Kind) {
    let dir = tempfile::tempdir().unwrap();
    let messages = run_child(kind, dir.path(), "blobs alone are synced, no sync");
    assert_eq!(messages[..BEFORE as usize], (1..=BEFORE).map(|n| format!("acked {n}")).collect::<Vec<_>>());
    let refused = &messages[BEFORE as usize];
    assert!(refused.starts_with("poisoned 6: ") && refused.contains("write a blob: Input/output error"), "{refused}");
}

/// Runs without privileges: as user `nobody` if the tests run as root.
fn unprivileged(kind: Kind, exe: &Path, store: &Path, order: &str) -> Vec<String> {
    let mut command = Command::new(exe);
    if std::fs::metadata("/proc/self").unwrap().uid() == 0 {
        command.uid(65_534).gid(65_534);
    }
    output_lines(command.env(STORE, store).env(ENGINE, kind.name()).env(ORDER, order).current_dir("/"))
}

async fn unwritable_directory_is_refused_with_a_reason(kind: Kind) {
    let dir = tempfile::tempdir().unwrap();
    let mode = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    mode(dir.path(), 0o755);
    // This user may not reach the build directory.
    let exe = dir.path().join("tests");
    // A separate process copies it: a fork of another test could hold the copy open for writing ("text file busy").
    assert!(Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&exe).status().unwrap().success());

    let (empty, full, inner) = (dir.path().join("empty"), dir.path().join("full"), dir.path().join("inner"));
    std::fs::create_dir(&empty).unwrap();
    mode(&empty, 0o555);
    for store in [&full, &inner] {
        let journal = kind.open(store);
        journal.append(one(created_session(&mut SessionWriter::new(id(1)), None, true))).unwrap();
        journal.close().await.unwrap();
    }
    // The lock succeeds and the engine fails.
    mode(&inner, 0o777);
    for file in ["LOCK", "WATERMARK"] {
        mode(&inner.join(file), 0o666);
    }
    for (store, text) in [(&empty, "cannot open the lock file"), (&full, "cannot open the lock file"), (&inner, "")] {
        let messages = unprivileged(kind, &exe, store, "as it is, no sync");
        assert_eq!(messages.len(), 1, "{messages:#?}");
        let refused = messages[0].starts_with(&format!("no store: {text}"));
        assert!(refused && messages[0].contains("Permission denied"), "{}", messages[0]);
    }
    // Reading needs read access only.
    assert!(Command::new("chmod").args(["-R", "a+rX"]).arg(&full).status().unwrap().success());
    assert_eq!(unprivileged(kind, &exe, &full, "to be read, no sync"), ["no store: read up to 1"]);
    // The store is unchanged.
    assert_eq!(kind.open(&inner).records(id(1)).unwrap().len(), 3);
}

for_each_engine!(
    sync_that_fails_acknowledges_nothing,
    full_disk_acknowledges_nothing,
    engine_without_its_sync_is_noticed,
    row_of_an_unsynced_blob_is_not_written,
    unwritable_directory_is_refused_with_a_reason,
);
