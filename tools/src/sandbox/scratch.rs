//! A temporary directory for one command, removed after it.

use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

/// Names to try: killed guards leave directories behind.
const TRIES: u32 = 10_000;

/// An empty directory that only this user can enter; removed with its contents on drop.
pub(super) struct Scratch(PathBuf);

impl Scratch {
    pub(super) fn make() -> io::Result<Self> {
        let base = std::env::temp_dir();
        let id = std::process::id();
        for n in 0..TRIES {
            let path = base.join(format!("subtend-{id}-{n}"));
            match std::fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self(path)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed is left to the cleanup of temporary files.
        drop(std::fs::remove_dir_all(&self.0));
    }
}
