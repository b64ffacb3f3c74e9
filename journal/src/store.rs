//! Opens stores by specification.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::compact::{Compacted, CompactionStep};

pub use crate::engines::CopyProgress;
use crate::engines::ENGINES;
use crate::error::OpenError;
use crate::journal::{Journal, Options};
use crate::memory::Memory;
#[cfg(feature = "postgres")]
use crate::postgres::ShardAddress;

#[cfg(feature = "disk")]
mod disk;
#[cfg(feature = "postgres")]
mod shard;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreSpec {
    /// In memory: lost with the process.
    Memory,
    /// redb, in a directory that is created on demand.
    #[cfg(feature = "redb")]
    Redb(PathBuf),
    /// sled, in a directory that is created on demand.
    #[cfg(feature = "sled")]
    Sled(PathBuf),
    /// A shard of a PostgreSQL database, which is created on demand.
    #[cfg(feature = "postgres")]
    Postgres(Box<ShardAddress>),
}

fn possible() -> String {
    let mut names = Vec::new();
    for (name, held, _) in ENGINES {
        names.extend(held.then(|| format!("`{name}:PATH`")));
    }
    let memory = if names.is_empty() { "`memory`" } else { "(PATH is a directory) or `memory`" };
    let missing: Vec<_> = ENGINES.iter().filter(|(_, held, _)| !held).map(|(name, ..)| format!("`{name}`")).collect();
    let others = if missing.is_empty() {
        String::new()
    } else {
        format!("; {} needs a build with the feature of that name", missing.join(" and "))
    };
    format!("{} {memory}{others}", names.join(", ")).trim_start().to_owned()
}

const NO_POSTGRES: &str = if cfg!(feature = "postgres") {
    "write a database as `postgres://USER@HOST/DATABASE`"
} else {
    "this build lacks the feature `postgres` (`cargo install --features postgres`)"
};

impl StoreSpec {
    /// Parses `redb:PATH`, `sled:PATH`, `postgres://USER@HOST/DATABASE` or `memory`.
    /// # Errors
    /// [`OpenError::BadSpec`], with the valid forms.
    pub fn parse(spec: &str) -> Result<Self, OpenError> {
        #[cfg(feature = "postgres")]
        if ShardAddress::is_postgres_address(spec) {
            let bad = |why| OpenError::BadSpec { spec: "postgres://…".to_owned(), why, possible: possible() };
            return Ok(Self::Postgres(Box::new(ShardAddress::parse(spec).map_err(bad)?)));
        }
        match spec.split_once(':') {
            // The specification may contain a password.
            Some(("postgres" | "postgresql", _)) => {
                let (spec, possible) = ("postgres:…".to_owned(), possible());
                Err(OpenError::BadSpec { spec, why: NO_POSTGRES, possible })
            }
            None if spec == "memory" => Ok(Self::Memory),
            None => Self::with_engine(spec, spec, PathBuf::new()),
            Some((engine, path)) => Self::with_engine(spec, engine, path.into()),
        }
    }

    /// Returns the store of the engine with this name in this directory.
    /// # Errors
    /// [`OpenError::BadSpec`], with the valid forms.
    pub fn of(engine: &str, dir: PathBuf) -> Result<Self, OpenError> {
        Self::with_engine(&format!("{engine}:{}", dir.display()), engine, dir)
    }

    fn with_engine(spec: &str, engine: &str, dir: PathBuf) -> Result<Self, OpenError> {
        let bad = |why| Err(OpenError::BadSpec { spec: without_secrets(spec), why, possible: possible() });
        match ENGINES.iter().find(|(name, ..)| *name == engine) {
            None if engine == "memory" => return bad("a store in memory has no path"),
            None => return bad("its engine is not known"),
            Some((_, false, _)) => return bad("this build is without its engine"),
            Some(_) if dir.as_os_str().is_empty() => return bad("the directory is missing"),
            Some(_) => {}
        }
        match engine {
            #[cfg(feature = "redb")]
            "redb" => Ok(Self::Redb(dir)),
            #[cfg(feature = "sled")]
            "sled" => Ok(Self::Sled(dir)),
            _ => bad("its engine is not known"),
        }
    }

    /// Returns the names of the engines of this build that use a directory.
    pub fn engines() -> impl Iterator<Item = &'static str> {
        ENGINES.iter().filter(|(_, held, _)| *held).map(|(name, ..)| *name)
    }

    pub fn engine(&self) -> &'static str {
        match self {
            Self::Memory => "memory",
            #[cfg(feature = "redb")]
            Self::Redb(_) => "redb",
            #[cfg(feature = "sled")]
            Self::Sled(_) => "sled",
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => "postgres",
        }
    }

    /// Returns the directory name of this machine's files for a store in a database, or `None` for other stores.
    pub fn place(&self) -> Option<String> {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(target) => Some(target.place()),
            _ => None,
        }
    }

    /// Returns the directory, or `None` for a store in memory or in a database.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Memory => None,
            #[cfg(feature = "redb")]
            Self::Redb(path) => Some(path),
            #[cfg(feature = "sled")]
            Self::Sled(path) => Some(path),
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => None,
        }
    }
}

/// Returns a refused specification without what may be a password, such as that of a database whose scheme is misspelled.
fn without_secrets(spec: &str) -> String {
    if !["://", "@", "="].iter().any(|sign| spec.contains(sign)) {
        return spec.to_owned();
    }
    let engine = spec.split_once(':').map(|(engine, _)| engine);
    let engine = engine.filter(|engine| engine.chars().all(|c| c.is_ascii_alphanumeric()));
    engine.map_or_else(|| "…".to_owned(), |engine| format!("{engine}:…"))
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
            #[cfg(feature = "postgres")]
            Self::Postgres(target) => target.fmt(f),
            _ => match self.path() {
                None => f.write_str(self.engine()),
                Some(path) => write!(f, "{}:{}", self.engine(), path.display()),
            },
        }
    }
}

/// Returns whether a store exists, without creating it.
/// # Errors
/// If that is unknown, because a parent directory cannot be read or a database cannot be reached.
pub fn store_exists(spec: &StoreSpec) -> Result<bool, OpenError> {
    match spec {
        #[cfg(feature = "postgres")]
        StoreSpec::Postgres(target) => crate::postgres::Postgres::exists(target),
        _ => spec.path().map_or(Ok(false), |path| path.try_exists().map_err(crate::error::io("read", path))),
    }
}

/// Opens a store with the default options.
/// # Errors
/// As for [`open_store_with`].
pub fn open_store(spec: &StoreSpec) -> Result<Journal, OpenError> {
    open_store_with(spec, Options::default())
}

/// Opens a store: locks it, opens the engine, and compares its end with the acknowledged one. A new store is durable.
/// # Errors
/// [`OpenError::InUse`], [`OpenError::OtherEngine`], [`OpenError::Newer`], file errors, and [`OpenError::Behind`] when an acknowledged
/// tail is missing and the options do not accept that.
pub fn open_store_with(spec: &StoreSpec, options: Options) -> Result<Journal, OpenError> {
    match spec {
        StoreSpec::Memory => Journal::open(Box::new(Memory::new()), options),
        #[cfg(feature = "redb")]
        StoreSpec::Redb(dir) => disk::open(dir, "redb", &options, &disk::redb),
        #[cfg(feature = "sled")]
        StoreSpec::Sled(dir) => disk::open(dir, "sled", &options, &disk::sled),
        #[cfg(feature = "postgres")]
        StoreSpec::Postgres(target) => shard::open(target, &options),
    }
}

/// Rewrites a store that no process has open, without the records of its deleted sessions and without unreferenced blobs.
///
/// The new store is written next to the old one, so there must be space for both. In a database, the rows are removed in one transaction.
/// Does nothing in memory. Blocks its thread.
/// # Errors
/// As for [`open_store_with`], and for a damaged row or first frame. The store is then unchanged.
/// # Durability
/// Erased data is gone from the files of the store on return. A crash leaves the old store, or a complete new one that the next opening
/// for writing moves into place. Freed space, the write-ahead log and backups of a database are left to its administrator.
pub fn compact_store(
    spec: &StoreSpec,
    options: &Options,
    progress: &mut dyn FnMut(CompactionStep),
) -> Result<Compacted, OpenError> {
    #[cfg(not(feature = "disk"))]
    let _ = progress;
    #[cfg(not(any(feature = "disk", feature = "postgres")))]
    let _ = options;
    match spec {
        StoreSpec::Memory => Ok(Compacted::default()),
        #[cfg(feature = "redb")]
        StoreSpec::Redb(dir) => disk::compact(dir, "redb", options, &disk::redb, progress),
        #[cfg(feature = "sled")]
        StoreSpec::Sled(dir) => disk::compact(dir, "sled", options, &disk::sled, progress),
        #[cfg(feature = "postgres")]
        StoreSpec::Postgres(target) => shard::compact(target, options),
    }
}

/// Removes a store that was never written to, and its directory if empty. Returns whether it removed the store.
/// # Errors
/// As for [`open_store_with`], and when a file cannot be removed.
pub fn discard_store(spec: &StoreSpec) -> Result<bool, OpenError> {
    match spec.path() {
        // An empty shard is one row, which the next opening reuses.
        None => Ok(*spec == StoreSpec::Memory),
        #[cfg(feature = "disk")]
        Some(dir) if dir.exists() => disk::discard(dir, spec.engine()),
        Some(_) => Ok(false),
    }
}

/// Opens a store read-only and changes only its lock file. Writes of redb at its opening stay in memory; sled gets a temporary copy.
/// # Errors
/// As for [`open_store_with`], and if the store is missing or there is not enough space for a copy.
pub fn open_store_to_read(
    spec: &StoreSpec,
    options: Options,
    progress: &mut dyn FnMut(CopyProgress),
) -> Result<Journal, OpenError> {
    #[cfg(not(feature = "sled"))]
    let _ = progress;
    match spec {
        StoreSpec::Memory => Journal::open(Box::new(Memory::new()), options),
        #[cfg(feature = "redb")]
        StoreSpec::Redb(dir) => disk::open_to_read(dir, "redb", &options, |inner, cache_bytes| {
            Ok(std::sync::Arc::new(crate::redb::Redb::open_to_read(&inner.join("journal.redb"), cache_bytes)?))
        }),
        #[cfg(feature = "sled")]
        StoreSpec::Sled(dir) => disk::open_to_read(dir, "sled", &options, |inner, cache_bytes| {
            Ok(std::sync::Arc::new(crate::sled::open_to_read(inner, cache_bytes, progress)?))
        }),
        #[cfg(feature = "postgres")]
        StoreSpec::Postgres(target) => shard::open_to_read(target, &options),
    }
}

#[cfg(all(test, feature = "redb", feature = "sled"))]
mod tests {
    use super::*;

    #[test]
    fn displayed_specification_parses_to_the_same_store() {
        for spec in ["memory", "redb:/var/lib/subtend", "redb:C:\\store", "sled:a:b"] {
            assert_eq!(StoreSpec::parse(spec).unwrap().to_string(), spec);
        }
        let sled = StoreSpec::parse("sled:a:b").unwrap();
        assert_eq!((sled.engine(), sled.path()), ("sled", Some(Path::new("a:b"))));
    }

    #[test]
    fn refused_address_of_a_database_is_not_shown() {
        for (spec, shown) in [
            ("Postgres://ann:s3cret@db/agents", "Postgres:…"),
            ("postgre://ann:s3cret@db/agents", "postgre:…"),
            ("ann:s3cret@db/agents", "ann:…"),
            ("host=db password=s3cret:x", "…"),
        ] {
            let text = StoreSpec::parse(spec).unwrap_err().to_string();
            assert!(text.starts_with(&format!("`{shown}` is not a store: its engine is not known")), "{text}");
        }
    }

    #[test]
    fn bad_specification_error_lists_the_valid_forms() {
        for (spec, why) in [
            ("", "its engine is not known"),
            ("mysql:x", "its engine is not known"),
            ("redb", "the directory is missing"),
            ("sled:", "the directory is missing"),
            ("fjall:x", "its engine is not known"),
            ("memory:x", "a store in memory has no path"),
        ] {
            let text = StoreSpec::parse(spec).unwrap_err().to_string();
            assert_eq!(
                text,
                format!(
                    "`{spec}` is not a store: {why}. Write `redb:PATH`, `sled:PATH` (PATH is a directory) or `memory`"
                )
            );
        }
    }
}
