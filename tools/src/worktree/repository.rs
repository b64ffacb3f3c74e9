//! Where the repository of a workspace lies.
//!
//! A session may write `.git` in its workspace. So git does not search: a `.git` that names another repository, by a link, `commondir`
//! or `gitdir:`, counts only if that repository names the workspace in turn. `core.worktree` decides nothing.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use super::{WorktreeError, cannot};

/// Bytes of a file that names a directory.
const MOST: u64 = 4 << 10;
/// Bytes of the settings of a repository.
const SETTINGS: u64 = 1 << 20;

/// A repository, as a workspace uses it.
pub(super) struct Found {
    /// The git directory of this working tree alone.
    pub(super) git_dir: PathBuf,
    /// The git directory that all working trees share.
    pub(super) repository: PathBuf,
    /// The way from the top of the working tree to the workspace: empty, or with a `/` at its end.
    pub(super) prefix: String,
}

/// Returns the repository that `workspace` lies in.
///
/// # Errors
/// [`WorktreeError::NoRepository`], and [`WorktreeError::OfOthers`]: git itself checks no owner where it does not search.
pub(super) fn find(workspace: &Path) -> Result<Found, WorktreeError> {
    let none = |why: String| WorktreeError::NoRepository { path: workspace.into(), why };
    let path = workspace.canonicalize().map_err(|error| none(error.to_string()))?;
    let top = path.ancestors().find(|dir| dir.join(".git").symlink_metadata().is_ok());
    let top = top.ok_or_else(|| none("no directory above it has a `.git`".to_owned()))?;
    let (git_dir, repository) = named(top).map_err(none)?;
    let above = path.ancestors().skip(1).take_while(|dir| dir.starts_with(top));
    let places = above.chain([&*top.join(".git"), &*git_dir, &*repository]).map(Path::to_owned).collect::<Vec<_>>();
    let others = places.into_iter().find_map(|place| of_others(&place, &path).map(|why| (place, why)));
    if let Some((path, why)) = others {
        return Err(WorktreeError::OfOthers { path, why });
    }
    let mut prefix = String::new();
    for part in path.strip_prefix(top).unwrap_or(Path::new("")) {
        let part = part.to_str().ok_or_else(|| none("its path is not UTF-8".to_owned()))?;
        prefix.push_str(part);
        prefix.push('/');
    }
    Ok(Found { git_dir, repository, prefix })
}

/// Returns whether the ids of a repository are of SHA-256: the only one of its settings that counts.
///
/// # Errors
/// If its settings cannot be read, or it keeps refs in another way than git usually does.
pub(super) fn is_sha256(repository: &Path) -> Result<bool, WorktreeError> {
    let text = match bounded(&repository.join("config"), SETTINGS) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        text => text.map_err(cannot("read"))?,
    };
    let text = text.to_ascii_lowercase();
    let last = |name| {
        let values = text.lines().filter_map(|line| line.split_once('='));
        values.filter(|(key, _)| key.trim() == name).map(|(_, value)| value.trim()).next_back()
    };
    if let Some(kind) = last("refstorage").filter(|kind| *kind != "files") {
        let why = format!("{} keeps its refs as `{kind}`, not as `files`", repository.display());
        return Err(cannot("read")(io::Error::other(why)));
    }
    Ok(last("objectformat") == Some("sha256"))
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
    let config = bounded(&git_dir.join("config"), SETTINGS).map_err(|error| error.to_string())?;
    let tree = config.lines().filter_map(|line| line.trim().strip_prefix("worktree = ")).next_back();
    let is_own = tree.is_some_and(|tree| resolved(&git_dir, tree).is_ok_and(|tree| tree == top));
    if is_own { Ok((git_dir.clone(), git_dir)) } else { Err(other()) }
}

/// Returns why a place may be of other users than that of the workspace, this one and the superuser; `None` if it is not.
#[cfg(unix)]
fn of_others(place: &Path, workspace: &Path) -> Option<String> {
    use std::os::unix::fs::MetadataExt as _;

    let (found, workspace) = match (place.symlink_metadata(), workspace.symlink_metadata()) {
        (Ok(found), Ok(workspace)) => (found, workspace),
        (Err(error), _) | (_, Err(error)) => return Some(format!("cannot be checked: {error}")),
    };
    if ![workspace.uid(), rustix::process::geteuid().as_raw(), 0].contains(&found.uid()) {
        return Some(format!("belongs to another user, {}", found.uid()));
    }
    // On file systems without modes all can write everywhere, the workspace too.
    let writable = |mask: u32| found.mode() & mask != 0 && workspace.mode() & mask == 0;
    if writable(0o002) {
        return Some("can be written by all users".to_owned());
    }
    // A group of the owner's own has their number.
    let group = found.gid();
    let is_shared = group != found.uid() && (group != workspace.gid() || writable(0o020));
    (found.mode() & 0o020 != 0 && is_shared).then(|| format!("can be written by a group, {group}"))
}

#[cfg(not(unix))]
fn of_others(_: &Path, _: &Path) -> Option<String> {
    None
}

fn resolved(from: &Path, path: &str) -> Result<PathBuf, String> {
    from.join(path).canonicalize().map_err(|error| format!("`{path}` cannot be opened: {error}"))
}

fn line(path: &Path) -> Result<String, String> {
    let text = bounded(path, MOST).map_err(|error| error.to_string())?;
    Ok(text.trim_end_matches(['\n', '\r']).to_owned())
}

/// Reads a file of at most `most` bytes that a session may have put there: no link, device or pipe.
fn bounded(path: &Path, most: u64) -> io::Result<String> {
    let read = || {
        let file = opened(path)?;
        let mut bytes = Vec::new();
        let is_file = file.metadata()?.is_file();
        if is_file {
            file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
        }
        if !is_file || bytes.len() as u64 > most {
            return Err(io::Error::other(format!("it is not a file of at most {most} bytes")));
        }
        // Names of people in settings may have any encoding. A path that is not text names nothing that exists.
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    read()
        .map_err(|error: io::Error| io::Error::new(error.kind(), format!("{} cannot be read: {error}", path.display())))
}

#[cfg(unix)]
fn opened(path: &Path) -> io::Result<File> {
    use rustix::fs::{Mode, OFlags, open};

    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(File::from(open(path, flags, Mode::empty())?))
}

#[cfg(not(unix))]
fn opened(path: &Path) -> io::Result<File> {
    File::open(path)
}
