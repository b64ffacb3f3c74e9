//! Bounds of worktrees: the size of one, the size of all, and the space that must remain free.
//!
//! Agents without the right to write start children in worktrees as well, so nothing else bounds the disk that these take. A small repository
//! can name one large object many times, so sizes are summed before git writes files.

use std::io::{self, BufRead, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::walk::walk;
use super::{Stage, WorktreeEntry, WorktreeError, Worktrees, cannot};

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
/// Maximum bytes of the paths of a worktree. Git has them in memory twice.
const MAX_PATH_BYTES: usize = 32 << 20;
/// Maximum bytes of one path. Systems have lower limits.
const MAX_PATH: usize = 64 << 10;
/// Files may take this many times the bytes of their objects, by an attribute such as `working-tree-encoding=UTF-32`.
const ENCODED: u64 = 4;
/// Bytes that other programs may write while git writes the files of a worktree.
const OTHERS: u64 = 1 << 30;
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
        "the commit of {} is too large to be checked out: its paths have more than {} MiB, or one has more than {} KiB. Leave `isolation` out",
        repository.display(),
        MAX_PATH_BYTES >> 20,
        MAX_PATH >> 10
    )]
    LongPaths { repository: PathBuf },
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
    #[error(
        "more was written to the file system of {} than the commit has. Leave `isolation` out, or try again if other programs wrote there",
        dir.display()
    )]
    Grows { dir: PathBuf },
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
    /// Bytes that remain free in any case, because a command should not write more.
    least_free: u64,
}

impl Room {
    /// Lets a command write the files of a worktree of this size, and not much more: objects in two packs may have the same id, so that git
    /// writes others than those that were summed.
    pub(super) fn at_most(mut self, bytes: u64) -> Self {
        let written = bytes.saturating_mul(ENCODED).saturating_add(OTHERS);
        self.least_free = Space::of(&self.dir).map_or(0, |space| space.free_bytes.saturating_sub(written));
        self
    }

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
        if space.free_bytes < self.least_free {
            return Err(RoomError::Grows { dir });
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
        Room { dir: self.dir.clone(), reserve: self.bounds.reserve, least_free: 0 }
    }

    pub(super) fn check_space(&self, needed: u64) -> Result<(), WorktreeError> {
        Ok(self.room().check(needed)?)
    }

    /// Records a new worktree, with the size of its files, if that is within the bounds.
    pub(super) fn record_if_it_fits(&self, mut entry: WorktreeEntry) -> Result<WorktreeEntry, WorktreeError> {
        entry.bytes = self.size_of(&entry.repository, &entry.base)?;
        // Without the lock, many at the same time would each be the last one that fits.
        let _lock = self.lock_file(&self.dir.join(LOCK))?;
        self.check_all(&entry)?;
        self.check_space(entry.bytes)?;
        self.write(&entry)?;
        Ok(entry)
    }

    /// Checks that all worktrees are within their bound, with this one.
    fn check_all(&self, entry: &WorktreeEntry) -> Result<(), WorktreeError> {
        let list = self.list()?;
        // The files of a worktree that is being removed are gone if it has no bytes.
        let is_gone = |of: &WorktreeEntry| matches!(of.stage, Stage::Discarding | Stage::Keeping) && of.bytes == 0;
        let others = list.entries.into_iter().filter(|other| other.session != entry.session && !is_gone(other));
        let others = others.map(|other| other.bytes);
        let sizes: Vec<u64> = others.chain(list.damaged.iter().map(|_| 0)).collect();
        let bytes =
            sizes.iter().chain([&entry.bytes]).fold(0_u64, |sum, size| sum.saturating_add(*size.max(&MIN_BYTES)));
        if bytes > self.bounds.all_bytes {
            let (others, limit) = (sizes.len(), self.bounds.all_bytes >> 20);
            return Err(RoomError::Full { others, mebibytes: bytes >> 20, limit }.into());
        }
        Ok(())
    }

    /// Corrects the size of a worktree by what git wrote, and checks the bounds again.
    pub(super) fn measure(&self, entry: &mut WorktreeEntry) -> Result<(), WorktreeError> {
        let Bounds { entries: max_entries, bytes: max_bytes, .. } = self.bounds;
        let (mut entries, mut bytes) = (0_usize, 0_u64);
        walk(&self.path(entry.session), |_, found, _| {
            entries = entries.saturating_add(1);
            bytes = bytes.saturating_add(found.metadata()?.len().max(BLOCK_BYTES));
            Ok(true)
        })
        .map_err(cannot("read"))?;
        let max_bytes = max_bytes.saturating_mul(ENCODED);
        if entries > max_entries.saturating_add(1) || bytes > max_bytes {
            let [mebibytes, max_mebibytes] = [bytes, max_bytes].map(|bytes| bytes >> 20);
            let repository = entry.repository.clone();
            return Err(RoomError::TooLarge { repository, entries, mebibytes, max_entries, max_mebibytes }.into());
        }
        if bytes > entry.bytes {
            entry.bytes = bytes;
            // As for a new one. Recorded under the lock, so that another addition counts it.
            let _lock = self.lock_file(&self.dir.join(LOCK))?;
            self.check_all(entry)?;
            self.write(entry)?;
        }
        Ok(())
    }

    /// Returns the bytes of the files of a commit.
    pub(super) fn size_of(&self, repository: &Path, commit: &str) -> Result<u64, WorktreeError> {
        let Bounds { entries: max_entries, bytes: max_bytes, .. } = self.bounds;
        let at = self.refs_place(repository, repository)?;
        // Directories count too: a tree can name another one many times, and so on below it.
        let args = ["ls-tree", "-r", "-t", "-z", "--full-tree", "--format=%(objectsize) %(path)", commit];
        let (found, bounds) = (Arc::new(Mutex::new(TreeSize::default())), self.bounds);
        let size = Arc::clone(&found);
        let scan = move |out: &mut dyn BufRead| size.lock().unwrap_or_else(PoisonError::into_inner).read(out, bounds);
        let is_whole = self.git.run_scanned(&at, &args, scan)?;
        let TreeSize { entries, bytes, path_bytes } = *found.lock().unwrap_or_else(PoisonError::into_inner);
        if path_bytes > MAX_PATH_BYTES {
            return Err(RoomError::LongPaths { repository: repository.to_owned() }.into());
        }
        if !is_whole || entries > max_entries || bytes > max_bytes {
            let [mebibytes, max_mebibytes] = [bytes, max_bytes].map(|bytes| bytes >> 20);
            let repository = repository.to_owned();
            return Err(RoomError::TooLarge { repository, entries, mebibytes, max_entries, max_mebibytes }.into());
        }
        Ok(bytes)
    }
}

/// The size of a tree, as far as it was read.
#[derive(Clone, Copy, Default)]
struct TreeSize {
    entries: usize,
    bytes: u64,
    path_bytes: usize,
}

impl TreeSize {
    /// Adds entries in the output of git. Returns whether these are all, and stops at the first that exceeds a bound.
    fn read(&mut self, out: &mut dyn BufRead, bounds: Bounds) -> io::Result<bool> {
        let mut entry = Vec::new();
        while self.entries <= bounds.entries && self.bytes <= bounds.bytes && self.path_bytes <= MAX_PATH_BYTES {
            entry.clear();
            let longest = u64::try_from(MAX_PATH).unwrap_or(u64::MAX);
            if out.take(longest).read_until(0, &mut entry)? == 0 {
                return Ok(true);
            }
            let size = entry.split(|byte| *byte == b' ').next().and_then(|size| std::str::from_utf8(size).ok());
            let size = size.and_then(|size| size.parse::<u64>().ok()).unwrap_or_default();
            self.entries = self.entries.saturating_add(1);
            self.bytes = self.bytes.saturating_add(size.max(BLOCK_BYTES));
            let is_too_long = entry.last() != Some(&0);
            self.path_bytes = self.path_bytes.saturating_add(if is_too_long { usize::MAX } else { entry.len() });
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Attack: two packs of a repository have the same id for a small and a large object. The control: files as large as those of the commit.
    #[test]
    fn x14_git_may_write_little_more_than_the_commit_has() {
        let dir = tempfile::tempdir().unwrap();
        let reserve = Reserve { bytes: 0, files: 0, share: 1 };
        let room = Room { dir: dir.path().to_owned(), reserve, least_free: 0 }.at_most(1 << 20);
        assert!(room.check(0).is_ok());
        let free = Space::of(dir.path()).map_or(0, |space| space.free_bytes);
        assert!(room.least_free > 0 && room.least_free < free);
        let written = Room { least_free: u64::MAX, ..room };
        let why = written.check(0).unwrap_err().to_string();
        let expected = format!(
            "more was written to the file system of {} than the commit has. Leave `isolation` out, or try again if other programs wrote there",
            dir.path().display()
        );
        assert_eq!(why, expected);
    }
}
