//! Stores by name: which engine, where, and what is checked before it opens.

use std::fmt;
#[cfg(feature = "redb")]
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::error::OpenError;
use crate::journal::{Journal, Options};
use crate::memory::Memory;

#[cfg(feature = "redb")]
const POSSIBLE: &str = "`redb:PATH` (a directory) and `memory`";
#[cfg(not(feature = "redb"))]
const POSSIBLE: &str = "`memory` (`redb:PATH` with the feature `redb`)";

/// Which store to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreSpec {
    /// In memory: gone with the process.
    Memory,
    /// redb, in a directory that is made if it is not there.
    #[cfg(feature = "redb")]
    Redb(PathBuf),
}

impl StoreSpec {
    /// Parses `redb:PATH` or `memory`.
    ///
    /// # Errors
    /// [`OpenError::BadSpec`], which names what is possible.
    pub fn parse(spec: &str) -> Result<Self, OpenError> {
        let bad = |why| Err(OpenError::BadSpec { spec: spec.to_owned(), why, possible: POSSIBLE });
        match spec.split_once(':') {
            None if spec == "memory" => Ok(Self::Memory),
            None if spec == "redb" => bad("the directory is missing"),
            Some(("memory", _)) => bad("a store in memory has no path"),
            #[cfg(feature = "redb")]
            Some(("redb", "")) => bad("the directory is missing"),
            #[cfg(feature = "redb")]
            Some(("redb", path)) => Ok(Self::Redb(PathBuf::from(path))),
            _ => bad("its engine is not known"),
        }
    }
}

impl FromStr for StoreSpec {
    type Err = OpenError;

    fn from_str(spec: &str) -> Result<Self, OpenError> {
        Self::parse(spec)
    }
}

impl fmt::Display for StoreSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory"),
            #[cfg(feature = "redb")]
            Self::Redb(path) => write!(f, "redb:{}", path.display()),
        }
    }
}

/// Opens a store with the default options.
///
/// # Errors
/// As for [`open_store_with`].
pub fn open_store(spec: &StoreSpec) -> Result<Journal, OpenError> {
    open_store_with(spec, Options::default())
}

/// Opens a store: takes its lock, opens the engine, and compares its end with what was acknowledged.
///
/// # Errors
/// [`OpenError::InUse`] when another process has it, [`OpenError::Newer`] for a newer format, [`OpenError::Behind`] when an
/// acknowledged tail is missing and the options do not accept that; and when a file cannot be had.
///
/// # Durability
/// What was created is on stable media.
pub fn open_store_with(spec: &StoreSpec, options: Options) -> Result<Journal, OpenError> {
    match spec {
        StoreSpec::Memory => Journal::open(Box::new(Memory::new()), options),
        #[cfg(feature = "redb")]
        StoreSpec::Redb(dir) => open_redb(dir, &options),
    }
}

#[cfg(feature = "redb")]
fn open_redb(dir: &Path, options: &Options) -> Result<Journal, OpenError> {
    use std::sync::Arc;

    use crate::lock::Lock;
    use crate::redb::{Redb, sync_dir};
    use crate::watermark::Watermark;

    // The engine's major version names its directory: no later one can mistake the file for its own.
    let inner = dir.join("redb-4");
    std::fs::create_dir_all(&inner).map_err(|source| OpenError::Io { what: "create", path: inner.clone(), source })?;
    let lock = Lock::take(dir)?;
    let engine = Arc::new(Redb::open(&inner.join("journal.redb"), options.cache_bytes)?);
    let last = crate::engine::Engine::last_lsn(&*engine)?;
    let watermark = Watermark::open(dir, last, options.accept_loss)?;
    sync_dir(dir)?;
    if let Some(parent) = dir.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        sync_dir(parent)?;
    }
    Journal::start(engine, options.queue_bytes, Some(dir.to_owned()), Some(lock), Some(watermark))
}

#[cfg(all(test, feature = "redb"))]
mod tests {
    use super::*;

    #[test]
    fn a_specification_reads_back_as_it_is_written() {
        for spec in ["memory", "redb:/var/lib/subtend", "redb:C:\\store"] {
            assert_eq!(StoreSpec::parse(spec).unwrap().to_string(), spec);
        }
    }

    #[test]
    fn a_bad_specification_is_told_what_is_possible() {
        for (spec, why) in [
            ("", "its engine is not known"),
            ("mysql:x", "its engine is not known"),
            ("redb", "the directory is missing"),
            ("redb:", "the directory is missing"),
            ("memory:x", "a store in memory has no path"),
        ] {
            let words = StoreSpec::parse(spec).unwrap_err().to_string();
            assert_eq!(
                words,
                format!("`{spec}` names no store: {why}; possible are `redb:PATH` (a directory) and `memory`")
            );
        }
    }
}
