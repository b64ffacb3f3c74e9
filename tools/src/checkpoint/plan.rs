//! Plans the changes of a restore, and finds the conflicts that prevent it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;
use subtend_session::ids::{Hash, SessionId};

use super::patch::{FilePatch, Patches, joined};
use super::{Checkpoint, Checkpoints, FileChange, MAX_FILE};
use crate::escape::on_one_line;
use crate::policy;
use crate::workspace::state::{FileState, PathState, read_entry};
use crate::workspace::{Workspace, WorkspaceError};

/// Maximum number of files that a message names.
const MAX_NAMED: usize = 100;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RestorePlan {
    /// The changes, starting from the current contents of the files.
    pub changes: Vec<FileChange>,
    /// Files that cannot be restored. If there are any, the restore changes nothing.
    pub conflicts: Vec<RestoreConflict>,
    /// The changes in the format of `diff -u`, in a bounded size; empty if they were not asked for.
    #[serde(skip)]
    pub patches: Vec<FilePatch>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RestoreConflict {
    pub path: String,
    pub why: String,
}

impl RestorePlan {
    /// Returns a hash that identifies exactly these changes.
    pub fn digest(&self) -> Hash {
        let text = serde_json::to_vec(&(&self.changes, &self.conflicts)).unwrap_or_default();
        Hash::of(&text)
    }

    /// Returns the changes as one patch.
    pub fn patch(&self) -> String {
        joined(&self.patches)
    }

    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.conflicts.is_empty()
    }
}

pub(super) fn list_conflicts(conflicts: &[RestoreConflict]) -> String {
    let named = conflicts.iter().take(MAX_NAMED);
    let each = named.map(|RestoreConflict { path, why }| format!("`{}` {}", on_one_line(path), on_one_line(why)));
    let rest = conflicts.len().checked_sub(MAX_NAMED).filter(|rest| *rest > 0);
    each.chain(rest.map(|rest| format!("and {rest} more"))).collect::<Vec<_>>().join("; ")
}

/// The changes of one file, from the first change that is undone.
struct FileHistory<'a> {
    /// The state to restore, and the session that saved it.
    before: (&'a FileState, SessionId),
    /// The state after the last change that is undone.
    after: &'a FileState,
    /// The states that the file can have if only sessions changed it.
    possible: Vec<&'a FileState>,
    /// True if another program changed the file between two writes.
    broken: bool,
    /// A later run that changed the file and whose change is not undone.
    later: Option<String>,
}

impl Checkpoints {
    /// Plans to undo the checkpoints `undone`. `all` has all checkpoints of their sessions, oldest first. Without `patches`, the
    /// plan has no patch, which takes most of the time. Blocks.
    pub fn plan(&self, all: &[Checkpoint], undone: &BTreeSet<u64>, mut patches: Option<Patches>) -> RestorePlan {
        let mut histories: BTreeMap<(&Path, &str), FileHistory<'_>> = BTreeMap::new();
        let mut created_dirs: Vec<(&Path, &str)> = Vec::new();
        for checkpoint in all {
            let is_undone = undone.contains(&checkpoint.number);
            for change in &checkpoint.changes {
                let key = (&*change.root, &*change.path);
                match histories.get_mut(&key) {
                    // An earlier restore already undid this history. A later write starts a new one.
                    Some(history) if history.is_ended_by(checkpoint, change) => _ = histories.remove(&key),
                    Some(history) => history.follow(checkpoint, change, is_undone),
                    None if is_undone => _ = histories.insert(key, FileHistory::start(checkpoint, change)),
                    None => continue,
                }
                created_dirs.extend(change.created_dir.as_deref().filter(|_| is_undone).map(|dir| (key.0, dir)));
            }
        }
        let mut files: Vec<_> = histories.into_iter().enumerate().collect();
        if patches.is_some() {
            // Smaller files first, so that larger ones take neither the room nor the time to show them.
            files.sort_by_cached_key(|(_, ((root, path), history))| self.size_to_read(&root.join(path), history));
        }
        let (mut changes, mut conflicts) = (BTreeMap::new(), BTreeMap::new());
        let mut opened: BTreeMap<&Path, Result<Workspace, WorkspaceError>> = BTreeMap::new();
        for (at, ((root, path), history)) in files {
            let workspace = opened.entry(root).or_insert_with(|| Workspace::open_canonical(root));
            let dirs =
                created_dirs.iter().filter(|(dir_root, dir)| *dir_root == root && Path::new(path).starts_with(dir));
            let created_dir = dirs.map(|(_, dir)| *dir).min_by_key(|dir| dir.len());
            match self.plan_file(workspace.as_ref(), (root, path), &history) {
                Ok(Some((present, bytes))) => {
                    let change = FileChange {
                        root: PathBuf::from(root),
                        path: path.to_owned(),
                        created_dir: created_dir.map(str::to_owned),
                        before: present.state,
                        after: history.before.0.clone(),
                    };
                    let patch = patches.as_mut().map(|of| of.patch(path, &change, (&present.bytes, &bytes)));
                    changes.insert(at, (change, patch));
                }
                Ok(None) => {}
                Err(why) => _ = conflicts.insert(at, RestoreConflict { path: path.to_owned(), why }),
            }
        }
        let (changes, patches): (Vec<_>, Vec<_>) = changes.into_values().unzip();
        RestorePlan {
            changes,
            conflicts: conflicts.into_values().collect(),
            patches: patches.into_iter().flatten().collect(),
        }
    }

    /// Returns the size of the present file and of the content to restore. It only orders the files, so links do no harm.
    fn size_to_read(&self, file: &Path, history: &FileHistory<'_>) -> u64 {
        let (before, session) = history.before;
        let size = |path: &Path| fs::symlink_metadata(path).map_or(0, |found| found.len());
        let saved = match before {
            FileState::File { hash, .. } => size(&self.content_path(session, *hash)),
            FileState::Absent | FileState::Link { .. } | FileState::Other => 0,
        };
        size(file).saturating_add(saved)
    }

    /// Returns the current state of a file and the content to restore, or `None` if the file needs no change.
    fn plan_file(
        &self,
        workspace: Result<&Workspace, &WorkspaceError>,
        (root, path): (&Path, &str),
        history: &FileHistory<'_>,
    ) -> Result<Option<(PathState, Vec<u8>)>, String> {
        let (before, session) = history.before;
        let workspace = workspace.map_err(|error| match error {
            WorkspaceError::Link { .. } => format!("is unreachable: {error}"),
            WorkspaceError::Missing { .. }
            | WorkspaceError::NotADirectory { .. }
            | WorkspaceError::Unreadable { .. } => {
                format!("is unreachable: cannot open its directory {}", root.display())
            }
        })?;
        self.step("planned").map_err(|error| error.to_string())?;
        let present = read_entry(workspace, path, MAX_FILE).map_err(|error| format!("cannot be read: {error}"))?;
        if present.state == *before && present.state != FileState::Other {
            return Ok(None);
        }
        if history.broken {
            return Err("was changed by another program between two writes of the session".to_owned());
        }
        if !history.possible.contains(&&present.state) {
            return Err("was changed later by another program".to_owned());
        }
        // The process may have died before the later write.
        let is_applied =
            |_: &&String| present.state != *history.after || history.possible.last() == Some(&&present.state);
        if let Some(later) = history.later.as_ref().filter(is_applied) {
            return Err(format!("was changed later by {later}"));
        }
        if policy::is_protected(path) {
            return Err("configures agents: restore it by hand".to_owned());
        }
        match before {
            FileState::Absent => Ok(Some((present, Vec::new()))),
            FileState::File { hash, .. } => match self.read_content(session, *hash) {
                Some(bytes) => Ok(Some((present, bytes))),
                None => {
                    Err("is not restored: its saved content was erased to limit the size of checkpoints".to_owned())
                }
            },
            FileState::Link { .. } | FileState::Other => {
                Err(format!("is not restored: its content was larger than {} MiB, so it was not saved", MAX_FILE >> 20))
            }
        }
    }
}

impl<'a> FileHistory<'a> {
    fn start(checkpoint: &Checkpoint, change: &'a FileChange) -> Self {
        Self {
            before: (&change.before, checkpoint.session),
            after: &change.after,
            // The process may have died before the write.
            possible: vec![&change.before, &change.after],
            broken: false,
            later: None,
        }
    }

    /// Returns whether the change restored the content that the file had before this history.
    fn is_ended_by(&self, checkpoint: &Checkpoint, change: &FileChange) -> bool {
        checkpoint.call.is_none() && !self.broken && change.after == *self.before.0
    }

    fn follow(&mut self, checkpoint: &Checkpoint, change: &'a FileChange, is_undone: bool) {
        self.broken |= !self.possible.contains(&&change.before);
        self.possible = vec![&change.before, &change.after];
        if is_undone {
            self.after = &change.after;
            self.later = None;
        } else if checkpoint.call.is_some() {
            let session = checkpoint.session.short();
            self.later = Some(format!("run {} of session {}", checkpoint.run, session.0));
        } else if change.after == *self.after {
            // A restore undid the later writes.
            self.later = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name with a line break forges another conflict. The control: a plain name.
    #[test]
    fn conflict_of_a_restore_is_one_short_line() {
        let conflict = |path: &str| RestoreConflict { path: path.to_owned(), why: "is a\nlink".to_owned() };
        assert_eq!(
            list_conflicts(&[conflict("a\n`b`"), conflict("c")]),
            "`a<U+000A>`b`` is a<U+000A>link; `c` is a<U+000A>link"
        );
        let many = list_conflicts(&vec![conflict("a"); 5_000]);
        assert!(many.ends_with("; and 4900 more") && many.len() < 4_000, "{many}");
    }
}
