//! Engine on PostgreSQL. A shard of a database is a store; each group is one statement and one commit.
//!
//! The rows are the same as in other engines, with the number of the shard before the key (`schema/1.sql`). A claim (`owner`) takes the
//! place of a file lock: the shard's epoch fences every earlier owner, including one that was only paused.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};

use subtend_session::ids::{Lsn, Seq, SessionId};

use crate::compact::{Compacted, Erasure};
use crate::engine::{Group, MAX_FRAME, Result, StoredFrame};
use crate::error::{EngineError, OpenError};
use crate::rows;
use crate::sorted::Sorted;
use crate::tables::{self, Keys, META_FORMAT, META_LSN, RangeRows, Table, Tables, Visit};
use crate::watermark::Watermark;

mod failure;
mod link;
mod node_lease;
pub mod nodes;
mod owner;
mod schema;
mod server_text;
mod settings;
mod target;

use failure::ServerFailure;
use link::{Driver, Link, Param};
use owner::{ErasedRows, ShardClaim};
pub use target::ShardAddress;

/// Time limit for a node's claim of a shard.
const TAKEOVER_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(5);
/// Number of frames in one part of a scan. Frames are larger than other rows.
const FRAMES_PER_PART: i32 = 256;
const ROWS_PER_PART: i32 = 2048;
/// Maximum bytes of cached bodies. All sessions of an agent share its bodies.
const MAX_CACHED_DEFS: usize = 8 << 20;

/// Inserts the table's name into a statement.
macro_rules! sql {
    ($table:expr, $before:literal, $after:literal) => {
        match $table {
            Table::Log => concat!($before, "subtend.log", $after),
            Table::Ev => concat!($before, "subtend.ev", $after),
            Table::Head => concat!($before, "subtend.head", $after),
            Table::Inflight => concat!($before, "subtend.inflight", $after),
            Table::Child => concat!($before, "subtend.kid", $after),
            Table::Outbox => concat!($before, "subtend.outbox", $after),
            Table::Def => concat!($before, "subtend.def", $after),
            // `meta` is stored in columns of `shard`.
            Table::Meta => "SELECT NULL::bytea, NULL::bytea WHERE false AND $1 = 0",
        }
    };
}

/// Store in a shard of a PostgreSQL database.
pub struct Postgres {
    owner: Arc<tokio::sync::Mutex<ShardClaim>>,
    link: Arc<Link>,
    shard: i32,
    durability: Cow<'static, str>,
    syncs: AtomicU64,
    defs: Mutex<DefCache>,
    driver: Driver,
}

/// Cached bodies. They are named by their hash, so they cannot become stale.
#[derive(Default)]
struct DefCache {
    bytes: usize,
    bodies: HashMap<Vec<u8>, Vec<u8>>,
}

impl std::fmt::Debug for Postgres {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Postgres").field("target", &self.link.target).finish_non_exhaustive()
    }
}

impl Postgres {
    /// Claims the shard, and creates it if it is missing. Earlier owners are fenced.
    /// # Errors
    /// [`OpenError::Unreachable`], [`OpenError::ClaimedElsewhere`] while another process has it, [`OpenError::Newer`] for a newer schema, and
    /// [`EngineError::Weak`] for a setting that was not accepted.
    pub fn open(target: &ShardAddress) -> std::result::Result<Self, OpenError> {
        Self::start(target, |link| async {
            if link.target.lease.is_none() {
                return ShardClaim::claim(link).await;
            }
            // A takeover must not wait for a lost reply, since it can be retried.
            let claimed = tokio::time::timeout(TAKEOVER_TIMEOUT, ShardClaim::claim(link)).await;
            claimed.unwrap_or_else(|_| {
                Err(ServerFailure::Lost(format!("no claim within {} s", TAKEOVER_TIMEOUT.as_secs())))
            })
        })
    }

    /// Opens an existing shard read-only. Others cannot claim it meanwhile.
    /// # Errors
    /// As for [`Postgres::open`], and [`OpenError::Missing`].
    pub fn open_to_read(target: &ShardAddress) -> std::result::Result<Self, OpenError> {
        Self::start(target, ShardClaim::read)
    }

    /// Returns whether the shard exists, without creating it.
    /// # Errors
    /// [`OpenError::Unreachable`] and [`OpenError::Newer`].
    pub fn exists(target: &ShardAddress) -> std::result::Result<bool, OpenError> {
        let link = Arc::new(Link::to(target)?);
        let driver = Driver::start().map_err(OpenError::Thread)?;
        driver.run(owner::exists(link)).map_err(|failure| failure.open(target))
    }

    /// Opens a shard whose writes do not check the claim, as a negative control of the fence.
    /// # Errors
    /// As for [`Postgres::open`].
    #[cfg(feature = "fault-points")]
    pub fn open_unfenced(target: &ShardAddress) -> std::result::Result<Self, OpenError> {
        Self::start(target, async |link| {
            let mut owner = ShardClaim::claim(link).await?;
            owner.unfenced = true;
            Ok(owner)
        })
    }

    fn start<F>(
        target: &ShardAddress,
        claim: impl FnOnce(Arc<Link>) -> F + Send + 'static,
    ) -> std::result::Result<Self, OpenError>
    where
        F: Future<Output = std::result::Result<ShardClaim, ServerFailure>> + Send + 'static,
    {
        let link = Arc::new(Link::to(target)?);
        let driver = Driver::start().map_err(OpenError::Thread)?;
        let claimed = driver.run(claim(Arc::clone(&link)));
        let owner = claimed.map_err(|failure| failure.open(target))?;
        Ok(Self {
            shard: owner.shard,
            durability: owner.settings.durability(&target.accepted),
            owner: Arc::new(tokio::sync::Mutex::new(owner)),
            link,
            syncs: AtomicU64::new(0),
            defs: Mutex::default(),
            driver,
        })
    }

    fn engine_error(&self, what: &'static str) -> impl Fn(ServerFailure) -> EngineError + '_ {
        move |failure| failure.engine(what, self.link.target.shard())
    }

    fn rows(&self, sql: &'static str, params: Vec<Param>) -> Result<Vec<tokio_postgres::Row>> {
        self.driver.run(Arc::clone(&self.link).rows(sql, params)).map_err(self.engine_error("read"))
    }

    fn column<T: for<'a> tokio_postgres::types::FromSql<'a>>(&self, row: &tokio_postgres::Row, at: usize) -> Result<T> {
        row.try_get(at).map_err(|error| self.engine_error("read")(error.into()))
    }

    /// Visits the rows of a table in parts, or those with `keys`.
    fn parts(&self, table: Table, keys: Keys<'_>, visit: &mut Visit<'_>) -> Result<()> {
        let mut params: Vec<Param> = vec![Box::new(self.shard)];
        // Values of more than 16 KiB are read one by one.
        let sql = match keys {
            None => sql!(
                table,
                "SELECT key, CASE WHEN octet_length(value) <= 16384 THEN value END FROM ",
                " WHERE shard = $1 ORDER BY key"
            ),
            Some((from, to)) => {
                params.extend([from, to].map(|key| Box::new(key.to_vec()) as Param));
                sql!(
                    table,
                    "SELECT key, CASE WHEN octet_length(value) <= 16384 THEN value END FROM ",
                    " WHERE shard = $1 AND key BETWEEN $2 AND $3 ORDER BY key"
                )
            }
        };
        let statements = (sql, sql!(table, "SELECT value FROM ", " WHERE shard = $1 AND key = $2"));
        let most = if table == Table::Log { FRAMES_PER_PART } else { ROWS_PER_PART };
        let (credit, credits) = tokio::sync::mpsc::channel(1);
        let (send, parts) = mpsc::channel();
        self.driver.spawn(Arc::clone(&self.link).scan(statements, params, most, credits, send));
        loop {
            // The channel is full only if the scan has ended, which the next part reports.
            let _ = credit.try_send(());
            let ended = || Err(ServerFailure::Lost("the thread of the connections has ended".to_owned()));
            let part = parts.recv().unwrap_or_else(|_| ended()).map_err(self.engine_error("scan"))?;
            if part.is_empty() {
                return Ok(());
            }
            for (key, value) in part {
                if visit(&key, &value)?.is_break() {
                    return Ok(());
                }
            }
        }
    }
}

/// Records in `dir`, this machine's directory for a shard, that the shard ends at `last`
/// ([`Options::node_dir`](crate::Options)). No journal may have the shard open here.
/// # Errors
/// [`OpenError::Behind`] for a shard that ended later before, unless `accept_loss` is true.
pub fn store_watermark(dir: &std::path::Path, last: Lsn, accept_loss: bool) -> std::result::Result<(), OpenError> {
    Watermark::open_shared(dir, last, accept_loss).map(drop)
}

/// Removes the rows of deleted sessions from the shard in one transaction, and frees their space.
/// # Errors
/// As [`Engine::write`](crate::engine::Engine::write), and for a damaged row or first frame. The shard is then unchanged.
pub fn compact(engine: &Postgres) -> Result<Compacted> {
    let Erasure { frames, children, owed, defs, heads, deferred } = Erasure::of(engine)?;
    let done = Compacted { erased: heads.len() as u64, frames: frames.len() as u64, blobs: 0, deferred };
    let mut rows = ErasedRows::default();
    for (lsn, session, seq) in frames {
        rows.log.push(lsn.0.to_be_bytes().to_vec());
        rows.ev.push(rows::ev_key(session, seq).to_vec());
    }
    rows.child = children.into_iter().map(|(parent, child)| rows::child_key(parent, child).to_vec()).collect();
    rows.outbox = owed.iter().map(|row| rows::outbox_key(row).to_vec()).collect();
    rows.def = defs.into_iter().map(|hash| hash.0.to_vec()).collect();
    for (session, head) in heads {
        let key = rows::session_key(session);
        rows.head.1.push(rows::seal_json("head", &key, &head)?);
        rows.head.0.push(key.to_vec());
    }
    let owner = Arc::clone(&engine.owner);
    let erased = engine.driver.run(async move { owner.lock().await.erase(rows).await });
    erased.map_err(engine.engine_error("erase"))?;
    Ok(done)
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let (owner, link) = (Arc::clone(&self.owner), Arc::clone(&self.link));
        let closed = self.driver.run(async move {
            owner.lock().await.release().await;
            link.close();
            Ok(())
        });
        if let Err(failure) = closed {
            tracing::warn!(error = %self.engine_error("close")(failure), "the shard was not released");
        }
    }
}

/// Selects a session's head (0), boot row (1) and frames (2). The first frame may start before the wanted record.
const RANGE: &str = "\
    SELECT 0, NULL::bytea, value, NULL::bytea FROM subtend.head WHERE shard = $1 AND key = $2 \
    UNION ALL SELECT 1, NULL, value, NULL FROM subtend.inflight WHERE shard = $1 AND key = $2 \
    UNION ALL SELECT 2, key, value, frame FROM (SELECT ev.key, ev.value, log.value AS frame, coalesce(sum(octet_length(log.value)) \
    OVER (ORDER BY ev.key ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before \
    FROM subtend.ev LEFT JOIN subtend.log ON log.shard = ev.shard AND log.key = ev.value \
    WHERE ev.shard = $1 AND ev.key <= $5 AND ev.key >= coalesce((SELECT key FROM subtend.ev \
    WHERE shard = $1 AND key BETWEEN $3 AND $4 ORDER BY key DESC LIMIT 1), $4)) AS frames WHERE before < $6";
const BYTES: &str = "\
    SELECT coalesce(sum(bytes), 0)::bigint FROM (SELECT octet_length(log.value) AS bytes, coalesce(sum(octet_length(log.value)) \
    OVER (ORDER BY ev.key ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before \
    FROM subtend.ev LEFT JOIN subtend.log ON log.shard = ev.shard AND log.key = ev.value \
    WHERE ev.shard = $1 AND ev.key <= $4 AND ev.key >= coalesce((SELECT key FROM subtend.ev \
    WHERE shard = $1 AND key BETWEEN $2 AND $3 ORDER BY key DESC LIMIT 1), $3)) AS frames WHERE before < $5";
const META: &str = "SELECT format, last_lsn FROM subtend.shard WHERE id = $1";

impl Tables for Postgres {
    const NAME: &'static str = "postgres";
    /// The server stores large values in chunks in a separate table.
    const MAX_BODY: u64 = MAX_FRAME;

    fn durability(&self) -> Cow<'static, str> {
        self.durability.clone()
    }

    fn write(&self, group: Group) -> Result<()> {
        let (last, tables) = Sorted::of(group)?.edits()?;
        let owner = Arc::clone(&self.owner);
        let written = self.driver.run(async move { owner.lock().await.write(last.0, tables).await });
        written.map_err(self.engine_error("write"))?;
        self.syncs.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }

    fn meta(&self, name: &'static str) -> Result<Option<u64>> {
        let found = self.rows(META, vec![Box::new(self.shard)])?;
        let row = found.first().ok_or(ServerFailure::Missing).map_err(self.engine_error("read"))?;
        let column = match name {
            META_FORMAT => 0,
            META_LSN => 1,
            _ => return Ok(None),
        };
        let number: i64 = self.column(row, column)?;
        u64::try_from(number).map(Some).map_err(|_| rows::corrupt("shard", name.as_bytes(), "the number is negative"))
    }

    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let defs = || self.defs.lock().unwrap_or_else(PoisonError::into_inner);
        if table == Table::Def
            && let Some(kept) = defs().bodies.get(key)
        {
            return Ok(Some(kept.clone()));
        }
        let sql = sql!(table, "SELECT value FROM ", " WHERE shard = $1 AND key = $2");
        let found = self.rows(sql, vec![Box::new(self.shard), Box::new(key.to_vec())])?;
        let value: Option<Vec<u8>> = found.first().map(|row| self.column(row, 0)).transpose()?;
        if let Some(value) = value.as_ref().filter(|_| table == Table::Def) {
            let mut defs = defs();
            if defs.bytes.saturating_add(value.len()) <= MAX_CACHED_DEFS {
                defs.bytes = defs.bytes.saturating_add(value.len());
                defs.bodies.insert(key.to_vec(), value.clone());
            }
        }
        Ok(value)
    }

    fn scan(&self, table: Table, keys: Keys<'_>, visit: &mut Visit<'_>) -> Result<()> {
        let Some((from, to)) = keys.filter(|_| table != Table::Log) else {
            return self.parts(table, keys, visit);
        };
        let params: Vec<Param> = vec![Box::new(self.shard), Box::new(from.to_vec()), Box::new(to.to_vec())];
        let sql = sql!(table, "SELECT key, value FROM ", " WHERE shard = $1 AND key BETWEEN $2 AND $3 ORDER BY key");
        for row in self.rows(sql, params)? {
            let (key, value): (Vec<u8>, Vec<u8>) = (self.column(&row, 0)?, self.column(&row, 1)?);
            if visit(&key, &value)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn last(&self, table: Table, keys: Keys<'_>) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        let shard: Param = Box::new(self.shard);
        let found = match keys {
            None => {
                let sql = sql!(table, "SELECT key, value FROM ", " WHERE shard = $1 ORDER BY key DESC LIMIT 1");
                self.rows(sql, vec![shard])?
            }
            Some((from, to)) => {
                let sql = sql!(
                    table,
                    "SELECT key, value FROM ",
                    " WHERE shard = $1 AND key BETWEEN $2 AND $3 ORDER BY key DESC LIMIT 1"
                );
                self.rows(sql, vec![shard, Box::new(from.to_vec()), Box::new(to.to_vec())])?
            }
        };
        found.first().map(|row| Ok((self.column(row, 0)?, self.column(row, 1)?))).transpose()
    }

    fn range(&self, session: SessionId, from: Seq, until: Seq, max_bytes: u64) -> Result<RangeRows> {
        let last = from.max(Seq(until.0.saturating_sub(1)));
        let [first, from, last] = [Seq(0), from, last].map(|seq| rows::ev_key(session, seq).to_vec());
        let params: Vec<Param> = vec![
            Box::new(self.shard),
            Box::new(rows::session_key(session).to_vec()),
            Box::new(first),
            Box::new(from),
            Box::new(last),
            Box::new(i64::try_from(max_bytes).unwrap_or(i64::MAX)),
        ];
        let mut range = RangeRows { head: None, inflight: None, frames: Vec::new() };
        for row in self.rows(RANGE, params)? {
            let value = || self.column::<Vec<u8>>(&row, 2);
            match self.column::<i32>(&row, 0)? {
                0 => range.head = Some(value()?),
                1 => range.inflight = Some(value()?),
                _ => {
                    let (_, seq, lsn) = tables::place(&self.column::<Vec<u8>>(&row, 1)?, &value()?)?;
                    let frame = self.column::<Option<Vec<u8>>>(&row, 3)?;
                    range.frames.push((seq, lsn, frame.map(StoredFrame::Bytes)));
                }
            }
        }
        range.frames.sort_unstable_by_key(|(seq, ..)| *seq);
        Ok(range)
    }

    fn bytes(&self, session: SessionId, from: Seq, max_bytes: u64) -> Result<u64> {
        let [first, from, last] = [Seq(0), from, Seq(u64::MAX)].map(|seq| rows::ev_key(session, seq).to_vec());
        let most = i64::try_from(max_bytes).unwrap_or(i64::MAX);
        let params: Vec<Param> =
            vec![Box::new(self.shard), Box::new(first), Box::new(from), Box::new(last), Box::new(most)];
        let bytes = self.rows(BYTES, params)?.first().map_or(Ok(0), |row| self.column::<i64>(row, 0))?;
        Ok(u64::try_from(bytes).unwrap_or(0))
    }
}
