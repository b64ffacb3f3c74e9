//! Server settings under which a commit can be lost. They are refused, or accepted by name and reported.

use subtend_journal::postgres::Postgres;

use super::{create_session, journal, unused_shard};
use crate::server::{Server, shared};

#[tokio::test]
async fn d1_weak_setting_is_refused_by_name() {
    let server = Server::start(&["full_page_writes = off", "fsync = off"]);
    let refused = |params: &str| Postgres::open(&server.target(params)).unwrap_err().to_string();
    let text = refused("shard=a");
    assert!(text.contains("the server has fsync = off: a crash of the server's machine may damage"), "{text}");
    assert!(text.contains("`accept_weak=fsync`"), "{text}");
    assert!(refused("accept_weak=fsync").contains("full_page_writes = off"), "accepting one setting accepted another");
    assert!(refused("accept_weak=full_page_writes").contains("fsync = off"));
    let journal = journal(&server.target("accept_weak=fsync,full_page_writes"));
    create_session(&journal, 1).await.unwrap();
    let durability = journal.info().durability;
    assert!(
        durability.starts_with("weak, as accepted: fsync is off: ") && durability.contains("full_page_writes is off"),
        "{durability}"
    );
}

#[tokio::test]
async fn d1_asynchronous_commit_is_refused() {
    let shard = unused_shard();
    let weak = format!("{shard}&options=-csynchronous_commit%3Doff");
    let refused = Postgres::open(&shared().target(&weak)).unwrap_err().to_string();
    assert!(refused.contains("the server has synchronous_commit = off: a crash of the server may lose"), "{refused}");
    let accepted = journal(&shared().target(&format!("{weak}&accept_weak=synchronous_commit")));
    assert!(accepted.info().durability.starts_with("weak, as accepted: synchronous_commit is off"));
    drop(accepted);
    let strong = journal(&shared().target(&shard)).info().durability;
    assert!(strong.starts_with("commit of PostgreSQL: what is acknowledged survives a crash"), "{strong}");
}

#[tokio::test]
async fn d1_setting_that_becomes_weak_poisons_the_journal() {
    let server = Server::start(&[]);
    let journal = journal(&server.target("shard=a"));
    create_session(&journal, 1).await.unwrap();
    server.sql("ALTER SYSTEM SET fsync = off");
    server.reload();
    // The server applies the setting to its processes with a delay.
    for n in 2..2_000 {
        match create_session(&journal, n).await {
            Ok(_) => {}
            Err(poisoned) => {
                assert!(poisoned.to_string().contains("the server has fsync = off"), "{poisoned}");
                return;
            }
        }
    }
    panic!("the journal accepted a server without syncs");
}
