//! Erasure in a shard: the rows of deleted sessions are removed from tables that other shards share.

use subtend_journal::postgres::Postgres;
use subtend_journal::{Compacted, OpenError, Options, ReadError, Scope, StoreSpec, audit, compact_store};

use super::{journal, unused_shard};
use crate::erasing::{SECRET, with_deleted_child};
use crate::exporting::write;
use crate::scene::{id, problems};
use crate::server::shared;

/// Returns the number of rows of a shard that contain a text, in all tables.
fn count_rows_with(shard: &str, text: &str) -> String {
    let name = shard.trim_start_matches("shard=");
    let tables = ["log", "ev", "head", "inflight", "kid", "outbox", "def"];
    let count = |table: &&str| {
        format!(
            "(SELECT count(*) FROM subtend.{table} WHERE position('{text}'::bytea in value) > 0 AND shard = \
             (SELECT id FROM subtend.shard WHERE name = '{name}'))"
        )
    };
    shared().sql(&format!("SELECT {}", tables.iter().map(count).collect::<Vec<_>>().join(" + ")))
}

fn compact(shard: &str) -> Result<Compacted, OpenError> {
    let spec = StoreSpec::Postgres(Box::new(shared().target(shard)));
    compact_store(&spec, &Options::default(), &mut |_| {})
}

#[tokio::test]
async fn d1_compaction_erases_only_rows_of_its_shard() {
    let (shard, other) = (unused_shard(), unused_shard());
    for shard in [&shard, &other] {
        let journal = journal(&shared().target(shard));
        with_deleted_child(&journal);
        journal.close().await.unwrap();
    }
    let open = journal(&shared().target(&shard));
    let (end, before) = (open.durable(), write(&open, Scope::Store));
    assert!(matches!(compact(&shard), Err(OpenError::ClaimedElsewhere { .. })), "a shard in use was compacted");
    open.close().await.unwrap();
    assert_eq!(count_rows_with(&shard, SECRET), "1");
    assert_eq!(compact(&shard).unwrap(), Compacted { erased: 1, frames: 5, blobs: 0, deferred: vec![] });
    assert_eq!((count_rows_with(&shard, SECRET), count_rows_with(&other, SECRET)), ("0".to_owned(), "1".to_owned()));
    let open = journal(&shared().target(&shard));
    assert_eq!((problems(&open), open.durable()), (Vec::<String>::new(), end));
    audit(&open, false).unwrap();
    assert!(matches!(open.records(id(11)), Err(ReadError::NoSuchSession(_))));
    assert!(write(&open, Scope::Store) == before, "something else has changed");
    open.close().await.unwrap();
    assert_eq!(compact(&shard).unwrap(), Compacted::default(), "erased sessions are counted twice");
}

/// A process that lost its claim removes nothing.
#[tokio::test]
async fn d1_compaction_without_the_claim_removes_nothing() {
    let shard = unused_shard();
    let target = shared().target(&shard);
    let open = journal(&target);
    with_deleted_child(&open);
    open.close().await.unwrap();
    let old = Postgres::open(&target).unwrap();
    let name = shard.trim_start_matches("shard=");
    shared().sql(&format!("UPDATE subtend.shard SET epoch = epoch + 1 WHERE name = '{name}'"));
    let refused = subtend_journal::postgres::compact(&old).unwrap_err().to_string();
    assert!(refused.contains("was claimed by another process"), "{refused}");
    drop(old);
    assert_eq!(count_rows_with(&shard, SECRET), "1");
}

#[test]
fn d1_compaction_in_postgres_keeps_obligations() {
    crate::engines::run(crate::erasing::j10_session_with_an_obligation_is_not_erased(crate::engines::Kind::Postgres));
}
