//! The directory of a drill, and the directories of its stores within it.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
#[cfg(unix)]
use std::sync::Arc;
use std::time::Duration;

use subtend_journal::owner_only::create_dir_all;
use subtend_journal::{
    CompactionStep, Journal, OpenError, Options, StoreSpec, compact_store, open_store_with, store_exists,
};
use tokio::time::Instant;

use super::error::DrillError;
#[cfg(unix)]
use super::server::DrillServer;

/// Maximum time for which a store stays locked after a kill: a forked child holds the lock until it calls exec.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
/// The engine whose stores are shards of a server.
const POSTGRES: &str = "postgres";
/// The environment variable with the address of that server. Other users could see an argument.
pub(crate) const ADDRESS: &str = "SUBTEND_DRILL_POSTGRES";

/// The directory of a drill. It is removed at the end, except for stores that are kept for inspection.
#[derive(Debug)]
pub(crate) struct DrillDirectory {
    engine: String,
    dir: PathBuf,
    store_dirs: u32,
    found: bool,
    kept: bool,
    #[cfg(unix)]
    server: Option<Arc<DrillServer>>,
}

/// Creates `dir`, or checks that it is empty and that no other user can write to it. Returns true if it existed.
fn named_dir(store: &str, dir: &str) -> Result<(PathBuf, bool), DrillError> {
    let dir = std::path::absolute(dir)
        .map_err(|error| DrillError::Usage(format!("--store {store}: {dir} is not a valid path: {error}")))?;
    let found = dir.exists();
    if found && std::fs::read_dir(&dir).map_or(true, |mut entries| entries.next().is_some()) {
        return Err(DrillError::Usage(format!(
            "--store {store}: {} is not an empty directory. A drill kills the processes that use its stores, so it needs a new directory",
            dir.display()
        )));
    }
    if found && is_open_to_others(&dir) {
        return Err(DrillError::Usage(format!(
            "--store {store}: another user owns {} or can write to it, and could replace what the drill starts. Name a directory of your own",
            dir.display()
        )));
    }
    create_dir_all(&dir).map_err(|error| cannot_create(&dir, &error))?;
    Ok((dir, found))
}

/// Creates a directory that only this user can open. Skips names that exist, because another user may have created them.
fn temporary_dir(seed: u64) -> Result<PathBuf, DrillError> {
    const MAX_ATTEMPTS: u32 = 1_000;
    let mut taken = None;
    for attempt in 0..MAX_ATTEMPTS {
        let name = format!("subtend-drill-{}-{seed:x}-{attempt}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        match create_new(&dir) {
            Ok(()) => return Ok(dir),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => taken = Some(cannot_create(&dir, &error)),
            Err(error) => return Err(cannot_create(&dir, &error)),
        }
    }
    Err(taken.unwrap_or_else(|| DrillError::Usage("cannot create a temporary directory".into())))
}

#[cfg(unix)]
fn create_new(dir: &Path) -> std::io::Result<()> {
    std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700).create(dir)
}

#[cfg(not(unix))]
fn create_new(dir: &Path) -> std::io::Result<()> {
    std::fs::create_dir(dir)
}

#[cfg(unix)]
fn is_open_to_others(dir: &Path) -> bool {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    std::fs::symlink_metadata(dir).map_or(true, |found| {
        found.uid() != rustix::process::geteuid().as_raw() || found.permissions().mode() & 0o022 != 0
    })
}

#[cfg(not(unix))]
fn is_open_to_others(_: &Path) -> bool {
    false
}

impl DrillDirectory {
    /// Prepares the directory of a store specification: an engine and a directory, by default a temporary one.
    pub(crate) fn prepare(store: &str, seed: u64) -> Result<Self, DrillError> {
        let (engine, dir) = store.split_once(':').map_or((store, None), |(engine, dir)| (engine, Some(dir)));
        if dir.is_some_and(|_| engine == POSTGRES || engine == "postgresql") {
            return Err(DrillError::Usage(
                "a drill kills the processes that use its stores, so it starts its own PostgreSQL server: --store postgres"
                    .into(),
            ));
        }
        if engine == "memory" {
            return Err(DrillError::Usage(
                "`memory` cannot be drilled: a kill leaves nothing of such a store. Give --store ENGINE or ENGINE:DIR"
                    .into(),
            ));
        }
        // The parser of the journal decides which engines and directories are valid.
        let example = if engine == POSTGRES { "//user@localhost/database" } else { dir.unwrap_or("store") };
        StoreSpec::parse(&format!("{engine}:{example}"))?;
        let (dir, found) = match dir {
            Some(dir) => named_dir(store, dir)?,
            None => (temporary_dir(seed)?, false),
        };
        let engine = engine.to_owned();
        #[cfg(not(unix))]
        return Ok(Self { engine, dir, store_dirs: 0, found, kept: false });
        #[cfg(unix)]
        {
            let mut directory = Self { engine, dir, store_dirs: 0, found, kept: false, server: None };
            if directory.engine == POSTGRES {
                directory.server = Some(Arc::new(DrillServer::start(&directory.dir.join("server"))?));
            }
            Ok(directory)
        }
    }

    pub(crate) fn engine(&self) -> &str {
        &self.engine
    }

    pub(crate) fn new_store_dir(&mut self) -> Result<StoreDir, DrillError> {
        self.store_dirs = self.store_dirs.saturating_add(1);
        let dir = self.dir.join(self.store_dirs.to_string());
        let workspace = dir.join("workspace");
        std::fs::create_dir_all(&workspace).map_err(|error| cannot_create(&workspace, &error))?;
        Ok(StoreDir {
            #[cfg(unix)]
            address: self.server.as_ref().map(|server| server.address()),
            #[cfg(not(unix))]
            address: None,
            engine: self.engine.clone(),
            dir,
            #[cfg(unix)]
            server: self.server.clone(),
        })
    }

    /// Keeps a store for inspection and returns its directory.
    pub(crate) fn keep(&mut self, store_dir: &StoreDir) -> PathBuf {
        self.kept = true;
        store_dir.dir.clone()
    }
}

impl Drop for DrillDirectory {
    fn drop(&mut self) {
        #[cfg(unix)]
        if let Some(server) = self.server.take().and_then(Arc::into_inner) {
            drop(server);
        }
        // A failure is harmless: a later drill uses another directory.
        if !self.kept && !self.found {
            drop(std::fs::remove_dir_all(&self.dir));
        }
    }
}

fn cannot_create(dir: &Path, error: &io::Error) -> DrillError {
    DrillError::Other(format!(
        "cannot create {}: {error}. Give another directory with --store ENGINE:DIR",
        dir.display()
    ))
}

/// The directory of one store: the store, and the files of the processes that used it.
#[derive(Clone, Debug)]
pub(crate) struct StoreDir {
    engine: String,
    dir: PathBuf,
    /// The address of the server that has the store, if a server has it.
    address: Option<String>,
    #[cfg(unix)]
    server: Option<Arc<DrillServer>>,
}

impl StoreDir {
    /// Returns the store directory `dir`, which a drill passed to this process.
    pub(crate) fn of(engine: &str, dir: &Path) -> Self {
        Self {
            engine: engine.to_owned(),
            dir: dir.to_path_buf(),
            address: std::env::var(ADDRESS).ok().filter(|_| engine == POSTGRES),
            #[cfg(unix)]
            server: None,
        }
    }

    pub(crate) fn address(&self) -> Option<&str> {
        self.address.as_deref()
    }

    /// Returns the stored values as text if the store is on a server, or `None` if it is in files.
    pub(crate) fn values(&self) -> Option<Result<String, DrillError>> {
        #[cfg(unix)]
        return self.server.as_ref().map(|server| server.values(&self.shard()));
        #[cfg(not(unix))]
        None
    }

    fn shard(&self) -> String {
        format!("drill-{}", self.dir.file_name().unwrap_or_default().display())
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn workspace(&self) -> PathBuf {
        self.dir.join("workspace")
    }

    pub(crate) fn marks(&self) -> PathBuf {
        self.dir.join("marks")
    }

    /// Returns the file with one line per process of a tool.
    pub(crate) fn processes(&self) -> PathBuf {
        self.workspace().join("processes")
    }

    /// Returns the file with the last process's standard error.
    pub(crate) fn errors(&self) -> PathBuf {
        self.dir.join("stderr")
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.dir.join("store")
    }

    /// Returns the store as a value for `--store`.
    pub(crate) fn spec(&self) -> String {
        match &self.address {
            Some(address) => format!("{address}?shard={}", self.shard()),
            None => format!("{}:{}", self.engine, self.store().display()),
        }
    }

    fn options(&self) -> Options {
        Options { node_dir: self.address.is_some().then(|| self.store()), ..Options::default() }
    }

    /// Compacts the store, if it exists. Returns whether every deleted session is erased.
    pub(crate) fn compact(&self, progress: &mut dyn FnMut(CompactionStep)) -> Result<bool, OpenError> {
        let spec = StoreSpec::parse(&self.spec())?;
        if !store_exists(&spec)? {
            return Ok(false);
        }
        let done = compact_store(&spec, &self.options(), progress);
        match done {
            Ok(done) => Ok(done.deferred.is_empty()),
            // The process that should have created the store was killed before it did.
            Err(OpenError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn open(&self) -> Result<Journal, OpenError> {
        open_store_with(&StoreSpec::parse(&self.spec())?, self.options())
    }

    /// Opens the store of a process that was just killed.
    pub(crate) fn open_after_kill(&self) -> Result<Journal, OpenError> {
        let killed = Instant::now();
        loop {
            match self.open() {
                Err(OpenError::InUse { .. } | OpenError::ClaimedElsewhere { .. })
                    if killed.elapsed() < LOCK_TIMEOUT =>
                {
                    std::thread::sleep(Duration::from_millis(5));
                }
                opened => return opened,
            }
        }
    }

    pub(crate) fn remove(&self) {
        // If this fails, the store is removed with the directory of the drill.
        drop(std::fs::remove_dir_all(&self.dir));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(store: &str) -> String {
        let usage = DrillDirectory::prepare(store, 1)
            .err()
            .filter(|error| matches!(error, DrillError::Usage(_) | DrillError::Open(OpenError::BadSpec { .. })));
        usage.unwrap_or_else(|| panic!("{store} was accepted")).to_string()
    }

    #[test]
    fn unsupported_store_is_a_usage_error() {
        assert!(refusal("memory").contains("a kill leaves nothing of such a store"));
        assert!(
            refusal("postgres://user:s3cret@host/database").ends_with("its own PostgreSQL server: --store postgres")
        );
        assert!(refusal("tape").contains("`tape:store` is not a store"), "{}", refusal("tape"));
        assert!(refusal("tape:/x").contains("`tape:/x` is not a store"));
    }

    #[test]
    fn nonempty_directory_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("mine"), "").expect("a file");
        let why = refusal(&format!("redb:{}", dir.path().display()));
        assert!(why.contains("is not an empty directory"), "{why}");
        assert!(dir.path().join("mine").exists());
    }

    /// Another user could replace the content. The controls: a directory of this user alone, and a new one.
    #[cfg(unix)]
    #[test]
    fn directory_open_to_others_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;

        let dir = tempfile::tempdir().expect("a directory");
        let named = dir.path().to_str().expect("text");
        let allow = |mode| std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(mode)).expect("chmod");
        allow(0o777);
        assert!(refusal(&format!("redb:{named}")).contains("could replace what the drill starts"));
        allow(0o700);
        assert!(named_dir("redb", named).expect("own").1);
        assert!(!named_dir("redb", &format!("{named}/new")).expect("new").1);
    }

    #[cfg(unix)]
    #[test]
    fn temporary_directory_is_new_and_private() {
        use std::os::unix::fs::PermissionsExt as _;

        let first = temporary_dir(7).expect("a directory");
        let second = temporary_dir(7).expect("a directory");
        assert_ne!(first, second, "an existing directory is not used");
        for dir in [first, second] {
            assert_eq!(dir.metadata().expect("a directory").permissions().mode() & 0o777, 0o700);
            std::fs::remove_dir(dir).expect("empty");
        }
    }

    #[test]
    fn stores_are_removed_unless_one_is_kept() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = |name: &str| format!("redb:{}", dir.path().join(name).display());
        let mut directory = DrillDirectory::prepare(&store("gone"), 1).expect("a directory");
        let store_dir = directory.new_store_dir().expect("a store directory");
        assert!(store_dir.workspace().is_dir());
        drop(directory);
        assert!(!dir.path().join("gone").exists());

        let mut directory = DrillDirectory::prepare(&store("kept"), 1).expect("a directory");
        let store_dir = directory.new_store_dir().expect("a store directory");
        let kept = directory.keep(&store_dir);
        drop(directory);
        assert!(kept.is_dir());
    }
}
