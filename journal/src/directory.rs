//! Atomic creation of directories.

use std::fs::File;
use std::io;
use std::path::Path;

use crate::error::{OpenError, io};
use crate::owner_only;

pub(crate) fn sync(dir: &Path) -> Result<(), OpenError> {
    let synced = File::open(dir).and_then(|dir| dir.sync_all());
    synced.map_err(io("sync the directory", dir))
}

/// Creates `dir`, unless it exists, by `make` under a temporary name and a durable rename: it is never incomplete.
pub(crate) fn create_atomically(
    dir: &Path,
    make: impl FnOnce(&Path) -> Result<(), OpenError>,
) -> Result<(), OpenError> {
    if dir.exists() {
        return Ok(());
    }
    let making = dir.with_added_extension("making");
    match std::fs::remove_dir_all(&making) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io("remove", &making)(error)),
        Ok(()) | Err(_) => {}
    }
    owner_only::create_dir_all(&making).map_err(io("create", &making))?;
    make(&making)?;
    sync_all_below(&making).map_err(io("sync", &making))?;
    std::fs::rename(&making, dir).map_err(io("rename", &making))?;
    dir.parent().map_or(Ok(()), sync)
}

fn sync_all_below(dir: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync_all_below(&entry.path())?;
        } else {
            File::open(entry.path())?.sync_all()?;
        }
    }
    File::open(dir)?.sync_all()
}
