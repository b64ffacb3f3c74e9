//! Rows in fjall 3: a keyspace a table, one batch over all of them and one sync a group.
//!
//! Reads go through snapshots: a keyspace itself also shows the part of a batch that is applied already.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use fjall::{Database, Guard, Keyspace, KeyspaceCreateOptions, PersistMode, Readable as _};

use crate::directory;
use crate::engine::Result;
use crate::error::{EngineError, OpenError};
use crate::keyed::{Edit, Keyed, Rows, Table, Visit};
use crate::private::{How, Private};
use crate::store::Copied;
use crate::writer::guarded;

mod manifest;

/// What a value may have; beyond it a file of its own is cheaper than writing it to a journal and twice to tables.
const MAX_VALUE: u64 = 1 << 20;
/// Bytes in memory before a table is written.
const MEMTABLE: u64 = 16 << 20;
/// Bytes of journal that an opening after a crash has to read.
const JOURNAL: u64 = 128 << 20;

/// A store in a directory of fjall.
pub struct Fjall {
    tables: Tables,
    db: Database,
    syncs: AtomicU64,
    persist: PersistMode,
    /// The directory, where it is a copy; it goes after the store.
    _copy: Option<Private>,
}

struct Tables {
    log: Keyspace,
    ev: Keyspace,
    head: Keyspace,
    inflight: Keyspace,
    kid: Keyspace,
    outbox: Keyspace,
    def: Keyspace,
    meta: Keyspace,
}

impl std::fmt::Debug for Fjall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fjall").field("syncs", &self.syncs).finish_non_exhaustive()
    }
}

/// Opens the store in `dir`, or creates it.
///
/// # Errors
/// As for [`Keyed::open`], and when a file cannot be had.
///
/// # Durability
/// A store that was created is on stable media, its directory entry included.
pub fn open(dir: &Path, cache_bytes: usize) -> std::result::Result<Keyed<Fjall>, OpenError> {
    open_with(dir, cache_bytes, PersistMode::SyncData)
}

/// Opens a copy of the store in `dir`, to be read: fjall cuts a torn journal where it opens it, and removes what it does not know.
///
/// Tables are not copied: fjall never writes to one that is there.
///
/// # Errors
/// As for [`open`], and when there is no room for the copy.
///
/// # Durability
/// None: the store itself is not written to.
pub fn open_to_read(
    dir: &Path,
    cache_bytes: usize,
    progress: &mut dyn FnMut(Copied),
) -> std::result::Result<Keyed<Fjall>, OpenError> {
    // Here the words name the store, and not its copy.
    manifest::check(dir)?;
    let is_table = |path: &Path| path.parent().is_some_and(|dir| dir.ends_with("tables"));
    let copy = Private::of(dir, |path| if is_table(path) { How::Linked } else { How::Copied }, progress)?;
    let fjall = Fjall::at(&copy.path(), cache_bytes, PersistMode::Buffer)?;
    Keyed::open(Fjall { _copy: Some(copy), ..fjall })
}

/// As [`open`], without syncs: the control of whatever must notice that.
///
/// # Errors
/// As for [`open`].
///
/// # Durability
/// What is acknowledged survives a crash of the process, not of the machine.
#[cfg(feature = "fault-points")]
pub fn open_unsynced(dir: &Path, cache_bytes: usize) -> std::result::Result<Keyed<Fjall>, OpenError> {
    open_with(dir, cache_bytes, PersistMode::Buffer)
}

fn open_with(dir: &Path, cache_bytes: usize, persist: PersistMode) -> std::result::Result<Keyed<Fjall>, OpenError> {
    directory::whole(dir, |making| Keyed::open(Fjall::at(making, cache_bytes, PersistMode::SyncAll)?).map(drop))?;
    Keyed::open(Fjall::at(dir, cache_bytes, persist)?)
}

fn store(what: &'static str) -> impl Fn(fjall::Error) -> EngineError {
    move |error| {
        if let fjall::Error::Io(source) = error {
            EngineError::Io { what, source }
        } else {
            EngineError::Store { what, why: error.to_string() }
        }
    }
}

impl Fjall {
    fn at(dir: &Path, cache_bytes: usize, persist: PersistMode) -> Result<Self> {
        manifest::check(dir)?;
        guarded("open", || {
            let builder = Database::builder(dir).cache_size(cache_bytes as u64).max_journaling_size(JOURNAL);
            let db = builder.open().map_err(store("open the fjall store"))?;
            let tables = Tables::of(&db)?;
            Ok(Self { tables, db, syncs: AtomicU64::new(0), persist, _copy: None })
        })
    }

    fn table(&self, table: Table) -> &Keyspace {
        match table {
            Table::Log => &self.tables.log,
            Table::Ev => &self.tables.ev,
            Table::Head => &self.tables.head,
            Table::Inflight => &self.tables.inflight,
            Table::Kid => &self.tables.kid,
            Table::Outbox => &self.tables.outbox,
            Table::Def => &self.tables.def,
            Table::Meta => &self.tables.meta,
        }
    }
}

impl Tables {
    fn of(db: &Database) -> Result<Self> {
        let options = || KeyspaceCreateOptions::default().max_memtable_size(MEMTABLE);
        let open = |table: Table| db.keyspace(table.name(), options).map_err(store("open a keyspace"));
        Ok(Self {
            log: open(Table::Log)?,
            ev: open(Table::Ev)?,
            head: open(Table::Head)?,
            inflight: open(Table::Inflight)?,
            kid: open(Table::Kid)?,
            outbox: open(Table::Outbox)?,
            def: open(Table::Def)?,
            meta: open(Table::Meta)?,
        })
    }
}

impl Rows for Fjall {
    fn name(&self) -> &'static str {
        "fjall"
    }

    fn max_value(&self) -> u64 {
        MAX_VALUE
    }

    fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }

    fn write(&self, edits: Vec<Edit>) -> Result<()> {
        let mut batch = self.db.batch().durability(Some(self.persist));
        for edit in edits {
            match edit {
                Edit::Put(table, key, value) => batch.insert(self.table(table), key, value),
                Edit::Take(table, key) => batch.remove(self.table(table), key),
            }
        }
        batch.commit().map_err(store("commit a batch"))?;
        if self.persist != PersistMode::Buffer {
            self.syncs.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let row = self.db.snapshot().get(self.table(table), key).map_err(store("read a row"))?;
        Ok(row.map(|value| value.to_vec()))
    }

    fn scan(&self, table: Table, from: &[u8], to: &[u8], visit: &mut Visit<'_>) -> Result<()> {
        for row in self.db.snapshot().range(self.table(table), from..=to) {
            let (key, value) = row.into_inner().map_err(store("scan"))?;
            if visit(&key, &value)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn last(&self, table: Table, from: &[u8], to: &[u8]) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        let row = self.db.snapshot().range(self.table(table), from..=to).next_back();
        let row = row.map(Guard::into_inner).transpose().map_err(store("read the last row"))?;
        Ok(row.map(|(key, value)| (key.to_vec(), value.to_vec())))
    }
}
