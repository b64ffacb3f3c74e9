//! A plan of the changes of a restore, and the conflicts that prevent it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::Serialize;
use subtend_session::ids::{Hash, SessionId};

use super::{Checkpoint, Checkpoints, FileChange, MOST};
use crate::escape::harmless;
use crate::policy::PROTECTED;
use crate::workspace::Workspace;
use crate::workspace::state::{FileState, Side, seen};

/// The changes of a restore in files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RestorePlan {
    /// The files that it changes, from what they hold now.
    pub changes: Vec<FileChange>,
    /// Files that it cannot restore. With one of these it changes nothing.
    pub conflicts: Vec<RestoreConflict>,
    /// The changes as a patch.
    #[serde(skip)]
    pub patch: String,
}

/// Why a file cannot be restored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RestoreConflict {
    pub path: String,
    pub why: String,
}

impl RestorePlan {
    /// Returns the name of exactly these changes.
    pub fn digest(&self) -> Hash {
        let text = serde_json::to_vec(&(&self.changes, &self.conflicts)).unwrap_or_default();
        Hash::of(&text)
    }

    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.conflicts.is_empty()
    }
}

pub(super) fn listed(conflicts: &[RestoreConflict]) -> String {
    let each = conflicts.iter().map(|conflict| format!("`{}` {}", harmless(&conflict.path), conflict.why));
    each.collect::<Vec<_>>().join("; ")
}

/// One file with what happened to it, from the first change that is taken back.
struct FileHistory<'a> {
    /// The state to restore, and the session that saved it.
    before: (&'a FileState, SessionId),
    /// The state after the last change that the restore undoes.
    after: &'a FileState,
    /// The states that the file may have, unless another program changed it.
    possible: Vec<&'a FileState>,
    broken: bool,
    /// A run that changed it later, and whose change is not taken back.
    later: Option<String>,
}

impl Checkpoints {
    /// Returns what a restore changes that takes back the calls of `taken`. `all` has every checkpoint of their sessions, in their order.
    /// Blocks.
    pub fn plan(&self, all: &[Checkpoint], taken: &BTreeSet<u64>) -> RestorePlan {
        let mut histories: BTreeMap<(&Path, &str), FileHistory<'_>> = BTreeMap::new();
        let mut made: Vec<(&Path, &str)> = Vec::new();
        for checkpoint in all {
            let taken = taken.contains(&checkpoint.number);
            for change in &checkpoint.changes {
                let key = (&*change.root, &*change.path);
                match histories.get_mut(&key) {
                    // What was taken back already is over: a later write begins another one.
                    Some(history) if history.is_ended_by(checkpoint, change) => _ = histories.remove(&key),
                    Some(history) => history.follow(checkpoint, change, taken),
                    None if taken => _ = histories.insert(key, FileHistory::of(checkpoint, change)),
                    None => continue,
                }
                made.extend(change.made.as_deref().filter(|_| taken).map(|made| (key.0, made)));
            }
        }
        let mut plan = RestorePlan::default();
        let mut opened: BTreeMap<&Path, Option<Workspace>> = BTreeMap::new();
        for ((root, path), history) in histories {
            let workspace = opened.entry(root).or_insert_with(|| Workspace::open(root).ok());
            let made = made.iter().filter(|(of, made)| *of == root && Path::new(path).starts_with(made));
            let made = made.map(|(_, made)| *made).min_by_key(|made| made.len());
            match self.change(workspace.as_ref(), (root, path), &history) {
                Ok(Some((present, bytes))) => {
                    let change = FileChange {
                        root: PathBuf::from(root),
                        path: path.to_owned(),
                        made: made.map(str::to_owned),
                        before: present.seen,
                        after: history.before.0.clone(),
                    };
                    plan.patch.push_str(&super::patch::patch(path, &change, (&present.bytes, &bytes)));
                    plan.changes.push(change);
                }
                Ok(None) => {}
                Err(why) => plan.conflicts.push(RestoreConflict { path: path.to_owned(), why }),
            }
        }
        plan
    }

    /// Returns what a file holds now, and the content that is restored; `None` if it is as it should be.
    fn change(
        &self,
        workspace: Option<&Workspace>,
        (root, path): (&Path, &str),
        history: &FileHistory<'_>,
    ) -> Result<Option<(Side, Vec<u8>)>, String> {
        let (before, session) = history.before;
        let workspace =
            workspace.ok_or_else(|| format!("is not reached: its directory {} cannot be opened", root.display()))?;
        let present = seen(workspace, path, MOST).map_err(|error| format!("cannot be read: {error}"))?;
        if present.seen == *before && present.seen != FileState::Other {
            return Ok(None);
        }
        if history.broken {
            return Err("was changed by someone else between two writes of the session".to_owned());
        }
        if !history.possible.contains(&&present.seen) {
            return Err("was changed by someone else since".to_owned());
        }
        // A kill may have come before the later write.
        let is_applied =
            |_: &&String| present.seen != *history.after || history.possible.last() == Some(&&present.seen);
        if let Some(later) = history.later.as_ref().filter(is_applied) {
            return Err(format!("was changed later by {later}"));
        }
        if PROTECTED.iter().any(|protected| Path::new(path).starts_with(protected)) {
            return Err("configures agents: restore it by hand".to_owned());
        }
        match before {
            FileState::Absent => Ok(Some((present, Vec::new()))),
            FileState::File { hash, .. } => match self.kept(session, *hash) {
                Some(bytes) => Ok(Some((present, bytes))),
                None => Err("is not restored: what it held was erased by the bounds of checkpoints".to_owned()),
            },
            FileState::Link { .. } | FileState::Other => {
                Err(format!("is not restored: what it held was larger than {} MiB, and was not saved", MOST >> 20))
            }
        }
    }
}

impl<'a> FileHistory<'a> {
    fn of(checkpoint: &Checkpoint, change: &'a FileChange) -> Self {
        Self {
            before: (&change.before, checkpoint.session),
            after: &change.after,
            // A kill may have come before the write.
            possible: vec![&change.before, &change.after],
            broken: false,
            later: None,
        }
    }

    /// Returns whether the change is a restore that gave the file back what it held before this history.
    fn is_ended_by(&self, checkpoint: &Checkpoint, change: &FileChange) -> bool {
        checkpoint.call.is_none() && !self.broken && change.after == *self.before.0
    }

    fn follow(&mut self, checkpoint: &Checkpoint, change: &'a FileChange, taken: bool) {
        self.broken |= !self.possible.contains(&&change.before);
        self.possible = vec![&change.before, &change.after];
        if taken {
            self.after = &change.after;
            self.later = None;
        } else if checkpoint.call.is_some() {
            let session = checkpoint.session.short();
            self.later = Some(format!("run {} of session {}", checkpoint.run, session.0));
        } else if change.after == *self.after {
            // A restore took the later writes back.
            self.later = None;
        }
    }
}
