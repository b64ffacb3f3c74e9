//! The lock file, which ensures one process per store.

use std::fs::{File, TryLockError};
use std::io::{ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::time::Duration;

use crate::error::{OpenError, io};
use crate::owner_only;

/// A held lock. The operating system releases it when the process ends.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    /// Locks the store in `dir` and records the holder.
    pub(crate) fn acquire(dir: &Path) -> Result<Self, OpenError> {
        let path = dir.join("LOCK");
        owner_only::check_entry(&path)?;
        let io = |what| io(what, &path);
        let mut file = owner_only::open_own(&path).map_err(io("open the lock file"))?;
        // Computed before the lock is taken, because a refused process may read the file meanwhile.
        let text = owner_text();
        for left in (0..MAX_RETRIES).rev() {
            match file.try_lock() {
                Ok(()) => break,
                // A store just closed may still be held: a child has copies of all files until it executes its program.
                Err(TryLockError::WouldBlock) if left > 0 && is_held_by_this_process(&mut file) => {
                    std::thread::sleep(RETRY_DELAY)
                }
                Err(TryLockError::WouldBlock) => return Err(in_use_error(dir, &mut file)),
                Err(TryLockError::Error(source)) => return Err(io("lock")(source)),
            }
        }
        file.set_len(0).map_err(io("write"))?;
        file.seek(SeekFrom::Start(0)).map_err(io("write"))?;
        file.write_all(text.as_bytes()).map_err(io("write"))?;
        Ok(Self { _file: file })
    }
}

impl Lock {
    /// Locks like [`Lock::acquire`], without recording on read-only media. `None` if the lock file cannot be created.
    pub(crate) fn acquire_to_read(dir: &Path) -> Result<Option<Self>, OpenError> {
        let path = dir.join("LOCK");
        match Self::acquire(dir) {
            Ok(lock) => return Ok(Some(lock)),
            Err(OpenError::Io { source, .. }) if is_write_refused(source.kind()) => {}
            Err(error) => return Err(error),
        }
        let mut file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io("open the lock file", &path)(error)),
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(Some(Self { _file: file })),
            Err(TryLockError::WouldBlock) => Err(in_use_error(dir, &mut file)),
            Err(TryLockError::Error(error)) => Err(io("lock", &path)(error)),
        }
    }
}

fn is_write_refused(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem | ErrorKind::StorageFull | ErrorKind::QuotaExceeded
    )
}

/// Number of retries, about a quarter of a second in total, before a store that this process held is refused.
const MAX_RETRIES: u32 = 50;
const RETRY_DELAY: Duration = Duration::from_millis(5);

/// Returns the recorded holder, which may be empty while a new holder writes it.
fn holder(file: &mut File) -> String {
    let mut text = String::new();
    if file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_string(&mut text)).is_err() {
        text.clear();
    }
    text
}

fn is_held_by_this_process(file: &mut File) -> bool {
    holder(file) == owner_text()
}

fn in_use_error(dir: &Path, file: &mut File) -> OpenError {
    let text = holder(file);
    let field = |name: &str| {
        let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        found.filter(|value| !value.is_empty()).unwrap_or("unknown").to_owned()
    };
    OpenError::InUse { path: dir.to_owned(), pid: field("pid"), boot: field("boot") }
}

fn owner_text() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    format!("pid={}\nboot={}\nstarted={}\n", std::process::id(), boot.trim(), start_ticks().unwrap_or_default())
}

/// Returns the start of this process in ticks since boot. Together with the boot id it identifies the process even if pids are reused.
fn start_ticks() -> Option<String> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name may contain parentheses. Only numbers follow the last one.
    let (_, numbers) = stat.rsplit_once(')')?;
    numbers.split_whitespace().nth(19).map(str::to_owned)
}
