//! Commits the changes of a session on its branch, and lists them relative to the base.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;

use serde::Serialize;
use subtend_session::ids::{SessionId, Text};

use super::git::{GitPlace, split_paths};
use super::make::reference;
use super::{WorktreeEntry, WorktreeError, Worktrees, cannot};
use crate::escape::on_one_line;

/// Maximum bytes of changed files, so that an endless file does not fill the disk.
const MAX_BYTES: u64 = 2 << 30;
/// Maximum number of changed files, which git adds after each run of the session.
pub(super) const MAX_FILES: usize = 50_000;
/// Maximum number of changed files of all runs.
const MAX_ALL_FILES: usize = 4 * MAX_FILES;
/// Maximum bytes of the paths of changed files.
const MAX_PATH_BYTES: usize = 8 << 20;
/// Maximum number of files that a summary names.
const MAX_NAMED: usize = 8;
/// Maximum number of ignored files that are listed.
const MAX_IGNORED: usize = 1_000;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WorktreeChanges {
    pub branch: String,
    /// The commit with the changes.
    pub tip: String,
    pub files: Vec<ChangedFile>,
    /// The first files and directories that git ignores, by path in the workspace. They are not part of the changes.
    pub ignored: Vec<String>,
    /// Number of further ignored files and directories.
    pub more_ignored: usize,
    /// Files that merges skipped, because other programs changed them meanwhile. Their changes are only on the branch.
    pub left: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChangedFile {
    /// Path in the workspace.
    pub path: String,
    /// Number of added lines; `None` for a file that is not text.
    pub added: Option<u64>,
    pub removed: Option<u64>,
}

/// What became of a worktree at the end of a run.
#[derive(Debug)]
pub enum Removal {
    /// It stays.
    None,
    Done,
    /// The next operation on the worktree repeats what failed.
    Failed(WorktreeError),
}

impl WorktreeChanges {
    /// Returns a one-line summary: `2 files changed, +3 -1 lines: a.rs +3, b.rs -1`.
    pub fn summary(&self) -> String {
        if self.files.is_empty() {
            return format!("no changes{}{}", self.ignored_note(), self.left_note());
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
        text.push_str(&more(self.files.len()));
        text + &self.ignored_note() + &self.left_note()
    }

    fn ignored_note(&self) -> String {
        named_note("ignored by git and left out", &self.ignored, self.more_ignored)
    }

    fn left_note(&self) -> String {
        named_note("on the branch only, since other programs changed them during a merge", &self.left, 0)
    }
}

/// Returns a part of a summary with the first of these paths; empty without paths.
fn named_note(label: &str, paths: &[String], more_paths: usize) -> String {
    if paths.is_empty() {
        return String::new();
    }
    let named: Vec<String> = paths.iter().take(MAX_NAMED).map(|path| on_one_line(path)).collect();
    format!("; {label}: {}{}", named.join(", "), more(paths.len().saturating_add(more_paths)))
}

/// Returns the part of a summary that counts the omitted paths; `all` is the number of all paths.
fn more(all: usize) -> String {
    match all.saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(", and {more} more"),
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
    /// The errors of [`Worktrees::changes`], [`WorktreeError::TooLong`], [`WorktreeError::TooLarge`] and [`WorktreeError::WrongObject`].
    pub fn diff(&self, session: SessionId) -> Result<(WorktreeChanges, Vec<u8>), WorktreeError> {
        self.diff_with(session, |at, args| self.git.run(at, args))
    }

    /// Returns the changes, and at most `most` bytes of their patch.
    ///
    /// # Errors
    /// As [`Worktrees::diff`], without [`WorktreeError::TooLong`] for the patch.
    pub fn diff_start(&self, session: SessionId, most: u64) -> Result<(WorktreeChanges, Vec<u8>), WorktreeError> {
        self.diff_with(session, |at, args| self.git.run_for_start(at, args, most))
    }

    fn diff_with(
        &self,
        session: SessionId,
        run: impl FnOnce(&GitPlace, &[&str]) -> Result<Vec<u8>, WorktreeError>,
    ) -> Result<(WorktreeChanges, Vec<u8>), WorktreeError> {
        let _lock = self.lock(session)?;
        let entry = self.ready(session)?;
        let tip = self.commit(&entry)?;
        self.run_checked(&entry, &tip, |at| {
            let changes = self.list_changes(at, &entry, tip.clone())?;
            let args = ["diff-tree", "-r", "--patch", "--no-renames", "--no-ext-diff", "--no-textconv", "--no-color"];
            let patch = run(at, &[&args[..], &["--no-commit-id", &entry.base, &tip]].concat())?;
            Ok((changes, patch))
        })
    }

    /// Returns the changes like [`Worktrees::changes`] when a run of the session ends, and whether the worktree was removed. It is removed
    /// if nothing would be lost: no changes, no ignored files, no files that git does not list, no other run in it (`is_used`), and no
    /// worktree that merges into it.
    ///
    /// # Errors
    /// As [`Worktrees::changes`].
    pub fn finish_run(
        &self,
        session: SessionId,
        is_used: impl FnOnce() -> bool,
    ) -> Result<(WorktreeChanges, Removal), WorktreeError> {
        let _lock = self.lock(session)?;
        let entry = self.ready(session)?;
        let changes = self.changes_of(&entry)?;
        let is_empty = changes.files.is_empty() && changes.ignored.is_empty() && changes.left.is_empty();
        // What cannot be searched stays.
        let has_unlisted = || self.has_unlisted(&self.files_place(&entry)?);
        let may_go = is_empty && !has_unlisted().unwrap_or(true) && !is_used() && !self.is_target(&entry)?;
        if !may_go {
            return Ok((changes, Removal::None));
        }
        Ok((changes, self.remove_unchanged(entry).map_or_else(Removal::Failed, |()| Removal::Done)))
    }

    /// Returns whether another worktree merges into this one. An unreadable entry may.
    fn is_target(&self, entry: &WorktreeEntry) -> Result<bool, WorktreeError> {
        let dir = self.path(entry.session).canonicalize().map_err(cannot("read"))?;
        let list = self.list()?;
        Ok(!list.damaged.is_empty() || list.entries.iter().any(|other| other.target.starts_with(&dir)))
    }

    /// Does the work of [`Worktrees::changes`]. The caller must hold the lock.
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
        let count = out.iter().filter(|byte| **byte == 0).count();
        if count > MAX_ALL_FILES {
            return Err(WorktreeError::TooMany { files: count, tree: self.path(entry.session) });
        }
        let files = out.split(|byte| *byte == 0).filter(|line| !line.is_empty()).map(|line| {
            let line = String::from_utf8_lossy(line);
            let mut parts = line.splitn(3, '\t');
            let mut number = || parts.next().and_then(|part| part.parse().ok());
            let (added, removed) = (number(), number());
            let path = parts.next().unwrap_or_default();
            ChangedFile { path: path.strip_prefix(&entry.prefix).unwrap_or(path).to_owned(), added, removed }
        });
        let (ignored, more_ignored) = self.ignored_files(entry)?;
        let (branch, files, left) = (entry.branch.clone(), files.collect(), entry.left.clone());
        Ok(WorktreeChanges { branch, tip, files, ignored, more_ignored, left })
    }

    /// Returns the directory to which changed files are copied.
    pub(super) fn staging_dir(&self, entry: &WorktreeEntry) -> PathBuf {
        self.file(entry.session, "staged")
    }

    fn ignored_files(&self, entry: &WorktreeEntry) -> Result<(Vec<String>, usize), WorktreeError> {
        let kinds = ["--others", "--ignored", "--directory", "--no-empty-directory"];
        let (paths, count) = self.list_files((entry, &self.files_place(entry)?), &kinds, MAX_IGNORED)?;
        let in_workspace = |path: &Vec<u8>| {
            let path = String::from_utf8_lossy(path);
            path.strip_prefix(&entry.prefix).unwrap_or(&path).to_owned()
        };
        Ok((paths.iter().map(in_workspace).collect(), count.saturating_sub(paths.len())))
    }

    /// Runs `git ls-files` for a worktree, with the ignore rules of its repository. Returns at most `most` files, and the number of all.
    fn list_files(
        &self,
        (entry, files): (&WorktreeEntry, &GitPlace),
        kinds: &[&str],
        most: usize,
    ) -> Result<(BTreeSet<Vec<u8>>, usize), WorktreeError> {
        let mut list: Vec<String> =
            ["ls-files", "-z", "--exclude-standard"].iter().chain(kinds).map(|&arg| arg.to_owned()).collect();
        let excluded = entry.repository.join("info/exclude");
        match (excluded.metadata(), excluded.to_str()) {
            (Ok(found), Some(path)) if found.is_file() => list.push(format!("--exclude-from={path}")),
            (Ok(_), _) => {
                let why = format!("{} is not a regular file, or not UTF-8: remove or rename it", excluded.display());
                return Err(cannot("read")(io::Error::other(why)));
            }
            (Err(_), _) => {}
        }
        Ok(split_paths(&self.git.run(files, &list)?, most))
    }

    /// Checks that git lists all files that are not ignored: an omitted file would be lost with the worktree.
    fn check_complete(
        &self,
        entry: &WorktreeEntry,
        files: &GitPlace,
        paths: &BTreeSet<Vec<u8>>,
    ) -> Result<(), WorktreeError> {
        let left_out = |path: &[u8], why| {
            let path = on_one_line(&String::from_utf8_lossy(path));
            WorktreeError::LeftOut { path, tree: self.path(entry.session), why }
        };
        if let Some(nested) = paths.iter().find(|path| path.ends_with(b"/")) {
            return Err(left_out(
                nested,
                "is a repository of its own, whose files git leaves out. Remove its `.git` to include them, or all of it",
            ));
        }
        match self.submodule_with_files(files)? {
            Some(path) => {
                Err(left_out(&path, "is a submodule that is not checked out, whose files git leaves out. Move them"))
            }
            None => Ok(()),
        }
    }

    /// Returns a commit with the current files. This is the last commit of the branch if it already contains them.
    fn commit(&self, entry: &WorktreeEntry) -> Result<String, WorktreeError> {
        self.unlock(entry)?;
        let files = self.files_place(entry)?;
        let (paths, count) = self.list_files((entry, &files), &["--modified", "--deleted", "--others"], MAX_FILES)?;
        self.check_complete(entry, &files, &paths)?;
        let bytes = paths.iter().map(Vec::len).fold(0, usize::saturating_add);
        if count > MAX_FILES || bytes > MAX_PATH_BYTES {
            return Err(WorktreeError::TooMany { files: count, tree: self.path(entry.session) });
        }
        self.step("add")?;
        self.add_files(&files, &self.staging_dir(entry), &paths, MAX_BYTES)?;
        self.add_submodules(&files, &paths)?;
        let tree = self.git.run_for_line(&files, &["write-tree"])?;
        let tip = self.tip(&entry.repository, &entry.branch)?.unwrap_or_else(|| entry.base.clone());
        if self.git.run_for_line(&files, &["rev-parse", &format!("{tip}^{{tree}}")])? == tree {
            return Ok(tip);
        }
        self.step("commit")?;
        let message = format!("Changes of session {}", entry.session);
        let commit = self.git.run_for_line(&files, &["commit-tree", "-p", &tip, "-m", &message, &tree])?;
        self.step("advance")?;
        let at = self.refs_place(&entry.repository, &entry.repository)?;
        self.git.run(&at, &["update-ref", &reference(&entry.branch), &commit, &tip])?;
        Ok(commit)
    }
}

/// Returns the line about a session's worktree that is added to its result, from [`Worktrees::finish_run`].
pub fn note(session: SessionId, changes: &Result<(WorktreeChanges, Removal), WorktreeError>) -> Text {
    let name = session.short();
    let name = &name.0;
    match changes {
        Ok((changes, Removal::Done)) => format!("[worktree {}: no changes, so it was removed]", changes.branch),
        Ok((changes, _)) if changes.files.is_empty() => format!("[worktree {}: {}]", changes.branch, changes.summary()),
        Ok((changes, _)) => format!(
            "[worktree {}: {}. The changes are on that branch only: the user can show them with `subtend worktree diff {name}` and take \
             them with `subtend worktree merge {name}`]",
            changes.branch,
            changes.summary()
        ),
        Err(error) => format!("[worktree: its changes cannot be listed: {error}]"),
    }
    .into()
}
