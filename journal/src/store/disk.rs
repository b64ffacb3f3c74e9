//! Opening a store in a directory: its lock, its engine, and the end of what was acknowledged.

use std::path::Path;
use std::sync::Arc;

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
    for (other, _, entry) in ENGINES.iter().filter(|(other, ..)| *other != name) {
        if dir.join(entry).exists() {
            return Err(OpenError::OtherEngine { path: dir.to_owned(), wanted: name, found: other });
        }
    }
    let entry = ENGINES.iter().find(|(known, ..)| *known == name).map_or(name, |(_, _, entry)| entry);
    let engine = engine(&dir.join(entry), options.cache_bytes)?;
    let last = engine.last_lsn()?;
    let watermark = Watermark::open(dir, last, options.accept_loss)?;
    directory::sync(dir)?;
    if let Some(parent) = dir.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        directory::sync(parent)?;
    }
    let engine = Arc::new(Blobs::new(engine, dir.join("blobs")));
    Journal::start(engine, options.queue_bytes, Some(dir.to_owned()), Some(lock), Some(watermark))
}
