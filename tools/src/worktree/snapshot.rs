//! Snapshots of a workspace that is not in a repository.
//!
//! For each such workspace, the host has a repository `KEY.git` next to the worktrees, where no tool can write. A new worktree starts from a
//! commit of the current files of the workspace. Otherwise it works as with a repository of the user. The removal of the last worktree
//! also removes the repository, unless a branch was kept.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use subtend_session::ids::Hash;

use super::git::{GitPlace, GitReach, os, split_paths};
use super::{WorktreeEntry, WorktreeError, Worktrees, cannot, remove_if_exists};
use crate::escape::on_one_line;

const MAX_FILES: usize = 50_000;
/// Maximum number of lines of git about the files. A file has at most three: it is in the index, deleted and modified.
const MAX_LINES: usize = 3 * MAX_FILES;
/// Maximum bytes of the files in a snapshot.
const MAX_BYTES: u64 = 1 << 30;
/// The commit of the latest snapshot.
const LATEST: &str = "refs/subtend/latest";
/// Suffix of the directory next to the repository to which changed files are copied.
const STAGED: &str = "staged";
const BRANCHES: &str = "refs/heads/";

/// The latest snapshot of a workspace. While this value exists, the repository is not removed.
pub(super) struct Snapshot {
    pub(super) repository: PathBuf,
    pub(super) commit: String,
    _lock: File,
}

impl Worktrees {
    /// Checks that the files of the canonical path `workspace` may be copied.
    ///
    /// # Errors
    /// [`WorktreeError::HoldsOwnFiles`] if the workspace contains files that no tool may read: a worktree would contain copies of them.
    pub(super) fn check_snapshot(&self, workspace: &Path) -> Result<(), WorktreeError> {
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.into());
        let own = std::env::home_dir().into_iter().chain(std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from));
        match own.chain([self.dir.clone()]).map(|path| real(&path)).find(|own| own.starts_with(workspace)) {
            Some(own) => Err(WorktreeError::HoldsOwnFiles { workspace: workspace.into(), own }),
            None => Ok(()),
        }
    }

    /// Returns a commit of the current files of the canonical path `workspace`, which is not in a repository. Omits ignored files (`.gitignore`).
    ///
    /// # Errors
    /// The errors of [`Worktrees::check_snapshot`], [`WorktreeError::TooMuch`] and [`WorktreeError::Nested`].
    pub(super) fn snapshot(&self, workspace: &Path) -> Result<Snapshot, WorktreeError> {
        self.check_snapshot(workspace)?;
        let lock = self.lock_file(&self.snapshots_file(workspace, "lock"))?;
        let repository = self.snapshots(workspace);
        self.step("snapshot")?;
        Self::initialize(&repository, false)?;
        let repository = repository.canonicalize().map_err(cannot("created"))?;
        // Remove lock files of a killed git.
        for name in ["index.lock".to_owned(), format!("{LATEST}.lock")] {
            remove_if_exists(&repository.join(name))?;
        }
        let at = GitPlace { room: Some(self.room()), ..snapshot_place(&repository, workspace) };
        let list = |kinds: &[&str]| {
            let out = self.git.run(&at, &[&["ls-files", "-z", "--exclude-standard"], kinds].concat())?;
            match split_paths(&out, MAX_LINES) {
                (lines, count) if count <= MAX_LINES => Ok(lines),
                (_, files) => Err(WorktreeError::TooMuch { workspace: workspace.into(), files, mebibytes: 0 }),
            }
        };
        // Remove files of an earlier snapshot that are now ignored.
        let ignored: Vec<Vec<u8>> = list(&["--cached", "--ignored"])?.into_iter().collect();
        self.git.run_for(&at, &["update-index", "--force-remove", "--"], &ignored)?;
        let (all, changed) = split_by_status(&list(&["-t", "--cached", "--modified", "--deleted", "--others"])?);
        check_size(workspace, &all)?;
        // Each file is copied before git stores it, and what does not compress takes as much again.
        self.check_space(sum_sizes(workspace, &changed)?.saturating_mul(2))?;
        self.step("copy files")?;
        self.add_files(&at, &repository.with_extension(STAGED), &changed, MAX_BYTES)?;
        let commit = self.commit_snapshot(&at, &repository)?;
        Ok(Snapshot { repository, commit, _lock: lock })
    }

    /// Returns the latest snapshot if it has the files of the index. Otherwise, creates a new snapshot.
    fn commit_snapshot(&self, at: &GitPlace, repository: &Path) -> Result<String, WorktreeError> {
        let tree = self.git.run_for_line(at, &["write-tree"])?;
        let name = format!("{LATEST}^{{commit}}");
        let latest = self.git.run_for_output(at, &["rev-parse", "--verify", "--quiet", &name])?;
        let latest = Some(String::from_utf8_lossy(&latest.out).trim().to_owned()).filter(|_| latest.status.success());
        if let Some(latest) = &latest
            && self.git.run_for_line(at, &["rev-parse", &format!("{latest}^{{tree}}")])? == tree
        {
            return Ok(latest.clone());
        }
        self.step("commit snapshot")?;
        let parent: Vec<&str> = latest.iter().flat_map(|latest| ["-p", latest]).collect();
        let args = [&["commit-tree", "-m", "Files of the workspace"], &*parent, &[&tree]].concat();
        let commit = self.git.run_for_line(at, &args)?;
        let refs = self.refs_place(repository, repository)?;
        self.git.run(&refs, &["update-ref", LATEST, &commit])?;
        Ok(commit)
    }

    pub(super) fn is_snapshot(&self, repository: &Path) -> bool {
        self.dir.canonicalize().is_ok_and(|dir| repository.parent() == Some(&dir))
    }

    /// Returns the repository for snapshots of the canonical path `workspace`, which may not exist.
    pub(super) fn snapshots(&self, workspace: &Path) -> PathBuf {
        self.snapshots_file(workspace, "git")
    }

    fn snapshots_file(&self, workspace: &Path, kind: &str) -> PathBuf {
        let key = Hash::of(workspace.as_os_str().as_encoded_bytes());
        self.dir.join(format!("{key}.{kind}"))
    }

    /// Removes the repository of a worktree's snapshots, if no other worktree and no kept branch needs it.
    pub(super) fn remove_unused_snapshots(&self, entry: &WorktreeEntry) -> Result<(), WorktreeError> {
        if !self.is_snapshot(&entry.repository) {
            return Ok(());
        }
        let lock = entry.repository.with_extension("lock");
        let _lock = self.lock_file(&lock)?;
        let list = self.list()?;
        // An unreadable entry may need the repository.
        let is_used = !list.damaged.is_empty()
            || list.entries.iter().any(|other| other.session != entry.session && other.repository == entry.repository);
        if is_used {
            return Ok(());
        }
        if entry.repository.exists() {
            let at = self.refs_place(&entry.repository, &entry.repository)?;
            if !self.git.run(&at, &["for-each-ref", "--count=1", BRANCHES])?.is_empty() {
                return Ok(());
            }
            self.step("remove snapshots")?;
            remove_if_exists(&entry.repository)?;
            remove_if_exists(&entry.repository.with_extension(STAGED))?;
        }
        if cfg!(unix) { remove_if_exists(&lock) } else { Ok(()) }
    }
}

/// Returns the environment of commands on the files of the workspace. Only the host writes to the repository.
fn snapshot_place(repository: &Path, workspace: &Path) -> GitPlace {
    let reach = GitReach { written: vec![repository.to_owned()], read: vec![workspace.to_owned()] };
    let variables = vec![("GIT_DIR", repository.into()), ("GIT_WORK_TREE", workspace.into())];
    GitPlace { variables, reach, ..GitPlace::default() }
}

/// Splits lines with status tags into all paths, and the paths of changed files. A file with several states is listed for each state.
fn split_by_status(lines: &BTreeSet<Vec<u8>>) -> (BTreeSet<Vec<u8>>, BTreeSet<Vec<u8>>) {
    const UNCHANGED: &[u8] = b"H ";
    let paths = |lines: &mut dyn Iterator<Item = &Vec<u8>>| {
        lines.filter_map(|line| line.get(UNCHANGED.len()..)).map(<[u8]>::to_vec).collect()
    };
    (paths(&mut lines.iter()), paths(&mut lines.iter().filter(|line| !line.starts_with(UNCHANGED))))
}

fn check_size(workspace: &Path, paths: &BTreeSet<Vec<u8>>) -> Result<(), WorktreeError> {
    if let Some(nested) = paths.iter().find(|path| path.ends_with(b"/")) {
        let path = on_one_line(&String::from_utf8_lossy(nested));
        return Err(WorktreeError::Nested { workspace: workspace.into(), path });
    }
    let bytes = sum_sizes(workspace, paths)?;
    if paths.len() > MAX_FILES || bytes > MAX_BYTES {
        return Err(WorktreeError::TooMuch { workspace: workspace.into(), files: paths.len(), mebibytes: bytes >> 20 });
    }
    Ok(())
}

fn sum_sizes(workspace: &Path, paths: &BTreeSet<Vec<u8>>) -> Result<u64, WorktreeError> {
    let mut bytes = 0_u64;
    for path in paths {
        match workspace.join(os(path)?).symlink_metadata() {
            Ok(found) => bytes = bytes.saturating_add(found.len()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(cannot("created")(error)),
        }
    }
    Ok(bytes)
}
