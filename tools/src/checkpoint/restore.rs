//! A restore in two parts: an intent, which changes nothing, and its execution, which the next start finishes where it is interrupted.
//!
//! The intent waits for a record of the journal: with it all files are restored, without it none.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use subtend_session::ids::{Hash, RunNo, SessionId};
use tokio::sync::OwnedMutexGuard;

use super::files::{INTENT, SavedTotals, durable, private_dir, sync_dir};
use super::{Checkpoint, CheckpointError, Checkpoints, FileChange, MOST, RestorePlan, cannot, gone, numbered};
use crate::workspace::Workspace;
use crate::workspace::state::{FileState, prune, put, seen};

/// The fact that decides whether files are restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Awaited {
    RolledBack(RunNo),
    Branch(SessionId),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct RestoreIntent {
    awaits: Awaited,
    /// Whether files that are restored already are put back.
    undoing: bool,
    checkpoint: Checkpoint,
}

/// A restore that is recorded, and has changed nothing yet. Nothing else is saved or restored while it exists.
#[derive(Debug)]
pub struct PendingRestore {
    intent: RestoreIntent,
    _held: OwnedMutexGuard<Option<SavedTotals>>,
}

/// The right to save and restore: nothing else does while it exists.
#[derive(Debug)]
pub struct CheckpointsHeld(OwnedMutexGuard<Option<SavedTotals>>);

/// The result of a restore.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Restored {
    /// Files that it changed.
    pub files: Vec<String>,
}

impl Checkpoints {
    /// Keeps everything else from being saved and restored.
    pub async fn hold(&self) -> CheckpointsHeld {
        CheckpointsHeld(Arc::clone(&self.ledger).lock_owned().await)
    }

    /// Records that `session` restores the files of `plan`, once the journal has what the restore `awaits`. `shown` is the digest of the plan
    /// that a person confirmed. Blocks.
    ///
    /// # Errors
    /// [`CheckpointError::Stale`] if `plan` is another one, [`CheckpointError::Conflicts`] if it has some.
    pub fn intend(
        &self,
        (session, run): (SessionId, RunNo),
        (plan, shown): (RestorePlan, Hash),
        awaits: Awaited,
        held: CheckpointsHeld,
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
        let mut held = held.0;
        let ledger = self.ledger_of(&mut held)?;
        let number = ledger.next;
        ledger.next = number.saturating_add(1);
        let dir = self.of(session);
        private_dir(&dir).map_err(cannot("saved"))?;
        if self.intent_of(session).exists() {
            return Err(CheckpointError::Unfinished);
        }
        for change in &plan.changes {
            self.step("present")?;
            // What is replaced is kept too: an interrupted restore may be undone.
            if let FileState::File { hash, .. } = &change.before {
                let present = seen(&Workspace::open(&change.root)?, &change.path, MOST).map_err(cannot("saved"))?;
                if present.seen != change.before {
                    return Err(CheckpointError::Stale);
                }
                ledger.bytes = ledger.bytes.saturating_add(self.keep(&dir, *hash, &present.bytes)?);
            }
            // What it is restored to may be saved by another session.
            if let FileState::File { hash, .. } = &change.after {
                let bytes = self.found(*hash)?;
                ledger.bytes = ledger.bytes.saturating_add(self.keep(&dir, *hash, &bytes)?);
            }
        }
        let checkpoint = Checkpoint { number, session, run, call: None, changes: plan.changes };
        let intent = RestoreIntent { awaits, undoing: false, checkpoint };
        self.step("intent")?;
        self.record(&intent)?;
        Ok(Some(PendingRestore { intent, _held: held }))
    }

    /// Restores the files. All or none: where someone else changed one meanwhile, those before it are put back. Blocks.
    ///
    /// # Errors
    /// [`CheckpointError::Undone`]; or if a file cannot be written, and the next start tries it again.
    pub fn perform(&self, restore: PendingRestore) -> Result<Restored, CheckpointError> {
        self.finish(restore.intent)
    }

    /// Removes a restore that is not to happen. Blocks.
    ///
    /// # Errors
    /// If it cannot be removed: the next start tries it again.
    pub fn withdraw(&self, restore: &PendingRestore) -> Result<(), CheckpointError> {
        self.end(&restore.intent)
    }

    /// Finishes or removes the restores that an earlier process left, as `happened` says of what they await. Blocks.
    ///
    /// # Errors
    /// The first that cannot be finished, after all others are.
    pub fn recover(
        &self,
        happened: impl Fn(SessionId, Awaited) -> io::Result<bool>,
    ) -> Result<Vec<(SessionId, Restored)>, CheckpointError> {
        let (mut done, mut failed) = (Vec::new(), None);
        for session in self.sessions()? {
            match self.recovered(session, &happened) {
                Ok(restored) => done.extend(restored.map(|restored| (session, restored))),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(done), Err)
    }

    fn recovered(
        &self,
        session: SessionId,
        happened: impl Fn(SessionId, Awaited) -> io::Result<bool>,
    ) -> Result<Option<Restored>, CheckpointError> {
        let text = match fs::read(self.intent_of(session)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text.map_err(cannot("read"))?,
        };
        let intent: RestoreIntent = serde_json::from_slice(&text).map_err(|error| cannot("read")(error.into()))?;
        let recorded = numbered(&self.of(session), intent.checkpoint.number).exists();
        // A journal that cannot be read says nothing: the restore waits for the next start.
        if !recorded && happened(session, intent.awaits).map_err(cannot("restored"))? {
            return self.finish(intent).map(Some);
        }
        self.end(&intent)?;
        Ok(None)
    }

    fn finish(&self, mut intent: RestoreIntent) -> Result<Restored, CheckpointError> {
        let mut why = None;
        // A directory that is out of reach, as of a disk that is not mounted, decides nothing: the next start tries it again.
        for change in &intent.checkpoint.changes {
            Workspace::open(&change.root)?;
        }
        if !intent.undoing {
            match self.exchange(&intent.checkpoint, false) {
                Ok(None) => return self.finished(intent),
                #[cfg(test)]
                Err(CheckpointError::Died) => return Err(CheckpointError::Died),
                Ok(Some(path)) => why = Some(CheckpointError::Undone(path)),
                Err(error) => why = Some(error),
            }
            intent.undoing = true;
            self.step("undoing")?;
            self.record(&intent)?;
        }
        self.exchange(&intent.checkpoint, true)?;
        self.step("undone")?;
        let changed = self.strange(&intent.checkpoint)?;
        self.end(&intent)?;
        Err(why.unwrap_or(CheckpointError::Undone(changed)))
    }

    fn finished(&self, intent: RestoreIntent) -> Result<Restored, CheckpointError> {
        self.step("restored")?;
        self.write(&intent.checkpoint)?;
        self.step("recorded")?;
        self.end(&intent)?;
        Ok(Restored { files: intent.checkpoint.changes.into_iter().map(|change| change.path).collect() })
    }

    /// Exchanges all files, in one direction or the other. Forwards it stops at a file that someone else changed, and returns it.
    fn exchange(&self, restore: &Checkpoint, back: bool) -> Result<Option<String>, CheckpointError> {
        for change in &restore.changes {
            self.step("file")?;
            let workspace = Workspace::open(&change.root)?;
            let present = seen(&workspace, &change.path, MOST).map_err(cannot("restored"))?.seen;
            let (from, to) = if back { (&change.after, &change.before) } else { (&change.before, &change.after) };
            if present == *from {
                self.put(&workspace, restore, (change, to))?;
            } else if present != *to && !back {
                return Ok(Some(change.path.clone()));
            }
        }
        Ok(None)
    }

    fn put(
        &self,
        workspace: &Workspace,
        restore: &Checkpoint,
        (change, to): (&FileChange, &FileState),
    ) -> Result<(), CheckpointError> {
        let bytes = match to {
            FileState::File { hash, .. } => self.kept(restore.session, *hash).ok_or_else(|| {
                cannot("restored")(io::Error::new(io::ErrorKind::NotFound, "a content is missing or damaged"))
            })?,
            FileState::Absent | FileState::Link { .. } | FileState::Other => Vec::new(),
        };
        let temporary = format!(".subtend-{}-restore.tmp", restore.session);
        put(workspace, &change.path, (to, &bytes), &temporary).map_err(cannot("restored"))?;
        if let (FileState::Absent, Some(made)) = (to, &change.made) {
            let (above, _) = change.path.rsplit_once('/').unwrap_or((".", &change.path));
            let stop = made.rsplit_once('/').map_or("", |(above, _)| above);
            prune(workspace.dir(), (above, stop));
        }
        Ok(())
    }

    /// Returns a file that holds neither what it held before the restore nor what that gives it.
    fn strange(&self, restore: &Checkpoint) -> Result<String, CheckpointError> {
        for change in &restore.changes {
            let present = seen(&Workspace::open(&change.root)?, &change.path, MOST).map_err(cannot("restored"))?.seen;
            if present != change.before {
                return Ok(change.path.clone());
            }
        }
        Ok("a file".to_owned())
    }

    /// Returns a content, whichever session saved it.
    fn found(&self, hash: Hash) -> Result<Vec<u8>, CheckpointError> {
        let found = self.sessions()?.into_iter().find_map(|session| self.kept(session, hash));
        found.ok_or_else(|| cannot("read")(io::Error::new(io::ErrorKind::NotFound, "a content is missing or damaged")))
    }

    fn record(&self, intent: &RestoreIntent) -> Result<(), CheckpointError> {
        let text = serde_json::to_vec(intent).map_err(|error| cannot("recorded")(error.into()))?;
        let file = self.intent_of(intent.checkpoint.session);
        durable(&file, &text).map_err(cannot("recorded"))?;
        sync_dir(&self.of(intent.checkpoint.session)).map_err(cannot("recorded"))
    }

    fn end(&self, intent: &RestoreIntent) -> Result<(), CheckpointError> {
        gone(&self.intent_of(intent.checkpoint.session)).map_err(cannot("removed"))
    }

    fn intent_of(&self, session: SessionId) -> PathBuf {
        self.of(session).join(INTENT)
    }
}
