//! Worktrees: a session with its own worktree works in a separate directory, on a branch of the workspace's git repository.
//!
//! If the workspace is not in a repository, the host creates a repository for it (see `snapshot`).
//!
//! One directory of the host contains all worktrees: `ID/` is a worktree, `ID.json` its entry, and `ID.merge/` an unfinished merge. The
//! entry is written before each operation. [`Worktrees::open`] completes a worktree whose creation was interrupted, and every call first
//! finishes an interrupted merge or removal.
//!
//! Git ignores the settings of the repository (see `git`). It never uses the file `.git` of a worktree, because the session may have
//! replaced this file.

mod blocking;
mod changes;
mod checked;
mod contents;
mod git;
mod keep;
mod locks;
mod make;
mod merge;
mod repository;
mod room;
mod snapshot;
mod staged;
#[cfg(test)]
mod tests;
mod turns;
mod unlisted;
mod walk;

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use subtend_session::ids::SessionId;

use crate::escape::on_one_line;
use crate::guard::Guard;
use crate::private;
use crate::removal;
use crate::workspace::{Workspace, WorkspaceError, beneath};
use git::{Git, GitPlace, GitReach, MAX_OUTPUT};
use locks::WorktreeTurns;
use room::Bounds;

pub use changes::{ChangedFile, Removal, WorktreeChanges, note};
pub use keep::KeptBranch;
pub use merge::Merged;
pub use room::{DEFAULT_MEBIBYTES, RoomError};

/// The worktrees of a host, in one directory.
#[derive(Clone, Debug)]
pub struct Worktrees {
    dir: PathBuf,
    git: Git,
    turns: WorktreeTurns,
    bounds: Bounds,
    /// A crash that a test simulates: the step before which the process dies, and how often it passes that step before.
    #[cfg(test)]
    crash_before: Option<(&'static str, Arc<std::sync::atomic::AtomicUsize>)>,
}

/// The source of a new worktree's files.
#[derive(Clone, Copy, Debug)]
pub enum WorktreeOrigin<'a> {
    /// The last commit of the repository that contains the directory at this canonical path. Without a repository, the current files of the
    /// directory.
    Workspace(&'a Path),
    /// The current files of this session's worktree.
    Worktree(SessionId),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorktreeEntry {
    pub session: SessionId,
    pub stage: Stage,
    /// The git directory that the worktree belongs to.
    pub repository: PathBuf,
    /// Path of the workspace in the repository: empty, or ending with `/`.
    pub prefix: String,
    /// The directory into which changes are merged.
    pub target: PathBuf,
    pub branch: String,
    /// The commit relative to which changes are listed.
    pub base: String,
    /// Bytes of the files of its first commit.
    #[serde(default)]
    pub bytes: u64,
    /// Whether the branch existed before. Then it remains if the worktree is removed without changes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub continues: bool,
    /// Files that merges skipped, because other programs changed them meanwhile. Their changes are only on the branch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<String>,
}

#[derive(Debug, Default)]
pub struct WorktreeList {
    /// The entries, ordered by session.
    pub entries: Vec<WorktreeEntry>,
    /// Sessions whose entries cannot be read, with the errors.
    pub damaged: Vec<(SessionId, WorktreeError)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    Making,
    Ready,
    /// The worktree is being removed, with its branch.
    Discarding,
    /// The worktree is being removed, without its branch.
    Keeping,
}

#[derive(Debug, thiserror::Error)]
pub enum WorktreeError {
    #[error(
        "cannot create a worktree: {} is not in a git repository ({why}). Run `git init` there and commit its files, or leave `isolation` out",
        path.display()
    )]
    NoRepository { path: PathBuf, why: String },
    #[error(
        "cannot create a worktree: {} {why}, so another user may have placed the repository. Take it over (`chown`, `chmod o-w`), run \
         `git init` in the workspace, or leave `isolation` out",
        path.display()
    )]
    NotOwned { path: PathBuf, why: String },
    #[error("cannot create a worktree: the repository of {} has no commit. Commit its files first", path.display())]
    NoCommit { path: PathBuf },
    #[error(
        "cannot create a worktree: {} is in no git repository, and cannot be copied, since it contains {}, which tools must not read. Work in \
         a directory of its own, or leave `isolation` out",
        workspace.display(), own.display()
    )]
    HoldsOwnFiles { workspace: PathBuf, own: PathBuf },
    #[error(
        "cannot create a worktree: {} is in no git repository, and cannot be copied, since `{path}` is a repository of its own. Work in that \
         directory, or leave `isolation` out",
        workspace.display()
    )]
    Nested { workspace: PathBuf, path: String },
    #[error(
        "cannot create a worktree: {} is in no git repository, and is too large to be copied: {files} files with {mebibytes} MiB. Run `git \
         init` there and commit its files, name what can be left out in a `.gitignore`, or leave `isolation` out",
        workspace.display()
    )]
    TooMuch { workspace: PathBuf, files: usize, mebibytes: u64 },
    #[error("cannot create a worktree: {}, or leave `isolation` out", .0)]
    Unsupported(String),
    #[error("the changes are incomplete: `{path}` in {} {why}", tree.display())]
    LeftOut { path: String, tree: PathBuf, why: &'static str },
    #[error(
        "the changes are incomplete: {files} files were changed in {}, too many for git to add after each run. Remove files, or name them in \
         a `.gitignore`",
        tree.display()
    )]
    TooMany { files: usize, tree: PathBuf },
    #[error("session {0} has no worktree: `subtend worktree list` shows those that exist")]
    Missing(SessionId),
    #[error(
        "the worktree of session {0} is incomplete: its creation was interrupted. Continue the session, or remove it with `subtend worktree \
         discard {0}`"
    )]
    Unfinished(SessionId),
    #[error("git {verb} failed: {why}")]
    Git { verb: String, why: String },
    #[error("git {verb} failed: its output is longer than {} MiB. Run `subtend worktree keep`, then take the changes with git", MAX_OUTPUT >> 20)]
    TooLong { verb: String },
    #[error(
        "`{}` has more than {} MiB, too large for diff and merge: remove it from the worktree, or run `subtend worktree keep` and \
         take the changes with git",
        on_one_line(&path.to_string_lossy()),
        MAX_OUTPUT >> 20
    )]
    TooLarge { path: PathBuf },
    #[error("the worktree changed after its changes were shown: check them again, then repeat the command")]
    Changed,
    #[error(
        "object {object} of {} does not match its id: the repository was modified. `git fsck` there lists the damage",
        repository.display()
    )]
    WrongObject { object: String, repository: PathBuf },
    #[error("nothing was merged: {}", .0.join("; "))]
    Conflicts(Vec<String>),
    #[error("cannot create a worktree: {0}")]
    Room(#[from] RoomError),
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
    #[error("the worktree cannot be {action}: {source}")]
    Io { action: &'static str, source: io::Error },
    #[cfg(test)]
    #[error("died")]
    GitDied,
}

/// Returns a function that converts an I/O error, for a worktree that cannot be `action` ("read", "merged").
impl WorktreeError {
    /// Returns whether a test simulates a crash, after which nothing else happens.
    fn is_crash(&self) -> bool {
        #[cfg(test)]
        return matches!(self, Self::GitDied);
        #[cfg(not(test))]
        return false;
    }
}

fn cannot(action: &'static str) -> impl Fn(io::Error) -> WorktreeError {
    move |source| WorktreeError::Io { action, source }
}

impl Worktrees {
    /// Returns the worktrees in `dir`. The first worktree creates the directory. With a guard, git ends when this process ends.
    pub fn new(dir: impl Into<PathBuf>, guard: Option<Guard>) -> Self {
        Self {
            dir: dir.into(),
            git: Git::new(guard),
            turns: WorktreeTurns::default(),
            bounds: Bounds::default(),
            #[cfg(test)]
            crash_before: None,
        }
    }

    /// Takes git from no directory of `workspace` on `PATH`, such as a virtual environment, since sessions could put a program there.
    /// Without this call, that holds for the current directory. It always holds for workspaces for which worktrees were made.
    #[must_use]
    pub fn outside(mut self, workspace: &Path) -> Self {
        self.git.outside = Some(workspace.to_owned());
        self
    }

    /// Checks, without running git, that a worktree of the directory `workspace` can be created.
    ///
    /// # Errors
    /// [`WorktreeError::HoldsOwnFiles`].
    pub fn check(&self, workspace: &Path) -> Result<(), WorktreeError> {
        let workspace = &workspace.canonicalize().unwrap_or_else(|_| workspace.into());
        if repository::top(workspace).is_some() { Ok(()) } else { self.check_snapshot(workspace) }
    }

    /// Opens the worktree of a session for its tools. Creates it if it is missing or unfinished. Blocks.
    ///
    /// # Errors
    /// If the worktree cannot be created; see [`WorktreeError`].
    pub fn open(&self, session: SessionId, origin: WorktreeOrigin<'_>) -> Result<Arc<Workspace>, WorktreeError> {
        let _lock = self.lock(session)?;
        let entry = match self.finish_interrupted(session)? {
            Some(entry) if entry.stage == Stage::Ready => entry,
            Some(entry) => self.make(entry)?,
            None => {
                let begun = self.begin(session, origin);
                self.make(begun.inspect_err(|_| drop(self.remove_lock(session)))?)?
            }
        };
        let tree = self.tree(&entry)?;
        let made_for = std::iter::once(entry.target).chain(self.git.outside()).collect();
        Ok(Arc::new(tree.confine_commands(made_for)))
    }

    /// Returns all worktrees, ordered by session.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn list(&self) -> Result<WorktreeList, WorktreeError> {
        let mut found = WorktreeList::default();
        for id in self.sessions_with_file("json")? {
            match self.entry(id) {
                Ok(entry) => found.entries.extend(entry),
                Err(error) => found.damaged.push((id, error)),
            }
        }
        found.entries.sort_by_key(|entry| entry.session);
        Ok(found)
    }

    /// Returns the worktree of a session. Finishes an interrupted operation first.
    ///
    /// # Errors
    /// [`WorktreeError::Missing`] and [`WorktreeError::Unfinished`].
    pub fn find(&self, session: SessionId) -> Result<WorktreeEntry, WorktreeError> {
        let _lock = self.lock(session)?;
        self.ready(session)
    }

    /// Removes the worktree of a session, if it exists, and its branch. With `shown`, the tip that [`Worktrees::changes`] returned, fails if
    /// there are later changes. Without `shown`, also discards an interrupted merge that cannot be finished.
    ///
    /// # Errors
    /// [`WorktreeError::Changed`], or an error if a part cannot be removed. Then a second call continues.
    pub fn discard(&self, session: SessionId, shown: Option<&str>) -> Result<(), WorktreeError> {
        if self.entry(session)?.is_none() {
            return Ok(());
        }
        let _lock = self.lock(session)?;
        let entry = match self.finish_interrupted(session) {
            Err(error) => self.entry(session)?.filter(|at| shown.is_none() && at.stage == Stage::Ready).ok_or(error)?,
            Ok(None) => return self.remove_lock(session),
            Ok(Some(entry)) => entry,
        };
        if let Some(shown) = shown {
            self.check_unchanged(&entry, shown)?;
        }
        self.remove(entry, Stage::Discarding)
    }

    /// Returns an error if there are changes after `tip`. The caller must hold the lock.
    fn check_unchanged(&self, entry: &WorktreeEntry, tip: &str) -> Result<(), WorktreeError> {
        if self.changes_of(entry)?.tip == tip { Ok(()) } else { Err(WorktreeError::Changed) }
    }

    /// Returns a ready worktree. Finishes an interrupted operation first.
    fn ready(&self, session: SessionId) -> Result<WorktreeEntry, WorktreeError> {
        let Some(entry) = self.finish_interrupted(session)? else {
            self.remove_lock(session)?;
            return Err(WorktreeError::Missing(session));
        };
        if entry.stage == Stage::Ready { Ok(entry) } else { Err(WorktreeError::Unfinished(session)) }
    }

    /// Finishes an interrupted merge or removal, and returns the remaining entry. The caller must hold the lock.
    fn finish_interrupted(&self, session: SessionId) -> Result<Option<WorktreeEntry>, WorktreeError> {
        let Some(mut entry) = self.entry(session)? else { return Ok(None) };
        match entry.stage {
            Stage::Making => {}
            Stage::Ready => drop(self.resume_merge(&mut entry)?),
            Stage::Discarding | Stage::Keeping => {
                self.finish_removal(&entry)?;
                return Ok(None);
            }
        }
        Ok(Some(entry))
    }

    /// Returns the recorded entry of a session, without finishing interrupted operations.
    ///
    /// # Errors
    /// If the entry cannot be read.
    pub fn entry(&self, session: SessionId) -> Result<Option<WorktreeEntry>, WorktreeError> {
        let text = match fs::read(self.file(session, "json")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text.map_err(cannot("read"))?,
        };
        let entry: WorktreeEntry = serde_json::from_slice(&text).map_err(|error| cannot("read")(error.into()))?;
        // No directory of `PATH` is in a worktree, and there may be many.
        if !self.dir.canonicalize().is_ok_and(|dir| entry.target.starts_with(dir)) {
            self.git.avoid(&entry.target);
        }
        Ok(Some(entry))
    }

    fn write(&self, entry: &WorktreeEntry) -> Result<(), WorktreeError> {
        let text = serde_json::to_vec(entry).map_err(|error| cannot("recorded")(error.into()))?;
        replace(&self.file(entry.session, "json"), &text).map_err(cannot("recorded"))
    }

    /// Returns the sessions that have a file `ID.kind`.
    fn sessions_with_file(&self, kind: &str) -> Result<Vec<SessionId>, WorktreeError> {
        let entries = match fs::read_dir(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(cannot("listed"))?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let name = entry.map_err(cannot("listed"))?.file_name();
            let id = name.to_str().and_then(|name| name.strip_suffix(kind)?.strip_suffix('.'));
            found.extend(id.and_then(|id| id.parse::<SessionId>().ok()));
        }
        Ok(found)
    }

    fn file(&self, session: SessionId, kind: &str) -> PathBuf {
        self.dir.join(format!("{session}.{kind}"))
    }

    pub fn path(&self, session: SessionId) -> PathBuf {
        self.dir.join(session.to_string())
    }

    /// Returns the directory of the session's files: the path of the workspace within the worktree.
    fn root(&self, entry: &WorktreeEntry) -> PathBuf {
        self.path(entry.session).join(&entry.prefix)
    }

    /// Opens or creates the directory of the session's files. A link in the path is an error: a commit may have one.
    fn tree(&self, entry: &WorktreeEntry) -> Result<Workspace, WorktreeError> {
        let top = Workspace::open(self.path(entry.session))?;
        match entry.prefix.trim_end_matches('/') {
            "" => Ok(top),
            prefix => {
                beneath::make_dir(top.dir(), prefix).map_err(cannot("opened"))?;
                Ok(Workspace::open(self.root(entry))?)
            }
        }
    }

    /// Returns git's directory of administrative files for a worktree.
    fn admin_dir(&self, entry: &WorktreeEntry) -> PathBuf {
        entry.repository.join("worktrees").join(entry.session.to_string())
    }

    /// Returns the environment of commands on the files of a worktree: a repository without settings that uses the objects
    /// of the workspace's repository.
    fn files_place(&self, entry: &WorktreeEntry) -> Result<GitPlace, WorktreeError> {
        let dir = self.plain(entry.base.len() > 40)?;
        let tree = self.path(entry.session).canonicalize().map_err(cannot("read"))?;
        let reach = GitReach { written: vec![entry.repository.clone(), tree.clone()], read: vec![dir.clone()] };
        let variables = vec![
            ("GIT_DIR", dir.into_os_string()),
            ("GIT_OBJECT_DIRECTORY", entry.repository.join("objects").into()),
            ("GIT_INDEX_FILE", self.admin_dir(entry).join("index").into()),
            ("GIT_WORK_TREE", tree.into()),
        ];
        Ok(GitPlace { variables, reach, ..GitPlace::default() })
    }

    /// Returns the environment of commands on the refs of `repository`, as seen by the working tree of `git_dir`. Git reads settings from the
    /// common directory, which is a repository without settings, and refs from the git directory.
    fn refs_place(&self, repository: &Path, git_dir: &Path) -> Result<GitPlace, WorktreeError> {
        let plain = self.plain(repository::is_sha256(repository)?)?;
        let reach = GitReach { written: vec![repository.into()], read: vec![plain.clone()] };
        let variables = vec![
            ("GIT_DIR", git_dir.into()),
            ("GIT_COMMON_DIR", plain.into()),
            ("GIT_OBJECT_DIRECTORY", repository.join("objects").into()),
        ];
        Ok(GitPlace { variables, reach, ..GitPlace::default() })
    }

    /// Returns a repository of the host whose only setting is the object format.
    fn plain(&self, is_sha256: bool) -> Result<PathBuf, WorktreeError> {
        let format = if is_sha256 { "sha256" } else { "sha1" };
        let dir = self.dir.join(format!("plain-{format}.git"));
        // Lock, because several children may need their first worktree at the same time.
        let _lock = self.lock_file(&self.dir.join(format!("plain-{format}.lock")))?;
        Self::initialize(&dir, is_sha256)?;
        dir.canonicalize().map_err(cannot("read"))
    }

    /// Creates or repairs a repository in `dir` whose only setting is the object format.
    fn initialize(dir: &Path, is_sha256: bool) -> Result<(), WorktreeError> {
        let version = u8::from(is_sha256);
        let extension = if is_sha256 { "[extensions]\n\tobjectFormat = sha256\n" } else { "" };
        private::create_dir(dir).map_err(cannot("read"))?;
        for part in ["refs", "info", "objects"] {
            private::create_dir(&dir.join(part)).map_err(cannot("read"))?;
        }
        for (name, text) in [
            ("HEAD", "ref: refs/heads/none\n".to_owned()),
            // Attributes from a session must not hide text from the user who merges it.
            ("info/attributes", "* !diff\n".to_owned()),
            ("config", format!("[core]\n\trepositoryformatversion = {version}\n\tbare = false\n{extension}")),
        ] {
            if fs::read_to_string(dir.join(name)).ok().as_deref() != Some(&text) {
                replace(&dir.join(name), text.as_bytes()).map_err(cannot("read"))?;
            }
        }
        Ok(())
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "tests simulate crashes here")]
    fn step(&self, _: &'static str) -> Result<(), WorktreeError> {
        Ok(())
    }

    #[cfg(test)]
    fn step(&self, name: &'static str) -> Result<(), WorktreeError> {
        use std::sync::atomic::Ordering;

        match &self.crash_before {
            Some((step, left)) if *step == name && left.fetch_sub(1, Ordering::Relaxed) == 0 => {
                Err(WorktreeError::GitDied)
            }
            Some(_) | None => Ok(()),
        }
    }
}

/// Replaces a file atomically and durably: after a power failure, the file has either the old or the new text.
fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let mut file = private::create_file(Path::new(&name))?;
    file.write_all(text)?;
    file.sync_all()?;
    fs::rename(&name, path)?;
    if let Some(dir) = path.parent() {
        File::open(dir)?.sync_all()?;
    }
    Ok(())
}

fn remove_if_exists(path: &Path) -> Result<(), WorktreeError> {
    removal::remove(path).map_err(cannot("removed"))
}
