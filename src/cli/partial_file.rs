//! Files that get their name when they are whole.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

/// A new file alongside the one whose place it takes; removed when it is dropped before.
#[derive(Debug)]
pub(crate) struct PartialFile {
    at: PathBuf,
    whole: PathBuf,
}

impl PartialFile {
    /// Creates the part file of `whole`. An existing one is removed, not opened: it may be a foreign link or readable
    /// by others.
    pub(crate) fn of(whole: &Path, ending: &str, mut options: OpenOptions) -> io::Result<(Self, File)> {
        let mut at = whole.as_os_str().to_owned();
        at.push(format!(".{ending}"));
        let part = Self { at: at.into(), whole: whole.to_owned() };
        match std::fs::remove_file(&part.at) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let file = options.write(true).create_new(true).open(&part.at)?;
        Ok((part, file))
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
