use std::io::Write as _;
use std::path::{Path, PathBuf};

use etcetera::BaseStrategy as _;
use subtend_host::auth::TokenFile;
use subtend_journal::owner_only::{close_to_others, create_dir_all};
use subtend_journal::{
    Compacted, CompactionStep, Journal, OpenError, Options, StoreSpec, compact_store, discard_store,
    open_store_to_read, open_store_with, store_exists,
};

use super::fail::Fail;
use super::notices::notices;
use super::owners;
use super::paint::{CAUTION, Styled, harmless};
use super::progress::ProgressLine;

mod host_dir;

/// The environment variable for the data directory. Options take precedence.
const DATA_VARIABLE: &str = "SUBTEND_DATA";

/// The environment variable for the store. Options take precedence. An address may contain a password, which other
/// users could read in the arguments of a process.
const STORE_VARIABLE: &str = "SUBTEND_STORE";

/// Engines, the default first. In a data directory, the store is in a subdirectory with the name of its engine.
const ENGINES: [&str; 2] = ["redb", "sled"];

/// Options that name the store of a command.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct StoreArgs {
    /// Directory of the sessions [default: $SUBTEND_DATA, else `subtend` in the platform's data directory]
    #[arg(long, value_name = "DIR", conflicts_with = "store", global = true)]
    pub(crate) data: Option<PathBuf>,

    /// Store, named by engine and path: `redb:PATH`, `sled:PATH`, `memory`, or the address of a database,
    /// `postgres://USER@HOST/DATABASE?shard=NAME` [default: $SUBTEND_STORE, else that of the data directory]
    #[arg(long, value_name = "ENGINE:PATH", global = true)]
    pub(crate) store: Option<String>,

    /// Open a store whose last records are lost, such as a restored older copy
    #[arg(long, global = true)]
    pub(crate) accept_loss: bool,

    /// The shard that this process hosts as a node. It takes precedence over the options.
    #[arg(skip)]
    pub(crate) shard: Option<NodeShard>,

    /// File of the host's tokens, if outside the host's directory.
    #[arg(skip)]
    pub(crate) tokens: Option<PathBuf>,
}

/// A shard of a node, with the node's directory for local files of all its shards.
#[derive(Clone, Debug)]
pub(crate) struct NodeShard {
    pub(crate) dir: PathBuf,
    pub(crate) name: String,
    pub(crate) spec: StoreSpec,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoreLocation {
    spec: StoreSpec,
    data: Option<PathBuf>,
    accept_loss: bool,
}

impl StoreArgs {
    /// Returns the store that the options name.
    ///
    /// # Errors
    /// If the options are invalid, or if another user owns a part of the store or could replace it.
    pub(crate) fn place(&self) -> Result<StoreLocation, Fail> {
        let place = self.location()?;
        place.check_owners().map_err(|why| Fail::Store(format!("the store cannot be used: {why}")))?;
        Ok(place)
    }

    fn location(&self) -> Result<StoreLocation, Fail> {
        // The path is made absolute because git runs in other directories.
        let store_name = || self.data.clone().or_else(|| std::env::var_os(DATA_VARIABLE).map(PathBuf::from));
        let data = || store_name().map(|data| std::path::absolute(&data).unwrap_or(data));
        let accept_loss = self.accept_loss;
        if let Some(NodeShard { dir, name, spec }) = &self.shard {
            return Ok(StoreLocation { spec: spec.clone(), data: Some(dir.join(name)), accept_loss });
        }
        // The parser does not detect this conflict if the options are on different sides of a subcommand.
        if let (Some(data), Some(_)) = (&self.data, &self.store) {
            return Err(Fail::Usage(format!("`--data {}` and `--store` name two stores: omit one", data.display())));
        }
        let Some(spec) = self.store_name() else {
            let data = data().map_or_else(platform_dir, Ok)?;
            return Ok(StoreLocation { spec: store_in(&data)?, data: Some(data), accept_loss });
        };
        let spec = StoreSpec::parse(&spec)?;
        // A store in a database has local files too: its watermark, the socket, and tokens.
        let data = match spec.place() {
            Some(place) => Some(data().map_or_else(platform_dir, Ok)?.join("postgres").join(place)),
            None => None,
        };
        Ok(StoreLocation { spec, data, accept_loss })
    }

    /// Returns the local directory of the named node; `None` if the store is not in a database.
    #[cfg(feature = "postgres")]
    pub(crate) fn node_dir(&self, node: &str) -> Result<Option<PathBuf>, Fail> {
        let place = self.place()?;
        Ok(place.node_dir().and_then(Path::parent).map(|dir| dir.join(format!("node-{node}"))))
    }

    /// Returns the store that an option or the variable names.
    fn store_name(&self) -> Option<String> {
        let variable = || std::env::var(STORE_VARIABLE).ok().filter(|store| !store.is_empty() && self.data.is_none());
        self.store.clone().or_else(variable)
    }

    /// Returns the paths that tools must not reach: the store, and its data directory.
    pub(crate) fn protected_paths(&self) -> Result<Vec<PathBuf>, Fail> {
        if let Some(shard) = &self.shard {
            return Ok(vec![shard.dir.clone()]);
        }
        let place = self.place()?;
        let Some(store) = place.path().map(Path::to_owned) else { return Ok(place.data.into_iter().collect()) };
        let data = store.parent().filter(|_| self.store_name().is_none());
        let siblings = place.host_dir().into_iter().chain(place.worktrees()).chain(place.checkpoints());
        Ok(data.map(Path::to_owned).into_iter().chain([store.clone()]).chain(siblings).collect())
    }

    /// Returns token files outside the host's directory. Tools must not reach them either.
    pub(crate) fn token_files(&self) -> Vec<PathBuf> {
        self.tokens.iter().flat_map(|file| [file.clone(), TokenFile::at(file).lock_path()]).collect()
    }

    pub(crate) fn pass_to(&self, command: &mut std::process::Command) {
        match (&self.data, &self.store) {
            (Some(data), _) => drop(command.arg("--data").arg(data)),
            // Not as an argument: it may contain a password.
            (None, Some(store)) => drop(command.env(STORE_VARIABLE, store)),
            (None, None) => {}
        }
    }

    /// Returns the options that name this store, quoted for a shell.
    pub(crate) fn options_for_shell(&self) -> String {
        match (&self.data, &self.store) {
            (Some(data), _) => format!(" --data {}", quote_path(&data.to_string_lossy())),
            // The parsed address is printed without its password.
            (None, Some(store)) => {
                let shown = StoreSpec::parse(store).map_or_else(|_| "ENGINE:PATH".to_owned(), |spec| spec.to_string());
                format!(" --store {}", quote_path(&shown))
            }
            (None, None) => String::new(),
        }
    }
}

pub(crate) fn quote_path(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-:+@".contains(c);
    if text.chars().all(plain) { text.to_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

fn platform_dir() -> Result<PathBuf, Fail> {
    let base = etcetera::choose_base_strategy()
        .map_err(|error| Fail::Usage(format!("no home directory for the sessions ({error}): use --data DIR")))?;
    Ok(base.data_dir().join("subtend"))
}

/// Returns the existing store of a data directory, or a new one with the first engine. If this build lacks the engine
/// of an existing store, a second store must not be created.
fn store_in(data: &Path) -> Result<StoreSpec, Fail> {
    let mut existing = None;
    for name in ENGINES {
        if existing.is_none() && path_exists(&data.join(name))? {
            existing = Some(name);
        }
    }
    let removed = data.join("fjall");
    if existing.is_none() && path_exists(&removed)? {
        return Err(Fail::Store(format!(
            "cannot open {}: the engine fjall was removed. Export the store with a version of subtend that has the engine, and \
             import the file here with --store redb:PATH",
            removed.display()
        )));
    }
    let held = || ENGINES.into_iter().find(|name| StoreSpec::engines().any(|held| held == *name));
    let engine = existing.or_else(held).ok_or_else(|| {
        let how = "use `--store memory`, or build with the feature `redb` or `sled`";
        Fail::Usage(format!("this build has no engine that keeps sessions on disk: {how}"))
    })?;
    Ok(StoreSpec::of(engine, data.join(engine))?)
}

/// Returns whether the path exists. An unreadable parent is an error: existing sessions must not seem to be missing.
fn path_exists(path: &Path) -> Result<bool, Fail> {
    path.try_exists().map_err(|error| {
        Fail::Store(format!(
            "{} cannot be read: {error}. Check its permissions, or name another store with --data DIR or --store ENGINE:PATH",
            path.display()
        ))
    })
}

impl StoreLocation {
    #[cfg(feature = "postgres")]
    pub(crate) fn spec(&self) -> &StoreSpec {
        &self.spec
    }

    pub(crate) fn is_in_memory(&self) -> bool {
        self.spec == StoreSpec::Memory
    }

    /// Returns the local directory for a store in a database.
    pub(crate) fn node_dir(&self) -> Option<&Path> {
        self.data.as_deref().filter(|_| self.spec.place().is_some())
    }

    /// Returns the directory of the store; `None` if it is in memory or in a database.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.spec.path()
    }

    pub(crate) fn name(&self) -> String {
        self.path().map_or_else(|| harmless(&self.spec.to_string()), |path| harmless(&path.display().to_string()))
    }

    pub(crate) fn exists(&self) -> Result<bool, Fail> {
        match self.path() {
            Some(path) => path_exists(path),
            None => store_exists(&self.spec).map_err(|error| self.open_error(error)),
        }
    }

    pub(crate) fn open(&self) -> Result<Journal, Fail> {
        self.try_open().map_err(|error| self.open_error(error))
    }

    pub(crate) fn open_error(&self, error: OpenError) -> Fail {
        if error.is_full() { Fail::Store(full_disk(&self.name(), &error.to_string())) } else { error.into() }
    }

    fn check_owners(&self) -> Result<(), String> {
        owners::check(self.data.as_deref(), self.path(), &self.siblings())
    }

    fn siblings(&self) -> Vec<PathBuf> {
        self.worktrees().into_iter().chain(self.checkpoints()).collect()
    }

    /// Returns the directories next to the store, if other users could create them.
    fn siblings_open_to_others(&self) -> Vec<PathBuf> {
        let store = self.path().filter(|_| self.data.is_none()).and_then(|store| std::path::absolute(store).ok());
        let is_open = store.as_deref().and_then(Path::parent).is_some_and(owners::is_writable_by_others);
        if is_open { self.siblings() } else { Vec::new() }
    }

    /// Repeats the check of [`StoreArgs::place`], because another user may have created a directory meanwhile.
    fn check_owners_again(&self) -> Result<(), OpenError> {
        self.check_owners().map_err(|why| self.unsafe_to_use(why))
    }

    fn unsafe_to_use(&self, why: String) -> OpenError {
        let path = self.data.as_deref().or(self.path()).unwrap_or(Path::new("")).to_owned();
        OpenError::Io { what: "use the store in", path, source: std::io::Error::other(why) }
    }

    /// Removes other users' access to the store's directories, and reports each change on stderr.
    ///
    /// # Errors
    /// If other users can still write a directory, because they could replace the store in it, or if they have done so.
    fn restrict_access(&self) -> Result<(), OpenError> {
        let Some(dir) = self.data.as_deref().or(self.path()).filter(|dir| dir.exists()) else { return Ok(()) };
        let (mut err, mut is_closed) = (notices(), false);
        // Unreadable directories are reported when the store is opened.
        for exposed in close_to_others(dir).unwrap_or_default() {
            if exposed.left.is_some() && owners::is_writable_by_others(&exposed.path) {
                return Err(self.unsafe_to_use(exposed.to_string()));
            }
            drop(writeln!(err, "{}: {}", Styled(CAUTION, "warning"), harmless(&exposed.to_string())));
            is_closed = true;
        }
        // Another user could put a store in place until the directory was closed.
        if is_closed { self.check_owners_again() } else { Ok(()) }
    }

    /// Refuses a data directory that other users own or can write, before secrets are written to it.
    pub(crate) fn check_not_writable_by_others(&self) -> Result<(), Fail> {
        self.check_owners_again()?;
        match self.data.as_deref().filter(|data| owners::is_writable_by_others(data)) {
            None => Ok(()),
            Some(data) => Err(Fail::Store(format!(
                "other users can write {}, and so replace its content: remove their access (chmod go-w), or name another directory with --data DIR",
                data.display()
            ))),
        }
    }

    /// As [`StoreLocation::open`], with a typed error.
    pub(crate) fn try_open(&self) -> Result<Journal, OpenError> {
        // Create the directory before the check: in a shared temporary directory, another user could create it after the check.
        if let Some(dir) = self.data.as_deref().or(self.path()) {
            let made = create_dir_all(dir);
            made.map_err(|source| OpenError::Io { what: "create", path: dir.to_owned(), source })?;
        }
        // The same holds for what is created next to a store: it is used later, when nothing checks its owner.
        for dir in self.siblings_open_to_others() {
            let made = create_dir_all(&dir);
            made.map_err(|source| OpenError::Io { what: "create", path: dir, source })?;
        }
        self.check_owners_again()?;
        self.restrict_access()?;
        open_store_with(&self.spec, self.options())
    }

    pub(crate) fn compact(&self, progress: &mut dyn FnMut(CompactionStep)) -> Result<Compacted, Fail> {
        self.restrict_access().map_err(|error| self.open_error(error))?;
        compact_store(&self.spec, &self.options(), progress).map_err(|error| self.open_error(error))
    }

    /// Removes the store if it is unused, with the directories that were created for it.
    pub(crate) fn discard(&self, made: &[PathBuf]) {
        // A directory that is not empty remains. Errors are ignored, because the failed open is already reported.
        if discard_store(&self.spec).unwrap_or(false) {
            made.iter().for_each(|dir| drop(std::fs::remove_dir(dir)));
        }
    }

    /// Returns the directories that opening the store would create, deepest first.
    pub(crate) fn missing_dirs(&self) -> Vec<PathBuf> {
        let is_new = self.path().is_some_and(|store| !store.exists());
        let siblings = self.siblings_open_to_others().into_iter().filter(|dir| is_new && !dir.exists());
        let dirs = self.path().into_iter().flat_map(Path::ancestors);
        let dirs = dirs.take_while(|dir| !dir.as_os_str().is_empty() && !dir.exists()).map(Path::to_owned);
        siblings.chain(dirs).collect()
    }

    /// As [`StoreLocation::try_read`], with the error as a message.
    pub(crate) fn read(&self) -> Result<Journal, Fail> {
        self.try_read()
            .map_err(|error| if error.is_full() { Fail::Store(no_space_error(&error)) } else { error.into() })
    }

    /// Opens the store read-only. Changes only the lock file and modes that give access to others. Reports progress.
    pub(crate) fn try_read(&self) -> Result<Journal, OpenError> {
        self.restrict_access()?;
        let mut progress = ProgressLine::new();
        let journal = open_store_to_read(&self.spec, self.options(), &mut |copied| {
            progress.report(|| {
                format!("copied {} of {} MiB of the store for reading", copied.bytes >> 20, copied.of >> 20)
            });
        })?;
        self.check_owners_again()?;
        Ok(journal)
    }

    fn options(&self) -> Options {
        let node_dir = self.node_dir().map(Path::to_owned);
        Options { accept_loss: self.accept_loss, node_dir, ..Options::default() }
    }

    pub(crate) fn missing_store(&self) -> Fail {
        if self.is_in_memory() {
            return Fail::Usage(
                "a store in memory holds no earlier sessions: name the store of the session with --data DIR or --store ENGINE:PATH"
                    .to_owned(),
            );
        }
        Fail::Other(format!(
            "no store at {}: `subtend run` creates one, or name another with --data DIR or --store ENGINE:PATH",
            self.name()
        ))
    }
}

pub(crate) fn full_disk(place: &str, why: &str) -> String {
    format!(
        "the disk that holds {place} is full: free some space and run the command again; acknowledged changes are \
         kept ({why})"
    )
}

/// Returns the message for a store that cannot be copied for reading.
pub(crate) fn no_space_error(error: &OpenError) -> String {
    let temporary = std::env::temp_dir();
    format!(
        "the store cannot be copied to {} for reading: no space is left. Free some space, or name another directory by \
         TMPDIR ({error})",
        temporary.display()
    )
}

#[cfg(test)]
mod tests {
    use subtend_journal::EngineError;

    use super::super::fail::Code;
    use super::*;

    fn args(data: Option<&str>, store: Option<&str>) -> StoreArgs {
        StoreArgs {
            data: data.map(PathBuf::from),
            store: store.map(str::to_owned),
            accept_loss: false,
            shard: None,
            tokens: None,
        }
    }

    #[test]
    fn new_store_uses_the_first_engine_of_the_build() {
        let Some(engine) = ENGINES.into_iter().find(|name| StoreSpec::engines().any(|held| held == *name)) else {
            let fail = args(Some("/srv/agents"), None).place().expect_err("no engine");
            assert!(fail.to_string().contains("use `--store memory`, or build with the feature `redb`"), "{fail}");
            return;
        };
        let place = args(Some("/srv/agents"), None).place().expect("a place");
        assert_eq!(place.path(), Some(&*Path::new("/srv/agents").join(engine)));
    }

    #[test]
    fn existing_store_is_opened_with_its_own_engine() {
        for engine in ENGINES {
            let data = tempfile::tempdir().expect("a directory");
            std::fs::create_dir(data.path().join(engine)).expect("a store");
            let found = store_in(data.path());
            if StoreSpec::engines().any(|held| held == engine) {
                let spec = found.expect("a store");
                assert_eq!((spec.engine(), spec.path()), (engine, Some(&*data.path().join(engine))));
            } else {
                let why = found.expect_err("an engine that is not there").to_string();
                assert!(why.contains(engine) && why.contains("this build is without its engine"), "{why}");
            }
        }
    }

    #[test]
    fn store_of_a_removed_engine_is_refused() {
        let data = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(data.path().join("fjall")).expect("a store");
        let why = store_in(data.path()).expect_err("no engine opens it").to_string();
        assert!(why.contains("the engine fjall was removed. Export the store"), "{why}");
    }

    #[test]
    fn data_and_store_together_are_refused() {
        let why = args(Some("/srv/agents"), Some("memory")).place().expect_err("two stores").to_string();
        assert_eq!(why, "`--data /srv/agents` and `--store` name two stores: omit one");
    }

    #[test]
    fn store_option_takes_engine_and_path() {
        let place = args(None, Some("redb:here")).place().expect("a place");
        assert_eq!(place.path(), Some(Path::new("here")));
        assert_eq!(args(None, Some("memory")).place().expect("a place").name(), "memory");
    }

    #[test]
    fn full_disk_error_names_its_directory_and_a_remedy() {
        let place = args(Some("/srv/agents"), Some("memory"));
        let place = StoreArgs { store: None, ..place }.place().expect("a place");
        let io = || std::io::Error::from(std::io::ErrorKind::StorageFull);
        let wording = "open the sled store: I/O error: No space left on device (os error 28)".to_owned();
        for error in [
            OpenError::Engine(EngineError::Io { what: "open the sled store", source: io() }),
            OpenError::Engine(EngineError::Store { what: "open the redb file", why: wording }),
            OpenError::Io { what: "write", path: "/srv/agents/redb/LOCK".into(), source: io() },
        ] {
            let fail = place.open_error(error);
            let text = fail.to_string();
            assert_eq!(fail.code(), Code::Store);
            assert!(text.starts_with("the disk that holds /srv/agents/") && text.contains("free some space"), "{text}");
        }
        let other = OpenError::Engine(EngineError::Store { what: "open the sled store", why: "corrupted".into() });
        assert_eq!(place.open_error(other).to_string(), "the store cannot be opened: open the sled store: corrupted");
    }

    #[test]
    fn unknown_engine_is_a_usage_error_with_known_engines() {
        let fail = args(None, Some("tape:0")).place().expect_err("no such engine");
        assert!(matches!(fail, Fail::Usage(_)), "{fail:?}");
        let text = fail.to_string();
        assert!(text.contains("tape:0") && text.contains("redb:PATH"), "{text}");
    }
}
