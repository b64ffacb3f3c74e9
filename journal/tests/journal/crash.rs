//! Killed writers: acknowledged frames survive.

use std::io::{BufRead as _, Write as _};

use crate::scene::*;

use crate::engines::{Kind, for_each_engine};

const STORE: &str = "SUBTEND_TEST_CRASH_STORE";
const ENGINE: &str = "SUBTEND_TEST_CRASH_ENGINE";
const ROUND: &str = "SUBTEND_TEST_CRASH_ROUND";

/// Acknowledgements before the kill: in the first commit, in the middle, and among large groups.
const KILLS: [u32; 5] = [1, 3, 40, 150, 7];

/// Child process of `acknowledged_frames_survive_kill_9`. Not a test.
#[test]
fn writes_until_it_is_killed() {
    let Some(store) = std::env::var_os(STORE) else { return };
    let round: u128 = std::env::var(ROUND).unwrap().parse().unwrap();
    let journal = Kind::of(&std::env::var(ENGINE).unwrap()).open(Path::new(&store));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let mut out = std::io::stdout();
    for n in 0..1_000_000_u128 {
        let first = round * 10_000_000 + n * 10;
        // Several batches under one wait, so that groups differ in size; two creations in one batch, so that one could tear.
        let (mut a, mut b) = (SessionWriter::new(id(first + 1)), SessionWriter::new(id(first + 2)));
        let frames = vec![created_session(&mut a, None, true), created_session(&mut b, None, false)];
        a.opened_lsn = journal.append(Batch { frames }).unwrap().first;
        journal.append(one(a.frame_of(start(a.id)))).unwrap();
        if n % 3 == 0 {
            family(&journal, first + 3, false);
        }
        if n % 5 != 4 {
            runtime.block_on(journal.settled()).unwrap();
            writeln!(out, "acked {n}").unwrap();
            out.flush().unwrap();
        }
    }
}

/// The process that writes until it is killed.
pub(crate) fn writer(kind: Kind, store: &Path, round: usize) -> Command {
    let mut writer = Command::new(std::env::current_exe().unwrap());
    writer
        .args(["--exact", "crash::writes_until_it_is_killed", "--nocapture"])
        .env(STORE, store)
        .env(ENGINE, kind.name())
        .env(ROUND, round.to_string())
        .envs(kind.environment())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    writer
}

/// Returns the acknowledged numbers in the output, whose last line may be incomplete.
pub(crate) fn parse_acknowledged(lines: impl Iterator<Item = std::io::Result<String>>) -> Vec<u128> {
    // The test harness may have begun the line.
    lines.map_while(Result::ok).filter_map(|line| line.rsplit_once("acked ")?.1.parse().ok()).collect()
}

/// Runs the child, kills it after `kills` acknowledgements, and returns the acknowledged numbers.
fn acknowledged(kind: Kind, store: &Path, round: usize, kills: u32) -> Vec<u128> {
    let mut child = writer(kind, store, round).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut found = Vec::new();
    for line in lines.by_ref() {
        found.extend(parse_acknowledged([line].into_iter()));
        if found.len() == kills as usize {
            break;
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    // Lines after the last one that was read count too.
    found.extend(parse_acknowledged(lines));
    found
}

async fn acknowledged_frames_survive_kill_9(kind: Kind) {
    let dir = tempfile::tempdir().unwrap();
    for (round, kills) in KILLS.into_iter().enumerate() {
        let acked = acknowledged(kind, dir.path(), round, kills);
        assert!(acked.len() >= kills as usize);
        let journal = kind.open(dir.path());
        let report = journal.verify(&mut |_| {}).unwrap();
        assert_eq!(report.problems, vec![], "round {round}");
        assert!(report.frames >= u64::from(kills));
        for n in acked {
            let first = round as u128 * 10_000_000 + n * 10;
            let last = |n: u128| journal.records(id(first + n)).unwrap().last().map(|stored| stored.seq);
            assert_eq!((last(1), last(2)), (Some(Seq(6)), Some(Seq(3))), "round {round}, {n}");
            if n % 3 == 0 {
                assert_eq!((last(3), last(4)), (Some(Seq(9)), Some(Seq(8))), "round {round}, {n}");
            }
        }
    }
}

for_each_engine!(and postgres: acknowledged_frames_survive_kill_9);

#[test]
fn unfinished_snapshot_of_sled_is_not_damage() {
    let dir = tempfile::tempdir().unwrap();
    let entry = dir.path().join(Kind::Sled.entry());
    let journal = Kind::Sled.open(dir.path());
    journal.append(one(created_session(&mut SessionWriter::new(id(1)), None, true))).unwrap();
    crate::engines::run(journal.close()).unwrap();
    for torn in [&b""[..], b"a part of a snapshot"] {
        std::fs::write(entry.join("snap.00000000FFFFFFFF.generating"), torn).unwrap();
        // Negative control: sled itself refuses the store.
        assert!(::sled::Config::new().path(&entry).segment_size(4 << 20).open().is_err());
        let journal = Kind::Sled.open(dir.path());
        assert_eq!(journal.records(id(1)).unwrap().len(), 3);
        drop(journal);
    }
}
