//! Files that only their owner can read and write.

use std::fs::{File, Metadata, OpenOptions};
use std::path::Path;
use std::time::SystemTime;

/// Maximum size of a token file in bytes.
#[cfg(unix)]
const MAX_BYTES: u64 = 1 << 20;

/// Reads a file of this user or of root. Refuses links, pipes and files that other users own or can write: with them,
/// another user could define the tokens of this host. A group with the number of this user counts as private.
#[cfg(unix)]
pub(super) fn read_own(path: &Path) -> std::io::Result<String> {
    use std::io::{Error, Read as _};
    use std::os::unix::fs::MetadataExt as _;

    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(rustix::io::Errno::LOOP) => return Err(Error::other("it is a symbolic link: remove it")),
        Err(error) => return Err(error.into()),
    };
    let metadata = file.metadata()?;
    if !metadata.is_file() || ![0, rustix::process::geteuid().as_raw()].contains(&metadata.uid()) {
        return Err(Error::other("it is not a regular file of this user: remove it"));
    }
    let is_private = [0, rustix::process::geteuid().as_raw()].contains(&metadata.gid());
    if metadata.mode() & if is_private { 0o002 } else { 0o022 } != 0 {
        return Err(Error::other("other users can write it: remove it, and create tokens again"));
    }
    let mut text = String::new();
    file.take(MAX_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(not(unix))]
pub(super) fn read_own(path: &Path) -> std::io::Result<String> {
    std::fs::read_to_string(path)
}

/// The version of a file: its identity, times and size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileVersion {
    #[cfg(unix)]
    node: (u64, u64),
    #[cfg(unix)]
    changed: (i64, i64),
    modified: SystemTime,
    bytes: u64,
}

impl FileVersion {
    pub(super) fn of(found: &Metadata) -> Option<Self> {
        #[cfg(unix)]
        use std::os::unix::fs::MetadataExt as _;
        Some(Self {
            #[cfg(unix)]
            node: (found.dev(), found.ino()),
            #[cfg(unix)]
            changed: (found.ctime(), found.ctime_nsec()),
            modified: found.modified().ok()?,
            bytes: found.len(),
        })
    }
}

/// Creates a file that only its owner can read.
pub(super) fn new_file(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Opens or creates a file for locking, without following links. Refuses a file that another user owns or can open,
/// because that user could keep it locked.
#[cfg(unix)]
pub(super) fn open_lock(path: &Path) -> std::io::Result<File> {
    use std::os::unix::fs::MetadataExt as _;

    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?);
    let metadata = file.metadata()?;
    let is_own = metadata.is_file() && [0, rustix::process::geteuid().as_raw()].contains(&metadata.uid());
    if !is_own || metadata.mode() & 0o077 != 0 {
        return Err(std::io::Error::other("other users can lock it, or it is not a regular file: remove it"));
    }
    Ok(file)
}

#[cfg(not(unix))]
pub(super) fn open_lock(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(false).open(path)
}
