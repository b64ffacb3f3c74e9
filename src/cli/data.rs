//! Where sessions are kept.

use std::path::{Path, PathBuf};

use etcetera::BaseStrategy as _;
use subtend_journal::{Journal, OpenError, Options, StoreSpec, open_store_with};

use super::fail::Fail;

/// The variable that names the data directory where no option does.
const DATA_VARIABLE: &str = "SUBTEND_DATA";

/// Which store a verb works on.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct StoreArgs {
    /// Directory of the sessions [default: $SUBTEND_DATA, else `subtend` in the platform's data directory]
    #[arg(long, value_name = "DIR", conflicts_with = "store")]
    pub(crate) data: Option<PathBuf>,

    /// Store, named by engine and path: `redb:PATH`, `sled:PATH`, `fjall:PATH`, or `memory`
    #[arg(long, value_name = "ENGINE:PATH")]
    pub(crate) store: Option<String>,

    /// Open the store although it has lost its end (an older copy was put back, say), and go on without what is missing
    #[arg(long)]
    pub(crate) accept_loss: bool,
}

/// A store, before it is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    spec: StoreSpec,
    accept_loss: bool,
}

impl StoreArgs {
    /// The store that the arguments name.
    pub(crate) fn place(&self) -> Result<Place, Fail> {
        let data = || self.data.clone().or_else(|| std::env::var_os(DATA_VARIABLE).map(PathBuf::from));
        let spec = match &self.store {
            Some(spec) => StoreSpec::parse(spec)?,
            None => StoreSpec::Redb(data().map_or_else(platform, Ok)?.join("redb")),
        };
        Ok(Place { spec, accept_loss: self.accept_loss })
    }

    /// The options that find the store again, as a shell takes them.
    pub(crate) fn again(&self) -> String {
        let quoted = |text: &str| {
            let plain = |c: char| c.is_ascii_alphanumeric() || "/._-:+@".contains(c);
            if text.chars().all(plain) { text.to_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
        };
        match (&self.data, &self.store) {
            (Some(data), _) => format!(" --data {}", quoted(&data.to_string_lossy())),
            (None, Some(store)) => format!(" --store {}", quoted(store)),
            (None, None) => String::new(),
        }
    }
}

fn platform() -> Result<PathBuf, Fail> {
    let base = etcetera::choose_base_strategy().map_err(|error| {
        Fail::Usage(format!("there is no home directory to keep sessions in ({error}): use --data DIR"))
    })?;
    Ok(base.data_dir().join("subtend"))
}

impl Place {
    /// The directory, unless the store is in memory.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.spec.path()
    }

    /// The place for people.
    pub(crate) fn name(&self) -> String {
        self.path().map_or_else(|| "memory".to_owned(), |path| path.display().to_string())
    }

    /// Whether there is a store already.
    pub(crate) fn exists(&self) -> bool {
        self.path().is_some_and(Path::exists)
    }

    /// Opens the store, and makes it if it is not there.
    pub(crate) fn open(&self) -> Result<Journal, Fail> {
        Ok(self.try_open()?)
    }

    /// As [`Place::open`], for whoever tells by the reason what to do.
    pub(crate) fn try_open(&self) -> Result<Journal, OpenError> {
        open_store_with(&self.spec, Options { accept_loss: self.accept_loss, ..Options::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(data: Option<&str>, store: Option<&str>) -> StoreArgs {
        StoreArgs { data: data.map(PathBuf::from), store: store.map(str::to_owned), accept_loss: false }
    }

    #[test]
    fn a_data_directory_holds_a_redb_store() {
        let place = args(Some("/srv/agents"), None).place().expect("a place");
        assert_eq!(place.path(), Some(Path::new("/srv/agents/redb")));
    }

    #[test]
    fn a_store_is_named_by_engine_and_path() {
        let place = args(None, Some("redb:here")).place().expect("a place");
        assert_eq!(place.path(), Some(Path::new("here")));
        assert_eq!(args(None, Some("memory")).place().expect("a place").name(), "memory");
    }

    #[test]
    fn an_unknown_engine_is_a_usage_error_that_lists_the_known_ones() {
        let fail = args(None, Some("tape:0")).place().expect_err("no such engine");
        assert!(matches!(fail, Fail::Usage(_)), "{fail:?}");
        let text = fail.to_string();
        assert!(text.contains("tape:0") && text.contains("redb:PATH"), "{text}");
    }
}
