//! Opens paths without following links.
//!
//! [`Workspace::real`](super::Workspace::real) follows links once, to resolve a path. The rules check the result. These functions then
//! open it and treat links as errors, in case a link was swapped in meanwhile.

use std::io;
use std::path::Path;

use cap_std::ambient_authority;
use cap_std::fs::{Dir, File, OpenOptions};

/// Opens the directory at `path`, which is `.` or a normalized path.
///
/// # Errors
/// If a part is a link or not a directory.
pub(crate) fn dir(root: &Dir, path: &Path) -> io::Result<Dir> {
    system::dir(root, path)
}

/// Opens the directory at the absolute `path`.
///
/// # Errors
/// The errors of [`dir`].
pub(crate) fn absolute_dir(path: &Path) -> io::Result<Dir> {
    if !cfg!(unix) {
        return Dir::open_ambient_dir(path, ambient_authority());
    }
    let root = Dir::open_ambient_dir("/", ambient_authority())?;
    let below = path.strip_prefix("/").map_err(|_| io::ErrorKind::InvalidInput)?;
    let below = if below.as_os_str().is_empty() { Path::new(".") } else { below };
    // The handle from `dir` cannot be used for listing.
    dir(&root, below)?.open_dir(".")
}

/// Opens the parent directory of `path` and returns it with the last part.
///
/// # Errors
/// The errors of [`dir`], and an error if `path` is the workspace itself.
pub(crate) fn parent<'a>(root: &Dir, path: &'a Path) -> io::Result<(Dir, &'a Path)> {
    let name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok((dir(root, parent)?, Path::new(name)))
}

/// Opens the entry `name` of `dir` for reading, without blocking on a pipe.
///
/// # Errors
/// If the entry is a link.
pub(crate) fn file(dir: &Dir, name: &Path) -> io::Result<File> {
    system::file(dir, name)
}

/// Returns whether `path` exists and certainly no part of it is a link, so that it resolves to itself. `path` must be
/// normalized.
pub(crate) fn has_no_links(root: &Dir, path: &Path) -> bool {
    system::has_no_links(root, path)
}

/// Creates the file `name` in `dir`. With `is_private`, only the owner can open the file until its mode is changed. So the replacement of a
/// private file is private while it is written.
///
/// # Errors
/// If `name` exists.
pub(crate) fn create(dir: &Dir, name: impl AsRef<Path>, is_private: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    if is_private {
        cap_std::fs::OpenOptionsExt::mode(&mut options, 0o600);
    }
    dir.open_with(name, &options)
}

/// Opens the directory at `path`, creating missing parts.
///
/// # Errors
/// The errors of [`dir`].
pub(crate) fn make_dir(root: &Dir, path: impl AsRef<Path>) -> io::Result<Dir> {
    let mut at = dir(root, Path::new("."))?;
    for part in path.as_ref() {
        let part = Path::new(part);
        let opened = match dir(&at, part) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                match at.create_dir(part) {
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                    Ok(()) | Err(_) => {}
                }
                dir(&at, part)
            }
            other => other,
        };
        at = opened?;
    }
    Ok(at)
}

pub(crate) fn is_link(error: &io::Error) -> bool {
    system::is_link(error)
}

#[cfg(unix)]
mod system {
    use std::path::Component;

    use rustix::fs::{Mode, OFlags, openat};
    #[cfg(target_os = "linux")]
    use rustix::fs::{ResolveFlags, openat2};
    use rustix::io::Errno;

    use super::*;

    const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
    /// `O_PATH` suffices, so that directories can be entered even if they cannot be listed.
    #[cfg(target_os = "linux")]
    const HANDLE: OFlags = DIRECTORY.union(OFlags::PATH);
    #[cfg(not(target_os = "linux"))]
    const HANDLE: OFlags = DIRECTORY.union(OFlags::RDONLY);

    #[cfg(target_os = "linux")]
    const WITHOUT_LINKS: ResolveFlags =
        ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

    #[cfg(target_os = "linux")]
    pub(crate) fn has_no_links(root: &Dir, path: &Path) -> bool {
        openat2(root, path, OFlags::PATH.union(OFlags::CLOEXEC), Mode::empty(), WITHOUT_LINKS).is_ok()
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn has_no_links(_: &Dir, _: &Path) -> bool {
        false
    }

    #[cfg(target_os = "linux")]
    pub(crate) fn dir(root: &Dir, path: &Path) -> io::Result<Dir> {
        match openat2(root, path, HANDLE, Mode::empty(), WITHOUT_LINKS) {
            Ok(fd) => Ok(Dir::from_std_file(fd.into())),
            // The call does not exist before Linux 5.6, or a system call filter rejects it.
            Err(Errno::NOSYS | Errno::PERM) => open_by_parts(root, path),
            Err(error) => Err(error.into()),
        }
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn dir(root: &Dir, path: &Path) -> io::Result<Dir> {
        open_by_parts(root, path)
    }

    pub(crate) fn open_by_parts(root: &Dir, path: &Path) -> io::Result<Dir> {
        let mut at = openat(root, ".", HANDLE, Mode::empty())?;
        for part in path.components() {
            at = match part {
                Component::CurDir => continue,
                Component::Normal(name) => openat(&at, name, HANDLE, Mode::empty())?,
                Component::Prefix(_) | Component::RootDir | Component::ParentDir => {
                    return Err(io::ErrorKind::InvalidInput.into());
                }
            };
        }
        Ok(Dir::from_std_file(at.into()))
    }

    pub(crate) fn file(dir: &Dir, name: &Path) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let mut parts = name.components();
        let is_name = matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None));
        if !is_name {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        match openat(dir, name, flags, Mode::empty()) {
            Ok(file) => Ok(File::from_std(file.into())),
            // After this attempt the system breaks the lease, by default within 45 seconds.
            Err(Errno::AGAIN) => Err(io::Error::new(io::ErrorKind::WouldBlock, LEASED)),
            Err(error) => Err(error.into()),
        }
    }

    const LEASED: &str = "another process holds a lease on it (F_SETLEASE): end that process, or retry in a minute";

    pub(crate) fn is_link(error: &io::Error) -> bool {
        error.raw_os_error() == Some(Errno::LOOP.raw_os_error())
    }
}

/// On other systems, the handle confines access to the workspace, but a link that was swapped in is followed within the workspace.
#[cfg(not(unix))]
mod system {
    use cap_std::fs::OpenOptions;

    use super::*;

    pub(crate) fn dir(root: &Dir, path: &Path) -> io::Result<Dir> {
        root.open_dir(path)
    }

    pub(crate) fn has_no_links(_: &Dir, _: &Path) -> bool {
        false
    }

    pub(crate) fn file(dir: &Dir, name: &Path) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true);
        dir.open_with(name, &options)
    }

    pub(crate) fn is_link(_: &io::Error) -> bool {
        false
    }
}
