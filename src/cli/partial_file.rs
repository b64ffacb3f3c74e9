//! Files that get their final name when they are complete.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

/// Maximum number of temporary names tried.
const MAX_ATTEMPTS: u32 = 1_000;

/// A temporary file in the directory of its target. Dropping it before [`PartialFile::persist`] removes it.
#[derive(Debug)]
pub(crate) struct PartialFile {
    temporary: PathBuf,
    target: PathBuf,
}

impl PartialFile {
    /// Creates the temporary file of `target` under an unused name: others may be the user's or another user's link.
    pub(crate) fn of(target: &Path, ending: &str, mut options: OpenOptions) -> io::Result<(Self, File)> {
        let options = options.write(true).create_new(true);
        let mut number = 0_u32;
        loop {
            let mut temporary = target.as_os_str().to_owned();
            temporary.push(format!(".{ending}"));
            if number > 0 {
                temporary.push(format!("-{number}"));
            }
            match options.open(&temporary) {
                Ok(file) => return Ok((Self { temporary: temporary.into(), target: target.to_owned() }, file)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < MAX_ATTEMPTS => {
                    number = number.saturating_add(1);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Renames the file to its target. A concurrent reader sees the old or the new file.
    pub(crate) fn persist(self) -> io::Result<()> {
        std::fs::rename(&self.temporary, &self.target)
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        // The error is ignored: after the rename the file no longer exists.
        drop(std::fs::remove_file(&self.temporary));
    }
}
