//! Other roles of the database, and records that clients made large.

use std::time::Duration;

use subtend_journal::postgres::nodes::{NodeError, Registry};
use subtend_journal::postgres::{Postgres, ShardAddress};
use tokio_postgres::{Client, Config, NoTls};
use uuid::Uuid;

use super::{create_session, journal};
use crate::exporting::{memory, write};
use crate::scene::*;
use crate::server::{Server, target};

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

/// Returns the address for a role that is not a superuser.
fn as_role(server: &Server, role: &str) -> ShardAddress {
    let address = server.address().replace("postgres://subtend:", &format!("postgres://{role}:"));
    target(&format!("{address}&shard=a"))
}

/// A role that may create schemas makes that of the sessions, or parts of it, before the host or afterwards. The controls: schemas of the
/// host's role, of the owner of the database, and of a superuser.
#[tokio::test(flavor = "multi_thread")]
async fn d1_schema_of_another_role_is_refused() {
    let server = Server::start(&[]);
    server.sql("CREATE ROLE other; CREATE ROLE admin; CREATE ROLE app LOGIN PASSWORD 's3cret@word'");
    server.sql("ALTER DATABASE agents OWNER TO admin; GRANT CREATE ON DATABASE agents TO app, other");
    let addresses = [as_role(&server, "app"), server.target("shard=a")];
    let [app, superuser] = &addresses;
    let reset = "DROP SCHEMA IF EXISTS subtend CASCADE";
    let function = "CREATE FUNCTION public.planted() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'";
    server.sql(&format!("GRANT CREATE ON SCHEMA public TO other; SET ROLE other; {function}"));
    let open_to_all = "CREATE SCHEMA subtend; GRANT ALL ON SCHEMA subtend TO PUBLIC";
    let tables = "CREATE TABLE subtend.migration AS SELECT 2 AS version; GRANT ALL ON subtend.migration TO PUBLIC";
    for (sql, part, change) in [
        (format!("SET ROLE other; {open_to_all}; {tables}"), "the schema subtend", "SCHEMA subtend"),
        (format!("SET ROLE other; {open_to_all}"), "the schema subtend", "SCHEMA subtend"),
        (
            format!("{open_to_all}; SET ROLE other; {tables}"),
            "the relation subtend.migration",
            "TABLE subtend.migration",
        ),
        (
            format!("{open_to_all}; SET ROLE other; CREATE VIEW subtend.log AS SELECT 1"),
            "the relation subtend.log",
            "TABLE subtend.log",
        ),
    ] {
        server.sql(&format!("{reset}; {sql}"));
        assert_refused(&addresses, part, "other", change);
    }
    server.sql(reset);
    drop(journal(app));
    let trigger =
        "CREATE TRIGGER planted BEFORE INSERT ON subtend.shard FOR EACH ROW EXECUTE FUNCTION public.planted()";
    let grant = "GRANT USAGE ON SCHEMA subtend TO other; GRANT TRIGGER ON subtend.shard TO other";
    server.sql(&format!("{grant}; SET ROLE other; {trigger}"));
    assert_refused(&addresses, "the trigger planted of subtend.shard", "other", "FUNCTION public.planted()");
    for owner in ["app", "admin", "subtend"] {
        let grant = "GRANT ALL ON SCHEMA subtend TO app";
        server.sql(&format!("{reset}; CREATE SCHEMA subtend AUTHORIZATION {owner}; {grant}"));
        if owner == "admin" {
            assert_refused(&addresses[1..], "the schema subtend", owner, "SCHEMA subtend");
        }
        drop(journal(app));
        assert_eq!(server.sql("SELECT count(*) FROM subtend.secret"), "1", "{owner}");
    }
    server.sql(reset);
    server.sql("ALTER DATABASE agents OWNER TO subtend");
    drop(journal(superuser));
}

/// The administrator of a role makes the host's role a member of it, and makes the schema for it. The control: the same schema after the
/// change of its owner that the error names.
#[tokio::test(flavor = "multi_thread")]
async fn d1_schema_of_a_planted_membership_is_refused() {
    let server = Server::start(&[]);
    server.sql(
        "CREATE ROLE app LOGIN PASSWORD 's3cret@word'; CREATE ROLE team; CREATE ROLE other; GRANT team TO other WITH ADMIN OPTION",
    );
    server.sql("GRANT CREATE ON DATABASE agents TO app, other");
    server.sql(
        "SET ROLE other; GRANT team TO app; GRANT team TO subtend; CREATE SCHEMA subtend AUTHORIZATION team; SET ROLE team; \
         GRANT ALL ON SCHEMA subtend TO PUBLIC",
    );
    let addresses = [as_role(&server, "app"), server.target("shard=a")];
    assert_refused(&addresses, "the schema subtend", "team", "SCHEMA subtend");
    server.sql("ALTER SCHEMA subtend OWNER TO app");
    drop(journal(&addresses[0]));
}

/// The tables get another owner, which owns other kinds of relations too. Each error names a statement that gives one part to the host. The
/// control: the store opens after them, and not before.
#[tokio::test(flavor = "multi_thread")]
async fn d1_named_statements_make_a_schema_usable() {
    let server = Server::start(&[]);
    let address = with_roles(&server);
    drop(journal(&address));
    let tables = server.sql("SELECT tablename FROM pg_tables WHERE schemaname = 'subtend'");
    let mut expected: Vec<String> = tables.lines().map(|table| format!("TABLE subtend.{table}")).collect();
    for table in &expected {
        server.sql(&format!("ALTER {table} OWNER TO other"));
    }
    server.sql(
        "GRANT ALL ON SCHEMA subtend TO other; SET ROLE other; CREATE VIEW subtend.own_view AS SELECT 1; \
         CREATE SEQUENCE subtend.own_sequence; CREATE TYPE subtend.own_type AS (n int)",
    );
    expected
        .extend(["TABLE subtend.own_view", "TABLE subtend.own_sequence", "TYPE subtend.own_type"].map(str::to_owned));
    let mut named = Vec::new();
    while let Some(refused) = Postgres::open(&address).err().map(|error| error.to_string()) {
        let (_, change) = refused.split_once("or give it to app: ALTER ").unwrap();
        server.sql(&format!("ALTER {change}"));
        assert!(named.len() < expected.len(), "{refused}");
        named.push(change.trim_end_matches(" OWNER TO app").to_owned());
    }
    expected.sort();
    named.sort();
    assert_eq!(named, expected);
    drop(journal(&address));
}

/// The schema gets another owner while a node runs. The control: its open connection, which found its own schema.
#[tokio::test(flavor = "multi_thread")]
async fn d1_node_checks_the_schema_of_each_connection() {
    let server = Server::start(&[]);
    let registry = Registry::connect(&server.target("")).await.unwrap();
    server.sql("CREATE ROLE other; ALTER SCHEMA subtend OWNER TO other");
    assert_eq!(registry.members().await.unwrap().nodes, Vec::new());
    server.cut();
    // The first statement may notice the lost connection.
    let refused = match registry.members().await {
        Err(NodeError::Unreachable(_)) => registry.members().await,
        refused => refused,
    };
    let refused = refused.map(drop).unwrap_err().to_string();
    assert!(refused.contains("the schema subtend belongs to the role other"), "{refused}");
}

fn assert_refused(addresses: &[ShardAddress], part: &str, owner: &str, change: &str) {
    for address in addresses {
        for refused in
            [Postgres::open(address).err(), Postgres::open_to_read(address).err(), Postgres::exists(address).err()]
        {
            let refused = refused.map(|error| error.to_string()).unwrap_or_default();
            assert!(refused.contains(&format!("{part} belongs to the role {owner}, ")), "{part}: {refused}");
            assert!(refused.contains(&format!(": ALTER {change} OWNER TO ")), "{part}: {refused}");
        }
    }
}

/// Creates roles without rights on the sessions, and returns the host's address.
fn with_roles(server: &Server) -> ShardAddress {
    for role in ["app", "other"] {
        server.sql(&format!("CREATE ROLE {role} LOGIN PASSWORD 's3cret@word'"));
    }
    server.sql("GRANT CREATE ON DATABASE agents TO app");
    as_role(server, "app")
}

async fn connect(server: &Server, role: &str, database: &str) -> Client {
    let mut config = Config::new();
    config.host("127.0.0.1").port(server.port()).user(role).password("s3cret@word").dbname(database);
    let (client, connection) = config.connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

const CUT: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app' AND datname = 'agents'";
const NAMES: &str =
    "SELECT usename || ' in ' || datname FROM pg_stat_activity WHERE application_name LIKE 'subtend _%' ORDER BY 1";

/// Connections of another role and of another database have the name by which an owner finds its lost connections. The control: it ends
/// the lost connection of its own, which the server has not noticed.
#[tokio::test(flavor = "multi_thread")]
async fn d2_reclaim_ends_only_connections_of_the_owner() {
    let server = Server::start(&[]);
    let target = with_roles(&server);
    let open = journal(&target);
    create_session(&open, 1).await.unwrap();
    let name =
        server.sql("SELECT DISTINCT application_name FROM pg_stat_activity WHERE application_name LIKE 'subtend _%'");
    server.sql(CUT);
    let same = [("other", "agents"), ("other", "postgres"), ("app", "postgres"), ("app", "agents")];
    let mut clients = Vec::new();
    for (role, database) in same {
        let client = connect(&server, role, database).await;
        client.batch_execute(&format!("SET application_name = '{name}'")).await.unwrap();
        clients.push(client);
    }
    assert_eq!(create_session(&open, 2).await.unwrap(), Lsn(2));
    let mut alive = Vec::new();
    for client in &clients {
        alive.push(client.batch_execute("").await.is_ok());
    }
    assert_eq!(alive, [true, true, true, false], "{}", server.sql(NAMES));
}

/// Any role that may connect can take the lock of a shard. The control: without its connection, the host takes the shard.
#[tokio::test(flavor = "multi_thread")]
async fn d2_lock_of_another_role_is_named_and_refused() {
    let server = Server::start(&[]);
    let target = with_roles(&server);
    let open = journal(&target);
    create_session(&open, 1).await.unwrap();
    let other = connect(&server, "other", "agents").await;
    let pid: i32 = other.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
    let named = format!("is in use by a connection of the role other, which `SELECT pg_terminate_backend({pid})` ends");
    // It waits for the lock, and gets it when the owner's connection is lost.
    let waiting = tokio::spawn(async move {
        let shard = "SELECT pg_advisory_lock(1400201844, 1)";
        other.batch_execute(shard).await.map(|()| other)
    });
    while server.sql("SELECT count(*) FROM pg_locks WHERE NOT granted") == "0" {}
    server.sql(CUT);
    let other = waiting.await.unwrap().unwrap();
    let poisoned = create_session(&open, 2).await.unwrap_err().to_string();
    assert!(poisoned.contains(&named), "{poisoned}");
    drop(open);
    let refused = Postgres::open(&target).unwrap_err();
    assert!(matches!(refused, OpenError::ClaimedElsewhere { .. }), "{refused}");
    assert!(refused.to_string().contains(&named), "{refused}");
    let registry = Registry::connect(&target).await.unwrap();
    let lease = registry.join("a", "10.0.0.1:7475", "1.0.0", &[], Duration::from_secs(15)).await.unwrap();
    server.sql(&format!("UPDATE subtend.shard SET lease = '{}'", lease.id()));
    let refused = Postgres::open(&target.with_shard("a", &lease)).unwrap_err().to_string();
    assert!(refused.contains(&named), "{refused}");
    registry.give_up("a", &lease).await.unwrap();
    drop(other);
    journal(&target.with_shard("a", &lease));
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
