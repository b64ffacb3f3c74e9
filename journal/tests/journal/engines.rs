//! Engines with a directory, for tests that run on each.

use std::future::Future;

use crate::scene::*;
use subtend_journal::redb::Redb;
use subtend_journal::{open_store_with, sled};

pub(crate) const CACHE: usize = 4 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Redb,
    Sled,
    /// A shard of a PostgreSQL server, one for each directory.
    Postgres,
}

impl Kind {
    /// Engines with a directory.
    pub(crate) const ALL: [Self; 2] = [Self::Redb, Self::Sled];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Redb => "redb",
            Self::Sled => "sled",
            Self::Postgres => "postgres",
        }
    }

    /// Returns the variable by which a child process finds the store.
    pub(crate) fn environment(self) -> Option<(&'static str, String)> {
        if self == Self::Postgres {
            use crate::server;
            return Some((server::ADDRESS, server::shared().address()));
        }
        None
    }

    pub(crate) fn of(name: &str) -> Self {
        if name == "postgres" {
            return Self::Postgres;
        }
        Self::ALL.into_iter().find(|kind| kind.name() == name).unwrap()
    }

    pub(crate) fn spec(self, dir: &Path) -> StoreSpec {
        if self == Self::Postgres {
            return crate::server::shard_of(dir);
        }
        StoreSpec::parse(&format!("{}:{}", self.name(), dir.display())).unwrap()
    }

    pub(crate) fn open(self, dir: &Path) -> Journal {
        self.try_open(dir).unwrap()
    }

    pub(crate) fn try_open(self, dir: &Path) -> Result<Journal, OpenError> {
        open_store(&self.spec(dir))
    }

    pub(crate) fn open_accepting_loss(self, dir: &Path) -> Result<Journal, OpenError> {
        open_store_with(&self.spec(dir), Options { accept_loss: true, ..Options::default() })
    }

    pub(crate) fn entry(self) -> &'static str {
        match self {
            Self::Redb => "redb-4",
            Self::Sled => "sled-0.34",
            Self::Postgres => self.has_no_directory(),
        }
    }

    /// Opens only the engine of the store in `dir`, without lock, watermark and blobs.
    pub(crate) fn engine(self, dir: &Path) -> Box<dyn Engine> {
        if let StoreSpec::Postgres(target) = self.spec(dir) {
            return Box::new(subtend_journal::postgres::Postgres::open(&target).unwrap());
        }
        let entry = self.create_store(dir);
        match self {
            Self::Redb => Box::new(Redb::open(&entry.join("journal.redb"), CACHE).unwrap()),
            Self::Sled => Box::new(sled::open(&entry, CACHE).unwrap()),
            Self::Postgres => self.has_no_directory(),
        }
    }

    /// Negative control: acknowledges without a sync.
    pub(crate) fn without_sync(self, dir: &Path) -> Box<dyn Engine> {
        let entry = self.create_store(dir);
        match self {
            Self::Redb => Box::new(Redb::open_unsynced(&entry.join("journal.redb"), CACHE).unwrap()),
            Self::Sled => Box::new(sled::open_unsynced(&entry, CACHE).unwrap()),
            Self::Postgres => self.has_no_directory(),
        }
    }

    pub(crate) fn with_blobs(self, dir: &Path) -> Box<dyn Engine> {
        Box::new(Blobs::new(Arc::from(self.engine(dir)), dir.join("blobs")))
    }

    pub(crate) fn has_no_directory(self) -> ! {
        panic!("a store of {} has no directory", self.name())
    }

    fn create_store(self, dir: &Path) -> PathBuf {
        let entry = dir.join(self.entry());
        // redb takes a file in an existing directory; sled creates its own.
        std::fs::create_dir_all(if self == Self::Redb { &entry } else { dir }).unwrap();
        entry
    }
}

pub(crate) fn run<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(test)
}

/// Defines a test of each case for each engine with a directory.
macro_rules! for_each_engine {
    ($($case:ident),* $(,)?) => {
        mod redb { $crate::engines::for_each_engine!(@ Redb $($case)*); }
        mod sled { $crate::engines::for_each_engine!(@ Sled $($case)*); }
    };
    // The same case on a shard of a server.
    (and postgres: $($case:ident),* $(,)?) => {
        $crate::engines::for_each_engine!($($case),*);
        with_server! { mod postgres { $crate::engines::for_each_engine!(@ Postgres $($case)*); } }
    };
    (@ $kind:ident $($case:ident)*) => { $(
        #[test]
        fn $case() {
            $crate::engines::run(super::$case($crate::engines::Kind::$kind));
        }
    )* };
}
pub(crate) use for_each_engine;
