//! The claim of a shard, and the writes under it.
//! A claim takes the next epoch. Each group is one statement that advances `last_lsn` under that epoch, and writes its rows only if that
//! succeeded. A process that lost its claim therefore cannot change anything. This does not depend on clocks.

use std::sync::Arc;

use tokio::time::{Instant, sleep, timeout};

use super::failure::ServerFailure;
use super::link::{Link, Param, RETRY, ServerConnection};
use super::server_text::server_text;
use super::settings::{ServerSettings, settings};
use crate::error::EngineError;
use crate::tables::{FORMAT, Table, TableEdits};

/// First number of the advisory lock of a shard; the second is the number of the shard.
pub(super) const LOCK: i32 = 0x5375_6274;
/// Number of attempts to lock a shard. A server needs a moment to notice that an owner was killed.
const ATTEMPTS: u32 = 20;
const PAUSE: std::time::Duration = std::time::Duration::from_millis(50);
/// Time limit of a claim, as a multiple of the time limit for one reply. A claim has several statements, which may wait for locks.
const CLAIM_REPLIES: u32 = 5;

const MAKE: &str = "INSERT INTO subtend.shard (name, format) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING";
const FIND: &str =
    "SELECT id, format, holder || ', since ' || date_trunc('second', claimed) FROM subtend.shard WHERE name = $1";
const CLAIM: &str = "UPDATE subtend.shard SET epoch = epoch + 1, owner = gen_random_uuid(), holder = $2, claimed = now(), lease = NULL \
                     WHERE id = $1 AND NOT EXISTS (SELECT FROM subtend.node WHERE lease = shard.lease AND expires > clock_timestamp()) \
                     RETURNING epoch, last_lsn, owner::text";
/// Claims the shard for a node whose lease is valid, unless another node with a valid lease owns it. An expired lease is never renewed, so
/// the answer stays true.
const CLAIM_FOR_NODE: &str = "\
    UPDATE subtend.shard AS own SET epoch = epoch + 1, owner = gen_random_uuid(), holder = $2, claimed = now(), lease = $3::text::uuid \
    WHERE id = $1 AND EXISTS (SELECT FROM subtend.node WHERE lease = $3::text::uuid AND expires > clock_timestamp()) \
    AND NOT EXISTS (SELECT FROM subtend.node WHERE lease = own.lease AND lease <> $3::text::uuid AND expires > clock_timestamp()) \
    RETURNING epoch, last_lsn, owner::text";
/// Rows of `pg_locks` for the lock of the shard $1, with the other connection that holds each.
macro_rules! lock_holders {
    () => {
        "pg_locks JOIN pg_stat_activity USING (pid) WHERE locktype = 'advisory' AND granted AND objsubid = 2 AND classid::bigint = $2 \
        AND objid::bigint = $1 AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND pid <> pg_backend_pid()"
    };
}
/// Ends this role's connection that holds the lock of a shard.
macro_rules! end_lock {
    () => {
        concat!("SELECT pg_terminate_backend(pid) FROM ", lock_holders!(), " AND usename = session_user")
    };
}
pub(super) use {end_lock, lock_holders};

/// Ends the connection that holds the lock of a shard, in two cases. Either its node's lease has ended, for example
/// because the node is paused. Or it made an earlier claim under this lease, and the reply was lost.
const END_HOLDER: &str = concat!(
    end_lock!(),
    " AND EXISTS (SELECT FROM subtend.shard AS own WHERE id = $1::bigint AND lease IS NOT NULL AND (lease = $3::text::uuid OR NOT EXISTS ( \
        SELECT FROM subtend.node WHERE lease = own.lease AND expires > clock_timestamp())))"
);
/// Any role that may connect can take the lock.
const FOREIGN_HOLDER: &str = concat!(
    "SELECT format('a connection of the role %I, which `SELECT pg_terminate_backend(%s)` ends', usename, pid) FROM ",
    lock_holders!(),
    " AND usename <> session_user LIMIT 1"
);
/// Frees the shard for other nodes.
const LEAVE: &str = "UPDATE subtend.shard SET lease = NULL WHERE id = $1 AND owner = $2::text::uuid";
/// Takes the next epoch for the owner of the last one. Repeatable, because its own reply may be lost too.
const RECLAIM: &str =
    "UPDATE subtend.shard SET epoch = epoch + 1 WHERE id = $1 AND owner = $2::text::uuid RETURNING epoch, last_lsn";
/// Ends this owner's lost connections, which may hold the lock or an open transaction. Other roles can read the name and use it too.
const END_OLD: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'subtend ' || $1::text \
                       AND usename = session_user AND datname = current_database() AND pid <> pg_backend_pid()";
const NAME: &str = "SELECT set_config('application_name', 'subtend ' || $1::text, false)";
const SETTINGS: &str = concat!("SELECT ", settings!());
const TRY_LOCK: &str = "SELECT pg_try_advisory_lock($1, $2)";
const TRY_SHARED: &str = "SELECT pg_try_advisory_lock_shared($1, $2)";
const UNLOCK: &str = "SELECT pg_advisory_unlock_all()";

macro_rules! write {
    ($fence:literal) => {
        concat!(
            "WITH own AS (UPDATE subtend.shard SET last_lsn = $4 WHERE id = $1 AND ", $fence, " RETURNING id), \
            log AS (INSERT INTO subtend.log SELECT id, k, v FROM own, unnest($5::bytea[], $6::bytea[]) AS new(k, v)), \
            ev AS (INSERT INTO subtend.ev SELECT id, k, v FROM own, unnest($7::bytea[], $8::bytea[]) AS new(k, v)), \
            head AS (INSERT INTO subtend.head SELECT id, k, v FROM own, unnest($9::bytea[], $10::bytea[]) AS new(k, v) \
                ON CONFLICT (shard, key) DO UPDATE SET value = excluded.value), \
            inflight AS (INSERT INTO subtend.inflight SELECT id, k, v FROM own, unnest($11::bytea[], $12::bytea[]) AS new(k, v) \
                ON CONFLICT (shard, key) DO UPDATE SET value = excluded.value), \
            kid AS (INSERT INTO subtend.kid SELECT id, k, v FROM own, unnest($13::bytea[], $14::bytea[]) AS new(k, v) \
                ON CONFLICT (shard, key) DO NOTHING), \
            outbox AS (INSERT INTO subtend.outbox SELECT id, k, v FROM own, unnest($15::bytea[], $16::bytea[]) AS new(k, v) \
                ON CONFLICT (shard, key) DO UPDATE SET value = excluded.value), \
            def AS (INSERT INTO subtend.def AS old SELECT id, k, v FROM own, unnest($17::bytea[], $18::bytea[]) AS new(k, v) \
                ON CONFLICT (shard, key) DO UPDATE SET value = excluded.value WHERE old.value <> excluded.value), \
            ended AS (DELETE FROM subtend.inflight WHERE shard = (SELECT id FROM own) AND key = ANY ($19::bytea[])), \
            taken AS (DELETE FROM subtend.outbox WHERE shard = (SELECT id FROM own) AND key = ANY ($20::bytea[])) \
            SELECT (SELECT count(*) FROM own), ",
            settings!()
        )
    };
}

/// Writes one group, in one transaction and one round trip.
const WRITE: &str = write!("epoch = $2 AND last_lsn = $3");
/// Seeded bug: writes under any claim.
const WRITE_UNFENCED: &str = write!("($2::bigint + $3::bigint) IS NOT NULL");

/// Removes the rows of erased sessions in one transaction.
const ERASE: &str = "\
    WITH own AS (UPDATE subtend.shard SET last_lsn = last_lsn WHERE id = $1 AND epoch = $2 AND last_lsn = $3 RETURNING id), \
    log AS (DELETE FROM subtend.log WHERE shard = (SELECT id FROM own) AND key = ANY ($4::bytea[])), \
    ev AS (DELETE FROM subtend.ev WHERE shard = (SELECT id FROM own) AND key = ANY ($5::bytea[])), \
    kid AS (DELETE FROM subtend.kid WHERE shard = (SELECT id FROM own) AND key = ANY ($6::bytea[])), \
    outbox AS (DELETE FROM subtend.outbox WHERE shard = (SELECT id FROM own) AND key = ANY ($7::bytea[])), \
    def AS (DELETE FROM subtend.def WHERE shard = (SELECT id FROM own) AND key = ANY ($8::bytea[])), \
    head AS (UPDATE subtend.head SET value = new.v FROM unnest($9::bytea[], $10::bytea[]) AS new(k, v) \
        WHERE shard = (SELECT id FROM own) AND key = new.k) \
    SELECT count(*) FROM own";
/// Frees the space of removed rows, so that new ones overwrite them. Runs outside a transaction and does not block other shards.
const VACUUM: &str = "VACUUM subtend.log, subtend.ev, subtend.head, subtend.kid, subtend.outbox, subtend.def";

/// The claim of this process on a shard.
pub(super) struct ShardClaim {
    link: Arc<Link>,
    connection: Option<ServerConnection>,
    pub(super) shard: i32,
    epoch: i64,
    last: i64,
    /// Random value from the server at the claim; empty for a reader.
    id: String,
    pub(super) settings: ServerSettings,
    pub(super) unfenced: bool,
}

impl ShardClaim {
    /// Creates the shard if it is missing, and claims it.
    pub(super) async fn claim(link: Arc<Link>) -> Result<Self, ServerFailure> {
        let connection = link.connect_and_migrate().await?;
        let give_up = link.target.reply * CLAIM_REPLIES;
        let silent = link.timeout_failure();
        timeout(give_up, Self::claim_on(link, connection)).await.map_err(|_| silent)?
    }

    async fn claim_on(link: Arc<Link>, mut connection: ServerConnection) -> Result<Self, ServerFailure> {
        let settings = read_settings(&mut connection).await?;
        settings.check_accepted(&link.target.accepted)?;
        let format = i64::try_from(FORMAT).unwrap_or(i64::MAX);
        connection.query(MAKE, &[text(&link.target.shard), Box::new(format)]).await?;
        let shard = find(&mut connection, &link).await?;
        let claimed = match &link.target.lease {
            Some(lease) => {
                let of_lock: [Param; 3] = [Box::new(i64::from(shard)), Box::new(i64::from(LOCK)), text(lease)];
                connection.query(END_HOLDER, &of_lock).await?;
                lock(&mut connection, &link, shard, TRY_LOCK).await?;
                connection.query(CLAIM_FOR_NODE, &[Box::new(shard), text(&holder()), text(lease)]).await?
            }
            None => {
                lock(&mut connection, &link, shard, TRY_LOCK).await?;
                connection.query(CLAIM, &[Box::new(shard), text(&holder())]).await?
            }
        };
        let Some(row) = claimed.first() else {
            return Err(owner_failure(&mut connection, &link, shard).await?);
        };
        let (epoch, last, id) = (row.try_get(0)?, row.try_get(1)?, row.try_get::<_, String>(2)?);
        connection.query(NAME, &[text(&id)]).await?;
        Ok(Self { link, connection: Some(connection), shard, epoch, last, id, settings, unfenced: false })
    }

    /// Opens the shard for reading, and prevents claims as long as it is open.
    pub(super) async fn read(link: Arc<Link>) -> Result<Self, ServerFailure> {
        let (give_up, silent) = (link.target.reply * CLAIM_REPLIES, link.timeout_failure());
        timeout(give_up, Self::for_reads(link)).await.map_err(|_| silent)?
    }

    async fn for_reads(link: Arc<Link>) -> Result<Self, ServerFailure> {
        let mut connection = link.connect_to_schema().await?;
        let settings = read_settings(&mut connection).await?;
        let shard = find(&mut connection, &link).await?;
        lock(&mut connection, &link, shard, TRY_SHARED).await?;
        let id = String::new();
        Ok(Self { link, connection: Some(connection), shard, epoch: 0, last: 0, id, settings, unfenced: false })
    }

    /// Writes a group that ends at `to`, durably. A lost reply is resolved: the next epoch ends the old transaction by
    /// a commit or a rollback, and `last_lsn` tells which.
    pub(super) async fn write(&mut self, to: u64, tables: Vec<TableEdits>) -> Result<(), ServerFailure> {
        if self.id.is_empty() {
            let why = "the store was opened read-only".to_owned();
            return Err(ServerFailure::Engine(EngineError::Store { what: "write", why }));
        }
        let to = i64::try_from(to).map_err(|_| ServerFailure::Fenced)?;
        let rows = RowArrays::of(tables);
        let mut give_up = None;
        loop {
            let lost = match self.commit_once(to, &rows).await {
                Ok(()) => {
                    self.last = to;
                    return Ok(());
                }
                Err(ServerFailure::Lost(why)) => why,
                Err(failure) => return Err(failure),
            };
            tracing::warn!(
                why = lost,
                "the reply to a commit was lost; the shard is claimed again to learn what it did"
            );
            self.connection = None;
            let give_up = *give_up.get_or_insert_with(|| Instant::now() + self.link.target.reply * 2);
            let found = self.reclaim(give_up).await?;
            if found == to && to > self.last {
                self.last = to;
                return Ok(());
            }
            if found != self.last || to == self.last {
                // Either there is another writer, or the group had only index rows, so that its LSN cannot show whether it was written.
                return Err(ServerFailure::Fenced);
            }
        }
    }

    /// Removes rows by their keys, and replaces heads. A lost reply is an error: a later erasure removes the rest.
    pub(super) async fn erase(&mut self, rows: ErasedRows) -> Result<(), ServerFailure> {
        let Some(connection) = &mut self.connection else {
            return Err(ServerFailure::Lost("the connection was lost before".to_owned()));
        };
        let ErasedRows { log, ev, child, outbox, def, head: (keys, values) } = rows;
        let mut params: Vec<Param> = vec![Box::new(self.shard), Box::new(self.epoch), Box::new(self.last)];
        for arrays in [log, ev, child, outbox, def, keys, values] {
            params.push(Box::new(arrays));
        }
        let erased = connection.query(ERASE, &params).await?;
        if erased.first().map(|row| row.try_get::<_, i64>(0)).transpose()? != Some(1) {
            return Err(ServerFailure::Fenced);
        }
        Ok(connection.client.batch_execute(VACUUM).await?)
    }

    async fn commit_once(&mut self, to: i64, rows: &RowArrays) -> Result<(), ServerFailure> {
        let Some(connection) = &mut self.connection else {
            return Err(ServerFailure::Lost("the connection was lost before".to_owned()));
        };
        let sql = if self.unfenced { WRITE_UNFENCED } else { WRITE };
        let params = rows.params(self.shard, self.epoch, self.last, to);
        let written = timeout(self.link.target.reply, connection.query(sql, &params)).await;
        let written = written.map_err(|_| self.link.timeout_failure())??;
        let row = written.first().ok_or(ServerFailure::Fenced)?;
        if row.try_get::<_, i64>(0)? != 1 {
            return Err(ServerFailure::Fenced);
        }
        // Checks the settings at the commit, because an operator may have changed them.
        ServerSettings::of(row, 1)?.check_accepted(&self.link.target.accepted)?;
        Ok(())
    }

    /// Claims the next epoch on a new connection, repeatedly until `give_up`, and returns the last LSN of the shard.
    async fn reclaim(&mut self, give_up: Instant) -> Result<i64, ServerFailure> {
        loop {
            let claimed = timeout(self.link.target.reply, self.reclaim_once()).await;
            match claimed.unwrap_or_else(|_| Err(self.link.timeout_failure())) {
                Err(ServerFailure::Lost(_)) if Instant::now() + RETRY < give_up => sleep(RETRY).await,
                claimed => return claimed,
            }
        }
    }

    async fn reclaim_once(&mut self) -> Result<i64, ServerFailure> {
        let mut connection = self.link.connect_to_schema().await?;
        read_settings(&mut connection).await?.check_accepted(&self.link.target.accepted)?;
        // Recorded first, so that a later attempt ends this connection too.
        connection.query(NAME, &[text(&self.id)]).await?;
        connection.query(END_OLD, &[text(&self.id)]).await?;
        // Waits for the old transaction's lock on the row.
        let claimed = connection.query(RECLAIM, &[Box::new(self.shard), text(&self.id)]).await?;
        let row = claimed.first().ok_or(ServerFailure::Fenced)?;
        let (epoch, last) = (row.try_get(0)?, row.try_get(1)?);
        lock(&mut connection, &self.link, self.shard, TRY_LOCK).await?;
        self.connection = Some(connection);
        self.epoch = epoch;
        Ok(last)
    }

    /// Releases the lock, so that the next owner does not have to wait until the server notices the end of the connection.
    pub(super) async fn release(&mut self) {
        if let Some(mut connection) = self.connection.take() {
            if self.link.target.lease.is_some() {
                let params: [Param; 2] = [Box::new(self.shard), text(&self.id)];
                // The end of the lease frees the shard as well.
                drop(timeout(PAUSE * ATTEMPTS, connection.query(LEAVE, &params)).await);
            }
            // The end of the connection releases the lock as well.
            drop(timeout(PAUSE * ATTEMPTS, connection.query(UNLOCK, &[])).await);
        }
    }
}

pub(super) async fn exists(link: Arc<Link>) -> Result<bool, ServerFailure> {
    let found = async {
        let mut connection = link.connect_to_schema().await?;
        link.within_reply_time(find(&mut connection, &link)).await
    };
    match found.await {
        Ok(_) => Ok(true),
        Err(ServerFailure::Missing) => Ok(false),
        Err(failure) => Err(failure),
    }
}

fn text(text: &str) -> Param {
    Box::new(text.to_owned())
}

async fn read_settings(connection: &mut ServerConnection) -> Result<ServerSettings, ServerFailure> {
    let rows = connection.query(SETTINGS, &[]).await?;
    let row = rows.first().ok_or_else(|| ServerFailure::Lost("the server gave no settings".to_owned()))?;
    Ok(ServerSettings::of(row, 0)?)
}

async fn find(connection: &mut ServerConnection, link: &Link) -> Result<i32, ServerFailure> {
    let found = connection.query(FIND, &[text(&link.target.shard)]).await?;
    let row = found.first().ok_or(ServerFailure::Missing)?;
    match u64::try_from(row.try_get::<_, i64>(1)?) {
        Ok(FORMAT) => Ok(row.try_get(0)?),
        found => Err(ServerFailure::Newer { found: found.unwrap_or(0), known: FORMAT }),
    }
}

/// Takes the shard's lock for as long as the connection lasts.
async fn lock(
    connection: &mut ServerConnection,
    link: &Link,
    shard: i32,
    sql: &'static str,
) -> Result<(), ServerFailure> {
    for _ in 0..ATTEMPTS {
        let tried = connection.query(sql, &[Box::new(LOCK), Box::new(shard)]).await?;
        if tried.first().map(|row| row.try_get(0)).transpose()?.unwrap_or(false) {
            return Ok(());
        }
        sleep(PAUSE).await;
    }
    Err(owner_failure(connection, link, shard).await?)
}

/// Returns the failure [`ServerFailure::Held`], which names the process that owns the shard, or another role that holds its lock.
async fn owner_failure(
    connection: &mut ServerConnection,
    link: &Link,
    shard: i32,
) -> Result<ServerFailure, ServerFailure> {
    let foreign = connection.query(FOREIGN_HOLDER, &[Box::new(i64::from(shard)), Box::new(i64::from(LOCK))]).await?;
    if let Some(row) = foreign.first() {
        return Ok(ServerFailure::Held(server_text(row.try_get(0)?)));
    }
    let found = connection.query(FIND, &[text(&link.target.shard)]).await?;
    let holder = found.first().map(|row| row.try_get::<_, Option<&str>>(2)).transpose()?.flatten();
    Ok(ServerFailure::Held(holder.map_or_else(|| "a process that reads it".to_owned(), server_text)))
}

fn holder() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = if host.trim().is_empty() { "an unknown host" } else { host.trim() };
    format!("process {} of {host}", std::process::id())
}

type Values = Vec<Vec<u8>>;

/// Keys of erased rows by table, and the remaining heads.
#[derive(Default)]
pub(super) struct ErasedRows {
    pub(super) log: Values,
    pub(super) ev: Values,
    pub(super) child: Values,
    pub(super) outbox: Values,
    pub(super) def: Values,
    pub(super) head: (Values, Values),
}

/// Rows of a group, by table, as arrays.
#[derive(Default)]
struct RowArrays {
    puts: [(Values, Values); 7],
    ended: Values,
    taken: Values,
}

/// Tables in the order of the statement's arrays.
const PUTS: [Table; 7] = [Table::Log, Table::Ev, Table::Head, Table::Inflight, Table::Child, Table::Outbox, Table::Def];

impl RowArrays {
    fn of(tables: Vec<TableEdits>) -> Self {
        let mut rows = Self::default();
        for (table, edits) in tables {
            let Some((_, (keys, values))) = PUTS.iter().zip(&mut rows.puts).find(|(of, _)| **of == table) else {
                continue;
            };
            // Rows are removed only from these two tables.
            let removed = if table == Table::Inflight { &mut rows.ended } else { &mut rows.taken };
            for (key, value) in edits {
                match value {
                    Some(value) => {
                        keys.push(key);
                        values.push(value);
                    }
                    None => removed.push(key),
                }
            }
        }
        rows
    }

    fn params(&self, shard: i32, epoch: i64, last: i64, to: i64) -> Vec<Param> {
        let mut params: Vec<Param> = vec![Box::new(shard), Box::new(epoch), Box::new(last), Box::new(to)];
        for (keys, values) in &self.puts {
            params.push(Box::new(keys.clone()));
            params.push(Box::new(values.clone()));
        }
        params.push(Box::new(self.ended.clone()));
        params.push(Box::new(self.taken.clone()));
        params
    }
}
