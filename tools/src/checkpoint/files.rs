//! The files of checkpoints: closed to other users, durable, bounded in bytes and age.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::time::Duration;

use super::{CheckpointError, Checkpoints, cannot};

/// The file of a restore that is not finished.
pub(super) const INTENT: &str = "restore.json";
/// End of the name of a file that is being written.
const NEW: &str = ".new";
/// Bytes of all contents of a store.
pub(super) const BOUND: u64 = 1 << 30;
/// After this time without a write, the checkpoints of a session are erased.
const AGE: Duration = Duration::from_secs(30 * 24 * 3600);

/// Totals of the directory, as its process knows them.
#[derive(Debug)]
pub(super) struct SavedTotals {
    /// The number of the next checkpoint.
    pub(super) next: u64,
    pub(super) bytes: u64,
}

impl Checkpoints {
    /// Returns the ledger, which the first caller reads from the directory.
    pub(super) fn ledger_of<'a>(
        &self,
        held: &'a mut Option<SavedTotals>,
    ) -> Result<&'a mut SavedTotals, CheckpointError> {
        let ledger = match held.take() {
            Some(ledger) => ledger,
            None => self.opened().map_err(cannot("saved"))?,
        };
        Ok(held.insert(ledger))
    }

    fn opened(&self) -> io::Result<SavedTotals> {
        private_dir(&self.dir)?;
        // A new file has the time of its file system.
        let touched = self.dir.join("touched");
        durable(&touched, b"")?;
        let now = fs::metadata(&touched)?.modified()?;
        let mut ledger = SavedTotals { next: 1, bytes: 0 };
        for (session, _) in entries(&self.dir)?.into_iter().filter(|(_, found)| found.is_dir()) {
            let dir = self.dir.join(session);
            let files = entries(&dir)?;
            let last = files.iter().filter_map(|(_, found)| found.modified().ok()).max();
            if last.is_some_and(|last| now.duration_since(last).is_ok_and(|age| age > AGE)) {
                gone(&dir)?;
                continue;
            }
            for (name, found) in files {
                // Left by a kill in the middle of a write.
                if name.ends_with(NEW) {
                    gone(&dir.join(name))?;
                    continue;
                }
                match number_of(&name) {
                    Some(number) => ledger.next = ledger.next.max(number.saturating_add(1)),
                    None => ledger.bytes = ledger.bytes.saturating_add(found.len()),
                }
            }
        }
        Ok(ledger)
    }

    /// Removes the oldest contents of a store with too many bytes. Their checkpoints stay, so that a restore can say what it lacks.
    pub(super) fn bound(&self, ledger: &mut SavedTotals) -> Result<(), CheckpointError> {
        if ledger.bytes <= self.bound {
            return Ok(());
        }
        let mut contents = Vec::new();
        for session in self.sessions()? {
            let dir = self.of(session);
            // An unfinished restore needs them.
            if dir.join(INTENT).exists() {
                continue;
            }
            let files = entries(&dir).map_err(cannot("listed"))?.into_iter();
            let of = files.filter(|(name, _)| number_of(name).is_none());
            contents.extend(of.map(|(name, found)| (found.modified().ok(), dir.join(name), found.len())));
        }
        contents.sort();
        ledger.bytes = contents.iter().map(|(_, _, bytes)| *bytes).fold(0, u64::saturating_add);
        for (_, path, bytes) in contents {
            // With room for the next ones, so that not each of them searches.
            if ledger.bytes <= self.bound / 4 * 3 {
                break;
            }
            gone(&path).map_err(cannot("bounded"))?;
            ledger.bytes = ledger.bytes.saturating_sub(bytes);
        }
        Ok(())
    }
}

/// Returns the number of a checkpoint's file.
pub(super) fn number_of(name: &str) -> Option<u64> {
    name.strip_suffix(".json")?.parse().ok()
}

/// Returns the entries of a directory that are files or directories; none of a missing one.
pub(super) fn entries(dir: &Path) -> io::Result<Vec<(String, Metadata)>> {
    let listed = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        listed => listed?,
    };
    let mut found = Vec::new();
    for entry in listed {
        let entry = entry?;
        match entry.metadata() {
            Ok(of) if !of.is_symlink() => found.push((entry.file_name().to_string_lossy().into_owned(), of)),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// Makes a directory that other users cannot enter, if it is missing.
pub(super) fn private_dir(dir: &Path) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir)?;
    dir.parent().map_or(Ok(()), sync_dir)
}

/// Writes a file that only this user reads, synced before it has its name. The directory is not synced.
pub(super) fn durable(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(NEW);
    let name = Path::new(&name);
    let written = write_synced(name, bytes).and_then(|()| fs::rename(name, path));
    if written.is_err() {
        // On a full disk the part that was written would keep it full.
        drop(gone(name));
    }
    written
}

fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

pub(super) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Removes a file or a directory, if it exists.
pub(super) fn gone(path: &Path) -> io::Result<()> {
    let removed = match path.symlink_metadata() {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}
