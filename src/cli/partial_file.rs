//! Files that get their name when they are whole.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

/// Names that are tried.
const NAMES: u32 = 1_000;

/// A new file alongside the one whose place it takes; removed when it is dropped before.
#[derive(Debug)]
pub(crate) struct PartialFile {
    at: PathBuf,
    whole: PathBuf,
}

impl PartialFile {
    /// Creates the part file of `whole` under a name that no file has: one that exists may be the user's, a foreign link, or readable by
    /// others.
    pub(crate) fn of(whole: &Path, ending: &str, mut options: OpenOptions) -> io::Result<(Self, File)> {
        let options = options.write(true).create_new(true);
        let mut number = 0_u32;
        loop {
            let mut at = whole.as_os_str().to_owned();
            at.push(format!(".{ending}"));
            if number > 0 {
                at.push(format!("-{number}"));
            }
            match options.open(&at) {
                Ok(file) => return Ok((Self { at: at.into(), whole: whole.to_owned() }, file)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < NAMES => {
                    number = number.saturating_add(1);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Puts it in its place: who reads that meanwhile has the old file or the new one.
    pub(crate) fn put(self) -> io::Result<()> {
        std::fs::rename(&self.at, &self.whole)
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        // After the rename it no longer exists.
        drop(std::fs::remove_file(&self.at));
    }
}
