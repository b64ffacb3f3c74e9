//! Files of checkpoints: private to the user, durable, and bounded in size and age.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::time::{Duration, SystemTime};

use subtend_session::ids::SessionId;

use super::{CheckpointError, Checkpoints, io_error};
use crate::private;
use crate::removal::remove;

/// File name of an unfinished restore.
pub(super) const INTENT_FILE: &str = "restore.json";
/// Suffix of a file that is being written.
const NEW_SUFFIX: &str = ".new";
/// Maximum bytes of all contents of a store.
pub(super) const MAX_BYTES: u64 = 1 << 30;
/// Time without a write after which the checkpoints of a session are erased.
const MAX_AGE: Duration = Duration::from_secs(30 * 24 * 3600);

#[derive(Debug)]
pub(super) struct SavedTotals {
    /// The number of the next checkpoint.
    pub(super) next: u64,
    pub(super) bytes: u64,
}

impl Checkpoints {
    /// Returns the totals. The first call reads them from the directory.
    pub(super) fn load_ledger<'a>(
        &self,
        held: &'a mut Option<SavedTotals>,
    ) -> Result<&'a mut SavedTotals, CheckpointError> {
        let ledger = match held.take() {
            Some(ledger) => ledger,
            None => self.scan().map_err(io_error("saved"))?,
        };
        Ok(held.insert(ledger))
    }

    fn scan(&self) -> io::Result<SavedTotals> {
        create_private_dir(&self.dir)?;
        // The file system, not the clock of the process, provides the current time.
        let touched = self.dir.join("touched");
        write_durably(&touched, b"")?;
        let now = last_change(&fs::metadata(&touched)?);
        let mut ledger = SavedTotals { next: 1, bytes: 0 };
        for (session, _) in entries(&self.dir)?.into_iter().filter(|(_, found)| found.is_dir()) {
            // The author of a store may have put a link in place of this directory: nothing else is removed.
            if session.parse::<SessionId>().is_err() {
                continue;
            }
            let dir = self.dir.join(session);
            let files = entries(&dir)?;
            let last = files.iter().filter_map(|(_, found)| last_change(found)).max();
            if last.is_some_and(|last| now.is_some_and(|now| now.duration_since(last).is_ok_and(|age| age > MAX_AGE))) {
                remove(&dir)?;
                continue;
            }
            for (name, found) in files {
                // Left by a process that was killed during a write.
                if name.ends_with(NEW_SUFFIX) {
                    remove(&dir.join(name))?;
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

    /// Removes the oldest contents if the directory exceeds its size. Their checkpoints remain, so that a restore can report what is missing.
    pub(super) fn enforce_bound(&self, ledger: &mut SavedTotals) -> Result<(), CheckpointError> {
        if ledger.bytes <= self.bound {
            return Ok(());
        }
        let mut contents = Vec::new();
        for session in self.sessions()? {
            let dir = self.session_dir(session);
            // An unfinished restore needs its contents.
            if dir.join(INTENT_FILE).exists() {
                continue;
            }
            let files = entries(&dir).map_err(io_error("listed"))?.into_iter();
            let saved = files.filter(|(name, _)| number_of(name).is_none());
            contents.extend(saved.map(|(name, found)| (last_change(&found), dir.join(name), found.len())));
        }
        contents.sort();
        ledger.bytes = contents.iter().map(|(_, _, bytes)| *bytes).fold(0, u64::saturating_add);
        for (_, path, bytes) in contents {
            // Free a quarter, so that the next saves need no scan.
            if ledger.bytes <= self.bound / 4 * 3 {
                break;
            }
            remove(&path).map_err(io_error("removed"))?;
            ledger.bytes = ledger.bytes.saturating_sub(bytes);
        }
        Ok(())
    }
}

/// Returns when a file was written or changed otherwise. Unlike the time of its content, a command in the sandbox cannot set this time, by
/// which it would have checkpoints erased.
#[cfg(unix)]
fn last_change(found: &Metadata) -> Option<SystemTime> {
    use std::os::unix::fs::MetadataExt as _;

    let (seconds, nanos) = (u64::try_from(found.ctime()).ok()?, u32::try_from(found.ctime_nsec()).ok()?);
    SystemTime::UNIX_EPOCH.checked_add(Duration::new(seconds, nanos))
}

#[cfg(not(unix))]
fn last_change(found: &Metadata) -> Option<SystemTime> {
    found.modified().ok()
}

/// Parses the number of a checkpoint from its file name.
pub(super) fn number_of(name: &str) -> Option<u64> {
    name.strip_suffix(".json")?.parse().ok()
}

/// Returns the files and directories in `dir`, or an empty list if it is missing.
pub(super) fn entries(dir: &Path) -> io::Result<Vec<(String, Metadata)>> {
    let listed = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        listed => listed?,
    };
    let mut found = Vec::new();
    for entry in listed {
        let entry = entry?;
        match entry.metadata() {
            Ok(metadata) if !metadata.is_symlink() => {
                found.push((entry.file_name().to_string_lossy().into_owned(), metadata));
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// Creates a directory that other users cannot enter, if it is missing.
pub(super) fn create_private_dir(dir: &Path) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    private::create_dir(dir)?;
    dir.parent().map_or(Ok(()), sync_dir)
}

/// Writes a file that other users cannot read. It is synced before it is renamed to `path`; the directory is not synced.
pub(super) fn write_durably(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(NEW_SUFFIX);
    let name = Path::new(&name);
    let written = write_synced(name, bytes).and_then(|()| fs::rename(name, path));
    if written.is_err() {
        // Otherwise a partial file would keep a full disk full.
        drop(remove(name));
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
