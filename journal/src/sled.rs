//! Engine on sled 0.34.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::directory;
use crate::engine::{Engine as _, Group, Result};
use crate::engines::CopyProgress;
use crate::error::OpenError;
use crate::panics::catch_panics;
use crate::rows;
use crate::sorted::Sorted;
use crate::tables::{self, Edit, FORMAT, Keys, META_FORMAT, META_LSN, Table, Tables, Visit};

mod table;

use self::table::Rows;

#[derive(Debug)]
pub struct Sled {
    rows: Rows,
    /// LSN of the last written frame.
    last: AtomicU64,
}

/// Opens or creates the store in `dir`. A new store is durable, including its directory entry.
/// # Errors
/// [`OpenError::Newer`] for a newer format, [`OpenError::Engine`] for a store that is damaged or makes sled panic, and file errors.
pub fn open(dir: &Path, cache_bytes: usize) -> std::result::Result<Sled, OpenError> {
    open_with(dir, cache_bytes, true)
}

/// Opens a copy of the store in `dir` read-only, because sled overwrites the end of a file that it opens.
/// # Errors
/// As for [`open`], and if there is not enough space for the copy.
pub fn open_to_read(
    dir: &Path,
    cache_bytes: usize,
    progress: &mut dyn FnMut(CopyProgress),
) -> std::result::Result<Sled, OpenError> {
    Sled::from_rows(Rows::of_copy(dir, cache_bytes, progress)?)
}

/// Opens a store without the additional sync. Sled itself omits that sync, so frames survive a crash of the process, but not of the
/// machine. A negative control of durability tests.
/// # Errors
/// As for [`open`].
#[cfg(feature = "fault-points")]
pub fn open_unsynced(dir: &Path, cache_bytes: usize) -> std::result::Result<Sled, OpenError> {
    open_with(dir, cache_bytes, false)
}

fn open_with(dir: &Path, cache_bytes: usize, synced: bool) -> std::result::Result<Sled, OpenError> {
    directory::create_atomically(dir, |making| Sled::from_rows(Rows::at(making, cache_bytes, true)?).map(drop))?;
    Sled::from_rows(Rows::at(dir, cache_bytes, synced)?)
}

impl Sled {
    /// Reads the format and the last LSN. A new store first gets its format row.
    fn from_rows(rows: Rows) -> std::result::Result<Self, OpenError> {
        let engine = Self { rows, last: AtomicU64::new(0) };
        if engine.is_new()? {
            let format = vec![(Table::Meta, vec![meta(META_FORMAT, FORMAT)])];
            catch_panics("write the format", || engine.rows.write(format))?;
        }
        let last = engine.last_lsn()?;
        engine.last.store(last.0, Ordering::Relaxed);
        Ok(engine)
    }
}

fn meta(name: &str, value: u64) -> Edit {
    let key = name.as_bytes();
    (key.to_vec(), Some(rows::seal("meta", key, &value.to_be_bytes())))
}

impl Tables for Sled {
    const NAME: &'static str = "sled";
    const MAX_BODY: u64 = table::MAX_VALUE;

    fn write(&self, group: Group) -> Result<()> {
        let (last, mut tables) = Sorted::of(group)?.edits()?;
        // Applying edits does not check for existing rows, so this refuses to replace records.
        let before = self.last.load(Ordering::Relaxed).to_be_bytes();
        for (table, edits) in tables.iter().filter(|(table, _)| table.is_log()) {
            for (key, _) in edits {
                let taken = if *table == Table::Log {
                    key.as_slice() <= before.as_slice()
                } else {
                    self.rows.get(*table, key)?.is_some()
                };
                if taken {
                    return Err(table.overwrite(key));
                }
            }
        }
        tables.push((Table::Meta, vec![meta(META_LSN, last.0)]));
        self.rows.write(tables)?;
        self.last.store(last.0, Ordering::Relaxed);
        Ok(())
    }

    fn syncs(&self) -> u64 {
        self.rows.syncs()
    }

    fn meta(&self, name: &'static str) -> Result<Option<u64>> {
        let key = name.as_bytes();
        let Some(sealed) = self.get(Table::Meta, key)? else { return Ok(None) };
        tables::number("meta", key, rows::unseal("meta", key, &sealed)?).map(Some)
    }

    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        catch_panics("read", || self.rows.get(table, key))
    }

    fn scan(&self, table: Table, keys: Keys<'_>, visit: &mut Visit<'_>) -> Result<()> {
        catch_panics("scan", || self.rows.scan(table, keys, visit))
    }

    fn last(&self, table: Table, keys: Keys<'_>) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        catch_panics("read", || self.rows.last(table, keys))
    }
}
