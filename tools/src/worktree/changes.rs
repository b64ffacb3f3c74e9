//! The changes of a session: commits them on its branch, and lists them relative to the base.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;

use serde::Serialize;
use subtend_session::ids::{SessionId, Text};

use super::git::GitPlace;
use super::make::reference;
use super::{WorktreeEntry, WorktreeError, Worktrees, cannot};
use crate::escape::on_one_line;

/// Maximum bytes of changed files, so that an endless file does not fill the disk.
const MAX_BYTES: u64 = 8 << 30;
/// Maximum number of files that a summary names.
const MAX_NAMED: usize = 8;

/// The changes of a worktree since its base.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WorktreeChanges {
    pub branch: String,
    /// The commit with the changes.
    pub tip: String,
    pub files: Vec<ChangedFile>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChangedFile {
    /// Path in the workspace.
    pub path: String,
    /// Number of added lines; `None` for a file that is not text.
    pub added: Option<u64>,
    pub removed: Option<u64>,
}

impl WorktreeChanges {
    /// Returns a one-line summary: `2 files changed, +3 -1 lines: a.rs +3, b.rs -1`.
    pub fn summary(&self) -> String {
        if self.files.is_empty() {
            return "no changes".to_owned();
        }
        let sum = |of: fn(&ChangedFile) -> Option<u64>| self.files.iter().filter_map(of).fold(0, u64::saturating_add);
        let files = if self.files.len() == 1 { "1 file".to_owned() } else { format!("{} files", self.files.len()) };
        let mut text = format!("{files} changed, +{} -{} lines:", sum(|file| file.added), sum(|file| file.removed));
        for (ix, file) in self.files.iter().take(MAX_NAMED).enumerate() {
            let comma = if ix == 0 { "" } else { "," };
            let _ = write!(text, "{comma} {}", on_one_line(&file.path));
            match (file.added, file.removed) {
                (Some(added), Some(removed)) => _ = write!(text, " +{added} -{removed}"),
                _ => text.push_str(" (binary)"),
            }
        }
        if let Some(more) = self.files.len().checked_sub(MAX_NAMED).filter(|more| *more > 0) {
            let _ = write!(text, ", and {more} more");
        }
        text
    }
}

impl Worktrees {
    /// Commits all changes on the branch of the worktree, and returns them.
    ///
    /// # Errors
    /// If the session has no worktree, or git cannot commit its files.
    pub fn changes(&self, session: SessionId) -> Result<WorktreeChanges, WorktreeError> {
        let _lock = self.lock(session)?;
        let entry = self.ready(session)?;
        self.changes_of(&entry)
    }

    /// Returns the changes as a patch.
    ///
    /// # Errors
    /// As [`Worktrees::changes`], [`WorktreeError::TooLong`], [`WorktreeError::TooLarge`] and [`WorktreeError::WrongObject`].
    pub fn diff(&self, session: SessionId) -> Result<(WorktreeChanges, Vec<u8>), WorktreeError> {
        let _lock = self.lock(session)?;
        let entry = self.ready(session)?;
        let tip = self.commit(&entry)?;
        self.checked(&entry, &tip, |at| {
            let changes = self.list_changes(at, &entry, tip.clone())?;
            let args = ["diff-tree", "-r", "--patch", "--no-renames", "--no-ext-diff", "--no-textconv", "--no-color"];
            let patch = self.git.run(at, &[&args[..], &["--no-commit-id", &entry.base, &tip]].concat())?;
            Ok((changes, patch))
        })
    }

    /// Does the same as [`Worktrees::changes`] for a caller that holds the lock.
    pub(super) fn changes_of(&self, entry: &WorktreeEntry) -> Result<WorktreeChanges, WorktreeError> {
        let tip = self.commit(entry)?;
        self.list_changes(&self.files_place(entry)?, entry, tip)
    }

    fn list_changes(
        &self,
        at: &GitPlace,
        entry: &WorktreeEntry,
        tip: String,
    ) -> Result<WorktreeChanges, WorktreeError> {
        let args = ["diff-tree", "-r", "-z", "--numstat", "--no-renames", "--no-ext-diff", "--no-textconv"];
        let args = [&args[..], &["--no-commit-id", &entry.base, &tip]].concat();
        let out = self.git.run(at, &args)?;
        let files = out.split(|byte| *byte == 0).filter(|line| !line.is_empty()).map(|line| {
            let line = String::from_utf8_lossy(line);
            let mut parts = line.splitn(3, '\t');
            let mut number = || parts.next().and_then(|part| part.parse().ok());
            let (added, removed) = (number(), number());
            let path = parts.next().unwrap_or_default();
            ChangedFile { path: path.strip_prefix(&entry.prefix).unwrap_or(path).to_owned(), added, removed }
        });
        Ok(WorktreeChanges { branch: entry.branch.clone(), tip, files: files.collect() })
    }

    /// Returns the directory to which changed files are copied.
    pub(super) fn staging_dir(&self, entry: &WorktreeEntry) -> PathBuf {
        self.file(entry.session, "staged")
    }

    /// Returns a commit of the current files: the last commit of the branch, if it already has them.
    fn commit(&self, entry: &WorktreeEntry) -> Result<String, WorktreeError> {
        self.unlock(entry)?;
        let files = self.files_place(entry)?;
        let mut list: Vec<String> =
            ["ls-files", "-z", "--modified", "--deleted", "--others", "--exclude-standard"].map(str::to_owned).into();
        let excluded = entry.repository.join("info/exclude");
        match (excluded.metadata(), excluded.to_str()) {
            (Ok(found), Some(path)) if found.is_file() => list.push(format!("--exclude-from={path}")),
            (Ok(_), _) => {
                let why = format!("{} is not a regular file, or not UTF-8: remove or rename it", excluded.display());
                return Err(cannot("read")(io::Error::other(why)));
            }
            (Err(_), _) => {}
        }
        let out = self.git.run(&files, &list)?;
        // A path with `/` at its end is a nested repository, whose files are not part of this one.
        let paths = out.split(|byte| *byte == 0).filter(|path| !path.is_empty() && !path.ends_with(b"/"));
        let paths: BTreeSet<Vec<u8>> = paths.map(<[u8]>::to_vec).collect();
        self.step("add")?;
        self.add_files(&files, &self.staging_dir(entry), &paths, MAX_BYTES)?;
        self.add_submodules(&files, &paths)?;
        let tree = self.git.line(&files, &["write-tree"])?;
        let tip = self.tip(&entry.repository, &entry.branch)?.unwrap_or_else(|| entry.base.clone());
        if self.git.line(&files, &["rev-parse", &format!("{tip}^{{tree}}")])? == tree {
            return Ok(tip);
        }
        self.step("commit")?;
        let message = format!("Changes of session {}", entry.session);
        let commit = self.git.line(&files, &["commit-tree", "-p", &tip, "-m", &message, &tree])?;
        self.step("advance")?;
        let at = self.refs_place(&entry.repository, &entry.repository)?;
        self.git.run(&at, &["update-ref", &reference(&entry.branch), &commit, &tip])?;
        Ok(commit)
    }
}

/// Returns the line about a session's worktree that is added to its result.
pub fn note(session: SessionId, changes: &Result<WorktreeChanges, WorktreeError>) -> Text {
    let name = session.short();
    let name = &name.0;
    match changes {
        Ok(changes) if changes.files.is_empty() => format!("[worktree {}: no changes]", changes.branch),
        Ok(changes) => format!(
            "[worktree {}: {}. They are on that branch only: the user can show them with `subtend worktree diff {name}` and take \
             them with `subtend worktree merge {name}`]",
            changes.branch,
            changes.summary()
        ),
        Err(error) => format!("[worktree: its changes cannot be listed: {error}]"),
    }
    .into()
}
