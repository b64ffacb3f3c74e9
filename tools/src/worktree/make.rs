//! Creates and removes worktrees. Each step can be repeated after a crash.

use std::io::Write as _;
use std::path::Path;
use std::{fs, io};

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use subtend_session::ids::SessionId;
use subtend_session::place::{WORKTREE_BRANCHES as BRANCHES, Worktree};

use super::git::{GitPlace, GitReach, run_confined};
use super::repository::{self, FoundRepository};
use super::{Stage, WorktreeEntry, WorktreeError, WorktreeOrigin, Worktrees, cannot, remove_if_exists};
use crate::removal;
use crate::workspace::beneath;

impl Worktrees {
    /// Records the entry of a new worktree. This determines its base, even if the following steps are repeated.
    pub(super) fn begin(&self, session: SessionId, origin: WorktreeOrigin<'_>) -> Result<WorktreeEntry, WorktreeError> {
        self.step("record")?;
        let branch = Worktree::branch(session);
        if let WorktreeOrigin::Workspace(workspace) = origin {
            // A session of a directory above may have replaced it by a link. Git follows no link that is swapped in later.
            beneath::absolute_dir(workspace).map_err(cannot("created"))?;
            self.git.avoid(workspace);
        }
        // Hold the snapshot's lock until the entry is written, because snapshot repositories without an entry are removed.
        let snapshot = match origin {
            WorktreeOrigin::Workspace(workspace) if repository::top(workspace).is_none() => {
                Some(self.snapshot(workspace)?)
            }
            WorktreeOrigin::Workspace(_) | WorktreeOrigin::Worktree(_) => None,
        };
        let (repository, prefix, target, head) = match (origin, &snapshot) {
            (WorktreeOrigin::Workspace(workspace), Some(snapshot)) => {
                (snapshot.repository.clone(), String::new(), workspace.to_owned(), snapshot.commit.clone())
            }
            (WorktreeOrigin::Workspace(workspace), None) => {
                let FoundRepository { git_dir, repository, prefix } = repository::find(workspace)?;
                self.check_supported(&repository)?;
                let at = self.refs_place(&repository, &git_dir)?;
                let head = self.git.run_for_output(&at, &["rev-parse", "--verify", "--quiet", "HEAD^{commit}"])?;
                let head = match head.status.success() {
                    true => String::from_utf8_lossy(&head.out).trim().to_owned(),
                    false if head.is_silent() => return Err(WorktreeError::NoCommit { path: workspace.into() }),
                    false => return Err(WorktreeError::Git { verb: "rev-parse".to_owned(), why: head.why() }),
                };
                (repository, prefix, workspace.to_owned(), head)
            }
            (WorktreeOrigin::Worktree(parent), _) => {
                let tip = self.changes(parent)?.tip;
                let parent = self.find(parent)?;
                let target = self.root(&parent).canonicalize().map_err(cannot("created"))?;
                (parent.repository, parent.prefix, target, tip)
            }
        };
        // If the branch of the session was kept, the worktree continues from it.
        let kept = self.tip(&repository, &branch)?;
        let (continues, base) = (kept.is_some(), kept.unwrap_or(head));
        let (stage, bytes, left) = (Stage::Making, 0, Vec::new());
        let entry = WorktreeEntry { session, stage, repository, prefix, target, branch, base, bytes, continues, left };
        self.record_if_it_fits(entry.clone()).or_else(|error| {
            // The removal takes this lock.
            drop(snapshot);
            self.remove_unused_snapshots(&entry)?;
            Err(error)
        })
    }

    /// Checks that a repository supports these worktrees. Without this check, a later step would fail with an unhelpful error of git.
    fn check_supported(&self, repository: &Path) -> Result<(), WorktreeError> {
        let (name, unsupported) = (repository.display(), |why| Err(WorktreeError::Unsupported(why)));
        if repository.join("objects/info/alternates").metadata().is_ok_and(|found| found.len() > 0) {
            return unsupported(format!(
                "{name} borrows objects of another repository (`git clone --shared`), which git cannot reach here. Copy them \
                 (`git repack -a -d`, then remove objects/info/alternates)"
            ));
        }
        if self.tip(repository, BRANCHES)?.is_some() {
            return unsupported(format!(
                "{name} has a branch `{BRANCHES}`, so it can have no branch `{BRANCHES}/…`. Rename it (`git branch -m {BRANCHES} NAME`)"
            ));
        }
        Ok(())
    }

    /// Creates the rest of a worktree. Re-creates existing parts, which no tool has used yet. If that fails, no files
    /// remain, and what the repository keeps counts no bytes: an entry would take room of others.
    pub(super) fn make(&self, mut entry: WorktreeEntry) -> Result<WorktreeEntry, WorktreeError> {
        match self.make_parts(&mut entry) {
            Ok(()) => Ok(entry),
            Err(error) if error.is_crash() => Err(error),
            Err(error) => Err(self.undo(entry, error)),
        }
    }

    fn make_parts(&self, entry: &mut WorktreeEntry) -> Result<(), WorktreeError> {
        let at = self.refs_place(&entry.repository, &entry.repository)?;
        self.unlock(entry)?;
        self.step("base")?;
        self.git.run(&at, &["update-ref", &base_reference(entry), &entry.base])?;
        self.step("branch")?;
        self.git.run(&at, &["update-ref", &reference(&entry.branch), &entry.base])?;
        self.step("directory")?;
        let path = self.path(entry.session);
        remove_if_exists(&path)?;
        remove_in_repository(&entry.repository, &self.admin_dir(entry))?;
        self.register(entry)?;
        self.step("files")?;
        self.check_out(entry)?;
        self.measure(entry)?;
        self.tree(entry)?;
        self.step("ready")?;
        entry.stage = Stage::Ready;
        self.write(entry)
    }

    /// Writes the files of the base. Attributes of the repository can make them larger than their objects, so git ends when too little space
    /// is left.
    fn check_out(&self, entry: &WorktreeEntry) -> Result<(), WorktreeError> {
        self.check_space(entry.bytes)?;
        let at = GitPlace { room: Some(self.room().at_most(entry.bytes)), ..self.files_place(entry)? };
        self.git.run(&at, &["read-tree", &entry.base])?;
        self.step("checkout")?;
        self.git.run(&at, &["checkout-index", "--all", "--force", "--index"]).map(drop)
    }

    /// Removes a worktree whose files could not be written, and returns the reason.
    fn undo(&self, entry: WorktreeEntry, error: WorktreeError) -> WorktreeError {
        let is_full = self.check_space(0).is_err();
        let why = self.check_space(entry.bytes).err().filter(|_| is_full).unwrap_or(error);
        // The files go first, because a full disk cannot record the removal. The next call repeats what fails.
        drop(remove_if_exists(&self.path(entry.session)).and_then(|()| self.remove_unchanged(entry)));
        why
    }

    /// Registers a worktree without files. Does not use `git worktree add`, which would read the settings of the repository.
    fn register(&self, entry: &WorktreeEntry) -> Result<(), WorktreeError> {
        let (admin, head) = (self.admin_dir(entry), reference(&entry.branch));
        let tree = self.dir.canonicalize().map_err(cannot("created"))?.join(entry.session.to_string());
        let is_snapshot = self.is_snapshot(&entry.repository);
        let line = |name: &str, path: &Path| [name.as_bytes(), path.as_os_str().as_encoded_bytes(), b"\n"].concat();
        fs::create_dir(&tree).map_err(cannot("created"))?;
        let reach = GitReach { written: vec![entry.repository.clone(), tree.clone()], read: Vec::new() };
        let made = run_confined(&reach, Path::new("git"), &self.git.outside(), || {
            let root = root(&entry.repository);
            let repository = Dir::open_ambient_dir(root, ambient_authority())?;
            let repository = beneath::dir(&repository, below(root, &entry.repository))?;
            let dir = beneath::make_dir(&repository, format!("worktrees/{}", entry.session))?;
            // A session may replace the directory meanwhile, so each file is created through the open handle.
            let write = |dir, name, text: &[u8]| beneath::create(dir, name, false)?.write_all(text);
            // Prevents `git worktree prune` from removing the worktree, even while its files are missing.
            write(&dir, "locked", b"the session of subtend that works in it may be running\n")?;
            write(&dir, "commondir", b"../..\n")?;
            write(&dir, "gitdir", &line("", &tree.join(".git")))?;
            write(&dir, "HEAD", format!("ref: {head}\n").as_bytes())?;
            if is_snapshot {
                // The worktree needs no `.git` file, because its session cannot reach the repository of snapshots.
                return Ok(());
            }
            let tree = Dir::open_ambient_dir(&tree, ambient_authority())?;
            write(&tree, ".git", &line("gitdir: ", &admin))
        });
        made.map_err(cannot("created"))
    }

    pub(super) fn remove(&self, mut entry: WorktreeEntry, stage: Stage) -> Result<(), WorktreeError> {
        self.step("removing")?;
        entry.stage = stage;
        self.write(&entry)?;
        let removed = self.finish_removal(&entry);
        // What remains in a repository takes no room, and the repository may keep it forever.
        if removed.is_err() && !self.path(entry.session).exists() && self.file(entry.session, "json").exists() {
            entry.bytes = 0;
            self.write(&entry)?;
        }
        removed
    }

    /// Removes a worktree without changes. Its branch remains if it existed before.
    pub(super) fn remove_unchanged(&self, entry: WorktreeEntry) -> Result<(), WorktreeError> {
        let stage = if entry.continues { Stage::Keeping } else { Stage::Discarding };
        self.remove(entry, stage)
    }

    /// Removes a worktree. Removes its entry last, so that a repeated call finds the remaining parts.
    pub(super) fn finish_removal(&self, entry: &WorktreeEntry) -> Result<(), WorktreeError> {
        self.step("unmerge")?;
        remove_if_exists(&self.file(entry.session, "merge"))?;
        remove_if_exists(&self.copy_dir(entry))?;
        remove_if_exists(&self.staging_dir(entry))?;
        self.step("remove directory")?;
        remove_if_exists(&self.path(entry.session))?;
        self.step("remove administration")?;
        // If the repository was removed, no parts of the worktree remain in it.
        if entry.repository.exists() {
            remove_in_repository(&entry.repository, &self.admin_dir(entry))?;
            self.unlock(entry)?;
            let at = self.refs_place(&entry.repository, &entry.repository)?;
            if entry.stage == Stage::Discarding {
                self.git.run(&at, &["update-ref", "-d", &reference(&entry.branch)])?;
            }
            self.step("remove base")?;
            self.git.run(&at, &["update-ref", "-d", &base_reference(entry)])?;
        }
        self.remove_unused_snapshots(entry)?;
        self.step("forget")?;
        remove_if_exists(&self.file(entry.session, "json"))?;
        self.step("unlock")?;
        self.remove_lock(entry.session)
    }

    /// Removes lock files of git that a killed git process left for this worktree. The caller must hold the worktree's lock.
    pub(super) fn unlock(&self, entry: &WorktreeEntry) -> Result<(), WorktreeError> {
        let mut locks = vec![self.admin_dir(entry).join("index.lock")];
        let references = [reference(&entry.branch), base_reference(entry)];
        locks.extend(references.map(|name| entry.repository.join(format!("{name}.lock"))));
        for path in &locks {
            in_repository(&entry.repository, path, |dir, name| match dir.remove_file(name) {
                Err(_) if dir.symlink_metadata(name).is_ok_and(|found| found.is_dir()) => {
                    Err(io::Error::other(format!("{} is a directory, not a lock of git: remove it", path.display())))
                }
                removed => removed.map_err(|error| removal::name_path(path, error)),
            })?;
        }
        Ok(())
    }

    /// Returns the last commit of a branch, or `None` if the branch is missing.
    pub(super) fn tip(&self, repository: &Path, branch: &str) -> Result<Option<String>, WorktreeError> {
        let name = format!("{}^{{commit}}", reference(branch));
        let answer = self
            .git
            .run_for_output(&self.refs_place(repository, repository)?, &["rev-parse", "--verify", "--quiet", &name])?;
        let text = String::from_utf8_lossy(&answer.out).trim().to_owned();
        Ok(Some(text).filter(|text| answer.status.success() && !text.is_empty()))
    }
}

fn remove_in_repository(repository: &Path, path: &Path) -> Result<(), WorktreeError> {
    in_repository(repository, path, |dir, name| removal::remove_in(dir, name, path))
}

/// Calls `remove` for an entry of a repository, if it exists. A link in the path is an error, because a session may have created it.
fn in_repository(
    repository: &Path,
    path: &Path,
    remove: impl FnOnce(&Dir, &Path) -> io::Result<()>,
) -> Result<(), WorktreeError> {
    let root = root(repository);
    let opened = Dir::open_ambient_dir(root, ambient_authority());
    let removed = match opened.and_then(|dir| beneath::parent(&dir, below(root, path))) {
        Ok((dir, name)) => remove(&dir, name),
        Err(error) => Err(removal::name_path(path, error)),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(cannot("removed")(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Returns the directory from which the path of a repository is followed without links.
fn root(repository: &Path) -> &Path {
    if cfg!(unix) { Path::new("/") } else { repository }
}

fn below<'a>(root: &Path, path: &'a Path) -> &'a Path {
    match path.strip_prefix(root).unwrap_or(path) {
        top if top.as_os_str().is_empty() => Path::new("."),
        below => below,
    }
}

pub(super) fn reference(branch: &str) -> String {
    format!("refs/heads/{branch}")
}

/// Returns the reference that protects the base from garbage collection.
pub(super) fn base_reference(entry: &WorktreeEntry) -> String {
    format!("refs/subtend/base/{}", entry.session)
}
