//! Two processes on one shard: only the process with the claim writes, and the other one acknowledges nothing.

use subtend_journal::postgres::Postgres;
use subtend_journal::{Journal, OpenError, Options, StoreSpec, open_store_to_read, open_store_with};
use subtend_session::ids::Lsn;

use super::{create_session, journal, unused_shard};
use crate::scene::problems;
use crate::server::shared;

/// Claims the shard like a process on another machine that found its lock free.
fn claim_elsewhere(shard: &str) {
    let name = shard.trim_start_matches("shard=");
    shared()
        .sql(&format!("UPDATE subtend.shard SET epoch = epoch + 1, owner = gen_random_uuid() WHERE name = '{name}'"));
}

#[tokio::test]
async fn d2_second_owner_is_refused_with_the_name_of_the_first() {
    let target = shared().target(&unused_shard());
    let first = journal(&target);
    let refused = Postgres::open(&target).unwrap_err();
    let text = refused.to_string();
    assert!(matches!(refused, OpenError::ClaimedElsewhere { .. }), "{text}");
    assert!(text.contains(&format!("is in use by process {} of ", std::process::id())), "{text}");
    let refused = Postgres::open_to_read(&target).unwrap_err();
    assert!(matches!(refused, OpenError::ClaimedElsewhere { .. }), "{refused}");
    first.close().await.unwrap();
    let reader = Postgres::open_to_read(&target).unwrap();
    assert!(
        matches!(Postgres::open(&target).unwrap_err(), OpenError::ClaimedElsewhere { .. }),
        "an owner opened the shard of a reader"
    );
    drop(reader);
    drop(journal(&target));
}

#[tokio::test]
async fn d2_replaced_owner_acknowledges_nothing() {
    let shard = unused_shard();
    let target = shared().target(&shard);
    let old = journal(&target);
    create_session(&old, 1).await.unwrap();
    claim_elsewhere(&shard);
    let poisoned = create_session(&old, 2).await.unwrap_err().to_string();
    assert!(poisoned.contains("was claimed by another process: this one no longer writes to it"), "{poisoned}");
    drop(old);
    let new = journal(&target);
    assert_eq!((new.durable(), new.records(subtend_session::ids::SessionId(uuid(2))).is_err()), (Lsn(1), true));
    assert_eq!(problems(&new), Vec::<String>::new());
}

fn uuid(n: u128) -> uuid::Uuid {
    uuid::Uuid::from_u128(n)
}

/// Negative control: with a statement that does not check the claim, both write.
#[tokio::test]
async fn d2_engine_without_its_fence_is_noticed() {
    let shard = unused_shard();
    let target = shared().target(&shard);
    let old = Journal::open(Box::new(Postgres::open_unfenced(&target).unwrap()), Options::default()).unwrap();
    create_session(&old, 1).await.unwrap();
    claim_elsewhere(&shard);
    assert_eq!(create_session(&old, 2).await.unwrap(), Lsn(2), "the old owner was refused without the fence");
}

#[tokio::test]
async fn d2_owner_reclaims_or_stops_after_a_lost_connection() {
    let target = crate::server::Server::start(&[]);
    let (server, target) = (&target, target.target("shard=cut"));
    let old = journal(&target);
    create_session(&old, 1).await.unwrap();
    // Without another owner it claims the next epoch and continues.
    server.cut();
    assert_eq!(create_session(&old, 2).await.unwrap(), Lsn(2));
    assert_eq!(server.sql("SELECT epoch, last_lsn FROM subtend.shard"), "2|2");
    // Another owner claimed the shard meanwhile.
    server.cut();
    let new = journal(&target);
    assert_eq!(create_session(&new, 3).await.unwrap(), Lsn(3));
    let poisoned = create_session(&old, 4).await.unwrap_err().to_string();
    assert!(poisoned.contains("was claimed by another process"), "{poisoned}");
    assert_eq!(create_session(&new, 5).await.unwrap(), Lsn(4));
    assert_eq!((problems(&new), new.heads().unwrap().len()), (Vec::new(), 4));
}

#[tokio::test]
async fn d2_shards_of_one_database_are_independent() {
    let targets = [unused_shard(), unused_shard()].map(|shard| shared().target(&shard));
    let journals = targets.each_ref().map(journal);
    for (n, journal) in (1..).zip(&journals) {
        // Both shards have sessions with the same ids.
        create_session(journal, 7).await.unwrap();
        create_session(journal, 10 * n).await.unwrap();
    }
    for (n, journal) in (1..).zip(&journals) {
        let heads: Vec<u128> = journal.heads().unwrap().into_iter().map(|(id, _)| id.0.as_u128()).collect();
        assert_eq!((heads, problems(journal)), (vec![7, 10 * n], Vec::new()));
    }
}

#[tokio::test]
async fn d8_database_restored_to_an_older_state_is_refused() {
    let (dir, shard) = (tempfile::tempdir().unwrap(), unused_shard());
    let spec = StoreSpec::Postgres(Box::new(shared().target(&shard)));
    let node = |accept_loss| Options { accept_loss, node_dir: Some(dir.path().join("node")), ..Options::default() };
    let journal = open_store_with(&spec, node(false)).unwrap();
    for n in 1..=3 {
        create_session(&journal, n).await.unwrap();
    }
    journal.close().await.unwrap();
    // The rows that a restore to an earlier moment leaves.
    let name = shard.trim_start_matches("shard=");
    let of = format!("shard = (SELECT id FROM subtend.shard WHERE name = '{name}')");
    shared().sql(&format!("DELETE FROM subtend.log WHERE {of} AND key > '\\x0000000000000001'"));
    shared().sql(&format!("DELETE FROM subtend.ev WHERE {of} AND value > '\\x0000000000000001'"));
    shared().sql(&format!("DELETE FROM subtend.head WHERE {of} AND key > '\\x00000000000000000000000000000001'"));
    shared().sql(&format!("DELETE FROM subtend.inflight WHERE {of} AND key > '\\x00000000000000000000000000000001'"));
    shared().sql(&format!("UPDATE subtend.shard SET last_lsn = 1 WHERE name = '{name}'"));
    for refused in [open_store_with(&spec, node(false)), open_store_to_read(&spec, node(false), &mut |_| {})] {
        let refused = refused.unwrap_err();
        assert!(matches!(refused, OpenError::Behind { found: Lsn(1), watermark: Lsn(3) }), "{refused}");
    }
    // A machine that never saw the shard remembers nothing.
    drop(open_store_with(&spec, Options::default()).unwrap());
    let journal = open_store_with(&spec, node(true)).unwrap();
    assert_eq!(problems(&journal), Vec::<String>::new());
    create_session(&journal, 9).await.unwrap();
    journal.close().await.unwrap();
    assert_eq!(open_store_with(&spec, node(false)).unwrap().durable(), Lsn(2));
}
