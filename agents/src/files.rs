//! Reads folders and files below a root.
//!
//! A command may replace any part of a path with a link or a pipe while it is read. So each part below the root is opened
//! once, without following links and without blocking, and the open file is checked.

use std::io::{self, ErrorKind, Read as _};
use std::path::Path;

use cap_std::ambient_authority;
use cap_std::fs::{Dir, File, ReadDir};

pub(crate) const MAX_BYTES: u64 = 256 << 10;

/// The start of the message about a file that the operating system did not let this process read.
pub(crate) const UNREAD: &str = "cannot be read: ";

const LEASED: &str = "another process holds a lease on it (F_SETLEASE). End that process, or retry in a minute";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum HardLinks {
    /// The file is refused, because a hard link in a workspace may point to a file that no session may read.
    #[default]
    Refused,
    /// The file is read. The user's own files may be hard links into a collection of agents.
    Read,
}

/// Returns the entries of `folder`, which is `root` or lies below it.
///
/// # Errors
/// If it cannot be opened, or if a part of the path below `root` is a link.
pub(crate) fn list(root: &Path, folder: &Path) -> io::Result<ReadDir> {
    // The handle from `open_folder` cannot be used for listing.
    open_folder(root, folder)?.open_dir(".")?.entries()
}

/// Returns whether an entry of any type exists at `path` below `root`.
pub(crate) fn exists(root: &Path, path: &Path) -> bool {
    let found = path.file_name().zip(path.parent());
    found.is_some_and(|(name, above)| open_folder(root, above).and_then(|dir| dir.symlink_metadata(name)).is_ok())
}

/// Returns the text of the regular file at `path` below `root`, or why it is refused.
pub(crate) fn read(root: &Path, path: &Path, links: HardLinks) -> Result<String, String> {
    let cannot = |error: io::Error| system::refusal(&error).map_or_else(|| cannot_read(&error), str::to_owned);
    let (name, above) = path.file_name().zip(path.parent()).ok_or(NOT_REGULAR)?;
    let (dir, name) = (open_folder(root, above).map_err(cannot)?, Path::new(name));
    let file = system::open_file(&dir, name).map_err(cannot)?;
    if !file.metadata().map_err(cannot)?.is_file() {
        return Err(NOT_REGULAR.to_owned());
    }
    if links == HardLinks::Refused && system::has_other_names(&dir, name, &file).map_err(cannot)? {
        return Err(OTHER_NAMES.to_owned());
    }
    text_of(file.into_std())
}

/// Returns the text of a file that the user names. It may be a pipe, so this function may block. Links are followed.
pub(crate) fn read_named(path: &Path) -> Result<String, String> {
    let open = || {
        let file = system::open_nonblocking(path)?;
        // A file of another type, such as a pipe, needs blocking reads, so it is opened again without the flag.
        if file.metadata()?.is_file() { Ok(file) } else { std::fs::File::open(path) }
    };
    let file = open().map_err(|error| cannot_read(&error))?;
    match system::link_count(&file.metadata().map_err(|error| cannot_read(&error))?) {
        0 | 1 => text_of(file),
        _ => Err(OTHER_NAMES.to_owned()),
    }
}

const LINK: &str = "is a symbolic link, which is not followed: copy the file";

const NOT_REGULAR: &str = "is not a regular file: replace it with one";

const OTHER_NAMES: &str = "has other names (hard links), which may lie elsewhere: copy the file";

fn cannot_read(error: &io::Error) -> String {
    if error.kind() == ErrorKind::WouldBlock { format!("{UNREAD}{LEASED}") } else { format!("{UNREAD}{error}") }
}

fn text_of(file: std::fs::File) -> Result<String, String> {
    let mut bytes = Vec::new();
    file.take(MAX_BYTES.saturating_add(1)).read_to_end(&mut bytes).map_err(|error| cannot_read(&error))?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > MAX_BYTES {
        return Err(format!("is larger than {MAX_BYTES} bytes, the most that an agent file may have"));
    }
    String::from_utf8(bytes)
        .map_err(|error| format!("is not UTF-8 text, from byte {}", error.utf8_error().valid_up_to()))
}

fn open_folder(root: &Path, folder: &Path) -> io::Result<Dir> {
    let below = folder.strip_prefix(root).map_err(|_| ErrorKind::InvalidInput)?;
    // A relative path of the user may be empty.
    let root = if root.as_os_str().is_empty() { Path::new(".") } else { root };
    system::walk(Dir::open_ambient_dir(root, ambient_authority())?, below)
}

#[cfg(unix)]
mod system {
    use std::path::Component;

    use rustix::fs::{AtFlags, Mode, OFlags, fstat, openat, statat};
    use rustix::io::Errno;

    use super::*;

    const FOLDER: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);
    /// `O_PATH` suffices, so that folders can be entered even if they cannot be listed.
    #[cfg(target_os = "linux")]
    const HANDLE: OFlags = FOLDER.union(OFlags::PATH);
    #[cfg(not(target_os = "linux"))]
    const HANDLE: OFlags = FOLDER.union(OFlags::RDONLY);

    pub(super) fn walk(root: Dir, below: &Path) -> io::Result<Dir> {
        below.components().try_fold(root, |at, part| match part {
            Component::CurDir => Ok(at),
            Component::Normal(name) => Ok(Dir::from_std_file(openat(&at, name, HANDLE, Mode::empty())?.into())),
            Component::Prefix(_) | Component::RootDir | Component::ParentDir => Err(ErrorKind::InvalidInput.into()),
        })
    }

    pub(super) fn open_file(dir: &Dir, name: &Path) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(File::from_std(openat(dir, name, flags, Mode::empty())?.into()))
    }

    /// Returns the message about an entry of a type that is refused; `None` for another error.
    pub(super) fn refusal(error: &io::Error) -> Option<&'static str> {
        match Errno::from_io_error(error)? {
            Errno::LOOP => Some(LINK),
            // A socket, or a device without a driver.
            Errno::NXIO => Some(NOT_REGULAR),
            _ => None,
        }
    }

    /// Opens a file without waiting while another process holds a lease on it.
    pub(super) fn open_nonblocking(path: &Path) -> io::Result<std::fs::File> {
        use std::os::unix::fs::OpenOptionsExt as _;

        std::fs::File::options().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)
    }

    /// Returns whether the open file has names other than `name`.
    ///
    /// # Errors
    /// If `name` no longer refers to it: the count of the open file would be too low if this name was removed meanwhile.
    pub(super) fn has_other_names(dir: &Dir, name: &Path, file: &File) -> io::Result<bool> {
        let (named, opened) = (statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?, fstat(file)?);
        if (named.st_dev, named.st_ino) != (opened.st_dev, opened.st_ino) {
            return Err(io::Error::other("it was replaced while it was opened. Try again"));
        }
        Ok(named.st_nlink > 1)
    }

    pub(super) fn link_count(file: &std::fs::Metadata) -> u64 {
        std::os::unix::fs::MetadataExt::nlink(file)
    }
}

/// On other systems, the handle confines access to the root, but a link that was swapped in is followed below it.
#[cfg(not(unix))]
mod system {
    use super::*;

    pub(super) fn walk(root: Dir, below: &Path) -> io::Result<Dir> {
        if below.as_os_str().is_empty() { Ok(root) } else { root.open_dir(below) }
    }

    pub(super) fn open_file(dir: &Dir, name: &Path) -> io::Result<File> {
        dir.open(name)
    }

    pub(super) fn refusal(_: &io::Error) -> Option<&'static str> {
        None
    }

    pub(super) fn open_nonblocking(path: &Path) -> io::Result<std::fs::File> {
        std::fs::File::open(path)
    }

    pub(super) fn has_other_names(_: &Dir, _: &Path, _: &File) -> io::Result<bool> {
        Ok(false)
    }

    pub(super) fn link_count(_: &std::fs::Metadata) -> u64 {
        1
    }
}

#[cfg(test)]
mod tests;
