//! A server that is killed during commits of many writers, and restarts.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::scene::*;

use super::journal;
use crate::server::Server;

/// Returns the number of crashes; set `SUBTEND_POSTGRES_CRASHES=N` for more.
fn crash_count() -> u64 {
    std::env::var("SUBTEND_POSTGRES_CRASHES").ok().and_then(|count| count.parse().ok()).unwrap_or(5)
}

#[test]
fn d1_server_crash_during_commits_loses_nothing() {
    const WRITERS: u128 = 8;
    let server = Server::start(&[]);
    let journal = journal(&server.target("shard=a&reply_timeout=20"));
    let (stop, acked) = (AtomicBool::new(false), AtomicU64::new(0));
    let written: Vec<u128> = std::thread::scope(|scope| {
        let write = |writer: u128| {
            let (journal, stop, acked) = (&journal, &stop, &acked);
            move || {
                let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                let mut count = 0_u128;
                while !stop.load(Ordering::Relaxed) {
                    let mut session_writer = SessionWriter::new(id(writer * 1_000_000 + count));
                    session_writer.opened_lsn =
                        journal.append(one(created_session(&mut session_writer, None, true))).unwrap().last;
                    let last = journal.append(one(session_writer.frame_of(start(session_writer.id)))).unwrap().last;
                    runtime.block_on(journal.wait(last)).expect("the journal waits for the restart of the server");
                    count += 1;
                    acked.fetch_add(1, Ordering::Relaxed);
                }
                count
            }
        };
        let writers: Vec<_> = (1..=WRITERS).map(|writer| scope.spawn(write(writer))).collect();
        for _ in 0..crash_count() {
            let before = acked.load(Ordering::Relaxed);
            // Commits are under way again.
            while acked.load(Ordering::Relaxed) < before + 50 {
                std::thread::yield_now();
            }
            server.crash();
            server.up();
        }
        stop.store(true, Ordering::Relaxed);
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    drop(journal);
    let journal = super::journal(&server.target("shard=a"));
    assert_eq!(problems(&journal), Vec::<String>::new());
    for (writer, count) in (1..).zip(&written) {
        for n in 0..*count {
            let last = journal.records(id(writer * 1_000_000 + n)).unwrap().last().map(|stored| stored.seq);
            assert_eq!(last, Some(Seq(6)), "writer {writer}, {n}");
        }
    }
    let sessions = journal.heads().unwrap().len() as u128;
    assert_eq!(sessions, written.iter().sum::<u128>(), "a session exists twice or was not requested");
}
