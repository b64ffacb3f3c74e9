//! Where the repository of a workspace lies.
//!
//! A session may write `.git` in its workspace. So git does not search: a `.git` that names another repository, by a link, `commondir`
//! or `gitdir:`, counts only if that repository names the workspace in turn. `core.worktree` decides nothing.

use std::fs;
use std::path::{Path, PathBuf};

use super::WorktreeError;

/// Bytes of a file that names a directory.
const MOST: u64 = 4 << 10;

/// A repository, as a workspace uses it.
pub(super) struct Found {
    /// What git keeps of this working tree alone.
    pub(super) git_dir: PathBuf,
    /// What all working trees share.
    pub(super) repository: PathBuf,
    /// The way from the top of the working tree to the workspace: empty, or with a `/` at its end.
    pub(super) prefix: String,
}

/// Returns the repository that `workspace` lies in.
///
/// # Errors
/// [`WorktreeError::NoRepository`].
pub(super) fn find(workspace: &Path) -> Result<Found, WorktreeError> {
    let none = |why: String| WorktreeError::NoRepository { path: workspace.into(), why };
    let path = workspace.canonicalize().map_err(|error| none(error.to_string()))?;
    let top = path.ancestors().find(|dir| dir.join(".git").symlink_metadata().is_ok());
    let top = top.ok_or_else(|| none("no directory above it has a `.git`".to_owned()))?;
    let (git_dir, repository) = named(top).map_err(none)?;
    let mut prefix = String::new();
    for part in path.strip_prefix(top).unwrap_or(Path::new("")) {
        let part = part.to_str().ok_or_else(|| none("its path is not UTF-8".to_owned()))?;
        prefix.push_str(part);
        prefix.push('/');
    }
    Ok(Found { git_dir, repository, prefix })
}

/// Returns the git directory of the working tree `top`, and that of its repository.
fn named(top: &Path) -> Result<(PathBuf, PathBuf), String> {
    let named = top.join(".git");
    let other = || format!("{} names a repository that does not name it in turn", named.display());
    let found = named.symlink_metadata().map_err(|error| error.to_string())?;
    if found.is_dir() {
        // Only the git directory of a further worktree shares another one.
        let shares = named.join("commondir").symlink_metadata().is_ok();
        return if shares { Err(other()) } else { Ok((named.clone(), named)) };
    }
    if !found.is_file() {
        return Err(format!("{} is a link", named.display()));
    }
    let text = line(&named)?;
    let git_dir = resolved(top, text.strip_prefix("gitdir:").unwrap_or_default().trim())?;
    let back = git_dir.join("gitdir");
    if git_dir.join("commondir").symlink_metadata().is_ok() {
        let repository = resolved(&git_dir, &line(&git_dir.join("commondir"))?)?;
        let is_own =
            git_dir.parent() == Some(&repository.join("worktrees")) && resolved(&git_dir, &line(&back)?)? == named;
        return if is_own { Ok((git_dir, repository)) } else { Err(other()) };
    }
    // A submodule: its repository lies with that of the repository around it, and names the working tree.
    let config = fs::read_to_string(git_dir.join("config")).map_err(|error| error.to_string())?;
    let tree = config.lines().filter_map(|line| line.trim().strip_prefix("worktree = ")).next_back();
    let is_own = tree.is_some_and(|tree| resolved(&git_dir, tree).is_ok_and(|tree| tree == top));
    if is_own { Ok((git_dir.clone(), git_dir)) } else { Err(other()) }
}

fn resolved(from: &Path, path: &str) -> Result<PathBuf, String> {
    from.join(path).canonicalize().map_err(|error| format!("`{path}` cannot be opened: {error}"))
}

fn line(path: &Path) -> Result<String, String> {
    let failed = |why: &dyn std::fmt::Display| format!("{} cannot be read: {why}", path.display());
    let found = path.symlink_metadata().map_err(|error| failed(&error))?;
    if !found.is_file() || found.len() > MOST {
        return Err(failed(&"it is not a file of one line"));
    }
    let text = fs::read_to_string(path).map_err(|error| failed(&error))?;
    Ok(text.trim_end_matches(['\n', '\r']).to_owned())
}
