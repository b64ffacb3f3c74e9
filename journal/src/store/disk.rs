//! Opens and compacts stores in a directory.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use subtend_session::ids::Lsn;

use crate::blobs::{self, Blobs};
use crate::compact::{self, Compacted, CompactionStep};
use crate::engine::Engine;
use crate::engines::ENGINES;
use crate::error::{OpenError, io};
use crate::journal::{Journal, Options};
use crate::lock::Lock;
use crate::watermark::Watermark;
use crate::{directory, owner_only};

/// Opens or creates an engine in its entry of a store's directory.
type Opener = dyn Fn(&Path, usize) -> Result<Arc<dyn Engine>, OpenError>;

#[cfg(feature = "redb")]
pub(super) fn redb(entry: &Path, cache_bytes: usize) -> Result<Arc<dyn Engine>, OpenError> {
    owner_only::create_dir_all(entry).map_err(io("create", entry))?;
    Ok(Arc::new(crate::redb::Redb::open(&entry.join("journal.redb"), cache_bytes)?))
}

#[cfg(feature = "sled")]
pub(super) fn sled(entry: &Path, cache_bytes: usize) -> Result<Arc<dyn Engine>, OpenError> {
    Ok(Arc::new(crate::sled::open(entry, cache_bytes)?))
}

/// Removes other users' access to the store in `dir`, and logs directories that were open.
fn close_store_to_others(dir: &Path) -> Result<(), OpenError> {
    let exposed = owner_only::close_to_others(dir).map_err(io("read the directory", dir))?;
    exposed.iter().for_each(|exposed| tracing::warn!(%exposed, "a store was open to other users"));
    Ok(())
}

/// Checks the entries of the store in `dir`, before a finished compaction is moved into place. The lock has checked its file.
fn check_entries(dir: &Path) -> Result<(), OpenError> {
    owner_only::check_entry(&dir.join("WATERMARK"))?;
    // Files in the directories of blobs, which may be many, are checked when they are used.
    owner_only::check_below(&dir.join("blobs"), 1)?;
    for (.., entry) in ENGINES {
        let entry = dir.join(entry);
        owner_only::check_below(&entry, usize::MAX)?;
        owner_only::check_below(&compacted_path(&entry), usize::MAX)?;
    }
    Ok(())
}

pub(super) fn open(dir: &Path, name: &'static str, options: &Options, engine: &Opener) -> Result<Journal, OpenError> {
    owner_only::create_dir_all(dir).map_err(io("create", dir))?;
    // Done before locking, because other users could otherwise hold the lock.
    close_store_to_others(dir)?;
    let lock = Lock::acquire(dir)?;
    check_entries(dir)?;
    let entry = entry_of(dir, name)?;
    finish(dir, &entry, options, engine, &mut |_| {})?;
    let engine = engine(&entry, options.cache_bytes)?;
    let last = engine.last_lsn()?;
    let watermark = Watermark::open(dir, last, options.accept_loss)?;
    // Covers files that the engine has just created.
    close_store_to_others(dir)?;
    directory::sync(dir)?;
    if let Some(parent) = dir.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        directory::sync(parent)?;
    }
    let engine = Arc::new(Blobs::new(engine, dir.join("blobs")));
    Journal::start(engine, options.queue_bytes, Some(dir.to_owned()), Some(lock), Some(watermark))
}

pub(super) fn open_to_read(
    dir: &Path,
    name: &'static str,
    options: &Options,
    engine: impl FnOnce(&Path, usize) -> Result<Arc<dyn Engine>, OpenError>,
) -> Result<Journal, OpenError> {
    let lock = Lock::acquire_to_read(dir)?;
    check_entries(dir)?;
    let entry = entry_of(dir, name)?;
    let compacted = compacted_path(&entry);
    // A killed compaction left a complete store; the next opening for writing moves it into place.
    let entry = if compacted.exists() { compacted } else { entry };
    if !entry.exists() {
        // Either the store is new, or all of it is lost.
        Watermark::check(dir, Lsn(0), options.accept_loss)?;
        let source = std::io::Error::from(std::io::ErrorKind::NotFound);
        return Err(OpenError::Io { what: "open", path: entry, source });
    }
    let engine = engine(&entry, options.cache_bytes)?;
    Watermark::check(dir, engine.last_lsn()?, options.accept_loss)?;
    let engine = Arc::new(Blobs::to_read(engine, dir.join("blobs")));
    Journal::start(engine, options.queue_bytes, Some(dir.to_owned()), lock, None)
}

/// Removes the files created by [`open`], if the store was never written to. Returns whether it removed them.
pub(super) fn discard(dir: &Path, name: &'static str) -> Result<bool, OpenError> {
    let entry = entry_of(dir, name)?;
    let lock = Lock::acquire(dir)?;
    if !Watermark::is_at_the_start(dir)? || dir.join("blobs").exists() {
        return Ok(false);
    }
    std::fs::remove_dir_all(&entry).map_err(io("remove", &entry))?;
    for file in ["WATERMARK", "LOCK"].map(|file| dir.join(file)) {
        std::fs::remove_file(&file).map_err(io("remove", &file))?;
    }
    drop(lock);
    // A directory with other content remains.
    drop(std::fs::remove_dir(dir));
    Ok(true)
}

pub(super) fn compact(
    dir: &Path,
    name: &'static str,
    options: &Options,
    engine: &Opener,
    progress: &mut dyn FnMut(CompactionStep),
) -> Result<Compacted, OpenError> {
    close_store_to_others(dir)?;
    let _lock = Lock::acquire(dir)?;
    check_entries(dir)?;
    let entry = entry_of(dir, name)?;
    finish(dir, &entry, options, engine, &mut |_| {})?;
    if !entry.exists() {
        return Err(io("open", &entry)(std::io::ErrorKind::NotFound.into()));
    }
    let mut done = Compacted::default();
    directory::create_atomically(&compacted_path(&entry), |making| {
        let from = engine(&entry, options.cache_bytes)?;
        Watermark::check(dir, from.last_lsn()?, options.accept_loss)?;
        let whole = Blobs::to_read(Arc::clone(&from), dir.join("blobs"));
        let to = engine(making, options.cache_bytes)?;
        done = compact::copy(&*from, &whole, &*to, progress)?;
        Ok(())
    })?;
    progress(CompactionStep::Whole);
    let mut blobs = 0_u64;
    finish(dir, &entry, options, engine, &mut |step| {
        blobs = blobs.saturating_add((step == CompactionStep::Swept).into());
        progress(step);
    })?;
    close_store_to_others(dir)?;
    Ok(Compacted { blobs, ..done })
}

/// Moves a complete compacted store into place and removes unreferenced blobs, or removes an incomplete one. Repeatable after a crash.
fn finish(
    dir: &Path,
    entry: &Path,
    options: &Options,
    engine: &Opener,
    progress: &mut dyn FnMut(CompactionStep),
) -> Result<(), OpenError> {
    let compacted = compacted_path(entry);
    remove(&compacted.with_added_extension("making"))?;
    if !compacted.exists() {
        return Ok(());
    }
    let named: BTreeSet<String> = blobs::named_blobs(&*engine(&compacted, options.cache_bytes)?)?;
    let blobs = dir.join("blobs");
    blobs::sweep(&blobs, &named, &mut || progress(CompactionStep::Swept)).map_err(io("remove from", &blobs))?;
    remove(entry)?;
    progress(CompactionStep::Removed);
    std::fs::rename(&compacted, entry).map_err(io("rename", &compacted))?;
    directory::sync(dir)?;
    progress(CompactionStep::Done);
    Ok(())
}

fn compacted_path(entry: &Path) -> PathBuf {
    entry.with_added_extension("compacted")
}

fn remove(dir: &Path) -> Result<(), OpenError> {
    match std::fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(io("remove", dir)(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Returns the engine's entry in the directory. Fails if another engine uses the directory.
fn entry_of(dir: &Path, name: &'static str) -> Result<PathBuf, OpenError> {
    for (other, _, entry) in ENGINES.iter().filter(|(other, ..)| *other != name) {
        let entry = dir.join(entry);
        if entry.exists() || compacted_path(&entry).exists() {
            return Err(OpenError::OtherEngine { path: dir.to_owned(), wanted: name, found: other });
        }
    }
    Ok(dir.join(ENGINES.iter().find(|(known, ..)| *known == name).map_or(name, |(_, _, entry)| entry)))
}
