//! Locks of worktrees. Each lock is a file, which is removed with its worktree.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};
#[cfg(unix)]
use std::{fs, io};

use subtend_session::ids::SessionId;
use tokio::sync::{Mutex as TaskMutex, OwnedMutexGuard};

use super::{WorktreeError, Worktrees, cannot, remove_if_exists};
use crate::private;

/// The worktrees that tasks of this process use.
#[derive(Clone, Debug, Default)]
pub(super) struct WorktreeTurns(Arc<Mutex<HashMap<SessionId, Weak<TaskMutex<()>>>>>);

impl WorktreeTurns {
    fn of(&self, session: SessionId) -> Arc<TaskMutex<()>> {
        let mut used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        used.retain(|_, turn| turn.strong_count() > 0);
        let turn = used.get(&session).and_then(Weak::upgrade).unwrap_or_default();
        used.insert(session, Arc::downgrade(&turn));
        turn
    }
}

impl Worktrees {
    /// Waits until no other task of this process uses the worktree. Keep the result until the blocking work on the worktree ends. A wait for
    /// the lock of the worktree would occupy a thread, and last even if its task is dropped.
    pub async fn turn(&self, session: SessionId) -> OwnedMutexGuard<()> {
        self.turns.of(session).lock_owned().await
    }

    /// Locks the worktree against changes by other processes and tasks. The system releases the lock when the process ends.
    pub(super) fn lock(&self, session: SessionId) -> Result<File, WorktreeError> {
        self.lock_file(&self.file(session, "lock"))
    }

    /// Removes the lock file of a session without a worktree. The caller must hold the lock. Tasks that wait for it will lock a new file.
    pub(super) fn remove_lock(&self, session: SessionId) -> Result<(), WorktreeError> {
        if cfg!(unix) { remove_if_exists(&self.file(session, "lock")) } else { Ok(()) }
    }

    /// Removes lock files that killed processes left for removed worktrees. Blocks.
    ///
    /// # Errors
    /// If the directory cannot be read, or a lock cannot be removed.
    pub fn remove_unused_locks(&self) -> Result<(), WorktreeError> {
        for session in self.sessions_with_file("lock")? {
            // The creation of a worktree holds the lock, so its entry exists when the lock is free.
            if self.entry(session).is_ok_and(|entry| entry.is_none())
                && let Ok(file) = File::options().write(true).open(self.file(session, "lock"))
                && file.try_lock().is_ok()
                && is_same_file(&file, &self.file(session, "lock"))
                && self.entry(session)?.is_none()
            {
                self.remove_lock(session)?;
            }
        }
        Ok(())
    }

    pub(super) fn lock_file(&self, path: &Path) -> Result<File, WorktreeError> {
        private::create_dir(&self.dir).map_err(cannot("locked"))?;
        loop {
            let file = File::options().create(true).truncate(false).write(true).open(path).map_err(cannot("locked"))?;
            file.lock().map_err(cannot("locked"))?;
            // A removal may have deleted this lock file meanwhile. Then another process could lock a new file, so lock that one.
            if is_same_file(&file, path) {
                return Ok(file);
            }
        }
    }
}

#[cfg(unix)]
fn is_same_file(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;

    let id = |found: io::Result<fs::Metadata>| found.ok().map(|found| (found.dev(), found.ino()));
    id(file.metadata()).is_some_and(|file| Some(file) == id(fs::metadata(path)))
}

#[cfg(not(unix))]
fn is_same_file(_: &File, _: &Path) -> bool {
    true
}
