//! The directories next to a store: of its host, of worktrees, and of checkpoints.

use std::path::{Path, PathBuf};

use super::StoreLocation;
use crate::cli::owners;

impl StoreLocation {
    /// Returns the directory of the host's socket and tokens, in the data directory or by the store; `None` in memory.
    pub(crate) fn host_dir(&self) -> Option<PathBuf> {
        self.data.as_ref().map(|data| data.join("host")).or_else(|| self.path().map(host_sibling))
    }

    /// Returns the directory of a host that names this store by the other option: the store of a data directory by its path, or the reverse.
    pub(crate) fn other_host_dir(&self) -> Option<PathBuf> {
        let store = self.path()?;
        if self.data.is_some() {
            return Some(host_sibling(store));
        }
        store.file_name().filter(|name| *name == self.spec.engine())?;
        // A data directory is closed to other users. Elsewhere, as in `/tmp`, one could link to the host of another store.
        let data = std::path::absolute(store).ok()?.parent()?.to_owned();
        (!owners::is_writable_by_others(&data)).then(|| data.join("host"))
    }

    /// Returns the directory of worktrees, alongside that of the host.
    pub(crate) fn worktrees(&self) -> Option<PathBuf> {
        let host = self.host_dir()?;
        let place = match &self.data {
            Some(data) => data.join("worktrees"),
            None => host.with_extension("worktrees"),
        };
        Some(std::path::absolute(&place).unwrap_or(place))
    }

    /// Returns the directory of checkpoints, alongside that of the host.
    pub(crate) fn checkpoints(&self) -> Option<PathBuf> {
        let host = self.host_dir()?;
        Some(match &self.data {
            Some(data) => data.join("checkpoints"),
            None => host.with_extension("checkpoints"),
        })
    }
}

/// Returns the directory of the host of a store that is named by its path.
fn host_sibling(store: &Path) -> PathBuf {
    let mut name = store.as_os_str().to_owned();
    name.push(".host");
    PathBuf::from(name)
}

#[cfg(all(test, unix, feature = "redb"))]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};

    use subtend_journal::StoreSpec;

    use super::*;

    /// Until its mode is closed, another user can put a store into a data directory. The control: a store of this user.
    #[test]
    fn store_put_into_an_open_directory_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let (data, store) = (dir.path().join("data"), dir.path().join("data/redb"));
        std::fs::create_dir_all(&store).expect("a directory");
        let spec = StoreSpec::of("redb", store.clone()).expect("an engine");
        let place = StoreLocation { spec, data: Some(data.clone()), accept_loss: false };
        let restrict = || {
            std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o777)).expect("chmod");
            let closed = place.restrict_access().map_err(|error| error.to_string());
            assert_eq!(std::fs::metadata(&data).expect("a directory").mode() & 0o777, 0o700);
            closed
        };
        assert_eq!(restrict(), Ok(()));
        if rustix::process::geteuid().is_root() {
            chown(&store, Some(1_000), None).expect("root may");
            let why = restrict().expect_err("a store of another user");
            assert!(why.contains("belongs to user 1000"), "{why}");
        }
    }
}
