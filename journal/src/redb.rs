//! Engine on redb: one file, one transaction and one sync a group.
//!
//! Bodies are in `log` under their LSN, so that appends touch the right edge of one tree; `ev` finds them by session. Frequently changed
//! rows (`head`, `inflight`, `outbox`) are coalesced over the group and written in key order.

use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use redb::{
    AccessGuard, Builder, Database, Durability, Key, ReadTransaction, ReadableDatabase as _, ReadableTable as _,
    StorageError, TableDefinition, TableError, Value,
};
use subtend_session::ids::{Hash, Lsn, Seq, SessionId, Text};
use subtend_session::index::{Head, Inflight, Row};

use crate::directory;
use crate::engine::{Engine, Go, Group, Result, StoredFrame};
use crate::error::{EngineError, OpenError};
use crate::guarded::guarded;
use crate::rows::{self, EV, KID, OUTBOX, SESSION};

mod commit;
mod overlay;

const LOG: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("log");
const EV_TABLE: TableDefinition<'_, &[u8; EV], u64> = TableDefinition::new("ev");
const HEAD: TableDefinition<'_, &[u8; SESSION], &[u8]> = TableDefinition::new("head");
const INFLIGHT: TableDefinition<'_, &[u8; SESSION], &[u8]> = TableDefinition::new("inflight");
const KID_TABLE: TableDefinition<'_, &[u8; KID], ()> = TableDefinition::new("kid");
const OUTBOX_TABLE: TableDefinition<'_, &[u8; OUTBOX], &[u8]> = TableDefinition::new("outbox");
const DEF: TableDefinition<'_, &[u8; SESSION], &[u8]> = TableDefinition::new("def");
const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");

/// The written format, and the newest readable one.
pub const FORMAT: u64 = 1;
const META_FORMAT: &str = "format";
const META_LSN: &str = "lsn";
/// Far below redb's limit: a file is cheaper than copying a larger body between pages.
const MAX_BODY: u64 = 1 << 20;

/// Store in one redb file.
#[derive(Debug)]
pub struct Redb {
    db: Database,
    syncs: AtomicU64,
    durability: Durability,
}

fn store<E: std::fmt::Display>(what: &'static str) -> impl Fn(E) -> EngineError {
    move |error| EngineError::Store { what, why: error.to_string() }
}

impl Redb {
    /// Opens or creates the store in `file`; a new one is durable with its directory entry.
    /// # Errors
    /// [`OpenError::Newer`] for a newer format; [`OpenError::Engine`] for a file that redb refuses or panics on.
    pub fn open(file: &Path, cache_bytes: usize) -> std::result::Result<Self, OpenError> {
        if !file.exists() {
            Self::create(file, cache_bytes)?;
        }
        Self::at(file, cache_bytes)?.of_our_format()
    }

    /// Opens the store in `file` read-only: what redb writes, repairs included, stays in memory.
    /// # Errors
    /// As for [`Redb::open`], and when the file is missing.
    pub fn open_to_read(file: &Path, cache_bytes: usize) -> std::result::Result<Self, OpenError> {
        let overlay = overlay::Overlay::over(file);
        let overlay = overlay.map_err(|source| OpenError::Io { what: "open", path: file.to_owned(), source })?;
        let db = guarded("open", || {
            Builder::new().set_cache_size(cache_bytes).create_with_backend(overlay).map_err(store("open the redb file"))
        })?;
        Self::of(db).of_our_format()
    }

    /// Opens a store on another medium, for tests of power loss. Durability is that of the syncs of `medium`.
    /// # Errors
    /// As for [`Redb::open`].
    #[cfg(feature = "fault-points")]
    pub fn over(medium: impl redb::StorageBackend, cache_bytes: usize) -> std::result::Result<Self, OpenError> {
        let db = guarded("open", || {
            Builder::new().set_cache_size(cache_bytes).create_with_backend(medium).map_err(store("open the medium"))
        })?;
        Self::of(db).of_our_format()
    }

    /// Opens a store without syncs: the negative control of durability tests.
    /// # Errors
    /// As for [`Redb::open`].
    #[cfg(feature = "fault-points")]
    pub fn open_unsynced(file: &Path, cache_bytes: usize) -> std::result::Result<Self, OpenError> {
        Ok(Self { durability: Durability::None, ..Self::open(file, cache_bytes)? })
    }

    fn at(file: &Path, cache_bytes: usize) -> Result<Self> {
        let db = guarded("open", || {
            Builder::new().set_cache_size(cache_bytes).create(file).map_err(store("open the redb file"))
        })?;
        Ok(Self::of(db))
    }

    fn of(db: Database) -> Self {
        Self { db, syncs: AtomicU64::new(0), durability: Durability::Immediate }
    }

    fn of_our_format(self) -> std::result::Result<Self, OpenError> {
        match self.meta(META_FORMAT)? {
            None => self.write_format()?,
            Some(FORMAT) => {}
            Some(found) if found > FORMAT => return Err(OpenError::Newer { found, known: FORMAT }),
            Some(found) => return Err(rows::corrupt("meta", b"format", &format!("{found} was never a format")).into()),
        }
        Ok(self)
    }

    /// Creates the file under a temporary name and renames it: a crash leaves nothing that resembles a damaged store.
    fn create(file: &Path, cache_bytes: usize) -> std::result::Result<(), OpenError> {
        let making = file.with_extension("making");
        let io = |what| {
            let path = making.clone();
            move |source| OpenError::Io { what, path, source }
        };
        match std::fs::remove_file(&making) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(io("remove")(error)),
            Ok(()) | Err(_) => {}
        }
        let engine = Self::at(&making, cache_bytes)?;
        engine.write_format()?;
        drop(engine);
        std::fs::rename(&making, file).map_err(io("rename"))?;
        if let Some(dir) = file.parent() {
            directory::sync(dir)?;
        }
        Ok(())
    }

    fn write_format(&self) -> Result<()> {
        guarded("write the format", || {
            let mut txn = self.db.begin_write().map_err(store("begin"))?;
            txn.set_quick_repair(true);
            {
                let mut meta = txn.open_table(META).map_err(store("open `meta`"))?;
                meta.insert(META_FORMAT, FORMAT).map_err(store("write `meta`"))?;
            }
            txn.commit().map_err(store("commit"))
        })
    }

    fn meta(&self, name: &str) -> Result<Option<u64>> {
        self.read(META, |meta| Ok(meta.get(name).map_err(store("read `meta`"))?.map(|value| value.value())))
            .map(Option::flatten)
    }

    /// Runs `work` on a table; `None` where the table is missing. A panic of redb on a damaged page is an error.
    fn read<K: Key + 'static, V: Value + 'static, T>(
        &self,
        table: TableDefinition<'_, K, V>,
        work: impl FnOnce(redb::ReadOnlyTable<K, V>) -> Result<T>,
    ) -> Result<Option<T>> {
        guarded("read", || {
            let txn: ReadTransaction = self.db.begin_read().map_err(store("begin to read"))?;
            match txn.open_table(table) {
                Ok(table) => work(table).map(Some),
                Err(TableError::TableDoesNotExist(_)) => Ok(None),
                Err(error) => Err(store("open a table")(error)),
            }
        })
    }

    fn row<T: serde::de::DeserializeOwned>(
        &self,
        table: TableDefinition<'_, &'static [u8; SESSION], &'static [u8]>,
        name: &'static str,
        session: SessionId,
    ) -> Result<Option<T>> {
        let key = rows::session_key(session);
        self.read(table, |table| {
            let row = table.get(&key).map_err(store("read a row"))?;
            row.map(|row| rows::unseal_json(name, &key, row.value())).transpose()
        })
        .map(Option::flatten)
    }

    fn scan<T: serde::de::DeserializeOwned>(
        &self,
        table: TableDefinition<'_, &'static [u8; SESSION], &'static [u8]>,
        name: &'static str,
        visit: &mut dyn FnMut(SessionId, Result<T>) -> Go,
    ) -> Result<()> {
        self.read(table, |table| {
            for row in table.iter().map_err(store("scan"))? {
                let (key, value) = row.map_err(store("scan"))?;
                let key = *key.value();
                if visit(rows::session_of(key), rows::unseal_json(name, &key, value.value())).is_break() {
                    break;
                }
            }
            Ok(())
        })
        .map(Option::unwrap_or_default)
    }
}

fn session_range(session: SessionId) -> RangeInclusive<[u8; EV]> {
    rows::ev_key(session, Seq(0))..=rows::ev_key(session, Seq(u64::MAX))
}

fn text(hash: Hash, bytes: &[u8]) -> Result<Text> {
    std::str::from_utf8(bytes).map(Text::from).map_err(|error| rows::corrupt("def", &hash.0, &error.to_string()))
}

impl Engine for Redb {
    fn name(&self) -> &'static str {
        "redb"
    }

    fn durability(&self) -> &'static str {
        "fsync: what is acknowledged survives a crash of the process and of the machine"
    }

    fn write(&self, group: Group) -> Result<()> {
        commit::write(&self.db, self.durability, group)?;
        if matches!(self.durability, Durability::Immediate) {
            self.syncs.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn wants_bytes(&self) -> bool {
        true
    }

    fn max_body(&self) -> u64 {
        MAX_BODY
    }

    fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }

    fn last_lsn(&self) -> Result<Lsn> {
        let noted = self.meta(META_LSN)?.unwrap_or(0);
        let in_log =
            self.read(LOG, |log| Ok(log.last().map_err(store("read `log`"))?.map_or(0, |(lsn, _)| lsn.value())))?;
        if in_log.unwrap_or(0) > noted {
            return Err(rows::corrupt("meta", b"lsn", &format!("it says {noted}, but the log ends at {in_log:?}")));
        }
        Ok(Lsn(noted))
    }

    fn frame(&self, lsn: Lsn) -> Result<Option<StoredFrame>> {
        self.read(LOG, |log| {
            Ok(log.get(lsn.0).map_err(store("read `log`"))?.map(|frame| StoredFrame::Bytes(frame.value().to_vec())))
        })
        .map(Option::flatten)
    }

    fn frames(&self, from: Lsn, visit: &mut dyn FnMut(Lsn, StoredFrame) -> Go) -> Result<()> {
        self.read(LOG, |log| {
            for row in log.range(from.0..).map_err(store("scan `log`"))? {
                let (lsn, frame) = row.map_err(store("scan `log`"))?;
                if visit(Lsn(lsn.value()), StoredFrame::Bytes(frame.value().to_vec())).is_break() {
                    break;
                }
            }
            Ok(())
        })
        .map(Option::unwrap_or_default)
    }

    fn places(&self, session: SessionId) -> Result<Vec<(Seq, Lsn)>> {
        let range = session_range(session);
        self.read(EV_TABLE, |ev| {
            let rows = ev.range::<&[u8; EV]>(range.start()..=range.end()).map_err(store("scan `ev`"))?;
            rows.map(|row| {
                let (key, lsn) = row.map_err(store("scan `ev`"))?;
                let (_, seq) = rows::ev_of(key.value()).ok_or_else(|| rows::corrupt("ev", key.value(), "no key"))?;
                Ok((seq, Lsn(lsn.value())))
            })
            .collect()
        })
        .map(Option::unwrap_or_default)
    }

    fn places_from(&self, session: SessionId, from: Seq, most: usize) -> Result<Vec<(Seq, Lsn)>> {
        let range = session_range(session);
        self.read(EV_TABLE, |ev| {
            let place = |row: std::result::Result<(AccessGuard<'_, &[u8; EV]>, AccessGuard<'_, u64>), StorageError>| {
                let (key, lsn) = row.map_err(store("scan `ev`"))?;
                let (_, seq) = rows::ev_of(key.value()).ok_or_else(|| rows::corrupt("ev", key.value(), "no key"))?;
                Ok((seq, Lsn(lsn.value())))
            };
            let upto = rows::ev_key(session, from);
            let mut before = ev.range::<&[u8; EV]>(range.start()..=&upto).map_err(store("scan `ev`"))?;
            let first = before.next_back().map(place).transpose()?.map_or(from, |(seq, _)| seq);
            let start = rows::ev_key(session, first);
            let rows = ev.range::<&[u8; EV]>(&start..=range.end()).map_err(store("scan `ev`"))?;
            rows.take(most).map(place).collect()
        })
        .map(Option::unwrap_or_default)
    }

    fn last_place(&self, session: SessionId) -> Result<Option<(Seq, Lsn)>> {
        let range = session_range(session);
        self.read(EV_TABLE, |ev| {
            let mut rows = ev.range::<&[u8; EV]>(range.start()..=range.end()).map_err(store("scan `ev`"))?;
            let Some(row) = rows.next_back() else { return Ok(None) };
            let (key, lsn) = row.map_err(store("scan `ev`"))?;
            Ok(rows::ev_of(key.value()).map(|(_, seq)| (seq, Lsn(lsn.value()))))
        })
        .map(Option::flatten)
    }

    fn all_places(&self, visit: &mut dyn FnMut(SessionId, Seq, Lsn) -> Go) -> Result<()> {
        self.read(EV_TABLE, |ev| {
            for row in ev.iter().map_err(store("scan `ev`"))? {
                let (key, lsn) = row.map_err(store("scan `ev`"))?;
                let Some((session, seq)) = rows::ev_of(key.value()) else { continue };
                if visit(session, seq, Lsn(lsn.value())).is_break() {
                    break;
                }
            }
            Ok(())
        })
        .map(Option::unwrap_or_default)
    }

    fn head(&self, session: SessionId) -> Result<Option<Head>> {
        self.row(HEAD, "head", session)
    }

    fn heads(&self, visit: &mut dyn FnMut(SessionId, Result<Head>) -> Go) -> Result<()> {
        self.scan(HEAD, "head", visit)
    }

    fn inflight(&self, session: SessionId) -> Result<Option<Inflight>> {
        self.row(INFLIGHT, "inflight", session)
    }

    fn inflights(&self, visit: &mut dyn FnMut(SessionId, Result<Inflight>) -> Go) -> Result<()> {
        self.scan(INFLIGHT, "inflight", visit)
    }

    fn kids(&self, parent: SessionId) -> Result<Vec<SessionId>> {
        let min = rows::kid_key(parent, rows::session_of([0; SESSION]));
        let max = rows::kid_key(parent, rows::session_of([0xff; SESSION]));
        self.read(KID_TABLE, |kids| {
            let rows = kids.range::<&[u8; KID]>(&min..=&max).map_err(store("scan `kid`"))?;
            rows.map(|row| {
                let (key, ()) = row.map(|(key, unit)| (key, unit.value())).map_err(store("scan `kid`"))?;
                rows::kid_of(key.value()).map(|(_, kid)| kid).ok_or_else(|| rows::corrupt("kid", key.value(), "no key"))
            })
            .collect()
        })
        .map(Option::unwrap_or_default)
    }

    fn all_kids(&self, visit: &mut dyn FnMut(SessionId, SessionId) -> Go) -> Result<()> {
        self.read(KID_TABLE, |kids| {
            for row in kids.iter().map_err(store("scan `kid`"))? {
                let (key, _) = row.map_err(store("scan `kid`"))?;
                let Some((parent, kid)) = rows::kid_of(key.value()) else { continue };
                if visit(parent, kid).is_break() {
                    break;
                }
            }
            Ok(())
        })
        .map(Option::unwrap_or_default)
    }

    fn outbox(&self, to: Option<SessionId>, visit: &mut dyn FnMut(Result<(Row, Lsn)>) -> Go) -> Result<()> {
        let (min, max) = rows::outbox_range(to);
        self.read(OUTBOX_TABLE, |outbox| {
            for row in outbox.range::<&[u8; OUTBOX]>(&min..=&max).map_err(store("scan `outbox`"))? {
                let (key, value) = row.map_err(store("scan `outbox`"))?;
                if visit(rows::obligation(key.value(), value.value())).is_break() {
                    break;
                }
            }
            Ok(())
        })
        .map(Option::unwrap_or_default)
    }

    fn def(&self, hash: Hash) -> Result<Option<Text>> {
        self.read(DEF, |defs| {
            let body = defs.get(&hash.0).map_err(store("read `def`"))?;
            body.map(|body| text(hash, body.value())).transpose()
        })
        .map(Option::flatten)
    }

    fn defs(&self, visit: &mut dyn FnMut(Hash, Result<Text>) -> Go) -> Result<()> {
        self.read(DEF, |defs| {
            for row in defs.iter().map_err(store("scan `def`"))? {
                let (hash, body) = row.map_err(store("scan `def`"))?;
                let hash = Hash(*hash.value());
                if visit(hash, text(hash, body.value())).is_break() {
                    break;
                }
            }
            Ok(())
        })
        .map(Option::unwrap_or_default)
    }
}
