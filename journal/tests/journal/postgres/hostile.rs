//! Other roles of the database, and records that clients made large.

use subtend_journal::postgres::nodes::Registry;
use uuid::Uuid;

use super::journal;
use super::server::Server;
use crate::exporting::{memory, write};
use crate::scene::*;

/// A role without rights on the sessions makes an operator that fits the types of a statement better than those of the
/// system. The control: a connection with the usual search path calls it.
#[tokio::test(flavor = "multi_thread")]
async fn d1_operators_of_other_roles_are_not_called() {
    let server = Server::start(&[]);
    server.sql("CREATE ROLE other; GRANT CREATE ON SCHEMA public TO other");
    server.sql(
        "SET ROLE other; \
         CREATE FUNCTION public.planted(numeric, integer) RETURNS numeric LANGUAGE sql AS 'SELECT 7::numeric'; \
         CREATE OPERATOR public.* (LEFTARG = numeric, RIGHTARG = integer, FUNCTION = public.planted)",
    );
    let registry = Registry::connect(&server.target("")).await.unwrap();
    let time_ms = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint";
    assert_eq!(server.sql(&format!("SELECT {time_ms}")), "7");
    let found = registry.members().await.unwrap().time_ms;
    assert!(found > 1_700_000_000_000, "{found}");
}

/// A part of a scan has up to 256 frames, which are in memory together. The control: small frames come in one part.
#[tokio::test(flavor = "multi_thread")]
async fn d1_large_values_of_a_scan_are_read_one_by_one() {
    let server = Server::start(&["log_min_messages = log", "log_statement = all"]);
    let (own, other) = (journal(&server.target("")), memory());
    for journal in [&own, &other] {
        let mut session = SessionWriter::new(id(1));
        journal.append(one(created_session(&mut session, None, true))).unwrap();
        for (n, len) in [(1, 9), (2, 20_000), (3, 9), (4, 30_000), (5, 20_000), (6, 9)] {
            let input = record(json!({"input_accepted": {
                "id": Uuid::from_u128(100 + n), "from": "person", "lane": "send", "text": "x".repeat(len), "as_owner": "person",
            }}));
            journal.append(one(session.frame_of(vec![input]))).unwrap();
        }
        journal.settled().await.unwrap();
    }
    let count = || server.log().matches(": SELECT value FROM subtend.log").count();
    let before = count();
    assert!(write(&own, Scope::Store) == write(&other, Scope::Store));
    assert_eq!(count() - before, 3);
}
