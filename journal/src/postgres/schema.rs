//! Schema and its migrations: numbered, forward only, applied by one process at a time.

use tokio_postgres::Client;

use super::ServerFailure;

/// Migrations by version, from 1. Released migrations must not be changed.
const MIGRATIONS: [&str; 2] = [include_str!("schema/1.sql"), include_str!("schema/2.sql")];

/// Advisory lock that is held during a migration.
const LOCK: i64 = 0x5375_6274_656e_6401;

/// The newest version supported by this build.
pub(super) const LATEST_VERSION: u64 = MIGRATIONS.len() as u64;

/// Reads the current catalogue. `to_regclass` uses a cache that a lock does not refresh.
const EXISTS: &str =
    "SELECT EXISTS (SELECT FROM pg_catalog.pg_tables WHERE schemaname = 'subtend' AND tablename = 'migration')";
const VERSION: &str = "SELECT coalesce(max(version), 0) FROM subtend.migration";

/// Returns the version of the schema, or 0 without a schema.
pub(super) async fn version(client: &Client) -> Result<u64, tokio_postgres::Error> {
    if !client.query_one(EXISTS, &[]).await?.try_get::<_, bool>(0)? {
        return Ok(0);
    }
    let version: i32 = client.query_one(VERSION, &[]).await?.try_get(0)?;
    Ok(u64::try_from(version).unwrap_or(0))
}

/// Brings the schema to the newest version, and refuses a newer one.
pub(super) async fn migrate(client: &mut Client) -> Result<(), ServerFailure> {
    match version(client).await? {
        LATEST_VERSION => return Ok(()),
        found if found > LATEST_VERSION => return Err(ServerFailure::Newer { found, known: LATEST_VERSION }),
        _ => {}
    }
    // Runs in one transaction, so that a crash leaves either the old or the new version.
    let change = client.transaction().await?;
    change.execute("SELECT pg_advisory_xact_lock($1)", &[&LOCK]).await?;
    let exists: bool = change.query_one(EXISTS, &[]).await?.try_get(0)?;
    let found: i32 = if exists { change.query_one(VERSION, &[]).await?.try_get(0)? } else { 0 };
    for (sql, version) in MIGRATIONS.iter().zip(1_i32..).filter(|(_, version)| *version > found) {
        change.batch_execute(sql).await?;
        let by = env!("CARGO_PKG_VERSION");
        change.execute("INSERT INTO subtend.migration (version, by) VALUES ($1, $2)", &[&version, &by]).await?;
    }
    change.commit().await?;
    // A newer process may have migrated the schema meanwhile.
    match version(client).await? {
        found if found > LATEST_VERSION => Err(ServerFailure::Newer { found, known: LATEST_VERSION }),
        _ => Ok(()),
    }
}
