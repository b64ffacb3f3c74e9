//! Removes a worktree and keeps its changes on the branch.

use std::path::{Path, PathBuf};

use subtend_session::ids::SessionId;
use subtend_session::place::Worktree;

use super::{Stage, WorktreeError, Worktrees, repository};

/// The branch that remains of a removed worktree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptBranch {
    pub name: String,
    /// The host's repository that contains the branch, if the workspace is not in a repository.
    pub repository: Option<PathBuf>,
    /// True if an earlier call kept the branch.
    pub already_kept: bool,
}

impl KeptBranch {
    /// Returns a clause with the command that merges the branch or copies its files.
    pub fn to_use(&self) -> String {
        match &self.repository {
            None => format!("`git merge {}` merges them", self.name),
            Some(at) => format!("`git clone --branch {} {} DIRECTORY` copies its files", self.name, at.display()),
        }
    }

    /// Returns the command with which the user deletes the branch, in quotes.
    pub fn to_delete(&self) -> String {
        let of = self.repository.as_ref().map(|at| format!(" --git-dir={}", at.display())).unwrap_or_default();
        format!("`git{of} branch -D {}`", self.name)
    }
}

impl Worktrees {
    /// Commits the changes on the branch, and removes the worktree without the branch. For `shown`, see [`Worktrees::discard`].
    ///
    /// # Errors
    /// The errors of [`Worktrees::discard`], [`WorktreeError::Missing`], and an error if the changes cannot be committed.
    pub fn keep(&self, session: SessionId, shown: Option<&str>) -> Result<KeptBranch, WorktreeError> {
        let _lock = self.lock(session)?;
        let entry = self.ready(session)?;
        match shown {
            Some(shown) => self.check_unchanged(&entry, shown)?,
            None => drop(self.changes_of(&entry)?),
        }
        let repository = self.is_snapshot(&entry.repository).then(|| entry.repository.clone());
        let kept = KeptBranch { name: entry.branch.clone(), repository, already_kept: false };
        self.remove(entry, Stage::Keeping)?;
        Ok(kept)
    }

    /// Returns the branch that [`Worktrees::keep`] kept for a session. Returns `None` if the session still has a worktree or no such branch.
    /// `workspace` is the directory from which the worktree was made. Blocks.
    ///
    /// # Errors
    /// If the repository of the workspace cannot be read.
    pub fn kept_branch(&self, session: SessionId, workspace: &Path) -> Result<Option<KeptBranch>, WorktreeError> {
        if self.entry(session)?.is_some() {
            return Ok(None);
        }
        let workspace = &workspace.canonicalize().unwrap_or_else(|_| workspace.into());
        let repository = match repository::top(workspace) {
            Some(_) => repository::find(workspace)?.repository,
            None => match self.snapshots(workspace).canonicalize() {
                Ok(repository) => repository,
                Err(_) => return Ok(None),
            },
        };
        let name = Worktree::branch(session);
        let kept = self.tip(&repository, &name)?.is_some();
        let own = self.is_snapshot(&repository).then_some(repository);
        Ok(kept.then_some(KeptBranch { name, repository: own, already_kept: true }))
    }
}
