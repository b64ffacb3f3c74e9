//! Checkpoints: the contents of files before sessions wrote them.
//!
//! The host's checkpoint directory has one directory for each session that wrote files. In it, `HASH` holds a saved content,
//! `NUMBER.json` a [`Checkpoint`], and `restore.json` an unfinished restore. Content and checkpoint are durable before the file is
//! written. Sessions do not share contents, so that the deletion of a session erases its contents.
//!
//! Only one process uses the directory at a time: the one that owns the store.

mod examine;
mod files;
mod locks;
mod patch;
mod plan;
mod restore;
#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use subtend_session::ids::{CallId, Hash, RunNo, SessionId};

use crate::removal::remove;
use crate::tool_key::ToolKey;
use crate::workspace::state::{FileState, PathState, read_entry, remove_temporary};
use crate::workspace::{Workspace, WorkspaceError};
use files::{SavedTotals, create_private_dir, sync_dir, write_durably};
use locks::{FileLocks, LockedFiles};

pub use examine::{ExaminedFile, FileFate};
pub use patch::{FilePatch, Patches};
pub use plan::{RestoreConflict, RestorePlan};
pub use restore::{AwaitedRecord, PendingRestore, PlanStart, Restored};

/// Maximum size of a file whose content is saved.
const MAX_FILE: u64 = 16 << 20;

/// The checkpoints of a host, in one directory. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    dir: Arc<Path>,
    /// The totals, once they are known. Not locked while workspace files are read or written.
    ledger: Arc<Mutex<Option<SavedTotals>>>,
    /// Locked before `ledger`. A holder of `ledger` never waits for these locks.
    locks: Arc<FileLocks>,
    max_wait: Duration,
    bound: u64,
    /// A crash that a test simulates: the step before which the process dies, and how often it passes that step before.
    #[cfg(test)]
    crash_before: Option<(&'static str, Arc<std::sync::atomic::AtomicUsize>)>,
    /// True if a simulated crash also kills the test process.
    #[cfg(test)]
    kills: bool,
    /// A hanging file system that a test simulates.
    #[cfg(test)]
    hangs: Option<Arc<tests::hanging::Hang>>,
}

/// The file changes of one call or of one restore.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// The position among all checkpoints of the store.
    pub number: u64,
    pub session: SessionId,
    pub run: RunNo,
    /// The call that changed the files; `None` for a restore.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallId>,
    pub changes: Vec<FileChange>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileChange {
    /// The canonical path of the session's working directory. If a link replaces the directory, it is not followed.
    pub root: PathBuf,
    /// The file, relative to `root`.
    pub path: String,
    /// The first directory on the path that was created for the file.
    #[serde(default, rename = "made", skip_serializing_if = "Option::is_none")]
    pub created_dir: Option<String>,
    /// The state before the change; [`FileState::Other`] if it was not saved.
    pub before: FileState,
    pub after: FileState,
}

#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    #[error("the checkpoint cannot be {action}: {source}")]
    Io { action: &'static str, source: io::Error },
    #[error("`{0}` was just changed by another program")]
    Changed(String),
    #[error("`{0}` is being written or restored by another call")]
    Busy(String),
    #[error("files changed after the restore was shown: check it again, then repeat the command")]
    Stale,
    #[error("an earlier restore of the session is not finished: restart its host, which finishes it")]
    Unfinished,
    #[error("nothing is restored: {}", plan::list_conflicts(.0))]
    Conflicts(Vec<RestoreConflict>),
    #[error("no file is restored: another program changed `{0}` meanwhile")]
    Undone(String),
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
    #[cfg(test)]
    #[error("died")]
    Died,
}

/// Returns a function that converts an I/O error, for a checkpoint that cannot be `action` ("saved", "read").
fn io_error(action: &'static str) -> impl Fn(io::Error) -> CheckpointError {
    move |source| CheckpointError::Io { action, source }
}

/// The saved checkpoint of an imminent write. Until this value is dropped, other writes and restores of the file wait.
#[derive(Debug)]
pub(crate) struct SavedCheckpoint {
    /// `None` if the write does not change the file.
    file: Option<PathBuf>,
    _locked: LockedFiles,
}

impl SavedCheckpoint {
    /// Removes the checkpoint of a write that failed.
    pub(crate) fn undo(&self) {
        // A leftover checkpoint is harmless: the content of the file shows that the write did not happen.
        drop(self.file.as_ref().map(fs::remove_file));
    }
}

#[derive(Debug)]
pub(crate) struct PlannedWrite<'a> {
    pub(crate) path: &'a str,
    /// The first directory on the path that must be created for the file.
    pub(crate) missing_dir: Option<String>,
    pub(crate) content: &'a [u8],
    /// The content from which an edit derived the new content.
    pub(crate) based_on: Option<&'a [u8]>,
}

impl Checkpoints {
    /// Returns the checkpoints in `dir`. The first save creates the directory.
    pub fn new(dir: impl AsRef<Path>) -> Self {
        Self {
            dir: dir.as_ref().into(),
            ledger: Arc::default(),
            locks: Arc::default(),
            max_wait: locks::MAX_WAIT,
            bound: files::MAX_BYTES,
            #[cfg(test)]
            crash_before: None,
            #[cfg(test)]
            kills: false,
            #[cfg(test)]
            hangs: None,
        }
    }

    /// Saves the content that a write replaces, durably. Blocks.
    ///
    /// # Errors
    /// If the content cannot be saved, or if another write of the file takes too long. For an edit, also if the file no
    /// longer has the content on which the edit is based.
    pub(crate) fn save(
        &self,
        key: ToolKey,
        workspace: &Workspace,
        write: &PlannedWrite<'_>,
    ) -> Result<SavedCheckpoint, CheckpointError> {
        // If the directory was moved, the open handle still writes to it. Its files can be restored once it is back at this path.
        let root = workspace.canonical_path().unwrap_or_else(|_| workspace.path().to_owned());
        let locked = self.locks.lock(vec![root.join(write.path)], self.max_wait);
        let locked = locked.map_err(|_| CheckpointError::Busy(write.path.to_owned()))?;
        // Do not lock the ledger here: a hanging file system must not delay writes of other sessions.
        let before = match read_entry(workspace, write.path, MAX_FILE) {
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
                PathState { state: FileState::Other, bytes: Vec::new() }
            }
            before => before.map_err(io_error("saved"))?,
        };
        if write.based_on.is_some_and(|based_on| before.state != FileState::Other && before.bytes != based_on) {
            return Err(CheckpointError::Changed(write.path.to_owned()));
        }
        let executable = matches!(before.state, FileState::File { executable: true, .. });
        let after = FileState::File { hash: Hash::of(write.content), executable };
        if before.state == after {
            return Ok(SavedCheckpoint { file: None, _locked: locked });
        }
        let mut held = self.lock_ledger();
        let ledger = self.load_ledger(&mut held)?;
        let dir = self.session_dir(key.session);
        create_private_dir(&dir).map_err(io_error("saved"))?;
        if let FileState::File { hash, .. } = &before.state {
            self.step("content")?;
            ledger.bytes = ledger.bytes.saturating_add(self.save_content(&dir, *hash, &before.bytes)?);
        }
        let (path, created_dir) = (write.path.to_owned(), write.missing_dir.clone());
        let checkpoint = Checkpoint {
            number: ledger.next,
            session: key.session,
            run: key.run,
            call: Some(key.call),
            changes: vec![FileChange { root, path, created_dir, before: before.state, after }],
        };
        ledger.next = ledger.next.saturating_add(1);
        self.step("checkpoint")?;
        let file = self.write(&checkpoint)?;
        self.enforce_bound(ledger)?;
        drop(held);
        self.step("saved")?;
        Ok(SavedCheckpoint { file: Some(file), _locked: locked })
    }

    fn lock_ledger(&self) -> MutexGuard<'_, Option<SavedTotals>> {
        // After a panic, discard the totals so that they are read again.
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a checkpoint, and syncs its directory including all earlier writes to it.
    fn write(&self, checkpoint: &Checkpoint) -> Result<PathBuf, CheckpointError> {
        let dir = self.session_dir(checkpoint.session);
        let file = checkpoint_path(&dir, checkpoint.number);
        let text = serde_json::to_vec(checkpoint).map_err(|error| io_error("saved")(error.into()))?;
        write_durably(&file, &text).and_then(|()| sync_dir(&dir)).map_err(io_error("saved"))?;
        Ok(file)
    }

    /// Saves a content under its hash. Returns the number of added bytes.
    fn save_content(&self, dir: &Path, hash: Hash, bytes: &[u8]) -> Result<u64, CheckpointError> {
        let path = dir.join(hash.to_string());
        match fs::read(&path) {
            Ok(kept) if kept == bytes => return Ok(0),
            Ok(kept) if Hash::of(&kept) == hash => {
                let why = "two contents have one hash";
                return Err(io_error("saved")(io::Error::new(io::ErrorKind::AlreadyExists, why)));
            }
            // The content is damaged or missing.
            Ok(_) | Err(_) => {}
        }
        write_durably(&path, bytes).map_err(io_error("saved"))?;
        Ok(u64::try_from(bytes.len()).unwrap_or(u64::MAX))
    }

    /// Returns a saved content, if it still exists and is undamaged.
    fn read_content(&self, session: SessionId, hash: Hash) -> Option<Vec<u8>> {
        let bytes = fs::read(self.content_path(session, hash)).ok()?;
        (Hash::of(&bytes) == hash).then_some(bytes)
    }

    /// Returns the checkpoints of a session, oldest first. Blocks.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn of_session(&self, session: SessionId) -> Result<Vec<Checkpoint>, CheckpointError> {
        self.read_numbered(session, |_| true)
    }

    /// Returns the checkpoints of a session with these numbers, oldest first. Blocks.
    fn read_numbered(
        &self,
        session: SessionId,
        wanted: impl Fn(u64) -> bool,
    ) -> Result<Vec<Checkpoint>, CheckpointError> {
        let dir = self.session_dir(session);
        let mut found = Vec::new();
        for (name, _) in files::entries(&dir).map_err(io_error("read"))? {
            if !files::number_of(&name).is_some_and(&wanted) {
                continue;
            }
            let text = match fs::read(dir.join(&name)) {
                // Its write failed meanwhile, so the checkpoint was removed.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                text => text.map_err(io_error("read"))?,
            };
            let checkpoint: Checkpoint =
                serde_json::from_slice(&text).map_err(|error| io_error("read")(error.into()))?;
            found.push(checkpoint);
        }
        found.sort_by_key(|checkpoint| checkpoint.number);
        Ok(found)
    }

    /// Removes the temporary files that a killed write left next to its files. The call must not be running. Blocks.
    ///
    /// # Errors
    /// The first error, after all other files were removed.
    pub fn remove_temporary_files(&self, checkpoint: &Checkpoint) -> Result<(), CheckpointError> {
        let Some(call) = checkpoint.call else { return Ok(()) };
        let name = ToolKey { session: checkpoint.session, run: checkpoint.run, call }.temporary_name();
        let mut failed = None;
        for change in &checkpoint.changes {
            let removed = Workspace::open_canonical(&change.root)
                .map_err(CheckpointError::from)
                .and_then(|root| remove_temporary(&root, &change.path, &name).map_err(io_error("cleaned up")));
            failed = failed.or(removed.err());
        }
        failed.map_or(Ok(()), Err)
    }

    /// Returns the sessions that have checkpoints.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn sessions(&self) -> Result<Vec<SessionId>, CheckpointError> {
        let entries = files::entries(&self.dir).map_err(io_error("listed"))?;
        Ok(entries.into_iter().filter_map(|(name, _)| name.parse().ok()).collect())
    }

    /// Returns the total size of all checkpoints in bytes.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn bytes(&self) -> Result<u64, CheckpointError> {
        let mut bytes = 0_u64;
        for session in self.sessions()? {
            let sizes = files::entries(&self.session_dir(session)).map_err(io_error("listed"))?;
            bytes = sizes.into_iter().map(|(_, found)| found.len()).fold(bytes, u64::saturating_add);
        }
        Ok(bytes)
    }

    /// Erases the checkpoints of a session. Blocks.
    ///
    /// # Errors
    /// If a file cannot be removed. A second call continues.
    pub fn erase(&self, session: SessionId) -> Result<(), CheckpointError> {
        remove(&self.session_dir(session)).map_err(io_error("erased"))
    }

    fn session_dir(&self, session: SessionId) -> PathBuf {
        self.dir.join(session.to_string())
    }

    fn content_path(&self, session: SessionId, hash: Hash) -> PathBuf {
        self.session_dir(session).join(hash.to_string())
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "tests simulate crashes here")]
    fn step(&self, _: &'static str) -> Result<(), CheckpointError> {
        Ok(())
    }

    #[cfg(test)]
    fn step(&self, name: &'static str) -> Result<(), CheckpointError> {
        use std::sync::atomic::Ordering;

        if let Some(hang) = &self.hangs {
            hang.at(name);
        }
        match &self.crash_before {
            Some((step, left)) if *step == name && left.fetch_sub(1, Ordering::Relaxed) == 0 => {
                #[cfg(unix)]
                if self.kills {
                    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
                }
                Err(CheckpointError::Died)
            }
            Some(_) | None => Ok(()),
        }
    }
}

fn checkpoint_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:020}.json"))
}
