//! The directories next to a store: of its host, of worktrees, and of checkpoints.

use std::path::{Path, PathBuf};

use super::StoreLocation;

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
        store.file_name().filter(|name| *name == self.spec.engine()).and_then(|_| Some(store.parent()?.join("host")))
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
