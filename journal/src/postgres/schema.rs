//! Schema and its migrations: numbered, forward only, applied by one process at a time.

use tokio_postgres::{Client, GenericClient};

use super::failure::ServerFailure;
use super::server_text::server_text;
use crate::error::EngineError;

/// Migrations by version, from 1. Released migrations must not be changed.
const MIGRATIONS: [&str; 2] = [include_str!("schema/1.sql"), include_str!("schema/2.sql")];

/// Advisory lock that is held during a migration.
const LOCK: i64 = 0x5375_6274_656e_6401;

/// The newest version supported by this build.
pub(super) const LATEST_VERSION: u64 = MIGRATIONS.len() as u64;

const VERSION: &str = "SELECT coalesce(max(version), 0) FROM subtend.migration";
const SCHEMA: &str = "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = 'subtend')";
/// Returns whether the schema has tables, and a part of it that belongs to a role that is not trusted: this role could read and change the
/// sessions, and triggers of it run with the rights of the current one. Trusted are the current role, superusers and the owner of the
/// database. A superuser does not trust the owner of the database, who could get all rights of the cluster. The roles that the current one
/// is a member of are not trusted, because their administrators can make it a member without its consent. Indexes and sequences of columns
/// are left out: their owner is always that of the table, and changes only with it.
const PARTS: &str = "WITH relation AS ( \
        SELECT c.oid, relname, relowner, CASE relkind WHEN 'c' THEN 'TYPE' ELSE 'TABLE' END AS kind \
        FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace \
        WHERE nspname = 'subtend' AND relkind NOT IN ('i', 'I') AND NOT (relkind = 'S' AND EXISTS ( \
            SELECT FROM pg_depend WHERE classid = 'pg_class'::regclass AND objid = c.oid AND refclassid = classid AND refobjsubid > 0 \
                AND deptype IN ('a', 'i'))) \
    ), part(name, change, owner) AS ( \
        SELECT 'the schema subtend', 'ALTER SCHEMA subtend', nspowner FROM pg_namespace WHERE nspname = 'subtend' \
        UNION ALL SELECT format('the relation subtend.%I', relname), format('ALTER %s subtend.%I', kind, relname), relowner FROM relation \
        UNION ALL SELECT format('the trigger %I of subtend.%I', tgname, relname), format('ALTER FUNCTION %s', tgfoid::regprocedure), proowner \
            FROM relation JOIN pg_trigger ON tgrelid = relation.oid JOIN pg_proc p ON p.oid = tgfoid \
    ), own AS ( \
        SELECT oid, rolsuper FROM pg_roles WHERE rolname = current_user \
    ), foreign_part AS ( \
        SELECT name, rolname::text AS owner, format('%s OWNER TO %I', change, current_user) AS change FROM part JOIN pg_roles r ON r.oid = owner \
        WHERE NOT rolsuper AND owner NOT IN (SELECT oid FROM own) AND owner NOT IN ( \
            SELECT datdba FROM pg_database, own WHERE datname = current_database() AND NOT own.rolsuper) \
        ORDER BY name DESC LIMIT 1 \
    ) SELECT EXISTS (SELECT FROM relation WHERE relname = 'migration'), name, owner, current_user::text, change \
    FROM (SELECT) one LEFT JOIN foreign_part ON true";

/// Returns whether the schema has tables, from the current catalogue. Refuses a schema of which a part belongs to a role that is not trusted.
/// Both come from one snapshot, so that no other role makes the tables in between.
async fn has_own_tables(client: &impl GenericClient) -> Result<bool, ServerFailure> {
    let row = client.query_one(PARTS, &[]).await?;
    let (part, owner): (Option<&str>, Option<&str>) = (row.try_get(1)?, row.try_get(2)?);
    let Some((part, owner)) = part.zip(owner) else { return Ok(row.try_get(0)?) };
    let (user, change): (&str, &str) = (row.try_get(3)?, row.try_get(4)?);
    let [part, owner, user, change] = [part, owner, user, change].map(server_text);
    let why = format!(
        "{part} belongs to the role {owner}, which may read and change the sessions. Drop it if {user} did not expect it; otherwise connect \
         as {owner}, or give it to {user}: {change}"
    );
    Err(ServerFailure::Engine(EngineError::Store { what: "cannot use the schema", why }))
}

/// Returns the version of the schema, or 0 without a schema. Refuses a schema that another role may have planted.
pub(super) async fn version(client: &impl GenericClient) -> Result<u64, ServerFailure> {
    if !has_own_tables(client).await? {
        return Ok(0);
    }
    let version: i32 = client.query_one(VERSION, &[]).await?.try_get(0)?;
    Ok(u64::try_from(version).unwrap_or(0))
}

/// Refuses a schema of another role, a newer one and a missing one, before statements of a new connection use it.
pub(super) async fn check(client: &impl GenericClient) -> Result<(), ServerFailure> {
    match version(client).await? {
        0 => Err(ServerFailure::Missing),
        found if found > LATEST_VERSION => Err(ServerFailure::Newer { found, known: LATEST_VERSION }),
        _ => Ok(()),
    }
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
    // An operator may have made the schema for a role that may not. If another role makes it now, this fails.
    if !change.query_one(SCHEMA, &[]).await?.try_get::<_, bool>(0)? {
        change.batch_execute("CREATE SCHEMA subtend").await?;
    }
    let found = version(&change).await?;
    for (sql, version) in
        MIGRATIONS.iter().zip(1_i32..).filter(|(_, version)| u64::from(version.unsigned_abs()) > found)
    {
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
