//! Rows in sled 0.34: one tree with the table as the first byte of the key, and one batch and one sync per group.
//! Workarounds: `flush` calls only `sync_file_range`, which does not reach stable media, so the adapter syncs the file. Pages above a
//! quarter of a segment go to files that sled never syncs, so segments are large. A batch is visible before it is flushed, so reads wait
//! for the current write.

use std::fs::File;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use sled::{Batch, Config, Db, IVec};

use crate::directory;
use crate::engine::Result;
use crate::engines::CopyProgress;
use crate::error::{EngineError, OpenError, io};
use crate::panics::catch_panics;
use crate::tables::{Keys, Table, TableEdits, Visit};
use crate::temp_copy::TempCopy;

/// Maximum size of a value: a leaf of sled holds seventeen, and must stay below a quarter of a segment.
pub(super) const MAX_VALUE: u64 = 48 << 10;
const SEGMENT: usize = 4 << 20;
/// Number of rows and bytes that a scan reads at a time, so that writes can continue.
const CHUNK_ROWS: usize = 512;
const CHUNK_BYTES: usize = 1 << 20;
const END: [u8; 64] = [0xff; 64];

/// Rows in a directory of sled. Reads see all edits of every returned write, and none of any other.
#[derive(Debug)]
pub(super) struct Rows {
    db: Db,
    /// sled's file of rows, for the sync.
    file: File,
    syncs: AtomicU64,
    /// False for a temporary copy, and for a store that a test opens without syncs.
    synced: bool,
    /// Held by the writer from the first edit until all edits are durable.
    gate: RwLock<()>,
    /// A temporary copy, dropped after the store.
    _copy: Option<TempCopy>,
}

fn store(what: &'static str) -> impl Fn(sled::Error) -> EngineError {
    move |error| match error {
        sled::Error::Io(source) => EngineError::Io { what, source },
        sled::Error::CollectionNotFound(_)
        | sled::Error::Unsupported(_)
        | sled::Error::ReportableBug(_)
        | sled::Error::Corruption { .. } => EngineError::Store { what, why: error.to_string() },
    }
}

impl Rows {
    pub(super) fn at(dir: &Path, cache_bytes: usize, synced: bool) -> std::result::Result<Self, OpenError> {
        let config = Config::new()
            .path(dir)
            .cache_capacity(cache_bytes as u64)
            .segment_size(SEGMENT)
            // Each write flushes, and sled's own flusher would interfere.
            .flush_every_ms(None);
        drop_unfinished(dir)?;
        let db = open_with_retry(&config)?;
        let path = dir.join("db");
        let file = File::open(&path).map_err(io("open", &path))?;
        if synced {
            // Unsynced writes of a killed process must be durable before they are read.
            file.sync_data().map_err(io("sync", &path))?;
        }
        // sled may have created a snapshot or the file.
        directory::sync(dir)?;
        Ok(Self { db, file, syncs: AtomicU64::new(0), synced, gate: RwLock::new(()), _copy: None })
    }

    /// Opens a temporary copy of the directory.
    pub(super) fn of_copy(
        dir: &Path,
        cache_bytes: usize,
        progress: &mut dyn FnMut(CopyProgress),
    ) -> std::result::Result<Self, OpenError> {
        let copy = TempCopy::of(dir, progress)?;
        let rows = Self::at(&copy.path(), cache_bytes, false)?;
        Ok(Self { _copy: Some(copy), ..rows })
    }

    fn read(&self) -> RwLockReadGuard<'_, ()> {
        self.gate.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn apply(&self, tables: Vec<TableEdits>) -> Result<()> {
        let mut batch = Batch::default();
        for (table, edits) in tables {
            for (key, value) in edits {
                match value {
                    Some(value) => batch.insert(in_tree(table, &key), value),
                    None => batch.remove(in_tree(table, &key)),
                }
            }
        }
        self.db.apply_batch(batch).map_err(store("write a batch"))?;
        self.db.flush().map_err(store("flush"))?;
        if self.synced {
            self.file.sync_data().map_err(|source| EngineError::Io { what: "sync the sled file", source })?;
            self.syncs.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Returns the next rows of a scan, and whether more may follow.
    fn chunk(&self, range: RangeInclusive<Vec<u8>>) -> Result<(Vec<(IVec, IVec)>, bool)> {
        let _gate = self.read();
        let (mut rows, mut bytes) = (Vec::new(), 0_usize);
        for row in self.db.range(range) {
            let (key, value) = row.map_err(store("scan"))?;
            bytes = bytes.saturating_add(value.len());
            rows.push((key, value));
            if rows.len() >= CHUNK_ROWS || bytes >= CHUNK_BYTES {
                return Ok((rows, true));
            }
        }
        Ok((rows, false))
    }
}

/// Removes unfinished snapshots, which would make sled report a damaged store at every later opening.
fn drop_unfinished(dir: &Path) -> std::result::Result<(), OpenError> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        // sled creates the directory.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(io("read the directory", dir)(error)),
    };
    for entry in entries {
        let path = entry.map_err(io("read the directory", dir))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.starts_with("snap.") && name.ends_with(".generating") {
            std::fs::remove_file(&path).map_err(io("remove", &path))?;
        }
    }
    Ok(())
}

/// Number of retries, about a quarter of a second in total, before a busy store is refused.
const MAX_RETRIES: u32 = 50;
const RETRY_DELAY: Duration = Duration::from_millis(5);

/// Opens with retries: a thread of sled may still hold the file of a store that this process just closed.
fn open_with_retry(config: &Config) -> Result<Db> {
    let mut left = MAX_RETRIES;
    loop {
        match catch_panics("open", || config.open().map_err(store("open the sled store"))) {
            Err(EngineError::Io { source, .. }) if left > 0 && source.to_string().contains("acquire lock") => {
                left = left.saturating_sub(1);
                std::thread::sleep(RETRY_DELAY);
            }
            opened => return opened,
        }
    }
}

fn in_tree(table: Table, key: &[u8]) -> Vec<u8> {
    let mut whole = Vec::with_capacity(key.len().saturating_add(1));
    whole.push(table as u8);
    whole.extend_from_slice(key);
    whole
}

fn range(table: Table, keys: Keys<'_>) -> RangeInclusive<Vec<u8>> {
    let (from, to) = keys.unwrap_or((&[], &END));
    in_tree(table, from)..=in_tree(table, to)
}

fn strip_prefix(key: &[u8]) -> &[u8] {
    key.split_first().map_or(&[], |(_, key)| key)
}

impl Rows {
    pub(super) fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }

    /// Applies the edits atomically and durably. Called by one thread.
    pub(super) fn write(&self, tables: Vec<TableEdits>) -> Result<()> {
        let _gate = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        self.apply(tables)
    }

    pub(super) fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let _gate = self.read();
        let row = self.db.get(in_tree(table, key)).map_err(store("read a row"))?;
        Ok(row.map(|value| value.to_vec()))
    }

    /// Visits the rows in order. The visitor may call the store.
    pub(super) fn scan(&self, table: Table, keys: Keys<'_>, visit: &mut Visit<'_>) -> Result<()> {
        let (mut next, end) = range(table, keys).into_inner();
        loop {
            let (rows, more) = self.chunk(next.clone()..=end.clone())?;
            for (key, value) in &rows {
                if visit(strip_prefix(key), value)?.is_break() {
                    return Ok(());
                }
            }
            let Some((last, _)) = rows.last().filter(|_| more) else { return Ok(()) };
            next.clear();
            next.extend_from_slice(last);
            // The next greater key.
            next.push(0);
        }
    }

    pub(super) fn last(&self, table: Table, keys: Keys<'_>) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        let _gate = self.read();
        let row = self.db.range(range(table, keys)).next_back();
        let Some((key, value)) = row.transpose().map_err(store("read the last row"))? else { return Ok(None) };
        Ok(Some((strip_prefix(&key).to_vec(), value.to_vec())))
    }
}
