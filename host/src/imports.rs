//! Imports in progress, so that clients can show their progress.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use subtend_journal::Progress;
use utoipa::ToSchema;

/// Opens a regular file for reading. Returns `None` for a file of another type, without blocking on a pipe or a device.
///
/// # Errors
/// If the file cannot be inspected or opened.
pub fn open_regular(path: &Path) -> io::Result<Option<File>> {
    // Opening some devices has effects.
    if !path.metadata()?.is_file() {
        return Ok(None);
    }
    let mut options = File::options();
    options.read(true);
    // Another process may have replaced the file meanwhile.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, rustix::fs::OFlags::NONBLOCK.bits().cast_signed());
    let file = options.open(path)?;
    Ok(file.metadata()?.is_file().then_some(file))
}

/// An import in progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct ImportInProgress {
    /// The path of the file, as requested.
    #[schema(value_type = String)]
    file: PathBuf,
    /// Number of frames read so far. Each frame is read twice: for the check of the file, and for its import.
    frames: u64,
    /// Number of sessions in these frames.
    sessions: u64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Imports(Arc<Mutex<Vec<(u64, ImportInProgress)>>>);

impl Imports {
    fn lock(&self) -> MutexGuard<'_, Vec<(u64, ImportInProgress)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn list(&self) -> Vec<ImportInProgress> {
        self.lock().iter().map(|(_, import)| import.clone()).collect()
    }

    /// Lists an import of `file` until the returned value is dropped.
    pub(crate) fn begin(&self, file: PathBuf) -> ListedImport {
        let mut all = self.lock();
        let number = all.last().map_or(0, |(last, _)| last.saturating_add(1));
        all.push((number, ImportInProgress { file, frames: 0, sessions: 0 }));
        ListedImport { imports: self.clone(), number }
    }
}

/// Removes an import from the list when dropped.
#[derive(Debug)]
pub(crate) struct ListedImport {
    imports: Imports,
    number: u64,
}

impl ListedImport {
    pub(crate) fn report(&self, at: Progress) {
        let mut all = self.imports.lock();
        if let Some((_, import)) = all.iter_mut().find(|(number, _)| *number == self.number) {
            (import.frames, import.sessions) = (at.frames, at.sessions);
        }
    }
}

impl Drop for ListedImport {
    fn drop(&mut self) {
        self.imports.lock().retain(|(number, _)| *number != self.number);
    }
}
