//! The current state of the files of a checkpoint.

use serde::Serialize;

use super::patch::patch;
use super::{Checkpoint, Checkpoints, FileChange, MOST};
use crate::workspace::Workspace;
use crate::workspace::state::{FileState, seen};

/// The content of a file, compared with a checkpoint of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FileFate {
    /// The file holds what the call wrote.
    Written,
    /// The file holds what it held before the call.
    Unwritten,
    /// Something else: it was changed since, or cannot be read.
    ChangedSince,
}

/// A file of a checkpoint, with what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExaminedFile {
    pub path: String,
    pub fate: FileFate,
    /// The change of a written file as a patch; empty of others.
    pub patch: String,
}

impl Checkpoints {
    /// Compares the files of a checkpoint with what they hold now. Blocks.
    pub fn examine(&self, checkpoint: &Checkpoint) -> Vec<ExaminedFile> {
        checkpoint.changes.iter().map(|change| self.examined(checkpoint, change)).collect()
    }

    fn examined(&self, checkpoint: &Checkpoint, change: &FileChange) -> ExaminedFile {
        let of = |fate, patch| ExaminedFile { path: change.path.clone(), fate, patch };
        let present = Workspace::open(&change.root).ok().and_then(|root| seen(&root, &change.path, MOST).ok());
        let Some(present) = present else { return of(FileFate::ChangedSince, String::new()) };
        if present.seen == change.before {
            return of(FileFate::Unwritten, String::new());
        }
        if present.seen != change.after {
            return of(FileFate::ChangedSince, String::new());
        }
        let before = match &change.before {
            FileState::File { hash, .. } => self.kept(checkpoint.session, *hash),
            FileState::Absent => Some(Vec::new()),
            FileState::Link { .. } | FileState::Other => None,
        };
        let patch = before.map(|before| patch(&change.path, change, (&before, &present.bytes)));
        of(FileFate::Written, patch.unwrap_or_default())
    }
}
