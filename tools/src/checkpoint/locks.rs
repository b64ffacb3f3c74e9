//! Locks of single files. A write locks its file from its checkpoint to its end, and a restore locks all its files.
//!
//! A hanging file system blocks only writes of the same file, and only for a limited time.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Maximum time for which a write waits for another write or a restore of its file.
pub(super) const MAX_WAIT: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(super) struct FileLocks {
    locked: Mutex<BTreeSet<PathBuf>>,
    unlocked: Condvar,
}

/// Locked files. The drop of this value unlocks them.
#[derive(Debug)]
pub(super) struct LockedFiles {
    locks: Arc<FileLocks>,
    files: Vec<PathBuf>,
}

impl FileLocks {
    /// Locks all `files`. If one of them stays locked for longer than `wait`, locks none and returns that file. Blocks.
    pub(super) fn lock(self: &Arc<Self>, files: Vec<PathBuf>, wait: Duration) -> Result<LockedFiles, PathBuf> {
        let locked = self.locked.lock().unwrap_or_else(PoisonError::into_inner);
        let is_locked = |locked: &mut BTreeSet<PathBuf>| files.iter().any(|file| locked.contains(file));
        let waited = self.unlocked.wait_timeout_while(locked, wait, is_locked);
        let (mut locked, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = files.iter().find(|file| locked.contains(*file)) {
            return Err(file.clone());
        }
        locked.extend(files.iter().cloned());
        drop(locked);
        Ok(LockedFiles { locks: Arc::clone(self), files })
    }
}

impl Drop for LockedFiles {
    fn drop(&mut self) {
        let mut locked = self.locks.locked.lock().unwrap_or_else(PoisonError::into_inner);
        for file in &self.files {
            locked.remove(file);
        }
        drop(locked);
        self.locks.unlocked.notify_all();
    }
}
