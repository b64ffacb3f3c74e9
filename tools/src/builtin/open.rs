//! Opens regular files and detects binary ones.

use std::io;
use std::path::Path;

use cap_std::fs::{Dir, File, Metadata};

use super::file_tool::Job;
use crate::tool::ToolError;
use crate::workspace::names::OpenNamedError;
use crate::workspace::{beneath, failure};

/// Number of bytes at the start of a file that decide whether it is binary.
pub(super) const PROBE_BYTES: usize = 8192;

pub(super) fn regular(job: &Job, os: &Path) -> Result<File, OpenNamedError> {
    let (dir, name) = beneath::parent(job.workspace.dir(), os)?;
    entry(job, (&dir, name)).map(|(file, _)| file)
}

/// Opens the regular file `name` of `dir`. Returns it with its size.
fn entry(job: &Job, (dir, name): (&Dir, &Path)) -> Result<(File, u64), OpenNamedError> {
    let file = beneath::file(dir, name)?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::from(io::ErrorKind::InvalidInput).into());
    }
    job.permit_names((dir, name), &file)?;
    Ok((file, found.len()))
}

pub(super) fn metadata(job: &Job, os: &Path) -> io::Result<Metadata> {
    let root = job.workspace.dir();
    if os == Path::new(".") {
        return root.dir_metadata();
    }
    let (dir, name) = beneath::parent(root, os)?;
    dir.symlink_metadata(name)
}

pub(super) fn file(job: &Job, verb: &str, path: &str, real: &str) -> Result<(File, u64), ToolError> {
    let failed = |error| failure(verb, path, &error);
    let is_dir = || ToolError::bad_args(format!("`{path}` is a directory: list it, and {verb} a file in it"));
    if real == "." {
        return Err(is_dir());
    }
    let (dir, name) = beneath::parent(job.workspace.dir(), Path::new(real)).map_err(failed)?;
    // Checked before opening, because opening a device can have side effects.
    let found = dir.symlink_metadata(name).map_err(failed)?;
    if found.is_dir() {
        return Err(is_dir());
    }
    // If a link has replaced the file since the path was resolved, opening fails with that reason.
    if !found.is_file() && !found.is_symlink() {
        return Err(ToolError::refused(format!("`{path}` is a pipe, socket or device, not a file or directory")));
    }
    entry(job, (&dir, name)).map_err(|error| match error {
        OpenNamedError::Io(error) => failed(error),
        OpenNamedError::OtherName(_) if job.check_cancelled().is_err() => ToolError::cancelled(),
        OpenNamedError::OtherName(why) => ToolError::denied(format!("cannot {verb} `{path}`: {why}")),
    })
}

pub(super) fn is_binary(bytes: &[u8]) -> bool {
    bytes.iter().take(PROBE_BYTES).any(|byte| *byte == 0)
}
