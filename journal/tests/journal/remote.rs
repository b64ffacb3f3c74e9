//! A store that is read through another journal.

use serde_json::Value;
use subtend_journal::remote::{Read, Remote};
use subtend_journal::{Journal, OpenError, Options, Scope, open_store};

use crate::exporting::{stores, told, write};
use crate::scene::{family, one};

/// The journal of another process, read through `host`.
fn remote(host: &Journal) -> Result<Journal, OpenError> {
    let host = host.clone();
    let ask = move |read: &Read| {
        // As it crosses a socket.
        let text = serde_json::to_string(read).map_err(|error| error.to_string())?;
        let read: Read = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        let answer = host.read(&read).map_err(|error| error.to_string())?;
        serde_json::from_str::<Value>(&answer.to_string()).map_err(|error| error.to_string())
    };
    Journal::open(Box::new(Remote::new(ask)), Options::default())
}

#[tokio::test]
async fn h1_remote_reads_say_what_the_engine_says() {
    let dir = tempfile::tempdir().unwrap();
    for (engine, spec) in stores(dir.path()) {
        let host = open_store(&spec).unwrap();
        told(&host, 3).await;
        let other = remote(&host).unwrap();
        assert_eq!(write(&other, Scope::Store), write(&host, Scope::Store), "{engine}");
        assert_eq!(other.heads().unwrap(), host.heads().unwrap(), "{engine}");
        assert_eq!(other.inflight().unwrap(), host.inflight().unwrap(), "{engine}");
        assert_eq!(other.outbox().unwrap(), host.outbox().unwrap(), "{engine}");
        let sessions: Vec<_> = host.heads().unwrap().into_iter().map(|(id, _)| id).collect();
        for id in sessions {
            assert_eq!(other.records(id).unwrap(), host.records(id).unwrap(), "{engine}: {id}");
            assert_eq!(other.kids(id).unwrap(), host.kids(id).unwrap(), "{engine}: {id}");
            // In memory nothing is encoded but on its way.
            if engine != "memory" {
                assert_eq!(other.bytes_of(id).unwrap(), host.bytes_of(id).unwrap(), "{engine}: {id}");
            }
        }
        let report = other.verify(&mut |_| {}).unwrap();
        assert!(report.problems.is_empty(), "{engine}: {:?}", report.problems);
        // What the host appends later is seen later.
        let before = other.heads().unwrap().len();
        let mut family = family(&host, 900, true);
        host.append(one(family.taken())).unwrap();
        host.settled().await.unwrap();
        assert!(other.heads().unwrap().len() > before, "{engine}");
    }
}

#[tokio::test]
async fn remote_journal_writes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    for (engine, spec) in stores(dir.path()) {
        let host = open_store(&spec).unwrap();
        told(&host, 1).await;
        let (other, before) = (remote(&host).unwrap(), host.appended());
        let mut family = family(&crate::exporting::memory(), 500, true);
        assert!(other.append(one(family.taken())).is_err(), "{engine}");
        assert_eq!(host.appended(), before, "{engine}");
    }
}
