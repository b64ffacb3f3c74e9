//! Removes directories of any depth, with a bounded stack and few open handles. Sessions may have filled them.
//!
//! `std`, cap-std and the crate `remove_dir_all` recurse or hold a handle for each level. A command can create 10,000
//! levels in a second. Removing them recursively would overflow the stack, which aborts the process, or exhaust its
//! handles.

use std::io;
use std::path::Path;

use cap_std::fs::Dir;

/// Removes the file or directory at `path`, if it exists. A link is removed, not followed.
///
/// # Errors
/// If an entry cannot be removed. The error contains its path.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    system::remove(path)
}

/// Removes the entry `name` of `dir`, like [`remove`]. `path` is the path of the entry in errors.
///
/// # Errors
/// The errors of [`remove`].
pub(crate) fn remove_in(dir: &Dir, name: &Path, path: &Path) -> io::Result<()> {
    system::remove_in(dir, name, path)
}

pub(crate) fn name_path(path: &Path, error: impl Into<io::Error>) -> io::Error {
    let error = error.into();
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(unix)]
mod system {
    use std::ffi::{OsStr, OsString};
    use std::ops::Range;
    use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
    use std::os::unix::ffi::OsStrExt as _;

    use rustix::fs::{AtFlags, CWD, Dir as Entries, Mode, OFlags, fchmod, fstat, openat, renameat, unlinkat};
    use rustix::io::Errno;

    use super::*;

    /// Maximum number of open directories. A deeper directory is moved to the top first.
    const LEVELS: usize = 32;
    /// Maximum number of times that one directory is read if its entries reappear.
    const ROUNDS: u32 = 8;

    const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::CLOEXEC);
    #[cfg(target_os = "linux")]
    const HANDLE: OFlags = DIRECTORY.union(OFlags::PATH);
    #[cfg(not(target_os = "linux"))]
    const HANDLE: OFlags = DIRECTORY.union(OFlags::RDONLY);

    pub(super) fn remove(path: &Path) -> io::Result<()> {
        let name = path.file_name().ok_or_else(|| name_path(path, io::ErrorKind::InvalidInput))?;
        let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
        match openat(CWD, above, HANDLE, Mode::empty()) {
            Ok(dir) => remove_entry(dir.as_fd(), name, path),
            Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(name_path(path, error)),
        }
    }

    pub(super) fn remove_in(dir: &Dir, name: &Path, path: &Path) -> io::Result<()> {
        remove_entry(dir.as_fd(), name.as_os_str(), path)
    }

    struct Level {
        name: OsString,
        entries: Entries,
        rounds: u32,
    }

    impl Level {
        fn next(&mut self) -> Result<Option<OsString>, Errno> {
            loop {
                let Some(entry) = self.entries.read().transpose()? else { return Ok(None) };
                let name = entry.file_name().to_bytes();
                if !matches!(name, b"." | b"..") {
                    return Ok(Some(OsStr::from_bytes(name).to_owned()));
                }
            }
        }
    }

    struct Removal<'a> {
        /// The parent directory of the first level.
        dir: BorrowedFd<'a>,
        levels: Vec<Level>,
        /// Numbers of the directories that were moved to the top and still need to be removed.
        moved: Range<u64>,
    }

    fn remove_entry(dir: BorrowedFd<'_>, name: &OsStr, path: &Path) -> io::Result<()> {
        let mut removal = Removal { dir, levels: Vec::new(), moved: 0..0 };
        removal.enter(name.to_owned()).map_err(|error| name_path(path, error))?;
        while !removal.levels.is_empty() {
            if let Err((name, error)) = removal.step() {
                let mut at = path.to_owned();
                at.extend(removal.levels.iter().skip(1).map(|level| &level.name).chain(&name));
                return Err(name_path(&at, error));
            }
        }
        Ok(())
    }

    impl Removal<'_> {
        /// Returns the innermost open directory.
        fn last(&self) -> Result<BorrowedFd<'_>, Errno> {
            self.levels.last().map_or(Ok(self.dir), |level| level.entries.fd())
        }

        /// Removes one entry of the innermost directory, or the empty directory. An error has the entry's name, if any.
        fn step(&mut self) -> Result<(), (Option<OsString>, Errno)> {
            let is_top = self.levels.len() == 1;
            let Some(level) = self.levels.last_mut() else { return Ok(()) };
            let mut next = level.next().map_err(|error| (None, error))?;
            if next.is_none() && is_top {
                // A listing may omit entries that were moved here after it began.
                next = self.moved.next().map(temporary_name);
            }
            match next {
                Some(name) => self.enter(name.clone()).map_err(|error| (Some(name), error)),
                None => self.leave().map_err(|error| (None, error)),
            }
        }

        /// Removes the file `name`. Opens a directory, or moves it to the top if too many are open.
        fn enter(&mut self, name: OsString) -> Result<(), Errno> {
            let Some(fd) = remove_or_open(self.last()?, &name)? else { return Ok(()) };
            if self.levels.len() < LEVELS {
                self.levels.push(Level { name, entries: Entries::new(fd)?, rounds: 1 });
                return Ok(());
            }
            let Some(top) = self.levels.first() else { return Ok(()) };
            loop {
                let number = self.moved.end;
                self.moved.end = number.saturating_add(1);
                match renameat(self.last()?, &name, top.entries.fd()?, temporary_name(number)) {
                    Ok(()) | Err(Errno::NOENT) => return Ok(()),
                    // Another entry has this name, and is removed with the others. Try the next name.
                    Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => {}
                    Err(error) => return Err(error),
                }
            }
        }

        fn leave(&mut self) -> Result<(), Errno> {
            let Some(mut level) = self.levels.pop() else { return Ok(()) };
            let removed = self.last().and_then(|above| unlinkat(above, &level.name, AtFlags::REMOVEDIR));
            match removed {
                Ok(()) | Err(Errno::NOENT) => Ok(()),
                Err(Errno::NOTEMPTY | Errno::EXIST) if level.rounds < ROUNDS => {
                    level.rounds = level.rounds.saturating_add(1);
                    level.entries.rewind();
                    self.levels.push(level);
                    Ok(())
                }
                Err(error) => {
                    self.levels.push(level);
                    Err(error)
                }
            }
        }
    }

    fn temporary_name(number: u64) -> OsString {
        format!(".removed-{number}").into()
    }

    /// Removes a file and returns `None`, or opens a directory.
    fn remove_or_open(dir: BorrowedFd<'_>, name: &OsStr) -> Result<Option<OwnedFd>, Errno> {
        // Try to remove a file first, because most entries are files. The error for a directory depends on the system.
        let kept = match unlinkat(dir, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => return Ok(None),
            Err(error) => error,
        };
        let open = || openat(dir, name, DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY, Mode::empty());
        let opened = match open() {
            Err(Errno::ACCESS) => permit(dir, name).and_then(|()| open()),
            opened => opened,
        };
        let fd = match opened {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::NOTDIR | Errno::LOOP) => return Err(kept),
            Err(error) => return Err(error),
        };
        let mode = Mode::from_raw_mode(fstat(&fd)?.st_mode);
        if !mode.contains(Mode::RWXU) {
            // Ignore the error: for the directory of another user, the removal of an entry fails with the reason.
            let _ = fchmod(&fd, mode | Mode::RWXU);
        }
        Ok(Some(fd))
    }

    /// Makes a directory accessible to this user. Does not follow a link.
    #[cfg(target_os = "linux")]
    fn permit(dir: BorrowedFd<'_>, name: &OsStr) -> Result<(), Errno> {
        use std::os::fd::AsRawFd as _;

        let fd = openat(dir, name, HANDLE | OFlags::NOFOLLOW, Mode::empty())?;
        // The mode cannot be changed directly through an `O_PATH` handle.
        rustix::fs::chmod(format!("/proc/self/fd/{}", fd.as_raw_fd()), Mode::RWXU)
    }

    #[cfg(not(target_os = "linux"))]
    fn permit(dir: BorrowedFd<'_>, name: &OsStr) -> Result<(), Errno> {
        rustix::fs::chmodat(dir, name, Mode::RWXU, AtFlags::SYMLINK_NOFOLLOW)
    }
}

#[cfg(not(unix))]
mod system {
    use super::*;

    pub(super) fn remove(path: &Path) -> io::Result<()> {
        ignore_missing(
            path,
            path.symlink_metadata().and_then(|found| match found.is_dir() {
                true => std::fs::remove_dir_all(path),
                false => std::fs::remove_file(path),
            }),
        )
    }

    pub(super) fn remove_in(dir: &Dir, name: &Path, path: &Path) -> io::Result<()> {
        ignore_missing(
            path,
            dir.symlink_metadata(name).and_then(|found| match found.is_dir() {
                true => dir.remove_dir_all(name),
                false => dir.remove_file(name),
            }),
        )
    }

    fn ignore_missing(path: &Path, removed: io::Result<()>) -> io::Result<()> {
        match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(name_path(path, error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
pub(crate) mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::process::Command;

    use super::*;

    /// Environment variable of the child process with few handles: the implementation of the removal to try.
    const TRIED: &str = "SUBTEND_TEST_REMOVAL";

    /// Creates nested directories in `dir` step by step, because a path of this length exceeds the system's limit.
    pub(crate) fn deep(dir: &Path, levels: u32) {
        let above = dir.with_extension("above");
        fs::create_dir(dir).unwrap();
        for _ in 1..levels {
            fs::create_dir(&above).unwrap();
            fs::rename(dir, above.join("d")).unwrap();
            fs::rename(&above, dir).unwrap();
        }
    }

    /// The removal runs in a process with 60 handles, on a thread with a small stack. The control: `std` fails there.
    #[test]
    fn deep_directory_is_removed_with_a_small_stack_and_few_handles() {
        let Ok(tried) = std::env::var(TRIED) else {
            for (tried, is_removed, levels) in [("own", true, 20_000), ("std", false, 1_000)] {
                let dir = tempfile::tempdir().unwrap();
                let at = dir.path().join("deep");
                deep(&at, levels);
                let name = "removal::tests::deep_directory_is_removed_with_a_small_stack_and_few_handles";
                let mut command = Command::new("sh");
                command.args(["-c", "ulimit -n 60; exec \"$0\" \"$@\""]).arg(std::env::current_exe().unwrap());
                let out = command.args(["--exact", name]).env(TRIED, tried).current_dir(dir.path()).output().unwrap();
                assert_eq!((out.status.success(), !at.exists()), (is_removed, is_removed), "{tried}: {out:?}");
                remove(&at).unwrap();
            }
            return;
        };
        let remover = std::thread::Builder::new().stack_size(512 << 10);
        let removed = remover.spawn(move || {
            let at = Path::new("deep");
            if tried == "own" { remove(at) } else { fs::remove_dir_all(at) }
        });
        removed.unwrap().join().unwrap().unwrap();
    }

    #[test]
    fn removal_follows_no_link_and_skips_names_in_use() {
        let dir = tempfile::tempdir().unwrap();
        let (at, kept) = (dir.path().join("a"), dir.path().join("kept"));
        fs::create_dir(&kept).unwrap();
        fs::write(kept.join("file"), "kept").unwrap();
        deep(&at, 200);
        symlink(&kept, at.join("link")).unwrap();
        symlink(&kept, at.join(".removed-0")).unwrap();
        fs::create_dir_all(at.join(".removed-1/x")).unwrap();
        fs::create_dir(at.join(".removed-2")).unwrap();
        remove(&at).unwrap();
        assert!(!at.exists());
        symlink(&kept, &at).unwrap();
        remove(&at).unwrap();
        assert_eq!((at.symlink_metadata().is_err(), fs::read(kept.join("file")).unwrap()), (true, b"kept".to_vec()));
        remove(&dir.path().join("missing/too")).unwrap();
    }

    #[test]
    fn removal_opens_directories_without_modes() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("a");
        fs::create_dir_all(at.join("b/c")).unwrap();
        for path in ["b/c", "b", ""] {
            fs::set_permissions(at.join(path), fs::Permissions::from_mode(0o0)).unwrap();
        }
        remove(&at).unwrap();
        assert!(!at.exists());
    }

    #[test]
    fn removal_names_what_it_cannot_remove() {
        let error = remove(Path::new("/proc/self/fdinfo")).unwrap_err().to_string();
        assert!(error.starts_with("/proc/self/fdinfo/"), "{error}");
    }
}
