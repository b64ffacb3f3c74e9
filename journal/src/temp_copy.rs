//! Temporary copy of an engine's directory, for engines that write to every directory that they open.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use crate::engines::CopyProgress;
use crate::error::{OpenError, io};

const PREFIX: &str = "subtend-read-";
const LOCK: &str = "LOCK";
const STORE: &str = "store";
const CHUNK: usize = 1 << 20;
/// Maximum number of copies of one process at a time. More would indicate a bug.
const MAX_COPIES: u32 = 10_000;

/// A copy, removed on drop. The next copy also removes leftovers of killed processes.
#[derive(Debug)]
pub(crate) struct TempCopy {
    dir: PathBuf,
    /// Marks the copy as used.
    _lock: File,
}

impl Drop for TempCopy {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.dir) {
            tracing::warn!(%error, dir = %self.dir.display(), "a copy of a store cannot be removed");
        }
    }
}

impl TempCopy {
    /// Copies the directory `of` into the directory for temporary files.
    pub(crate) fn of(of: &Path, progress: &mut dyn FnMut(CopyProgress)) -> Result<Self, OpenError> {
        let temporary = std::env::temp_dir();
        let made = create_dir(&temporary).and_then(|dir| check_owners(&temporary, &dir).map(|()| dir));
        let dir = made.map_err(io("make a directory for a copy of the store in", &temporary))?;
        sweep(&temporary, &dir);
        let lock = File::create_new(dir.join(LOCK)).and_then(|lock| {
            lock.try_lock()?;
            Ok(lock)
        });
        let copy = Self { _lock: lock.map_err(io("lock", &dir))?, dir };
        let files = list_files(of).map_err(io("read the directory", of))?;
        let copied = CopyProgress { bytes: 0, of: files.iter().map(|file| file.len).sum() };
        let mut work = CopyJob { copied, progress, buffer: vec![0; CHUNK] };
        for file in files {
            let (from, to) = (of.join(&file.path), copy.path().join(&file.path));
            let done = work.copy_file(&file, &from, &to);
            done.map_err(io("copy (to the directory for temporary files, which TMPDIR names)", &from))?;
        }
        Ok(copy)
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.join(STORE)
    }
}

struct CopyEntry {
    path: PathBuf,
    len: u64,
    is_dir: bool,
}

fn list_files(dir: &Path) -> io::Result<Vec<CopyEntry>> {
    let mut found = Vec::new();
    let mut open = vec![PathBuf::new()];
    while let Some(path) = open.pop() {
        for entry in fs::read_dir(dir.join(&path))? {
            let entry = entry?;
            let path = path.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                open.push(path);
            } else {
                found.push(CopyEntry { path, len: entry.metadata()?.len(), is_dir: false });
            }
        }
        found.push(CopyEntry { path, len: 0, is_dir: true });
    }
    Ok(found)
}

struct CopyJob<'a> {
    copied: CopyProgress,
    progress: &'a mut dyn FnMut(CopyProgress),
    buffer: Vec<u8>,
}

impl CopyJob<'_> {
    fn copy_file(&mut self, file: &CopyEntry, from: &Path, to: &Path) -> io::Result<()> {
        if file.is_dir {
            return fs::create_dir_all(to);
        }
        to.parent().map_or(Ok(()), fs::create_dir_all)?;
        self.copy(from, to)
    }

    /// Copies a file sparsely: engines preallocate zeros.
    fn copy(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        const ZEROS: &[u8] = &[0; CHUNK];
        let (mut from, mut to) = (File::open(from)?, File::create_new(to)?);
        let mut len = 0_u64;
        loop {
            let read = from.read(&mut self.buffer)?;
            let Some(chunk) = self.buffer.get(..read).filter(|chunk| !chunk.is_empty()) else { break };
            if ZEROS.starts_with(chunk) {
                to.seek(SeekFrom::Current(i64::try_from(read).unwrap_or(i64::MAX)))?;
            } else {
                to.write_all(chunk)?;
            }
            len = len.saturating_add(read as u64);
            self.copied.bytes = self.copied.bytes.saturating_add(read as u64);
            (self.progress)(self.copied);
        }
        to.set_len(len)
    }
}

fn create_dir(temporary: &Path) -> io::Result<PathBuf> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    for n in 0..MAX_COPIES {
        let dir = temporary.join(format!("{PREFIX}{}-{n}", std::process::id()));
        match builder.create(&dir) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => return made.map(|()| dir),
        }
    }
    Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("{MAX_COPIES} copies of this process exist")))
}

/// Removes copies of ended processes, except `own` and other users', where a pipe as the lock would block.
fn sweep(temporary: &Path, own: &Path) {
    let (Ok(entries), Ok(user)) = (fs::read_dir(temporary), fs::symlink_metadata(own)) else { return };
    for entry in entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX)) {
        let (path, lock) = (entry.path(), entry.path().join(LOCK));
        let is_same_user = |path: &Path| fs::symlink_metadata(path).is_ok_and(|found| is_of_owner(&user, &found));
        if path == own || !is_same_user(&path) || !lock.symlink_metadata().is_ok_and(|lock| lock.is_file()) {
            continue;
        }
        if File::open(&lock).is_ok_and(|lock| lock.try_lock().is_ok()) {
            drop(fs::remove_dir_all(path));
        }
    }
}

/// The owner of files of users who are not mapped into this user namespace, such as the superuser.
#[cfg(unix)]
const UNMAPPED: u32 = 65_534;

/// Returns whether this user namespace lacks some users. Otherwise `UNMAPPED` is an ordinary user.
#[cfg(unix)]
fn has_unmapped_users() -> bool {
    let Ok(map) = fs::read_to_string("/proc/self/uid_map") else { return false };
    let holds = |line: &str| {
        let mut fields = line.split_whitespace().filter_map(|field| field.parse::<u64>().ok());
        let (first, _, count) = (fields.next()?, fields.next()?, fields.next()?);
        Some((first..first.saturating_add(count)).contains(&u64::from(UNMAPPED)))
    };
    !map.lines().any(|line| holds(line).unwrap_or(true))
}

/// Refuses, and removes, the new directory `dir` in `temporary` if another user could replace it: that user would get the copy.
#[cfg(unix)]
fn check_owners(temporary: &Path, dir: &Path) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt as _;

    let unmapped = has_unmapped_users().then_some(UNMAPPED);
    let own = fs::symlink_metadata(dir)?.uid();
    for above in temporary.canonicalize()?.ancestors() {
        let found = above.metadata()?;
        let is_foreign = ![own, 0].contains(&found.uid()) && Some(found.uid()) != unmapped;
        // In a sticky directory users can replace only their own files. A group with the number of the user is private.
        let is_shared = found.mode() & 0o002 != 0 || (found.mode() & 0o020 != 0 && ![own, 0].contains(&found.gid()));
        if is_foreign || (is_shared && found.mode() & 0o1000 == 0) {
            drop(fs::remove_dir(dir));
            return Err(io::Error::other(format!(
                "other users can replace files in {}: name another directory by TMPDIR, or set its sticky bit (chmod +t)",
                above.display()
            )));
        }
    }
    Ok(())
}

#[cfg(not(unix))]
fn check_owners(_: &Path, _: &Path) -> io::Result<()> {
    Ok(())
}

/// Returns whether `found` is a directory of the user that owns `own`.
#[cfg(unix)]
fn is_of_owner(own: &fs::Metadata, found: &fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    found.is_dir() && found.uid() == own.uid()
}

#[cfg(not(unix))]
fn is_of_owner(_: &fs::Metadata, found: &fs::Metadata) -> bool {
    found.is_dir()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copy_is_complete_and_removed_on_drop() {
        let dir = tempfile::tempdir().unwrap();
        let of = dir.path().join("store");
        fs::create_dir_all(of.join("deep/empty")).unwrap();
        let mut long = vec![0; 3 * CHUNK + 5];
        long[2 * CHUNK + 1] = 7;
        for (name, bytes) in [("long", &long[..]), ("deep/table", b"rows"), ("none", b"")] {
            fs::write(of.join(name), bytes).unwrap();
        }
        let mut recorded = Vec::new();
        let copy = TempCopy::of(&of, &mut |copied| recorded.push(copied)).unwrap();
        let path = copy.path();
        assert!(fs::read(path.join("long")).unwrap() == long && path.join("deep/empty").is_dir());
        assert_eq!(
            (fs::read(path.join("deep/table")).unwrap(), fs::read(path.join("none")).unwrap()),
            (b"rows".to_vec(), vec![])
        );
        let all = long.len() as u64 + 4;
        assert_eq!(recorded.last(), Some(&CopyProgress { bytes: all, of: all }));
        fs::remove_file(path.join("deep/table")).unwrap();
        fs::write(path.join("long"), b"other").unwrap();
        drop(copy);
        assert!(!path.exists());
        assert!(fs::read(of.join("long")).unwrap() == long && of.join("deep/table").exists());
    }

    #[test]
    fn copies_of_killed_processes_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let (left, used, other) =
            (dir.path().join("subtend-read-1-0"), dir.path().join("subtend-read-2-0"), dir.path().join("other"));
        for place in [&left, &used, &other] {
            fs::create_dir(place).unwrap();
            fs::write(place.join(LOCK), b"").unwrap();
        }
        let lock = File::open(used.join(LOCK)).unwrap();
        lock.lock().unwrap();
        sweep(dir.path(), &used);
        assert_eq!((left.exists(), used.exists(), other.exists()), (false, true, true));
    }
}
