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
        let made = own_dir(&temporary).and_then(|own| Ok((create_dir(&own)?, own)));
        let (dir, own) = made.map_err(io("make a directory for a copy of the store in", &temporary))?;
        // Earlier versions made copies in `temporary`.
        [&own, &temporary].iter().for_each(|copies| sweep(copies, &dir));
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

/// Creates the directory of this user in `temporary`, if it is missing. Sessions may not use it, and so not the copies.
///
/// # Errors
/// If another user could use or replace it: that user would get the copy.
#[cfg(unix)]
fn own_dir(temporary: &Path) -> io::Result<PathBuf> {
    use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};

    use subtend_session::owners::{TrustedUsers, temporary_dir_name};

    let map = fs::read_to_string("/proc/self/uid_map").ok();
    let users = TrustedUsers::new(rustix::process::geteuid().as_raw(), map.as_deref());
    let base = temporary.canonicalize()?;
    for above in base.ancestors() {
        let found = above.metadata()?;
        if let Some(why) = users.why_replaceable(above.display(), (found.uid(), found.gid(), found.mode())) {
            return Err(io::Error::other(why));
        }
    }
    let dir = base.join(temporary_dir_name(users.own));
    match fs::DirBuilder::new().mode(0o700).create(&dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let found = dir.symlink_metadata()?;
    match users.why_not_private(dir.display(), found.is_dir(), found.uid(), found.mode()) {
        None => Ok(dir),
        Some(why) => Err(io::Error::other(why)),
    }
}

#[cfg(not(unix))]
fn own_dir(temporary: &Path) -> io::Result<PathBuf> {
    Ok(temporary.to_owned())
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
        #[cfg(unix)]
        {
            let own = subtend_session::owners::temporary_dir_name(rustix::process::geteuid().as_raw());
            assert!(path.ancestors().any(|above| above.ends_with(&own)), "sessions may not use the copy");
        }
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
