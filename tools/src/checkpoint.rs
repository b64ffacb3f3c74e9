//! Checkpoints: what files held before sessions wrote them.
//!
//! A directory of the host has one directory for each session that wrote: `ID/HASH` is a content, `ID/NUMBER.json` a [`Checkpoint`],
//! `ID/restore.json` a restore that is not finished. Content and checkpoint are durable before the file is written. A session has its
//! contents alone, so that its deletion erases them.
//!
//! One process has the directory at a time: the one that has the store.

mod examine;
mod files;
mod patch;
mod plan;
mod restore;
#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use subtend_session::ids::{CallId, Hash, RunNo, SessionId};
use tokio::sync::Mutex;

use crate::tool_key::ToolKey;
use crate::workspace::state::{FileState, Side, seen};
use crate::workspace::{Workspace, WorkspaceError};
use files::{SavedTotals, durable, gone, private_dir, sync_dir};

pub use examine::{ExaminedFile, FileFate};
pub use plan::{RestoreConflict, RestorePlan};
pub use restore::{Awaited, CheckpointsHeld, PendingRestore, Restored};

/// Bytes of a file that is saved.
const MOST: u64 = 16 << 20;

/// The checkpoints of a host, in one directory. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    dir: Arc<Path>,
    /// Held while something is saved or restored.
    ledger: Arc<Mutex<Option<SavedTotals>>>,
    bound: u64,
    /// The step before which a test has the process die, and how often it passes that step before.
    #[cfg(test)]
    dies_before: Option<(&'static str, Arc<std::sync::atomic::AtomicUsize>)>,
}

/// Changes of files by one call, or by a restore.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Its position among all checkpoints of the store.
    pub number: u64,
    pub session: SessionId,
    pub run: RunNo,
    /// The call that changed them; `None` of a restore.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallId>,
    pub changes: Vec<FileChange>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileChange {
    /// The directory that the session works in.
    pub root: PathBuf,
    /// The file, from there.
    pub path: String,
    /// The first directory on its way that was made for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made: Option<String>,
    /// Its earlier state; [`FileState::Other`] if that was not saved.
    pub before: FileState,
    pub after: FileState,
}

#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    #[error("the checkpoint cannot be {what}: {source}")]
    Io { what: &'static str, source: io::Error },
    #[error("`{0}` was changed by someone else just now")]
    Changed(String),
    #[error("files changed after the restore was shown: check it again, then repeat the command")]
    Stale,
    #[error("an earlier restore of the session is not finished: restart its host, which finishes it")]
    Unfinished,
    #[error("nothing is restored: {}", plan::listed(.0))]
    Conflicts(Vec<RestoreConflict>),
    #[error("no file is restored: `{0}` was changed by someone else meanwhile")]
    Undone(String),
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
    #[cfg(test)]
    #[error("died")]
    Died,
}

/// Returns the conversion of an error of the file system.
fn cannot(what: &'static str) -> impl Fn(io::Error) -> CheckpointError {
    move |source| CheckpointError::Io { what, source }
}

/// A checkpoint of a write that is about to happen.
#[derive(Debug)]
pub(crate) struct SavedCheckpoint {
    file: PathBuf,
}

impl SavedCheckpoint {
    /// Removes it: the write did not happen.
    pub(crate) fn undo(&self) {
        // Left over, it says that the file may have changed, which its content answers.
        drop(fs::remove_file(&self.file));
    }
}

/// A write that is about to happen.
#[derive(Debug)]
pub(crate) struct PlannedWrite<'a> {
    pub(crate) path: &'a str,
    pub(crate) made: Option<String>,
    pub(crate) content: &'a [u8],
    /// The content that the new one was derived from.
    pub(crate) based_on: Option<&'a [u8]>,
}

impl Checkpoints {
    /// Returns the checkpoints in `dir`, which is created with the first one.
    pub fn new(dir: impl AsRef<Path>) -> Self {
        Self {
            dir: dir.as_ref().into(),
            ledger: Arc::default(),
            bound: files::BOUND,
            #[cfg(test)]
            dies_before: None,
        }
    }

    /// Saves what a write replaces. Durable when it returns; `None` where the file does not change. Blocks.
    ///
    /// # Errors
    /// If it cannot be saved, or the file is not what the new content was made from.
    pub(crate) fn save(
        &self,
        key: ToolKey,
        workspace: &Workspace,
        write: &PlannedWrite<'_>,
    ) -> Result<Option<SavedCheckpoint>, CheckpointError> {
        let mut held = self.ledger.blocking_lock();
        let ledger = self.ledger_of(&mut held)?;
        let before = match seen(workspace, write.path, MOST) {
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
                Side { seen: FileState::Other, bytes: Vec::new() }
            }
            before => before.map_err(cannot("saved"))?,
        };
        if write.based_on.is_some_and(|based_on| before.seen != FileState::Other && before.bytes != based_on) {
            return Err(CheckpointError::Changed(write.path.to_owned()));
        }
        let executable = matches!(before.seen, FileState::File { executable: true, .. });
        let after = FileState::File { hash: Hash::of(write.content), executable };
        if before.seen == after {
            return Ok(None);
        }
        let dir = self.of(key.session);
        private_dir(&dir).map_err(cannot("saved"))?;
        if let FileState::File { hash, .. } = &before.seen {
            self.step("content")?;
            ledger.bytes = ledger.bytes.saturating_add(self.keep(&dir, *hash, &before.bytes)?);
        }
        let (root, path, made) = (workspace.path().to_owned(), write.path.to_owned(), write.made.clone());
        let checkpoint = Checkpoint {
            number: ledger.next,
            session: key.session,
            run: key.run,
            call: Some(key.call),
            changes: vec![FileChange { root, path, made, before: before.seen, after }],
        };
        ledger.next = ledger.next.saturating_add(1);
        self.step("checkpoint")?;
        let file = self.write(&checkpoint)?;
        self.bound(ledger)?;
        Ok(Some(SavedCheckpoint { file }))
    }

    /// Writes a checkpoint, and syncs its directory with all that was written there before.
    fn write(&self, checkpoint: &Checkpoint) -> Result<PathBuf, CheckpointError> {
        let dir = self.of(checkpoint.session);
        let file = numbered(&dir, checkpoint.number);
        let text = serde_json::to_vec(checkpoint).map_err(|error| cannot("saved")(error.into()))?;
        durable(&file, &text).and_then(|()| sync_dir(&dir)).map_err(cannot("saved"))?;
        Ok(file)
    }

    /// Keeps a content under its hash, and returns the bytes that this adds.
    fn keep(&self, dir: &Path, hash: Hash, bytes: &[u8]) -> Result<u64, CheckpointError> {
        let path = dir.join(hash.to_string());
        match fs::read(&path) {
            Ok(kept) if kept == bytes => return Ok(0),
            Ok(kept) if Hash::of(&kept) == hash => {
                let why = "two contents have one hash";
                return Err(cannot("saved")(io::Error::new(io::ErrorKind::AlreadyExists, why)));
            }
            // Damaged or missing.
            Ok(_) | Err(_) => {}
        }
        durable(&path, bytes).map_err(cannot("saved"))?;
        Ok(u64::try_from(bytes.len()).unwrap_or(u64::MAX))
    }

    /// Returns a content that was saved, if it is kept and whole.
    fn kept(&self, session: SessionId, hash: Hash) -> Option<Vec<u8>> {
        let bytes = fs::read(self.of(session).join(hash.to_string())).ok()?;
        (Hash::of(&bytes) == hash).then_some(bytes)
    }

    /// Returns the checkpoints of a session, in their order. Blocks.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn of_session(&self, session: SessionId) -> Result<Vec<Checkpoint>, CheckpointError> {
        let dir = self.of(session);
        let mut found = Vec::new();
        for (name, _) in files::entries(&dir).map_err(cannot("read"))? {
            if files::number_of(&name).is_none() {
                continue;
            }
            let text = fs::read(dir.join(&name)).map_err(cannot("read"))?;
            let checkpoint: Checkpoint = serde_json::from_slice(&text).map_err(|error| cannot("read")(error.into()))?;
            found.push(checkpoint);
        }
        found.sort_by_key(|checkpoint| checkpoint.number);
        Ok(found)
    }

    /// Returns the sessions that have checkpoints.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn sessions(&self) -> Result<Vec<SessionId>, CheckpointError> {
        let entries = files::entries(&self.dir).map_err(cannot("listed"))?;
        Ok(entries.into_iter().filter_map(|(name, _)| name.parse().ok()).collect())
    }

    /// Returns the bytes of all checkpoints.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn bytes(&self) -> Result<u64, CheckpointError> {
        let mut bytes = 0_u64;
        for session in self.sessions()? {
            let sizes = files::entries(&self.of(session)).map_err(cannot("listed"))?;
            bytes = sizes.into_iter().map(|(_, found)| found.len()).fold(bytes, u64::saturating_add);
        }
        Ok(bytes)
    }

    /// Erases the checkpoints of a session. Blocks.
    ///
    /// # Errors
    /// If something cannot be removed: a repetition continues.
    pub fn erase(&self, session: SessionId) -> Result<(), CheckpointError> {
        gone(&self.of(session)).map_err(cannot("erased"))
    }

    fn of(&self, session: SessionId) -> PathBuf {
        self.dir.join(session.to_string())
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "tests die here")]
    fn step(&self, _: &'static str) -> Result<(), CheckpointError> {
        Ok(())
    }

    #[cfg(test)]
    fn step(&self, name: &'static str) -> Result<(), CheckpointError> {
        use std::sync::atomic::Ordering;

        match &self.dies_before {
            Some((step, left)) if *step == name && left.fetch_sub(1, Ordering::Relaxed) == 0 => {
                Err(CheckpointError::Died)
            }
            Some(_) | None => Ok(()),
        }
    }
}

fn numbered(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:020}.json"))
}
