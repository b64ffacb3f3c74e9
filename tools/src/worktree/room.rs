//! Bounds of worktrees: the size of one, the size of all, and the space that must remain free.
//!
//! Agents without the right to write start children in worktrees as well, so nothing else bounds the disk that these take. A small repository
//! can name one large object many times, so sizes are summed before git writes files.

use std::path::{Path, PathBuf};

use super::{WorktreeEntry, WorktreeError, Worktrees};

/// Default of [`Worktrees::at_most`].
pub const DEFAULT_MEBIBYTES: u32 = 32 << 10;
/// Maximum number of files and directories of a worktree.
const MAX_ENTRIES: usize = 1_000_000;
/// Maximum bytes of the files of a worktree.
const MAX_BYTES: u64 = 8 << 30;
/// Bytes that a worktree takes at least, so that the bound of all worktrees also bounds their number.
const MIN_BYTES: u64 = 32 << 20;
/// Bytes that a file or directory takes at least.
const BLOCK_BYTES: u64 = 4 << 10;
/// Bytes of a size in the output of git. More than these for each of the most entries are sizes above [`MAX_BYTES`].
const SIZE_TEXT: u64 = 8;
/// Space and number of files that remain free for records of the store, and their share of a small file system.
const RESERVED_BYTES: u64 = 1 << 30;
const RESERVED_FILES: u64 = 100_000;
const RESERVED_SHARE: u64 = 10;
/// The lock that orders the additions to the list of worktrees. Its name is not the id of a session.
const LOCK: &str = "room.lock";

#[derive(Clone, Debug, thiserror::Error)]
pub enum RoomError {
    #[error(
        "the commit of {} is too large to be checked out: at least {entries} files and directories with {mebibytes} MiB, and the limits are \
         {max_entries} and {max_mebibytes} MiB. Leave `isolation` out",
        repository.display()
    )]
    TooLarge { repository: PathBuf, entries: usize, mebibytes: u64, max_entries: usize, max_mebibytes: u64 },
    #[error(
        "with it, the {others} others of this store would have {mebibytes} MiB, and the limit is {limit}. Discard some (`subtend worktree \
         list`, `subtend worktree discard ID`), or raise the limit (`--host worktree_mib=N`, or `host.worktree_mib` in subtend.yaml)"
    )]
    Full { others: usize, mebibytes: u64, limit: u64 },
    #[error(
        "its files have {needed} MiB, and the file system of {} has {free} MiB free, of which {reserved} are reserved for records. Free \
         space there, or discard worktrees (`subtend worktree list`, `subtend worktree discard ID`)",
        dir.display()
    )]
    NoSpace { dir: PathBuf, needed: u64, free: u64, reserved: u64 },
    #[error(
        "the file system of {} has room for {free} more files, and {reserved} are reserved for records. Remove files there, or discard \
         worktrees (`subtend worktree list`, `subtend worktree discard ID`)",
        dir.display()
    )]
    NoFiles { dir: PathBuf, free: u64, reserved: u64 },
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) entries: usize,
    pub(super) bytes: u64,
    pub(super) all_bytes: u64,
    pub(super) reserve: Reserve,
}

impl Default for Bounds {
    fn default() -> Self {
        let reserve = Reserve { bytes: RESERVED_BYTES, files: RESERVED_FILES, share: RESERVED_SHARE };
        Self { entries: MAX_ENTRIES, bytes: MAX_BYTES, all_bytes: u64::from(DEFAULT_MEBIBYTES) << 20, reserve }
    }
}

/// What remains free on a file system: these numbers, but at most a share of all.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reserve {
    pub(super) bytes: u64,
    pub(super) files: u64,
    /// 10 for a tenth.
    pub(super) share: u64,
}

/// A directory of worktrees on whose file system space remains free.
#[derive(Clone, Debug)]
pub(super) struct Room {
    dir: PathBuf,
    reserve: Reserve,
}

impl Room {
    /// Checks that `needed` bytes fit in addition to the reserve. A file system that does not tell its size passes.
    pub(super) fn check(&self, needed: u64) -> Result<(), RoomError> {
        let Some(space) = Space::of(&self.dir) else { return Ok(()) };
        let reserved = |most: u64, all: u64| most.min(all.checked_div(self.reserve.share).unwrap_or(all));
        let dir = self.dir.clone();
        let bytes = reserved(self.reserve.bytes, space.bytes);
        if space.bytes > 0 && space.free_bytes < needed.saturating_add(bytes) {
            let [needed, free, reserved] = [needed, space.free_bytes, bytes].map(|bytes| bytes >> 20);
            return Err(RoomError::NoSpace { dir, needed, free, reserved });
        }
        let files = reserved(self.reserve.files, space.files);
        if space.files > 0 && space.free_files < files {
            return Err(RoomError::NoFiles { dir, free: space.free_files, reserved: files });
        }
        Ok(())
    }
}

/// The space of a file system. All files or bytes are 0 if it does not tell.
struct Space {
    bytes: u64,
    free_bytes: u64,
    files: u64,
    free_files: u64,
}

impl Space {
    #[cfg(unix)]
    fn of(dir: &Path) -> Option<Self> {
        let stat = rustix::fs::statvfs(dir).ok()?;
        let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
        Some(Self {
            bytes: bytes(stat.f_blocks),
            free_bytes: bytes(stat.f_bavail),
            files: stat.f_files,
            free_files: stat.f_favail,
        })
    }

    #[cfg(not(unix))]
    fn of(_: &Path) -> Option<Self> {
        None
    }
}

impl Worktrees {
    /// Limits the size of all worktrees. A small one counts as 32 MiB.
    #[must_use]
    pub fn at_most(mut self, mebibytes: u32) -> Self {
        self.bounds.all_bytes = u64::from(mebibytes) << 20;
        self
    }

    pub(super) fn room(&self) -> Room {
        Room { dir: self.dir.clone(), reserve: self.bounds.reserve }
    }

    pub(super) fn check_space(&self, needed: u64) -> Result<(), WorktreeError> {
        Ok(self.room().check(needed)?)
    }

    /// Records a new worktree, with the size of its files, if that is within the bounds.
    pub(super) fn record_if_it_fits(&self, mut entry: WorktreeEntry) -> Result<WorktreeEntry, WorktreeError> {
        entry.bytes = self.size_of(&entry.repository, &entry.base)?;
        // Without the lock, many at the same time would each be the last one that fits.
        let _lock = self.lock_file(&self.dir.join(LOCK))?;
        let list = self.list()?;
        let others = list.entries.len().saturating_add(list.damaged.len());
        let damaged = MIN_BYTES.saturating_mul(u64::try_from(list.damaged.len()).unwrap_or(u64::MAX));
        let all = list.entries.iter().chain([&entry]).map(|entry| entry.bytes.max(MIN_BYTES));
        let bytes = all.fold(damaged, u64::saturating_add);
        if bytes > self.bounds.all_bytes {
            return Err(RoomError::Full { others, mebibytes: bytes >> 20, limit: self.bounds.all_bytes >> 20 }.into());
        }
        self.check_space(entry.bytes)?;
        self.write(&entry)?;
        Ok(entry)
    }

    /// Returns the bytes of the files of a commit.
    fn size_of(&self, repository: &Path, commit: &str) -> Result<u64, WorktreeError> {
        let Bounds { entries: max_entries, bytes: max_bytes, .. } = self.bounds;
        let at = self.refs_place(repository, repository)?;
        // Directories count too: a tree can name another one many times, and so on below it.
        let args = ["ls-tree", "-r", "-t", "-z", "--full-tree", "--format=%(objectsize)", commit];
        let most = SIZE_TEXT.saturating_mul(u64::try_from(max_entries).unwrap_or(u64::MAX));
        let (out, whole) = self.git.run_until(&at, &args, most)?;
        let (mut entries, mut bytes) = (0_usize, 0_u64);
        for size in out.split(|byte| *byte == 0).filter(|size| !size.is_empty()) {
            let size = std::str::from_utf8(size).ok().and_then(|size| size.parse::<u64>().ok()).unwrap_or_default();
            entries = entries.saturating_add(1);
            bytes = bytes.saturating_add(size.max(BLOCK_BYTES));
        }
        if !whole || entries > max_entries || bytes > max_bytes {
            let [mebibytes, max_mebibytes] = [bytes, max_bytes].map(|bytes| bytes >> 20);
            let repository = repository.to_owned();
            return Err(RoomError::TooLarge { repository, entries, mebibytes, max_entries, max_mebibytes }.into());
        }
        Ok(bytes)
    }
}
