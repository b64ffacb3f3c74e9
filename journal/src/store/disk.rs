//! Opening a store in a directory: its lock, its engine, and the end of what was acknowledged.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use subtend_session::ids::Lsn;

use super::ENGINES;
use crate::blobs::Blobs;
use crate::directory;
use crate::engine::Engine;
use crate::error::OpenError;
use crate::journal::{Journal, Options};
use crate::lock::Lock;
use crate::watermark::Watermark;

/// Opens the store in `dir` on the engine of that name, which `engine` opens in its entry of the directory.
pub(super) fn open(
    dir: &Path,
    name: &'static str,
    options: &Options,
    engine: impl FnOnce(&Path, usize) -> Result<Arc<dyn Engine>, OpenError>,
) -> Result<Journal, OpenError> {
    std::fs::create_dir_all(dir).map_err(|source| OpenError::Io { what: "create", path: dir.to_owned(), source })?;
    let lock = Lock::take(dir)?;
    let engine = engine(&entry_of(dir, name)?, options.cache_bytes)?;
    let last = engine.last_lsn()?;
    let watermark = Watermark::open(dir, last, options.accept_loss)?;
    directory::sync(dir)?;
    if let Some(parent) = dir.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        directory::sync(parent)?;
    }
    let engine = Arc::new(Blobs::new(engine, dir.join("blobs")));
    Journal::start(engine, options.queue_bytes, Some(dir.to_owned()), Some(lock), Some(watermark))
}

/// As [`open`], to be read alone.
pub(super) fn open_to_read(
    dir: &Path,
    name: &'static str,
    options: &Options,
    engine: impl FnOnce(&Path, usize) -> Result<Arc<dyn Engine>, OpenError>,
) -> Result<Journal, OpenError> {
    let lock = Lock::take_to_read(dir)?;
    let entry = entry_of(dir, name)?;
    if !entry.exists() {
        // Nothing may have been there, or all of it may be lost.
        Watermark::look(dir, Lsn(0), options.accept_loss)?;
        let source = std::io::Error::from(std::io::ErrorKind::NotFound);
        return Err(OpenError::Io { what: "open", path: entry, source });
    }
    let engine = engine(&entry, options.cache_bytes)?;
    Watermark::look(dir, engine.last_lsn()?, options.accept_loss)?;
    let engine = Arc::new(Blobs::to_read(engine, dir.join("blobs")));
    Journal::start(engine, options.queue_bytes, Some(dir.to_owned()), lock, None)
}

/// Removes what [`open`] made, if nothing was ever written to it; tells whether it did.
pub(super) fn discard(dir: &Path, name: &'static str) -> Result<bool, OpenError> {
    let entry = entry_of(dir, name)?;
    let lock = Lock::take(dir)?;
    if !Watermark::is_at_the_start(dir)? || dir.join("blobs").exists() {
        return Ok(false);
    }
    let io = |path: &Path| {
        let path = path.to_owned();
        move |source| OpenError::Io { what: "remove", path, source }
    };
    std::fs::remove_dir_all(&entry).map_err(io(&entry))?;
    for file in ["WATERMARK", "LOCK"].map(|file| dir.join(file)) {
        std::fs::remove_file(&file).map_err(io(&file))?;
    }
    drop(lock);
    // What else is in it is not ours.
    drop(std::fs::remove_dir(dir));
    Ok(true)
}

/// The engine's entry in the directory, which no other engine may have taken.
fn entry_of(dir: &Path, name: &'static str) -> Result<PathBuf, OpenError> {
    for (other, _, entry) in ENGINES.iter().filter(|(other, ..)| *other != name) {
        if dir.join(entry).exists() {
            return Err(OpenError::OtherEngine { path: dir.to_owned(), wanted: name, found: other });
        }
    }
    Ok(dir.join(ENGINES.iter().find(|(known, ..)| *known == name).map_or(name, |(_, _, entry)| entry)))
}
