//! Power losses of the server's machine: writes since the last sync are lost, all or some of them.
//!
//! Between two checkpoints these servers write only their log. After a power loss, the disk therefore has the files of
//! the last checkpoint, the log up to its last sync, and any part of the log after it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use fastrand::Rng;

use crate::scene::*;
use subtend_journal::open_store_with;

use super::create_session;
use super::interruption::complete;
use crate::medium::Survivors;
use crate::server::Server;

const SETTINGS: [&str; 5] = [
    "checkpoint_timeout = 1h",
    "bgwriter_lru_maxpages = 0",
    "autovacuum = off",
    "wal_writer_delay = 10s",
    "wal_keep_size = 512MB",
];
/// Bytes that a disk writes either completely or not at all.
const SECTOR: usize = 512;
/// Bytes of half a page of the server. A page has many sectors, so a power loss can tear it in the middle.
const HALF_PAGE: usize = 4_096;

/// The end of the synced log: its file, and the bytes there.
type SyncedLog = (String, usize);

fn synced_log(server: &Server) -> SyncedLog {
    let at = server.sql("SELECT file_name, file_offset FROM pg_walfile_name_offset(pg_current_wal_flush_lsn())");
    let (file, bytes) = at.split_once('|').unwrap();
    (file.to_owned(), bytes.parse().unwrap())
}

/// Returns options of a machine that remembers what it acknowledged.
fn remembering(dir: &Path, accept_loss: bool) -> Options {
    Options { accept_loss, node_dir: Some(dir.join("node")), ..Options::default() }
}

/// Creates sessions, then ends the server and keeps its files as `crashed`. Returns the synced log at each one.
async fn write_and_crash(server: &Server, spec: &StoreSpec, dir: &Path, count: u128) -> Vec<SyncedLog> {
    let journal = open_store_with(spec, remembering(dir, false)).unwrap();
    // Start a new file of the log, which then contains all later writes.
    server.sql("SELECT pg_switch_wal()");
    server.sql("CHECKPOINT");
    let mut synced = Vec::new();
    for n in 1..=count {
        create_session(&journal, n).await.unwrap();
        synced.push(synced_log(server));
    }
    journal.close().await.unwrap();
    server.crash();
    server.copy("data", "crashed");
    synced
}

/// Restores the files of the crash. Of the log after its last sync, only the part that `kept` selects remains.
fn lose_power(server: &Server, (file, from): &SyncedLog, kept: Survivors, rng: &mut Rng) {
    server.copy("crashed", "data");
    let log = server.dir().join("data/pg_wal").join(file);
    let mut bytes = std::fs::read(&log).unwrap();
    let unsynced = &mut bytes[*from..];
    let written = unsynced.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    match kept {
        Survivors::All => {}
        Survivors::Nothing => unsynced.fill(0),
        // In both cases a record may be torn.
        Survivors::First | Survivors::Torn => unsynced[rng.usize(..=written)..].fill(0),
        Survivors::Some => unsynced[..written].chunks_mut(SECTOR).filter(|_| rng.bool()).for_each(|lost| lost.fill(0)),
    }
    std::fs::write(&log, bytes).unwrap();
}

/// Starts the server again, checks that each session of its shard is complete, and returns their number. Also checks
/// that a machine that acknowledged `count` sessions refuses a shard with fewer.
async fn restart(server: &Server, spec: &StoreSpec, dir: &Path, count: u64) -> u64 {
    server.up();
    let journal = open_store(spec).unwrap();
    let found = journal.durable();
    complete(&journal, found.0.into());
    journal.close().await.unwrap();
    let remembered = open_store_with(spec, remembering(dir, false)).map(|journal| journal.durable());
    match remembered {
        Ok(end) => assert_eq!((end, found), (Lsn(count), Lsn(count))),
        Err(OpenError::Behind { found: at, watermark }) => {
            assert_eq!((at, watermark), (found, Lsn(count)));
            assert!(found < watermark);
        }
        Err(error) => panic!("{error}"),
    }
    server.crash();
    found.0
}

#[tokio::test]
async fn d1_power_loss_keeps_acknowledged_records() {
    const COUNT: u64 = 3;
    let (server, dir) = (Server::start(&SETTINGS), tempfile::tempdir().unwrap());
    let spec = StoreSpec::Postgres(Box::new(server.target("shard=a")));
    let synced = write_and_crash(&server, &spec, dir.path(), COUNT.into()).await;
    let mut rng = Rng::with_seed(20_261_129);
    for ((acknowledged, synced), kept) in (1..).zip(&synced).zip([Survivors::First, Survivors::All, Survivors::Some]) {
        lose_power(&server, synced, Survivors::Nothing, &mut rng);
        assert_eq!(restart(&server, &spec, dir.path(), COUNT).await, acknowledged);
        lose_power(&server, synced, kept, &mut rng);
        let found = restart(&server, &spec, dir.path(), COUNT).await;
        assert!((acknowledged..=COUNT).contains(&found), "{found} of {acknowledged}, {kept:?} kept");
        assert!(kept != Survivors::All || found == COUNT, "{found} of {COUNT} sessions remain, but no write was lost");
    }
}

/// Negative control: a server that acknowledges before its sync loses sessions; the recording machine refuses it.
#[tokio::test]
async fn d1_power_loss_after_asynchronous_commits_is_noticed() {
    const COUNT: u64 = 3;
    let (server, dir) = (Server::start(&SETTINGS), tempfile::tempdir().unwrap());
    let weak = "shard=a&options=-csynchronous_commit%3Doff&accept_weak=synchronous_commit";
    let spec = StoreSpec::Postgres(Box::new(server.target(weak)));
    let synced = write_and_crash(&server, &spec, dir.path(), COUNT.into()).await;
    lose_power(&server, synced.last().unwrap(), Survivors::Nothing, &mut Rng::with_seed(1));
    let found = restart(&server, &spec, dir.path(), COUNT).await;
    assert!(found < COUNT, "no session was lost");
    server.up();
    let accepted = open_store_with(&spec, remembering(dir.path(), true)).unwrap();
    assert_eq!((accepted.durable(), problems(&accepted)), (Lsn(found), Vec::new()));
}

/// Loses power within a checkpoint up to three times. Each half of a page that the checkpoint writes is then old or
/// new. Returns the number of the first power loss that loses or damages a session.
async fn loss_by_torn_pages(settings: &[&str], params: &str) -> Option<u64> {
    let server = Server::start(&[&SETTINGS, settings].concat());
    let spec = StoreSpec::Postgres(Box::new(server.target(params)));
    let journal = open_store(&spec).unwrap();
    for n in 1..=10 {
        create_session(&journal, n).await.unwrap();
    }
    server.sql("CHECKPOINT");
    server.copy("data", "before");
    for n in 11..=20 {
        create_session(&journal, n).await.unwrap();
    }
    journal.close().await.unwrap();
    server.sql("CHECKPOINT");
    server.crash();
    server.copy("data", "after");
    let is_lost = |seed: &u64| {
        tear_pages(&server, &mut Rng::with_seed(*seed));
        let sound = catch_unwind(AssertUnwindSafe(|| {
            server.up();
            complete(&open_store(&spec).unwrap(), 20);
        }));
        // A server that found damage at its start does not run.
        drop(catch_unwind(AssertUnwindSafe(|| server.crash())));
        sound.is_err()
    };
    (1..=3).find(is_lost)
}

/// Restores the first checkpoint's files and the log up to the second, with random halves of the second's pages.
fn tear_pages(server: &Server, rng: &mut Rng) {
    server.copy("before", "data");
    drop(std::fs::remove_file(server.dir().join("data/postmaster.pid")));
    server.copy("after/pg_wal", "data/pg_wal");
    let mut torn = 0;
    for database in std::fs::read_dir(server.dir().join("after/base")).unwrap() {
        for file in std::fs::read_dir(database.unwrap().path()).unwrap() {
            let after = file.unwrap().path();
            let path = server.dir().join("data").join(after.strip_prefix(server.dir().join("after")).unwrap());
            let (Ok(mut bytes), after) = (std::fs::read(&path), std::fs::read(&after).unwrap()) else { continue };
            if bytes == after || after.len() % HALF_PAGE != 0 {
                continue;
            }
            bytes.resize(after.len(), 0);
            let halves = bytes.chunks_mut(HALF_PAGE).zip(after.chunks(HALF_PAGE));
            halves.filter(|_| rng.bool()).for_each(|(old, new)| old.copy_from_slice(new));
            std::fs::write(&path, bytes).unwrap();
            torn += 1;
        }
    }
    assert!(torn >= 7, "{torn}: fewer files than tables were written");
}

#[tokio::test]
async fn d1_power_loss_within_a_checkpoint_keeps_all_records() {
    assert_eq!(loss_by_torn_pages(&[], "shard=a").await, None);
}

/// Negative control: without `full_page_writes`, torn pages damage sessions. Opened only with `accept_weak`.
#[tokio::test]
async fn d1_torn_pages_without_full_page_writes_are_noticed() {
    let loss = loss_by_torn_pages(&["full_page_writes = off"], "shard=a&accept_weak=full_page_writes").await;
    assert!(loss.is_some(), "each loss of power was repaired");
}
