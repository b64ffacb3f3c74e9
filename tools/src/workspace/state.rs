//! Reads and replaces the entry at a workspace path without following links.

use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use cap_std::fs::Dir;
use serde::{Deserialize, Serialize};
use subtend_session::ids::Hash;

use super::{Workspace, beneath, mode};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileState {
    Absent,
    File {
        hash: Hash,
        executable: bool,
    },
    Link {
        to: String,
    },
    /// A directory, a device, or a path that passes through a link.
    Other,
}

/// The entry at a path, with its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PathState {
    pub(crate) state: FileState,
    pub(crate) bytes: Vec<u8>,
}

/// Returns a random name for [`replace_entry`], so that sessions cannot guess it.
pub(crate) fn temporary_name() -> String {
    // The hasher has a random seed from the system.
    let number = RandomState::new().hash_one(std::process::id());
    format!(".subtend-{number:016x}.tmp")
}

/// Atomically replaces the entry at `path` with `after`, whose content is `bytes`. A killed process may leave the file `temporary` behind.
/// The next call with the same name replaces this file.
pub(crate) fn replace_entry(
    target: &Workspace,
    path: &str,
    (after, bytes): (&FileState, &[u8]),
    temporary: &str,
) -> io::Result<()> {
    let root = target.dir();
    let (parent, name) = path.rsplit_once('/').unwrap_or((".", path));
    if *after == FileState::Absent {
        let dir = beneath::dir(root, Path::new(parent))?;
        dir.remove_file(name)?;
        return sync(&dir);
    }
    let dir = if parent == "." { beneath::dir(root, Path::new("."))? } else { beneath::make_dir(root, parent)? };
    match dir.remove_file(temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    match after {
        FileState::File { executable, .. } => {
            let before = dir.symlink_metadata(name).ok().filter(cap_std::fs::Metadata::is_file);
            let mut file = beneath::create(&dir, temporary, before.is_some())?;
            file.write_all(bytes)?;
            let before = before.map(|found| mode::kept_mode(&dir, Path::new(name), &found));
            set_mode(before, &file, *executable)?;
            file.sync_all()?;
        }
        FileState::Link { to } => link(&dir, to, temporary)?,
        FileState::Absent | FileState::Other => return Ok(()),
    }
    dir.rename(temporary, &dir, name)?;
    sync(&dir)
}

/// Removes the file `temporary` that a killed process left when it replaced the entry at `path`. Does not follow links.
pub(crate) fn remove_temporary(target: &Workspace, path: &str, temporary: &str) -> io::Result<()> {
    let removed = beneath::parent(target.dir(), Path::new(path)).and_then(|(dir, _)| dir.remove_file(temporary));
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Syncs a directory, if it can be opened for reading.
fn sync(dir: &Dir) -> io::Result<()> {
    dir.open(".").map_or(Ok(()), |file| file.sync_all())
}

/// Reads the entry at `path` without following links.
pub(crate) fn read_entry(target: &Workspace, path: &str, max_bytes: u64) -> io::Result<PathState> {
    let without_content = |state| Ok(PathState { state, bytes: Vec::new() });
    let (dir, name) = match beneath::parent(target.dir(), Path::new(path)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return without_content(FileState::Absent),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory || beneath::is_link(&error) => {
            return without_content(FileState::Other);
        }
        found => found?,
    };
    let found = match dir.symlink_metadata(name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return without_content(FileState::Absent),
        found => found?,
    };
    if found.is_symlink() {
        let to = dir.read_link_contents(name)?;
        return without_content(FileState::Link { to: to.to_string_lossy().into_owned() });
    }
    if !found.is_file() {
        return without_content(FileState::Other);
    }
    let mut bytes = Vec::new();
    beneath::file(&dir, name)?.take(max_bytes.saturating_add(1)).read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > max_bytes {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it is larger than {} MiB", max_bytes >> 20)));
    }
    Ok(PathState { state: FileState::File { hash: Hash::of(&bytes), executable: is_executable(&found) }, bytes })
}

/// Removes empty directories after the removal of a file, from `path` up to, but not including, `stop`. An empty `stop` means the root.
pub(crate) fn prune(root: &Dir, (path, stop): (&str, &str)) {
    let mut path = Path::new(path);
    while path != Path::new(stop) && path != Path::new("") && path != Path::new(".") {
        let removed = beneath::parent(root, path).and_then(|(dir, name)| dir.remove_dir(name));
        let (Ok(()), Some(parent)) = (removed, path.parent()) else { return };
        path = parent;
    }
}

#[cfg(unix)]
fn is_executable(found: &cap_std::fs::Metadata) -> bool {
    use cap_std::fs::PermissionsExt as _;

    found.permissions().mode() & 0o100 != 0
}

#[cfg(not(unix))]
fn is_executable(_: &cap_std::fs::Metadata) -> bool {
    false
}

/// Gives a new file the mode of the replaced one, with or without the executable bits.
#[cfg(unix)]
fn set_mode(before: Option<mode::KeptMode>, file: &cap_std::fs::File, executable: bool) -> io::Result<()> {
    use cap_std::fs::PermissionsExt as _;

    // Everyone who may read the file may also execute it.
    let change = |bits: u32| if executable { bits | ((bits & 0o444) >> 2) } else { bits & !0o111 };
    if let Some(kept) = before {
        return kept.apply(file, change);
    }
    let mut permissions = file.metadata()?.permissions();
    permissions.set_mode(change(permissions.mode() & 0o777));
    file.set_permissions(permissions)
}

#[cfg(not(unix))]
fn set_mode(_: Option<mode::KeptMode>, _: &cap_std::fs::File, _: bool) -> io::Result<()> {
    Ok(())
}

#[cfg(unix)]
fn link(dir: &Dir, to: &str, name: &str) -> io::Result<()> {
    dir.symlink(to, name)
}

#[cfg(not(unix))]
fn link(_: &Dir, _: &str, _: &str) -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "symbolic links are supported on Unix only"))
}
