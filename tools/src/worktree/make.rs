//! How a worktree is made and removed: each step can be repeated.

use std::path::Path;
use std::{fs, io};

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use subtend_session::ids::SessionId;

use super::git::{GitReach, held};
use super::repository::{self, Found};
use super::{Stage, WorktreeEntry, WorktreeError, WorktreeOrigin, Worktrees, cannot, gone};
use crate::workspace::beneath;

/// Digits of the session's id in its branch.
const DIGITS: usize = 12;

impl Worktrees {
    /// Records what is to be made. From here on its base is fixed, however often the rest is repeated.
    pub(super) fn begin(&self, session: SessionId, origin: WorktreeOrigin<'_>) -> Result<WorktreeEntry, WorktreeError> {
        self.step("record")?;
        let branch = branch(session);
        let (repository, prefix, target, head) = match origin {
            WorktreeOrigin::Workspace(workspace) => {
                let Found { git_dir, repository, prefix } = repository::find(workspace)?;
                let at = self.refs(&repository, &git_dir)?;
                let head = self.git.line(&at, &["rev-parse", "--verify", "--quiet", "HEAD^{commit}"]);
                let head =
                    head.map_err(|error| WorktreeError::NoCommit { path: workspace.into(), why: error.to_string() })?;
                (repository, prefix, workspace.to_owned(), head)
            }
            WorktreeOrigin::Worktree(above) => {
                let tip = self.changes(above)?.tip;
                let above = self.find(above)?;
                let target = self.root(&above);
                (above.repository, above.prefix, target, tip)
            }
        };
        // The session continues on a branch that was kept.
        let kept = self.tip(&repository, &branch)?;
        let base = kept.unwrap_or(head);
        let entry = WorktreeEntry { session, stage: Stage::Making, repository, prefix, target, branch, base };
        self.write(&entry)?;
        Ok(entry)
    }

    /// Makes the rest of a worktree. No tool has worked in it yet: what is there of it is made again.
    pub(super) fn make(&self, mut entry: WorktreeEntry) -> Result<WorktreeEntry, WorktreeError> {
        let at = self.refs(&entry.repository, &entry.repository)?;
        self.unlock(&entry)?;
        self.step("base")?;
        self.git.run(&at, &["update-ref", &base_of(&entry), &entry.base])?;
        self.step("branch")?;
        self.git.run(&at, &["update-ref", &reference(&entry.branch), &entry.base])?;
        self.step("directory")?;
        let path = self.path(entry.session);
        gone(&path)?;
        gone_below(&entry.repository, &self.administration(&entry))?;
        self.register(&entry)?;
        self.step("files")?;
        let plain = self.plainly(&entry)?;
        self.git.run(&plain, &["read-tree", &entry.base])?;
        self.step("checkout")?;
        self.git.run(&plain, &["checkout-index", "--all", "--force", "--index"])?;
        self.tree(&entry)?;
        self.step("ready")?;
        entry.stage = Stage::Ready;
        self.write(&entry)?;
        Ok(entry)
    }

    /// Makes a worktree without files, as `git worktree add` does: that one would read the settings of the repository.
    fn register(&self, entry: &WorktreeEntry) -> Result<(), WorktreeError> {
        let (admin, head) = (self.administration(entry), reference(&entry.branch));
        let tree = self.dir.canonicalize().map_err(cannot("made"))?.join(entry.session.to_string());
        let line = |name: &str, path: &Path| [name.as_bytes(), path.as_os_str().as_encoded_bytes(), b"\n"].concat();
        fs::create_dir(&tree).map_err(cannot("made"))?;
        let reach = GitReach { written: vec![entry.repository.clone(), tree.clone()], read: Vec::new() };
        let made = held(&reach, Path::new("git"), || {
            fs::create_dir_all(&admin)?;
            // `git worktree prune` leaves it, also where the files are not there yet.
            fs::write(admin.join("locked"), "the session of subtend that works in it may be running\n")?;
            fs::write(admin.join("commondir"), "../..\n")?;
            fs::write(admin.join("gitdir"), line("", &tree.join(".git")))?;
            fs::write(admin.join("HEAD"), format!("ref: {head}\n"))?;
            fs::write(tree.join(".git"), line("gitdir: ", &admin))
        });
        made.map_err(cannot("made"))
    }

    /// Removes a worktree; its entry goes last, so that a repetition finds the rest.
    pub(super) fn finish_removal(&self, entry: &WorktreeEntry) -> Result<(), WorktreeError> {
        self.step("unmerge")?;
        gone(&self.file(entry.session, "merge"))?;
        gone(&self.copies(entry))?;
        self.step("remove directory")?;
        gone(&self.path(entry.session))?;
        self.step("remove administration")?;
        // Where the repository is gone, nothing of it is left to remove.
        if entry.repository.exists() {
            gone_below(&entry.repository, &self.administration(entry))?;
            self.unlock(entry)?;
            let at = self.refs(&entry.repository, &entry.repository)?;
            if entry.stage == Stage::Discarding {
                self.git.run(&at, &["update-ref", "-d", &reference(&entry.branch)])?;
            }
            self.step("remove base")?;
            self.git.run(&at, &["update-ref", "-d", &base_of(entry)])?;
        }
        self.step("forget")?;
        gone(&self.file(entry.session, "json"))?;
        if cfg!(unix) { gone(&self.file(entry.session, "lock")) } else { Ok(()) }
    }

    /// Removes the locks that a killed git left on what is this worktree's alone. Requires the worktree's own lock.
    pub(super) fn unlock(&self, entry: &WorktreeEntry) -> Result<(), WorktreeError> {
        gone_below(&entry.repository, &self.administration(entry).join("index.lock"))?;
        for name in [reference(&entry.branch), base_of(entry)] {
            gone_below(&entry.repository, &entry.repository.join(format!("{name}.lock")))?;
        }
        Ok(())
    }

    /// Returns the last commit of a branch; `None` without the branch.
    pub(super) fn tip(&self, repository: &Path, branch: &str) -> Result<Option<String>, WorktreeError> {
        let name = format!("{}^{{commit}}", reference(branch));
        let answer = self.git.ask(&self.refs(repository, repository)?, &["rev-parse", "--verify", "--quiet", &name])?;
        let text = String::from_utf8_lossy(&answer.out).trim().to_owned();
        Ok(Some(text).filter(|text| answer.status.success() && !text.is_empty()))
    }
}

/// Removes a file or a directory of a repository, if it exists. A session may have put a link in place of a directory on the way, which is
/// an error.
fn gone_below(repository: &Path, path: &Path) -> Result<(), WorktreeError> {
    let root = if cfg!(unix) { Path::new("/") } else { repository };
    let removed = Dir::open_ambient_dir(root, ambient_authority()).and_then(|dir| {
        let (dir, name) = beneath::parent(&dir, path.strip_prefix(root).unwrap_or(path))?;
        if dir.symlink_metadata(name)?.is_dir() { dir.remove_dir_all(name) } else { dir.remove_file(name) }
    });
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            let error = io::Error::new(error.kind(), format!("{}: {error}", path.display()));
            Err(cannot("removed")(error))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

fn branch(session: SessionId) -> String {
    let digits = session.0.simple().to_string();
    let at = digits.len().saturating_sub(DIGITS);
    format!("subtend/{}", digits.get(at..).unwrap_or_default())
}

pub(super) fn reference(branch: &str) -> String {
    format!("refs/heads/{branch}")
}

/// The reference that keeps the base from being collected.
pub(super) fn base_of(entry: &WorktreeEntry) -> String {
    format!("refs/subtend/base/{}", entry.session)
}
