//! A temporary directory for one command, removed when the command has ended.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FlockOperation, Mode, OFlags, flock, fstat, lstat, openat};
use rustix::io::Errno;

use crate::temporary;

/// Start of the names, which a hash of the machine, the process id of the guard and a number follow.
const PREFIX: &str = "subtend-scratch-";
/// Maximum number of names to try, because killed guards leave directories behind.
const MAX_TRIES: u32 = 10_000;
/// Maximum number of directories of one guard that a result names. A guard creates one.
const MAX_NAMED: usize = 4;

/// An empty directory that only this user can enter; removed with its contents on drop.
pub(super) struct Scratch {
    path: PathBuf,
    /// Locked until the guard ends, however it ends: [`sweep`] removes only directories that it can lock.
    _lock: OwnedFd,
}

impl Scratch {
    pub(super) fn create() -> io::Result<Self> {
        let (base, prefix) = (temporary::create_in(&temporary::base()?)?, prefix());
        let id = std::process::id();
        for n in 0..MAX_TRIES {
            let path = base.join(format!("{prefix}{id}-{n}"));
            match std::fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => match lock(&path) {
                    Ok(lock) => return Ok(Self { path, _lock: lock }),
                    // A sweep has just found it, or a session replaced it.
                    Err(Errno::WOULDBLOCK | Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::STALE) => {}
                    Err(error) => return Err(error.into()),
                },
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// Removes the directories of guards that were killed. Blocks until all are removed or their removal has failed.
pub(super) fn sweep() {
    let Ok(base) = temporary::base() else { return };
    let prefix = prefix();
    // Earlier versions created them in `base`.
    for path in temporary::create_in(&base).iter().chain([&base]).flat_map(|dir| found(dir, &prefix)) {
        // The lock is held until the removal ends, so that no guard takes the name meanwhile.
        if let Ok(_lock) = lock(&path) {
            // What remains is found by the next sweep.
            drop(crate::removal::remove(&path));
        }
    }
}

/// Returns the directories of the guard with the process id `guard`. Only this user can create entries with such names.
pub(super) fn left_by(guard: u32) -> Vec<PathBuf> {
    let Ok(dir) = temporary::base().and_then(|base| temporary::create_in(&base)) else { return Vec::new() };
    found(&dir, &format!("{}{guard}-", prefix())).take(MAX_NAMED).collect()
}

/// Returns the start of the names of this machine. Another one that shares the file system may not see its locks.
fn prefix() -> String {
    let read = |path| std::fs::read_to_string(path).ok();
    let is_known = |id: &String| !["", "uninitialized"].contains(&id.trim());
    let id = read("/etc/machine-id").filter(is_known).or_else(|| read("/proc/sys/kernel/hostname"));
    // The id itself is confidential. After a change of the hash, older directories remain.
    let mut hasher = DefaultHasher::new();
    id.unwrap_or_default().trim().hash(&mut hasher);
    format!("{PREFIX}{:016x}-", hasher.finish())
}

/// Reads the names in `dir` one by one: other users may create any number of them in a shared directory.
fn found<'a>(dir: &Path, prefix: &'a str) -> impl Iterator<Item = PathBuf> + use<'a> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().map_while(Result::ok);
    let entries = entries.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(prefix.as_bytes()));
    entries.map(|entry| entry.path())
}

/// Locks the directory `path` of this user, without following a link.
fn lock(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = openat(CWD, path, flags, Mode::empty())?;
    flock(&dir, FlockOperation::NonBlockingLockExclusive)?;
    // It may have been removed before it was locked.
    let (opened, named) = (fstat(&dir)?, lstat(path)?);
    let is_own = opened.st_uid == rustix::process::geteuid().as_raw();
    if is_own && (opened.st_dev, opened.st_ino) == (named.st_dev, named.st_ino) { Ok(dir) } else { Err(Errno::STALE) }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = crate::removal::remove(&self.path) {
            // Write to the output of the command, which has a reader. An error means that the output is closed.
            let _ = writeln!(io::stderr(), "guard: files of the command remain: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// The control: the directory without a lock and without a link is locked, and so removed by a sweep.
    #[test]
    fn only_unlocked_directories_without_links_are_locked() {
        let dir = tempfile::tempdir().unwrap();
        let names = ["own", "used", "file", "link", "missing"].map(|name| dir.path().join(name));
        let [own, used, file, link, _] = &names;
        [own, used].iter().for_each(|dir| std::fs::create_dir(dir).unwrap());
        std::fs::write(file, "").unwrap();
        symlink(own, link).unwrap();
        let _guard = lock(used).unwrap();
        assert_eq!(
            names.each_ref().map(|path| lock(path).map(drop)),
            [Ok(()), Err(Errno::WOULDBLOCK), Err(Errno::NOTDIR), Err(Errno::NOTDIR), Err(Errno::NOENT)]
        );
    }

    #[test]
    fn sweep_keeps_directories_of_other_machines() {
        let base = temporary::base().unwrap();
        let own = temporary::create_in(&base).unwrap();
        let id = std::process::id();
        let names = [format!("{}{id}-unlocked", prefix()), format!("{PREFIX}{:016x}-{id}-unlocked", 0)];
        // The second directory is that of earlier versions.
        let paths = [own, base].map(|dir| names.each_ref().map(|name| dir.join(name)));
        paths.iter().flatten().for_each(|path| std::fs::create_dir(path).unwrap());
        sweep();
        assert_eq!(paths.each_ref().map(|paths| paths.each_ref().map(|path| path.exists())), [[false, true]; 2]);
        for [_, other] in paths {
            std::fs::remove_dir(other).unwrap();
        }
    }
}
