//! Damaged rows, and a server that cannot write.

use super::{create_session, journal, unused_shard};
use crate::scene::*;
use crate::server::{Server, shared};

/// Flips one bit after `eighths` eighths of the value of a row in `log`.
fn flip(shard: &str, lsn: u64, eighths: u64) {
    let of = format!("shard = (SELECT id FROM subtend.shard WHERE name = '{}')", shard.trim_start_matches("shard="));
    let at = format!("(length(value) - 1) * {eighths} / 8");
    shared().sql(&format!(
        "UPDATE subtend.log SET value = set_byte(value, {at}, get_byte(value, {at}) # 4) WHERE {of} AND key = '\\x{lsn:016x}'"
    ));
}

#[tokio::test]
async fn d1_flipped_bit_in_a_row_damages_only_its_session() {
    for eighths in 0..=8 {
        let shard = unused_shard();
        let first = journal(&shared().target(&shard));
        for n in 1..=3 {
            create_session(&first, n).await.unwrap();
        }
        first.close().await.unwrap();
        flip(&shard, 2, eighths);
        let found = journal(&shared().target(&shard));
        assert!(!problems(&found).is_empty(), "{eighths}");
        let reads = |n| found.records(SessionId(id(n).0)).map_or(0, |records| records.len());
        assert_eq!((reads(1), reads(2), reads(3)), (3, 0, 3), "{eighths}");
    }
}

#[tokio::test]
async fn d1_server_with_a_full_disk_acknowledges_nothing() {
    let server = Server::start(&[]);
    let full = journal(&server.target("shard=a"));
    create_session(&full, 1).await.unwrap();
    server.sql(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'could not extend file: No space left \
         on device' USING ERRCODE = 'disk_full'; END $$; \
         CREATE TRIGGER refuse AFTER INSERT ON subtend.head FOR EACH ROW EXECUTE FUNCTION refuse()",
    );
    let poisoned = create_session(&full, 2).await.unwrap_err().to_string();
    assert!(poisoned.contains("No space left on device"), "{poisoned}");
    assert!(create_session(&full, 3).await.is_err(), "a poisoned journal accepted a write");
    drop(full);
    server.sql("DROP TRIGGER refuse ON subtend.head");
    let again = journal(&server.target("shard=a"));
    assert_eq!((again.durable(), problems(&again)), (Lsn(1), Vec::new()), "part of the group remains");
    assert_eq!(create_session(&again, 4).await.unwrap(), Lsn(2));
}
