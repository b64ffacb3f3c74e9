use serde::Serialize;

use super::patch::Patches;
use super::{Checkpoint, Checkpoints, FileChange, MAX_FILE};
use crate::workspace::Workspace;
use crate::workspace::state::{FileState, read_entry};

/// The result of comparing a file with its checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FileFate {
    /// The file holds the content that the call wrote.
    Written,
    /// The file holds its content from before the call.
    Unwritten,
    /// The file was changed later, or cannot be read.
    ChangedSince,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExaminedFile {
    pub path: String,
    pub fate: FileFate,
    /// The change of a written file as a patch; empty for other files.
    pub patch: String,
}

impl Checkpoints {
    /// Compares the files of a checkpoint with their current contents. `patches` bounds what is shown of all files. Blocks.
    pub fn examine(&self, checkpoint: &Checkpoint, patches: &mut Patches) -> Vec<ExaminedFile> {
        checkpoint.changes.iter().map(|change| self.examine_file(checkpoint, change, patches)).collect()
    }

    fn examine_file(&self, checkpoint: &Checkpoint, change: &FileChange, patches: &mut Patches) -> ExaminedFile {
        let result = |fate, patch| ExaminedFile { path: change.path.clone(), fate, patch };
        let present = Workspace::open_canonical(&change.root)
            .ok()
            .and_then(|root| read_entry(&root, &change.path, MAX_FILE).ok());
        let Some(present) = present else { return result(FileFate::ChangedSince, String::new()) };
        if present.state == change.before {
            return result(FileFate::Unwritten, String::new());
        }
        if present.state != change.after {
            return result(FileFate::ChangedSince, String::new());
        }
        let before = match &change.before {
            FileState::File { hash, .. } => self.read_content(checkpoint.session, *hash),
            FileState::Absent => Some(Vec::new()),
            FileState::Link { .. } | FileState::Other => None,
        };
        let patch = before.map(|before| patches.patch(&change.path, change, (&before, &present.bytes)).text);
        result(FileFate::Written, patch.unwrap_or_default())
    }
}
