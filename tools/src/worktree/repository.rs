//! Finds the repository of a workspace.
//!
//! A session may write `.git` in its workspace, so this module finds the repository, not git. A `.git` that points to another repository
//! (by a link, `commondir` or `gitdir:`) is accepted only if that repository points back to the workspace. `core.worktree` is ignored.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use super::{WorktreeError, cannot};

/// Maximum size of a file with the path of a directory.
const MAX_LINE_FILE: u64 = 4 << 10;
const MAX_SETTINGS: u64 = 1 << 20;

pub(super) struct FoundRepository {
    /// The git directory of this working tree.
    pub(super) git_dir: PathBuf,
    /// The git directory shared by all working trees.
    pub(super) repository: PathBuf,
    /// Path from the top of the working tree to the workspace: empty, or ending with `/`.
    pub(super) prefix: String,
}

/// Returns the repository that contains the directory at the canonical path `workspace`.
///
/// # Errors
/// [`WorktreeError::NoRepository`], and [`WorktreeError::NotOwned`], because git checks owners only when it finds the repository itself.
pub(super) fn find(workspace: &Path) -> Result<FoundRepository, WorktreeError> {
    let none = |why: String| WorktreeError::NoRepository { path: workspace.into(), why };
    let top = top(workspace).ok_or_else(|| none("no directory above it has a `.git`".to_owned()))?;
    let top = &*top;
    let (git_dir, repository) = name_dirs(top).map_err(none)?;
    let ancestors = workspace.ancestors().skip(1).take_while(|dir| dir.starts_with(top));
    let places = ancestors.chain([&*top.join(".git"), &*git_dir, &*repository]).map(Path::to_owned).collect::<Vec<_>>();
    let others = places.into_iter().find_map(|place| foreign_control(&place, workspace).map(|why| (place, why)));
    if let Some((path, why)) = others {
        return Err(WorktreeError::NotOwned { path, why });
    }
    let mut prefix = String::new();
    for part in workspace.strip_prefix(top).unwrap_or(Path::new("")) {
        let part = part.to_str().ok_or_else(|| none("its path is not UTF-8".to_owned()))?;
        prefix.push_str(part);
        prefix.push('/');
    }
    Ok(FoundRepository { git_dir, repository, prefix })
}

/// Returns the nearest directory that has a `.git`: the canonical path `workspace` or an ancestor.
pub(super) fn top(workspace: &Path) -> Option<PathBuf> {
    workspace.ancestors().find(|dir| dir.join(".git").symlink_metadata().is_ok()).map(Path::to_owned)
}

/// Returns whether a repository uses SHA-256 ids. Reads only the formats of ids and refs from its settings.
///
/// # Errors
/// If the settings cannot be read, or the ref storage is unsupported.
pub(super) fn is_sha256(repository: &Path) -> Result<bool, WorktreeError> {
    let text = match read_bounded(&repository.join("config"), MAX_SETTINGS) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        text => text.map_err(cannot("read"))?,
    };
    let text = text.to_ascii_lowercase();
    let last = |name| {
        let values = text.lines().filter_map(|line| line.split_once('='));
        values.filter(|(key, _)| key.trim() == name).map(|(_, value)| value.trim()).next_back()
    };
    if let Some(kind) = last("refstorage").filter(|kind| *kind != "files") {
        let why = format!("{} stores its refs as `{kind}`; only `files` is supported", repository.display());
        return Err(cannot("read")(io::Error::other(why)));
    }
    Ok(last("objectformat") == Some("sha256"))
}

/// Returns the git directory of the working tree `top`, and the git directory of its repository.
fn name_dirs(top: &Path) -> Result<(PathBuf, PathBuf), String> {
    let named = top.join(".git");
    let other = || format!("{} points to a repository that does not point back to it", named.display());
    let found = named.symlink_metadata().map_err(|error| error.to_string())?;
    if found.is_dir() {
        // Only git directories of linked worktrees have a `commondir`.
        let shares = named.join("commondir").symlink_metadata().is_ok();
        return if shares { Err(other()) } else { Ok((named.clone(), named)) };
    }
    if !found.is_file() {
        return Err(format!("{} is a link", named.display()));
    }
    let text = line(&named)?;
    let git_dir = resolve_path(top, text.strip_prefix("gitdir:").unwrap_or_default().trim())?;
    let back = git_dir.join("gitdir");
    if git_dir.join("commondir").symlink_metadata().is_ok() {
        let repository = resolve_path(&git_dir, &line(&git_dir.join("commondir"))?)?;
        let is_own =
            git_dir.parent() == Some(&repository.join("worktrees")) && resolve_path(&git_dir, &line(&back)?)? == named;
        return if is_own { Ok((git_dir, repository)) } else { Err(other()) };
    }
    // A submodule's repository lies in that of its superproject. Its settings contain the working tree's path.
    let config = read_bounded(&git_dir.join("config"), MAX_SETTINGS).map_err(|error| error.to_string())?;
    let tree = config.lines().filter_map(|line| line.trim().strip_prefix("worktree = ")).next_back();
    let is_own = tree.is_some_and(|tree| resolve_path(&git_dir, tree).is_ok_and(|tree| tree == top));
    if is_own { Ok((git_dir.clone(), git_dir)) } else { Err(other()) }
}

/// Returns why users other than the workspace's owner, this user and the superuser may control a path.
#[cfg(unix)]
fn foreign_control(place: &Path, workspace: &Path) -> Option<String> {
    use std::os::unix::fs::MetadataExt as _;

    let (found, workspace) = match (place.symlink_metadata(), workspace.symlink_metadata()) {
        (Ok(found), Ok(workspace)) => (found, workspace),
        (Err(error), _) | (_, Err(error)) => return Some(format!("cannot be checked: {error}")),
    };
    if ![workspace.uid(), rustix::process::geteuid().as_raw(), 0].contains(&found.uid()) {
        return Some(format!("belongs to another user, {}", found.uid()));
    }
    // On a file system without modes, everyone can write to the workspace too, so this check would not help.
    let writable = |mask: u32| found.mode() & mask != 0 && workspace.mode() & mask == 0;
    if writable(0o002) {
        return Some("can be written by all users".to_owned());
    }
    // The private group of a user has the same number as the user.
    let group = found.gid();
    let is_shared = group != found.uid() && (group != workspace.gid() || writable(0o020));
    (found.mode() & 0o020 != 0 && is_shared).then(|| format!("can be written by a group, {group}"))
}

#[cfg(not(unix))]
fn foreign_control(_: &Path, _: &Path) -> Option<String> {
    None
}

fn resolve_path(from: &Path, path: &str) -> Result<PathBuf, String> {
    from.join(path).canonicalize().map_err(|error| format!("`{path}` cannot be opened: {error}"))
}

fn line(path: &Path) -> Result<String, String> {
    let text = read_bounded(path, MAX_LINE_FILE).map_err(|error| error.to_string())?;
    Ok(text.trim_end_matches(['\n', '\r']).to_owned())
}

/// Reads a file of at most `most` bytes. Refuses links, devices and pipes, which a session may have created.
fn read_bounded(path: &Path, most: u64) -> io::Result<String> {
    let read = || {
        let file = open_without_links(path)?;
        let mut bytes = Vec::new();
        let is_file = file.metadata()?.is_file();
        if is_file {
            file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
        }
        if !is_file || bytes.len() as u64 > most {
            return Err(io::Error::other(format!("it is not a file of at most {most} bytes")));
        }
        // Settings may contain names of people in any encoding. Paths that are not UTF-8 are not supported.
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    read().map_err(|error: io::Error| io::Error::new(error.kind(), format!("cannot read {}: {error}", path.display())))
}

#[cfg(unix)]
fn open_without_links(path: &Path) -> io::Result<File> {
    use rustix::fs::{Mode, OFlags, open};

    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(File::from(open(path, flags, Mode::empty())?))
}

#[cfg(not(unix))]
fn open_without_links(path: &Path) -> io::Result<File> {
    File::open(path)
}
