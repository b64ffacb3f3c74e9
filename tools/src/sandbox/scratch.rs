//! A temporary directory for one command, removed when the command has ended.

use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

/// Maximum number of names to try, because killed guards leave directories behind.
const MAX_TRIES: u32 = 10_000;

/// An empty directory that only this user can enter; removed with its contents on drop.
pub(super) struct Scratch(PathBuf);

impl Scratch {
    pub(super) fn create() -> io::Result<Self> {
        // A path without links: the sandbox refuses a path with a link, because a session may have created that link.
        let base = std::env::temp_dir().canonicalize()?;
        let id = std::process::id();
        for n in 0..MAX_TRIES {
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
        if let Err(error) = crate::removal::remove(&self.0) {
            // Write to the output of the command, which has a reader. An error means that the output is closed.
            let _ = writeln!(io::stderr(), "guard: files of the command remain: {error}");
        }
    }
}
