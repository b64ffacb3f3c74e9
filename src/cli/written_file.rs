use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use subtend_journal::owner_only::{create_dir_all, file_options};

use super::fail::Fail;
use super::partial_file::PartialFile;

/// Writes a file atomically: a concurrent reader sees the old or the new content.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), Fail> {
    write_with(File::options(), path, text)
}

/// As [`write`], readable and writable by the owner only. Creates a missing directory with the same access. Another
/// user who could write here could change the permissions of agents.
pub(crate) fn write_private(path: &Path, text: &str) -> Result<(), Fail> {
    if let Some(folder) = path.parent() {
        let failed = |error| Fail::Other(format!("{} cannot be created: {error}", folder.display()));
        create_dir_all(folder).map_err(failed)?;
    }
    write_with(file_options(), path, text)
}

/// Locks a file, which is never removed, for a change of the file next to it. Creates it and missing directories.
pub(crate) fn lock(path: &Path) -> std::io::Result<File> {
    create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
    let file = file_options().create(true).write(true).truncate(false).open(path)?;
    file.lock()?;
    Ok(file)
}

fn write_with(options: OpenOptions, path: &Path, text: &str) -> Result<(), Fail> {
    let failed = |error: std::io::Error| Fail::Other(format!("{} cannot be written: {error}", path.display()));
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    // The name of the temporary file contains the process id, because two processes may write at the same time.
    let (part, mut file) = PartialFile::of(path, &std::process::id().to_string(), options).map_err(failed)?;
    if let Some(before) = std::fs::symlink_metadata(path).ok().filter(std::fs::Metadata::is_file) {
        keep_permissions(&before, &file).map_err(failed)?;
    }
    file.write_all(text.as_bytes()).map_err(failed)?;
    part.persist().map_err(failed)
}

/// Gives a file the group and the mode of the file that it replaces, if that belongs to this user. Drops the setuid bit,
/// because others who can write to the file could run programs as this user, and the bits of a group that is not kept.
#[cfg(unix)]
fn keep_permissions(before: &std::fs::Metadata, file: &File) -> std::io::Result<()> {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    if before.uid() != rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    let is_kept =
        file.metadata()?.gid() == before.gid() || std::os::unix::fs::fchown(file, None, Some(before.gid())).is_ok();
    let bits = if is_kept { 0o777 } else { 0o707 };
    file.set_permissions(std::fs::Permissions::from_mode(before.permissions().mode() & bits & 0o777))
}

#[cfg(not(unix))]
fn keep_permissions(before: &std::fs::Metadata, file: &File) -> std::io::Result<()> {
    file.set_permissions(before.permissions())
}
