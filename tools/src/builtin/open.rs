//! Opens regular files and detects binary ones.

use std::io;
use std::path::Path;

use cap_std::fs::{File, Metadata};

use super::file_tool::Job;
use crate::tool::ToolError;
use crate::workspace::names::OpenNamedError;
use crate::workspace::{beneath, failure};

/// Number of bytes at the start of a file that decide whether it is binary.
pub(super) const PROBE_BYTES: usize = 8192;

pub(super) fn regular(job: &Job, os: &Path) -> Result<File, OpenNamedError> {
    let (dir, name) = beneath::parent(job.workspace.dir(), os)?;
    let file = beneath::file(&dir, name)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::from(io::ErrorKind::InvalidInput).into());
    }
    job.permit_names((&dir, name), &file)?;
    Ok(file)
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
    // Checked before opening, because opening a device can have side effects.
    let found = metadata(job, Path::new(real)).map_err(failed)?;
    if found.is_dir() {
        return Err(ToolError::bad_args(format!("`{path}` is a directory: list it, and {verb} a file in it")));
    }
    // If a link has replaced the file since the path was resolved, opening fails with that reason.
    if !found.is_file() && !found.is_symlink() {
        return Err(ToolError::refused(format!("`{path}` is a pipe, socket or device, not a file or directory")));
    }
    match regular(job, Path::new(real)) {
        Ok(file) => {
            let size = file.metadata().map_err(failed)?.len();
            Ok((file, size))
        }
        Err(OpenNamedError::Io(error)) => Err(failed(error)),
        Err(OpenNamedError::OtherName(why)) => Err(ToolError::denied(format!("cannot {verb} `{path}`: {why}"))),
    }
}

pub(super) fn is_binary(bytes: &[u8]) -> bool {
    bytes.iter().take(PROBE_BYTES).any(|byte| *byte == 0)
}
