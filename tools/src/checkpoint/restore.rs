//! Restores files in two steps: an intent, which changes no file, and its execution. The next start finishes an interrupted execution.
//!
//! A record in the journal decides whether an intent is executed: with the record all files are restored, without it none.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use subtend_session::ids::{Hash, RunNo, SessionId};

use super::files::{INTENT_FILE, create_private_dir, sync_dir, write_durably};
use super::locks::LockedFiles;
use super::{Checkpoint, CheckpointError, Checkpoints, FileChange, MAX_FILE, RestorePlan, checkpoint_path, io_error};
use crate::removal::remove;
use crate::workspace::Workspace;
use crate::workspace::state::{FileState, prune, read_entry, remove_temporary, replace_entry, temporary_name};

/// The record that a restore waits for. Files are restored only if the journal has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AwaitedRecord {
    RolledBack(RunNo),
    Branch(SessionId),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct RestoreIntent {
    awaits: AwaitedRecord,
    /// True if the restore failed and its changes are being undone.
    undoing: bool,
    checkpoint: Checkpoint,
    /// Random, so that a session cannot block the name of the temporary file with a directory.
    #[serde(default = "temporary_name")]
    temporary: String,
}

/// A recorded restore that has not changed any file yet. Until this value is dropped, other writes of its files wait.
#[derive(Debug)]
pub struct PendingRestore {
    intent: RestoreIntent,
    _locked: LockedFiles,
}

/// The start of the planning of a restore, as the number of the next checkpoint at that time.
#[derive(Clone, Copy, Debug)]
pub struct PlanStart(u64);

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Restored {
    pub files: Vec<String>,
}

impl Checkpoints {
    /// Begins the planning of a restore, before checkpoints and files are read. Blocks.
    ///
    /// # Errors
    /// If the directory of the checkpoints cannot be read.
    pub fn begin_plan(&self) -> Result<PlanStart, CheckpointError> {
        Ok(PlanStart(self.load_ledger(&mut self.lock_ledger())?.next))
    }

    /// Records that `session` restores the files of `plan` once the journal has the record that the restore `awaits`. `shown` is the
    /// digest of the plan that the user confirmed, and `start` the start of its planning. Workspace files are read without locking the
    /// ledger, so that a hanging file system delays only this restore. Blocks.
    ///
    /// # Errors
    /// * [`CheckpointError::Stale`] if `plan` differs from the confirmed one or one of its files was written since `start`.
    /// * [`CheckpointError::Conflicts`] if the plan has conflicts.
    /// * [`CheckpointError::Busy`] if a call writes one of its files.
    pub fn intend(
        &self,
        (session, run): (SessionId, RunNo),
        (plan, shown): (RestorePlan, Hash),
        awaits: AwaitedRecord,
        start: PlanStart,
    ) -> Result<Option<PendingRestore>, CheckpointError> {
        if plan.digest() != shown {
            return Err(CheckpointError::Stale);
        }
        if !plan.conflicts.is_empty() {
            return Err(CheckpointError::Conflicts(plan.conflicts));
        }
        if plan.changes.is_empty() {
            return Ok(None);
        }
        // Do not wait for the locks: report to the user at once that a call writes the file.
        let files = plan.changes.iter().map(|change| change.root.join(&change.path)).collect();
        let locked = self.locks.lock(files, Duration::ZERO);
        let locked = locked.map_err(|file| CheckpointError::Busy(file.display().to_string()))?;
        // From here on, no session can write these files.
        if self.were_written_since(start, &plan.changes)? {
            return Err(CheckpointError::Stale);
        }
        create_private_dir(&self.session_dir(session)).map_err(io_error("saved"))?;
        for change in &plan.changes {
            self.step("present")?;
            let present = read_entry(&Workspace::open_canonical(&change.root)?, &change.path, MAX_FILE)
                .map_err(io_error("saved"))?;
            if present.state != change.before {
                return Err(CheckpointError::Stale);
            }
            self.save_contents(session, change, &present.bytes)?;
        }
        let mut held = self.lock_ledger();
        let ledger = self.load_ledger(&mut held)?;
        if self.intent_path(session).exists() {
            return Err(CheckpointError::Unfinished);
        }
        if plan.changes.iter().flat_map(contents).any(|hash| !self.content_path(session, hash).exists()) {
            let why = "a saved content was erased meanwhile to limit the size of checkpoints";
            return Err(io_error("saved")(io::Error::new(io::ErrorKind::NotFound, why)));
        }
        let number = ledger.next;
        ledger.next = number.saturating_add(1);
        let checkpoint = Checkpoint { number, session, run, call: None, changes: plan.changes };
        let intent = RestoreIntent { awaits, undoing: false, checkpoint, temporary: temporary_name() };
        self.step("intent")?;
        self.record(&intent)?;
        Ok(Some(PendingRestore { intent, _locked: locked }))
    }

    /// Saves all contents that a restore needs, in the directory of its session.
    fn save_contents(&self, session: SessionId, change: &FileChange, present: &[u8]) -> Result<(), CheckpointError> {
        let dir = self.session_dir(session);
        let mut held = self.lock_ledger();
        let ledger = self.load_ledger(&mut held)?;
        // Also save the replaced content, because a failed restore is undone.
        if let FileState::File { hash, .. } = &change.before {
            ledger.bytes = ledger.bytes.saturating_add(self.save_content(&dir, *hash, present)?);
        }
        // The content to restore may have been saved by another session.
        if let FileState::File { hash, .. } = &change.after {
            let bytes = self.find_content(*hash)?;
            ledger.bytes = ledger.bytes.saturating_add(self.save_content(&dir, *hash, &bytes)?);
        }
        Ok(())
    }

    /// Returns whether a session wrote a file of `changes` since `start`, even if the file has its old content again.
    fn were_written_since(&self, start: PlanStart, changes: &[FileChange]) -> Result<bool, CheckpointError> {
        let is_changed = |written: &FileChange| {
            changes.iter().any(|change| (&change.root, &change.path) == (&written.root, &written.path))
        };
        for session in self.sessions()? {
            let since = |number: u64| number >= start.0;
            if self.read_numbered(session, since)?.iter().flat_map(|checkpoint| &checkpoint.changes).any(is_changed) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Restores all files or none: if another program changed a file meanwhile, undoes the files that were already restored. Blocks.
    ///
    /// # Errors
    /// [`CheckpointError::Undone`], or an I/O error. After an I/O error, the next start retries.
    pub fn perform(&self, restore: PendingRestore) -> Result<Restored, CheckpointError> {
        let PendingRestore { intent, _locked } = restore;
        self.finish(intent)
    }

    /// Removes a restore that was abandoned. Blocks.
    ///
    /// # Errors
    /// If removing fails. The next start retries.
    pub fn withdraw(&self, restore: &PendingRestore) -> Result<(), CheckpointError> {
        self.remove_intent(&restore.intent)
    }

    /// Finishes those restores of an earlier process whose awaited record `happened`, and removes the others. Blocks.
    ///
    /// # Errors
    /// The first error, after all other restores were handled.
    pub fn recover(
        &self,
        happened: impl Fn(SessionId, AwaitedRecord) -> io::Result<bool>,
    ) -> Result<Vec<(SessionId, Restored)>, CheckpointError> {
        let (mut done, mut failed) = (Vec::new(), None);
        for session in self.sessions()? {
            match self.recover_session(session, &happened) {
                Ok(restored) => done.extend(restored.map(|restored| (session, restored))),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(done), Err)
    }

    fn recover_session(
        &self,
        session: SessionId,
        happened: impl Fn(SessionId, AwaitedRecord) -> io::Result<bool>,
    ) -> Result<Option<Restored>, CheckpointError> {
        let text = match fs::read(self.intent_path(session)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text.map_err(io_error("read"))?,
        };
        let intent: RestoreIntent = serde_json::from_slice(&text).map_err(|error| io_error("read")(error.into()))?;
        let recorded = checkpoint_path(&self.session_dir(session), intent.checkpoint.number).exists();
        // The journal cannot be read: keep the restore for the next start.
        if !recorded && happened(session, intent.awaits).map_err(io_error("restored"))? {
            return self.finish(intent).map(Some);
        }
        self.remove_intent(&intent)?;
        Ok(None)
    }

    fn finish(&self, mut intent: RestoreIntent) -> Result<Restored, CheckpointError> {
        let mut why = None;
        // A directory may be unreachable, for example because its disk is not mounted. Then keep the restore for the next start.
        for change in &intent.checkpoint.changes {
            Workspace::open_canonical(&change.root)?;
        }
        if !intent.undoing {
            match self.exchange(&intent, false) {
                Ok(None) => return self.record_restored(intent),
                #[cfg(test)]
                Err(CheckpointError::Died) => return Err(CheckpointError::Died),
                Ok(Some(path)) => why = Some(CheckpointError::Undone(path)),
                Err(error) => why = Some(error),
            }
            intent.undoing = true;
            self.step("undoing")?;
            self.record(&intent)?;
        }
        self.exchange(&intent, true)?;
        self.step("undone")?;
        let changed = self.find_foreign_change(&intent.checkpoint)?;
        self.remove_intent(&intent)?;
        Err(why.unwrap_or(CheckpointError::Undone(changed)))
    }

    fn record_restored(&self, intent: RestoreIntent) -> Result<Restored, CheckpointError> {
        self.step("restored")?;
        self.write(&intent.checkpoint)?;
        self.step("recorded")?;
        self.remove_intent(&intent)?;
        Ok(Restored { files: intent.checkpoint.changes.into_iter().map(|change| change.path).collect() })
    }

    /// Restores all files, or with `back` undoes that. Without `back`, stops at a file that another program changed and returns its path.
    fn exchange(&self, restore: &RestoreIntent, back: bool) -> Result<Option<String>, CheckpointError> {
        for change in &restore.checkpoint.changes {
            self.step("file")?;
            let workspace = Workspace::open_canonical(&change.root)?;
            let present = read_entry(&workspace, &change.path, MAX_FILE).map_err(io_error("restored"))?.state;
            let (from, to) = if back { (&change.after, &change.before) } else { (&change.before, &change.after) };
            if present == *from {
                self.put_file(&workspace, restore, (change, to))?;
            } else if present != *to {
                // A killed process may have left its temporary file here. Ignore an error of the removal.
                drop(remove_temporary(&workspace, &change.path, &restore.temporary));
                if !back {
                    return Ok(Some(change.path.clone()));
                }
            }
        }
        Ok(None)
    }

    fn put_file(
        &self,
        workspace: &Workspace,
        restore: &RestoreIntent,
        (change, to): (&FileChange, &FileState),
    ) -> Result<(), CheckpointError> {
        let bytes = match to {
            FileState::File { hash, .. } => self.read_content(restore.checkpoint.session, *hash).ok_or_else(|| {
                io_error("restored")(io::Error::new(io::ErrorKind::NotFound, "a content is missing or damaged"))
            })?,
            FileState::Absent | FileState::Link { .. } | FileState::Other => Vec::new(),
        };
        replace_entry(workspace, &change.path, (to, &bytes), &restore.temporary).map_err(io_error("restored"))?;
        if let (FileState::Absent, Some(created_dir)) = (to, &change.created_dir) {
            let (parent, _) = change.path.rsplit_once('/').unwrap_or((".", &change.path));
            let stop = created_dir.rsplit_once('/').map_or("", |(parent, _)| parent);
            prune(workspace.dir(), (parent, stop));
        }
        Ok(())
    }

    /// Returns a file that another program changed: its content differs from the content before the undone restore.
    fn find_foreign_change(&self, restore: &Checkpoint) -> Result<String, CheckpointError> {
        for change in &restore.changes {
            let present = read_entry(&Workspace::open_canonical(&change.root)?, &change.path, MAX_FILE)
                .map_err(io_error("restored"))?
                .state;
            if present != change.before {
                return Ok(change.path.clone());
            }
        }
        Ok("a file".to_owned())
    }

    /// Returns a content that any session saved. Blocks.
    ///
    /// # Errors
    /// If no session saved it, or it cannot be read.
    pub fn find_content(&self, hash: Hash) -> Result<Vec<u8>, CheckpointError> {
        let found = self.sessions()?.into_iter().find_map(|session| self.read_content(session, hash));
        found
            .ok_or_else(|| io_error("read")(io::Error::new(io::ErrorKind::NotFound, "a content is missing or damaged")))
    }

    fn record(&self, intent: &RestoreIntent) -> Result<(), CheckpointError> {
        let text = serde_json::to_vec(intent).map_err(|error| io_error("recorded")(error.into()))?;
        let file = self.intent_path(intent.checkpoint.session);
        write_durably(&file, &text).map_err(io_error("recorded"))?;
        sync_dir(&self.session_dir(intent.checkpoint.session)).map_err(io_error("recorded"))
    }

    fn remove_intent(&self, intent: &RestoreIntent) -> Result<(), CheckpointError> {
        remove(&self.intent_path(intent.checkpoint.session)).map_err(io_error("removed"))
    }

    fn intent_path(&self, session: SessionId) -> PathBuf {
        self.session_dir(session).join(INTENT_FILE)
    }
}

fn contents(change: &FileChange) -> impl Iterator<Item = Hash> {
    [&change.before, &change.after].into_iter().filter_map(|state| match state {
        FileState::File { hash, .. } => Some(*hash),
        FileState::Absent | FileState::Link { .. } | FileState::Other => None,
    })
}
