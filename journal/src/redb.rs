//! Engine on redb: one file, with one transaction and one sync per group.
//!
//! Frames are in `log` under their LSN, so that appends touch only the right edge of one tree; `ev` finds them by session. Frequently
//! changed rows (`head`, `inflight`, `outbox`) are coalesced within a group and written in key order. Rows behind the last row of their
//! table, which those of new sessions usually are, are added by a cursor.

use std::ops::Bound;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use redb::backends::FileBackend;
use redb::{
    Builder, Database, Durability, Key, ReadTransaction, ReadableDatabase as _, ReadableTable as _, TableDefinition,
    TableError, Value, WriteTransaction,
};

use subtend_session::ids::{Lsn, Seq, SessionId};

use crate::codec;
use crate::directory;
use crate::engine::{Group, Result, StoredFrame};
use crate::error::{EngineError, OpenError, io};
use crate::panics::{catch_panics, drop_unwinding};
use crate::rows::{self, CHILD_KEY_LEN, EV_KEY_LEN, OUTBOX_KEY_LEN, SESSION_KEY_LEN};
use crate::sorted::Sorted;
use crate::tables::{self, Edit, FORMAT, Keys, META_FORMAT, META_LSN, RangeRows, Table, Tables, Visit};

mod ordered_writes;
mod overlay;
#[cfg(test)]
mod tests;

use ordered_writes::OrderedWrites;

const LOG: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("log");
const EV_TABLE: TableDefinition<'_, &[u8; EV_KEY_LEN], u64> = TableDefinition::new("ev");
const HEAD: SessionTable = TableDefinition::new("head");
const INFLIGHT: SessionTable = TableDefinition::new("inflight");
const CHILD_TABLE: TableDefinition<'_, &[u8; CHILD_KEY_LEN], ()> = TableDefinition::new("kid");
const OUTBOX_TABLE: TableDefinition<'_, &[u8; OUTBOX_KEY_LEN], &[u8]> = TableDefinition::new("outbox");
const DEF: TableDefinition<'_, &[u8; SESSION_KEY_LEN], &[u8]> = TableDefinition::new("def");
const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");

type SessionTable = TableDefinition<'static, &'static [u8; SESSION_KEY_LEN], &'static [u8]>;

#[derive(Debug)]
pub struct Redb {
    /// `None` only while it is dropped.
    db: Option<Database>,
    syncs: AtomicU64,
    durability: Durability,
    /// Whether a write succeeded, and whether anything failed.
    wrote: AtomicBool,
    failed: AtomicBool,
}

impl Drop for Redb {
    /// redb commits when it is closed. On damaged pages, that commit can panic, and again while it unwinds, which aborts the process before
    /// it has reported anything. So it is only left to commit after a commit that worked. While a panic unwinds, redb closes the file
    /// without one, as if the process were killed.
    fn drop(&mut self) {
        if !self.wrote.load(Ordering::Relaxed) || self.failed.load(Ordering::Relaxed) {
            drop_unwinding(self.db.take());
        }
    }
}

fn store<E: std::fmt::Display>(what: &'static str) -> impl Fn(E) -> EngineError {
    move |error| EngineError::Store { what, why: error.to_string() }
}

impl Redb {
    /// Opens or creates the store in `file`. A new store is durable, including its directory entry.
    /// # Errors
    /// [`OpenError::Newer`] for a newer format, [`OpenError::Engine`] for a file that redb refuses or panics on.
    pub fn open(file: &Path, cache_bytes: usize) -> std::result::Result<Self, OpenError> {
        if !file.exists() {
            Self::create(file, cache_bytes)?;
        }
        Self::at(file, cache_bytes)?.with_format()
    }

    /// Opens the store in `file` read-only: writes by redb, including repairs, stay in memory.
    /// # Errors
    /// As for [`Redb::open`], and if the file is missing.
    pub fn open_to_read(file: &Path, cache_bytes: usize) -> std::result::Result<Self, OpenError> {
        let overlay = overlay::Overlay::over_file(file);
        let overlay = overlay.map_err(io("open", file))?;
        let db = catch_panics("open", || {
            Builder::new().set_cache_size(cache_bytes).create_with_backend(overlay).map_err(store("open the redb file"))
        })?;
        let engine = Self::of(db);
        // A missing format is not written: a commit could abort the process.
        engine.is_new()?;
        Ok(engine)
    }

    /// Opens a store on another medium, for tests of power loss. Durability depends on the syncs of `medium`.
    /// # Errors
    /// As for [`Redb::open`].
    #[cfg(feature = "fault-points")]
    pub fn over(medium: impl redb::StorageBackend, cache_bytes: usize) -> std::result::Result<Self, OpenError> {
        Self::on(medium, cache_bytes)?.with_format()
    }

    /// Opens a store without syncs, as a negative control of durability tests.
    /// # Errors
    /// As for [`Redb::open`].
    #[cfg(feature = "fault-points")]
    pub fn open_unsynced(file: &Path, cache_bytes: usize) -> std::result::Result<Self, OpenError> {
        let mut engine = Self::open(file, cache_bytes)?;
        engine.durability = Durability::None;
        Ok(engine)
    }

    fn at(file: &Path, cache_bytes: usize) -> Result<Self> {
        let opened = std::fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(file);
        let opened = opened.map_err(store("open the redb file"))?;
        Self::on(FileBackend::new(opened).map_err(store("open the redb file"))?, cache_bytes)
    }

    fn on(medium: impl redb::StorageBackend, cache_bytes: usize) -> Result<Self> {
        let db = catch_panics("open", || {
            let ordered = OrderedWrites::to(medium);
            Builder::new().set_cache_size(cache_bytes).create_with_backend(ordered).map_err(store("open the redb file"))
        })?;
        Ok(Self::of(db))
    }

    fn of(db: Database) -> Self {
        let (syncs, wrote, failed) = (AtomicU64::new(0), AtomicBool::new(false), AtomicBool::new(false));
        Self { db: Some(db), syncs, durability: Durability::Immediate, wrote, failed }
    }

    /// Runs code of redb. A panic on a damaged page becomes an error.
    fn run<T>(&self, what: &'static str, work: impl FnOnce(&Database) -> Result<T>) -> Result<T> {
        let closed = || store("use the store")("it is closed");
        let result = catch_panics(what, || work(self.db.as_ref().ok_or_else(closed)?));
        self.failed.fetch_or(result.is_err(), Ordering::Relaxed);
        result
    }

    fn commit(&self, txn: WriteTransaction) -> Result<()> {
        txn.commit().map_err(store("commit"))?;
        self.wrote.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn with_format(self) -> std::result::Result<Self, OpenError> {
        if self.is_new()? {
            self.write_format()?;
        }
        Ok(self)
    }

    /// Creates the file under a temporary name and renames it, so that a crash does not leave an incomplete store.
    fn create(file: &Path, cache_bytes: usize) -> std::result::Result<(), OpenError> {
        let making = file.with_extension("making");
        let io = |what| io(what, &making);
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
        self.run("write the format", |db| {
            let mut txn = db.begin_write().map_err(store("begin"))?;
            txn.set_quick_repair(true);
            self.write_meta(&txn, META_FORMAT, FORMAT)?;
            self.commit(txn)
        })
    }

    fn write_meta(&self, txn: &WriteTransaction, name: &str, value: u64) -> Result<()> {
        let mut meta = txn.open_table(META).map_err(store("open `meta`"))?;
        meta.insert(name, value).map(drop).map_err(store("write `meta`"))
    }

    fn apply<K: Bytes + Key, V: Bytes>(
        &self,
        table: TableDefinition<'_, K, V>,
        of: Table,
        txn: &WriteTransaction,
        edits: Vec<Edit>,
    ) -> Result<()> {
        let mut rows = txn.open_table(table).map_err(store("open a table"))?;
        let last = rows.last().map_err(store("read the last row"))?;
        let last = last.map(|(key, _)| K::bytes(key.value()).as_ref().to_vec());
        let within = edits.partition_point(|(key, _)| last.as_ref().is_some_and(|last| key <= last));
        let mut edits = edits.into_iter();
        for (key, value) in edits.by_ref().take(within) {
            let at = K::parsed(of, &key)?;
            let Some(value) = value else {
                rows.remove(at).map_err(store("remove a row"))?;
                continue;
            };
            if rows.insert(at, V::parsed(of, &value)?).map_err(store("write a row"))?.is_some() && of.is_log() {
                return Err(of.overwrite(&key));
            }
        }
        // Rows of new sessions come after all others: the cursor fills whole pages, without a search for each row.
        let mut end = rows.upper_bound_mut(Bound::<K::SelfType<'_>>::Unbounded).map_err(store("go to the end"))?;
        for (key, value) in edits {
            let Some(value) = value else { continue };
            end.insert_before(K::parsed(of, &key)?, V::parsed(of, &value)?).map_err(store("add a row"))?;
        }
        end.close().map_err(store("add rows"))
    }

    /// Runs `work` on a table, or returns `None` if the table is missing.
    fn read<K: Key + 'static, V: Value + 'static, T>(
        &self,
        table: TableDefinition<'_, K, V>,
        work: impl FnOnce(redb::ReadOnlyTable<K, V>) -> Result<T>,
    ) -> Result<Option<T>> {
        self.run("read", |db| {
            let txn = db.begin_read().map_err(store("begin to read"))?;
            table_in(&txn, table)?.map(work).transpose()
        })
    }

    fn get_in<K: Bytes + Key, V: Bytes>(
        &self,
        table: TableDefinition<'_, K, V>,
        of: Table,
        key: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        self.read(table, |rows| {
            let row = rows.get(K::parsed(of, key)?).map_err(store("read a row"))?;
            Ok(row.map(|row| V::bytes(row.value()).as_ref().to_vec()))
        })
        .map(Option::flatten)
    }

    fn scan_in<K: Bytes + Key, V: Bytes>(
        &self,
        table: TableDefinition<'_, K, V>,
        of: Table,
        keys: Keys<'_>,
        visit: &mut Visit<'_>,
    ) -> Result<()> {
        self.read(table, |rows| {
            for row in range(&rows, of, keys)? {
                let (key, value) = row.map_err(store("scan"))?;
                if visit(K::bytes(key.value()).as_ref(), V::bytes(value.value()).as_ref())?.is_break() {
                    break;
                }
            }
            Ok(())
        })
        .map(Option::unwrap_or_default)
    }

    fn last_in<K: Bytes + Key, V: Bytes>(
        &self,
        table: TableDefinition<'_, K, V>,
        of: Table,
        keys: Keys<'_>,
    ) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        self.read(table, |rows| {
            let last = range(&rows, of, keys)?.next_back().transpose().map_err(store("read the last row"))?;
            Ok(last.map(|(key, value)| {
                (K::bytes(key.value()).as_ref().to_vec(), V::bytes(value.value()).as_ref().to_vec())
            }))
        })
        .map(Option::flatten)
    }
}

/// Opens a table; returns `None` if it is missing.
fn table_in<K: Key + 'static, V: Value + 'static>(
    txn: &ReadTransaction,
    table: TableDefinition<'_, K, V>,
) -> Result<Option<redb::ReadOnlyTable<K, V>>> {
    match txn.open_table(table) {
        Ok(table) => Ok(Some(table)),
        Err(TableError::TableDoesNotExist(_)) => Ok(None),
        Err(error) => Err(store("open a table")(error)),
    }
}

/// Returns a row of a session.
fn session_row(txn: &ReadTransaction, table: SessionTable, session: SessionId) -> Result<Option<Vec<u8>>> {
    let Some(rows) = table_in(txn, table)? else { return Ok(None) };
    let row = rows.get(&rows::session_key(session)).map_err(store("read a row"))?;
    Ok(row.map(|row| row.value().to_vec()))
}

/// Visits the rows of a session's frames, from the one with record `from` to the last one that starts at or before `last`,
/// until `visit` returns false.
fn visit_frames(
    txn: &ReadTransaction,
    session: SessionId,
    (from, last): (Seq, Seq),
    mut visit: impl FnMut(Seq, Lsn, Option<&[u8]>) -> bool,
) -> Result<()> {
    let (Some(ev), Some(log)) = (table_in(txn, EV_TABLE)?, table_in(txn, LOG)?) else { return Ok(()) };
    let positions = |first, last| {
        let keys = rows::ev_key(session, first)..=rows::ev_key(session, last);
        ev.range::<&[u8; EV_KEY_LEN]>(keys.start()..=keys.end()).map_err(store("scan"))
    };
    let before = positions(Seq(0), from)?.next_back().transpose().map_err(store("read the last row"))?;
    let first = before.map_or(from, |(key, _)| rows::ev_of(key.value()).1);
    for row in positions(first, last)? {
        let (key, lsn) = row.map_err(store("scan"))?;
        let frame = log.get(lsn.value()).map_err(store("read a row"))?;
        if !visit(rows::ev_of(key.value()).1, Lsn(lsn.value()), frame.as_ref().map(|frame| frame.value())) {
            break;
        }
    }
    Ok(())
}

fn range<K: Bytes + Key, V: Bytes>(
    rows: &redb::ReadOnlyTable<K, V>,
    of: Table,
    keys: Keys<'_>,
) -> Result<redb::Range<'static, K, V>> {
    let range = match keys {
        None => rows.range::<K::SelfType<'_>>(..),
        Some((from, to)) => rows.range::<K::SelfType<'_>>(K::parsed(of, from)?..=K::parsed(of, to)?),
    };
    range.map_err(store("scan"))
}

/// Conversion of redb's key and value types from and to bytes.
trait Bytes: Value + 'static {
    type Of<'a>: AsRef<[u8]>;

    fn of(bytes: &[u8]) -> Option<Self::SelfType<'_>>;
    fn bytes(value: Self::SelfType<'_>) -> Self::Of<'_>;

    fn parsed(table: Table, bytes: &[u8]) -> Result<Self::SelfType<'_>> {
        Self::of(bytes).ok_or_else(|| rows::corrupt(table.name(), bytes, "the length is wrong"))
    }
}

macro_rules! bytes {
    ($($type:ty, $of:ty, |$bytes:ident| $parse:expr, |$value:pat_param| $write:expr $(, const $n:ident)?;)*) => {$(
        impl<$(const $n: usize)?> Bytes for $type {
            type Of<'a> = $of;

            fn of($bytes: &[u8]) -> Option<Self::SelfType<'_>> {
                $parse
            }

            fn bytes($value: Self::SelfType<'_>) -> Self::Of<'_> {
                $write
            }
        }
    )*};
}

bytes! {
    u64, [u8; 8], |bytes| bytes.try_into().ok().map(u64::from_be_bytes), |value| value.to_be_bytes();
    &'static str, &'a [u8], |bytes| std::str::from_utf8(bytes).ok(), |value| value.as_bytes();
    &'static [u8], &'a [u8], |bytes| Some(bytes), |value| value;
    &'static [u8; N], &'a [u8], |bytes| bytes.try_into().ok(), |value| value, const N;
    (), [u8; 0], |_bytes| Some(()), |()| [];
}

/// Calls a method with the definition of `$table`.
macro_rules! in_table {
    ($table:expr, $self:ident.$method:ident($($arg:expr),*)) => {
        match $table {
            Table::Log => $self.$method(LOG, $table, $($arg),*),
            Table::Ev => $self.$method(EV_TABLE, $table, $($arg),*),
            Table::Head => $self.$method(HEAD, $table, $($arg),*),
            Table::Inflight => $self.$method(INFLIGHT, $table, $($arg),*),
            Table::Child => $self.$method(CHILD_TABLE, $table, $($arg),*),
            Table::Outbox => $self.$method(OUTBOX_TABLE, $table, $($arg),*),
            Table::Def => $self.$method(DEF, $table, $($arg),*),
            Table::Meta => $self.$method(META, $table, $($arg),*),
        }
    };
}

impl Tables for Redb {
    const NAME: &'static str = "redb";
    /// Far below redb's limit, because a file is cheaper than copying a larger body between pages.
    const MAX_BODY: u64 = 1 << 20;

    fn write(&self, group: Group) -> Result<()> {
        let (last, tables) = Sorted::of(group)?.edits()?;
        self.run("write", |db| {
            let mut txn = db.begin_write().map_err(store("begin"))?;
            txn.set_durability(self.durability).map_err(store("set the durability"))?;
            // Makes opening after a crash take milliseconds. The frames' own checksums replace redb's.
            txn.set_quick_repair(true);
            for (table, edits) in tables {
                in_table!(table, self.apply(&txn, edits))?;
            }
            self.write_meta(&txn, META_LSN, last.0)?;
            self.commit(txn)
        })?;
        if matches!(self.durability, Durability::Immediate) {
            self.syncs.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }

    fn meta(&self, name: &'static str) -> Result<Option<u64>> {
        let key = name.as_bytes();
        self.get(Table::Meta, key)?.map(|value| tables::number("meta", key, &value)).transpose()
    }

    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        in_table!(table, self.get_in(key))
    }

    fn scan(&self, table: Table, keys: Keys<'_>, visit: &mut Visit<'_>) -> Result<()> {
        in_table!(table, self.scan_in(keys, visit))
    }

    fn last(&self, table: Table, keys: Keys<'_>) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        in_table!(table, self.last_in(keys))
    }

    fn bytes(&self, session: SessionId, from: Seq, max_bytes: u64) -> Result<u64> {
        self.run("read", |db| {
            let txn = db.begin_read().map_err(store("begin to read"))?;
            let mut bytes = 0_u64;
            visit_frames(&txn, session, (from, Seq(u64::MAX)), |_, _, row| {
                bytes = bytes.saturating_add(row.map_or(0, codec::frame_bytes));
                bytes < max_bytes
            })?;
            Ok(bytes)
        })
    }

    /// Reads in one transaction, because opening a table costs more than reading a row.
    fn range(&self, session: SessionId, from: Seq, until: Seq, max_bytes: u64) -> Result<RangeRows> {
        self.run("read", |db| {
            let txn = db.begin_read().map_err(store("begin to read"))?;
            let (head, inflight) = (session_row(&txn, HEAD, session)?, session_row(&txn, INFLIGHT, session)?);
            let (mut frames, mut bytes) = (Vec::new(), 0_u64);
            let last = from.max(Seq(until.0.saturating_sub(1)));
            visit_frames(&txn, session, (from, last), |seq, lsn, row| {
                bytes = bytes.saturating_add(row.map_or(0, |row| row.len() as u64));
                frames.push((seq, lsn, row.map(|row| StoredFrame::Bytes(row.to_vec()))));
                bytes < max_bytes
            })?;
            Ok(RangeRows { head, inflight, frames })
        })
    }
}
