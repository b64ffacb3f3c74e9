//! Migrations: one process at a time, forward only.

use subtend_journal::OpenError;
use subtend_journal::postgres::Postgres;

use super::{create_session, journal};
use crate::scene::problems;
use crate::server::Server;

#[tokio::test]
async fn d7_concurrent_starts_migrate_once() {
    let server = Server::start(&[]);
    let refused = Postgres::open_to_read(&server.target("shard=a")).unwrap_err();
    assert!(matches!(refused, OpenError::Missing { .. }), "{refused}");
    std::thread::scope(|scope| {
        for n in 0..8 {
            let target = server.target(&format!("shard=s{n}"));
            scope.spawn(move || drop(journal(&target)));
        }
    });
    let by = env!("CARGO_PKG_VERSION");
    assert_eq!(server.sql("SELECT version, by FROM subtend.migration ORDER BY 1"), format!("1|{by}\n2|{by}"));
    assert_eq!(server.sql("SELECT count(*), max(epoch) FROM subtend.shard"), "8|1");
}

#[tokio::test]
async fn d7_newer_schema_is_refused_at_start_and_later() {
    let server = Server::start(&[]);
    let target = server.target("shard=a");
    let open = journal(&target);
    create_session(&open, 1).await.unwrap();
    server.sql("INSERT INTO subtend.migration (version, by) VALUES (99, 'a later one')");
    let b = server.target("shard=b");
    for refused in [Postgres::open(&b).err(), Postgres::open_to_read(&b).err(), Postgres::exists(&b).err()] {
        let refused = refused.unwrap();
        assert!(matches!(refused, OpenError::Newer { found: 99, known: 2 }), "{refused}");
    }
    // A running process works until its next connection, because a migration must keep older binaries working.
    create_session(&open, 2).await.unwrap();
    server.cut();
    let poisoned = create_session(&open, 3).await.unwrap_err().to_string();
    assert!(poisoned.contains("the schema has version 99, but this build supports 2"), "{poisoned}");
    assert_eq!(server.sql("SELECT last_lsn FROM subtend.shard WHERE name = 'a'"), "2");
}

/// Creates a database of the first schema, by undoing the second one.
#[tokio::test]
async fn d7_first_schema_is_migrated_with_its_sessions() {
    let server = Server::start(&[]);
    let open = journal(&server.target("shard=a"));
    create_session(&open, 1).await.unwrap();
    open.close().await.unwrap();
    server.sql(
        "DROP TABLE subtend.node, subtend.placement, subtend.secret; DROP INDEX subtend.head_session; \
         ALTER TABLE subtend.shard DROP COLUMN lease, DROP COLUMN shared, DROP COLUMN label; \
         DELETE FROM subtend.migration WHERE version = 2",
    );
    let open = journal(&server.target("shard=a"));
    assert_eq!((open.heads().unwrap().len(), problems(&open)), (1, Vec::new()));
    create_session(&open, 2).await.unwrap();
    assert_eq!(server.sql("SELECT max(version) FROM subtend.migration"), "2");
    assert_eq!(server.sql("SELECT name, shared, lease IS NULL FROM subtend.shard"), "a|f|t");
}

#[tokio::test]
async fn d7_newer_rows_are_refused() {
    let server = Server::start(&[]);
    drop(journal(&server.target("shard=a")));
    server.sql("UPDATE subtend.shard SET format = 2");
    let refused = Postgres::open(&server.target("shard=a")).unwrap_err();
    assert!(matches!(refused, OpenError::Newer { found: 2, known: 1 }), "{refused}");
}
