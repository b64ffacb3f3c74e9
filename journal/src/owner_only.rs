//! File permissions of a store: 0700 for directories, 0600 for files. Has no effect on systems other than Unix. Also refuses entries that
//! lead out of a store.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use crate::engines::ENGINES;
use crate::error::{OpenError, io};

const OTHERS: u32 = 0o077;

/// A directory that other users could enter.
#[derive(Debug)]
pub struct ExposedDir {
    pub path: PathBuf,
    /// Its previous mode.
    pub mode: u32,
    /// The reason why it is still open, if it could not be closed.
    pub left: Option<io::Error>,
}

impl std::fmt::Display for ExposedDir {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (path, mode) = (self.path.display(), self.mode & 0o7777);
        match &self.left {
            None => write!(f, "{path} was open to other users (mode {mode:o}); now only its owner can enter it"),
            Some(error) => {
                write!(
                    f,
                    "{path} is open to other users (mode {mode:o}) and cannot be closed: {error}. Use another directory"
                )
            }
        }
    }
}

/// Creates a directory and its missing parents with access for the owner only.
/// # Errors
/// When one of them cannot be created.
pub fn create_dir_all(dir: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir)
}

/// Returns options that create files with access for the owner only.
pub fn file_options() -> OpenOptions {
    let mut options = File::options();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Opens a file of a store for reading and writing, and creates it if it is missing. Refuses links, so that files outside of the store are
/// not written, even if another user owns its directory.
pub(crate) fn open_own(path: &Path) -> io::Result<File> {
    match file_options().read(true).write(true).create_new(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => return made,
    }
    // Opening does not change the file. The comparison detects a link that was created after the first attempt.
    let file = File::options().read(true).write(true).open(path)?;
    let (opened, named) = (file.metadata()?, fs::symlink_metadata(path)?);
    if !named.is_file() || !is_same(&opened, &named) {
        return Err(io::Error::other("it is a link or not a regular file: remove it"));
    }
    Ok(file)
}

/// Checks the entry of a store at `path`, which may be missing. Returns whether it is a directory. The author of a store could otherwise
/// have files outside of it read, written or removed, and openings wait for a pipe.
/// # Errors
/// [`OpenError::Irregular`] for a link, a pipe or a device.
pub(crate) fn check_entry(path: &Path) -> Result<bool, OpenError> {
    match fs::symlink_metadata(path) {
        Ok(found) => check_type(path, found.file_type()),
        // Nor can this user open what is in a closed directory. The error of that names what for.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => Ok(false),
        Err(error) => Err(io("read", path)(error)),
    }
}

fn check_type(path: &Path, found: fs::FileType) -> Result<bool, OpenError> {
    if found.is_dir() || found.is_file() {
        return Ok(found.is_dir());
    }
    let found = if found.is_symlink() { "a link" } else { "a pipe, a socket or a device" };
    Err(OpenError::Irregular { path: path.to_owned(), found })
}

/// Checks an entry like [`check_entry`], and everything down to `depth` levels below it.
/// # Errors
/// As for [`check_entry`], and for a directory that cannot be read.
#[cfg(feature = "disk")]
pub(crate) fn check_below(path: &Path, depth: usize) -> Result<(), OpenError> {
    let mut left = Vec::new();
    left.extend(check_entry(path)?.then(|| (path.to_owned(), depth)));
    while let Some((dir, depth)) = left.pop() {
        let Some(below) = depth.checked_sub(1) else { continue };
        for entry in fs::read_dir(&dir).map_err(io("read the directory", &dir))? {
            let entry = entry.map_err(io("read the directory", &dir))?;
            let path = entry.path();
            let found = entry.file_type().map_err(io("read", &path))?;
            left.extend(check_type(&path, found)?.then_some((path, below)));
        }
    }
    Ok(())
}

#[cfg(unix)]
fn is_same(one: &fs::Metadata, other: &fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

#[cfg(not(unix))]
fn is_same(_: &fs::Metadata, _: &fs::Metadata) -> bool {
    true
}

/// Removes other users' access to a directory of stores and to its stores. Returns the directories that were open. A directory with other
/// content is not changed, but returned.
/// # Errors
/// When an existing directory cannot be read.
pub fn close_to_others(dir: &Path) -> io::Result<Vec<ExposedDir>> {
    let mut exposed = Vec::new();
    let Some(entries) = entries(dir)? else { return Ok(exposed) };
    let (stores, own): (Vec<_>, Vec<_>) = entries.iter().partition(|(name, _)| is_engine(name));
    let others = own.iter().any(|(name, _)| !is_store_entry(name));
    close(dir, others, &mut exposed);
    let entered = !exposed.is_empty();
    for (name, _) in own.iter().filter(|(name, _)| is_store_entry(name)) {
        // Blobs are created without access for others, so they are only walked if the directory was open before.
        if entered || name != "blobs" {
            close_recursively(&dir.join(name))?;
        }
    }
    for (name, is_dir) in stores {
        if *is_dir {
            exposed.extend(close_to_others(&dir.join(name))?);
        }
    }
    Ok(exposed)
}

/// Returns the entries of a directory without links, or `None` if the directory is missing.
fn entries(dir: &Path) -> io::Result<Option<Vec<(String, bool)>>> {
    let listed = match fs::read_dir(dir) {
        Ok(listed) => listed,
        Err(error) if is_reported_by_opening(error.kind()) => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut entries = Vec::new();
    for entry in listed {
        let entry = entry?;
        let kind = entry.file_type()?;
        if !kind.is_symlink() {
            entries.push((entry.file_name().to_string_lossy().into_owned(), kind.is_dir()));
        }
    }
    Ok(Some(entries))
}

/// Returns whether opening the store will report this error in a better way: it is missing, or another user owns it.
fn is_reported_by_opening(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::PermissionDenied)
}

/// Returns whether the command line uses this name for a store in a data directory.
fn is_engine(name: &str) -> bool {
    ENGINES.iter().any(|(engine, ..)| *engine == name)
}

fn is_store_entry(name: &str) -> bool {
    let of_engine = |entry: &str| name.strip_prefix(entry).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    let of_host = name == "host" || name.strip_suffix(".host").is_some_and(is_engine);
    of_host || matches!(name, "LOCK" | "WATERMARK" | "blobs") || ENGINES.iter().any(|(.., entry)| of_engine(entry))
}

/// Removes other users' access to `path` and its contents, directories first, so that others cannot replace entries meanwhile.
fn close_recursively(path: &Path) -> io::Result<()> {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        // The engine may remove files meanwhile.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if metadata.is_symlink() {
        return Ok(());
    }
    // A failure is ignored, because the enclosing directory is reported.
    drop(set(path, &metadata));
    if !metadata.is_dir() {
        return Ok(());
    }
    for (name, _) in entries(path)?.unwrap_or_default() {
        close_recursively(&path.join(name))?;
    }
    Ok(())
}

/// Removes other users' access to a directory without other content, and records it if it was open.
fn close(dir: &Path, others: bool, exposed: &mut Vec<ExposedDir>) {
    let Ok(metadata) = fs::metadata(dir) else { return };
    let Some(mode) = mode(&metadata).filter(|mode| mode & OTHERS != 0) else { return };
    let left = if others {
        Some(io::Error::other("it contains files that do not belong to stores"))
    } else {
        set(dir, &metadata).err()
    };
    exposed.push(ExposedDir { path: dir.to_owned(), mode, left });
}

#[cfg(unix)]
fn mode(metadata: &fs::Metadata) -> Option<u32> {
    Some(std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()))
}

#[cfg(not(unix))]
fn mode(_: &fs::Metadata) -> Option<u32> {
    None
}

fn set(path: &Path, metadata: &fs::Metadata) -> io::Result<()> {
    #[cfg(unix)]
    if let Some(mode) = mode(metadata).filter(|mode| mode & OTHERS != 0) {
        let own = std::os::unix::fs::PermissionsExt::from_mode(mode & 0o7777 & !OTHERS);
        fs::set_permissions(path, own)?;
    }
    #[cfg(not(unix))]
    let _ = (path, metadata);
    Ok(())
}
