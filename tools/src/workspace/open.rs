//! Opening regular files, and telling text from other bytes.

use std::io;
use std::path::Path;

use cap_std::fs::File;

use super::builtin::Job;
use super::failure;
use crate::tool::ToolError;

/// Bytes at the start of a file that tell whether it is text.
pub(super) const PROBE: usize = 8192;

/// Opens a regular file; anything else is an error.
pub(super) fn regular(job: &Job, os: &Path) -> io::Result<File> {
    let file = job.workspace.open_file(os)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

/// Opens the regular file at `real`, which a model calls `path`, and gives its size.
pub(super) fn file(job: &Job, verb: &str, path: &str, real: &str) -> Result<(File, u64), ToolError> {
    let failed = |error| failure(verb, path, &error);
    // Asked before it is opened: opening a device can have effects.
    let metadata = job.workspace.dir().metadata(real).map_err(failed)?;
    if metadata.is_dir() {
        return Err(ToolError::bad_args(format!(
            "`{path}` is a directory: look into it with list, and {verb} a file in it"
        )));
    }
    if !metadata.is_file() {
        return Err(ToolError::refused(format!(
            "`{path}` is neither file nor directory, but a pipe, socket or device"
        )));
    }
    let file = job.workspace.open_file(Path::new(real)).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if metadata.is_file() { Ok((file, metadata.len())) } else { Err(failed(io::ErrorKind::InvalidInput.into())) }
}

/// Whether bytes from the start of a file are not text.
pub(super) fn is_binary(bytes: &[u8]) -> bool {
    bytes.iter().take(PROBE).any(|byte| *byte == 0)
}
