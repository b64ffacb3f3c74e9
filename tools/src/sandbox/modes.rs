//! Changes of file modes by a sandboxed command.
//!
//! Landlock has no right for modes, and a filter of system calls sees no paths. So the filter stops these calls, and a thread of the guard
//! finds the object, checks it, and changes its mode in the place of the command: only of what the command may read and write.

use std::collections::HashMap;
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, RawMode, ResolveFlags, Stat, chmodat, fstat, open, openat, openat2, readlinkat, statat,
};
use rustix::io::Errno;
use subtend_seccomp::{CallListener, StoppedCall};

#[cfg(target_arch = "x86_64")]
mod number {
    pub(super) const CHMOD: u32 = 90;
    pub(super) const FCHMOD: u32 = 91;
    pub(super) const FCHMODAT: u32 = 268;
}
#[cfg(not(target_arch = "x86_64"))]
mod number {
    /// No architecture but the older ones has this call, and no call has this number.
    pub(super) const CHMOD: u32 = u32::MAX;
    pub(super) const FCHMOD: u32 = 52;
    pub(super) const FCHMODAT: u32 = 53;
}
const FCHMODAT2: u32 = 452;

/// The calls that the command's filter stops.
pub(super) const STOPPED_CALLS: [u32; 4] = [number::CHMOD, number::FCHMOD, number::FCHMODAT, FCHMODAT2];

/// The longest path of the kernel, with its end.
const MAX_PATH: usize = 4096;
/// Maximum number of directories above an object.
const MAX_LEVELS: usize = MAX_PATH / 2;

/// The files and directories that a command may read or write, the latter with all below them.
#[derive(Default)]
pub(super) struct GrantedPlaces(HashMap<(u64, u64), GrantedAccess>);

#[derive(Clone, Copy, Default)]
struct GrantedAccess {
    read: bool,
    write: bool,
}

impl GrantedPlaces {
    /// Adds an object.
    ///
    /// # Errors
    /// If it cannot be inspected.
    pub(super) fn add(&mut self, object: BorrowedFd<'_>, read: bool, write: bool) -> Result<(), String> {
        let stat = fstat(object).map_err(|error| format!("cannot inspect a file that the command may use: {error}"))?;
        self.0.entry(identity(&stat)).or_default().join(GrantedAccess { read, write });
        Ok(())
    }

    /// Answers the calls of `listener` until the last process of the command has ended.
    pub(super) fn answer_calls(&self, listener: &CallListener) {
        // After an error, the listener closes, and the command's later calls fail.
        while let Ok(Some(call)) = listener.receive() {
            let result = self.change_mode(listener, &call);
            if listener.answer(&call, result).is_err() {
                return;
            }
        }
    }

    fn change_mode(&self, listener: &CallListener, call: &StoppedCall) -> Result<(), Errno> {
        let (object, mode) = object_and_mode(call)?;
        // If the caller has ended, the files of another process may have been opened.
        if !listener.is_waiting(call) {
            return Err(Errno::SRCH);
        }
        if !self.contains(&object)? {
            return Err(Errno::ACCESS);
        }
        chmodat(CWD, of_this_process(&object), Mode::from_raw_mode(mode), AtFlags::empty())
    }

    /// Returns whether the command may read and write `object`, by itself or by a directory above. The walk to the root is that of
    /// Landlock. What is found below such a directory belongs there: a command cannot move other files into it.
    fn contains(&self, object: &OwnedFd) -> Result<bool, Errno> {
        let stat = fstat(object)?;
        // No path leads to a removed file, or to one that never had a name.
        if stat.st_nlink == 0 {
            return Ok(true);
        }
        let mut found = GrantedAccess::default();
        if self.completes(&mut found, identity(&stat)) {
            return Ok(true);
        }
        let path = readlinkat(CWD, of_this_process(object), Vec::new())?;
        let path = Path::new(OsStr::from_bytes(path.as_bytes()));
        let (true, Some(parent), Some(name)) = (path.is_absolute(), path.parent(), path.file_name()) else {
            return Ok(false);
        };
        let mut dir = openat2(CWD, parent, HANDLE | OFlags::DIRECTORY, Mode::empty(), ResolveFlags::NO_SYMLINKS)?;
        // The object may have been renamed since its path was read.
        if identity(&statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW)?) != identity(&stat) {
            return Ok(false);
        }
        let mut last = None;
        for _ in 0..MAX_LEVELS {
            let this = identity(&fstat(&dir)?);
            if self.completes(&mut found, this) {
                return Ok(true);
            }
            // The root is its own parent.
            if last.replace(this) == Some(this) {
                return Ok(false);
            }
            dir = openat(&dir, "..", HANDLE | OFlags::DIRECTORY, Mode::empty())?;
        }
        Ok(false)
    }

    /// Adds the grant for an object to those found. Returns whether they allow to read and to write.
    fn completes(&self, found: &mut GrantedAccess, object: (u64, u64)) -> bool {
        found.join(self.0.get(&object).copied().unwrap_or_default());
        found.read && found.write
    }
}

impl GrantedAccess {
    fn join(&mut self, other: Self) {
        self.read |= other.read;
        self.write |= other.write;
    }
}

const HANDLE: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

fn of_this_process(object: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", object.as_raw_fd())
}

/// Opens what `call` names, as its thread sees it.
fn object_and_mode(call: &StoppedCall) -> Result<(OwnedFd, RawMode), Errno> {
    let [first, second, third, fourth, ..] = call.arguments;
    // The kernel ignores the upper halves of these arguments too.
    let (descriptor, mode) = (first as i32, |argument: u64| argument as RawMode & 0o7777);
    let at = |address, flags| at(call.thread, descriptor, address, flags);
    Ok(match call.number.cast_unsigned() {
        FCHMODAT2 => (at(second, AtFlags::from_bits(fourth as u32).ok_or(Errno::INVAL)?)?, mode(third)),
        number::FCHMODAT => (at(second, AtFlags::empty())?, mode(third)),
        number::FCHMOD => (descriptor_of(call.thread, descriptor)?, mode(second)),
        number::CHMOD => (named(call.thread, None, &path_at(call.thread, first)?, true)?, mode(second)),
        _ => return Err(Errno::NOSYS),
    })
}

fn at(thread: u32, dir: i32, address: u64, flags: AtFlags) -> Result<OwnedFd, Errno> {
    if !(AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH).contains(flags) {
        return Err(Errno::INVAL);
    }
    let path = path_at(thread, address)?;
    let dir = (dir != AT_FDCWD).then_some(dir);
    if path.as_bytes().is_empty() && flags.contains(AtFlags::EMPTY_PATH) {
        return dir.map_or_else(|| working_directory(thread), |dir| descriptor_of(thread, dir));
    }
    named(thread, dir, &path, !flags.contains(AtFlags::SYMLINK_NOFOLLOW))
}

/// The descriptor that means the working directory.
const AT_FDCWD: i32 = -100;

/// Opens `path` from the directory `dir` of the thread, or from its working directory.
fn named(thread: u32, dir: Option<i32>, path: &CString, follow: bool) -> Result<OwnedFd, Errno> {
    if let Some(descriptor) = descriptor_in(path) {
        return if follow { descriptor_of(thread, descriptor) } else { Err(Errno::OPNOTSUPP) };
    }
    let dir = match dir {
        _ if path.as_bytes().starts_with(b"/") => open("/", HANDLE, Mode::empty())?,
        None => working_directory(thread)?,
        Some(dir) => descriptor_of(thread, dir)?,
    };
    let flags = if follow { HANDLE } else { HANDLE | OFlags::NOFOLLOW };
    // Links of `/proc`, such as `/proc/self`, would lead to the files of this process.
    openat2(dir, path, flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS)
}

/// Returns the descriptor of the caller that a path such as `/proc/self/fd/3` names: so the C library changes the mode of an open file.
fn descriptor_in(path: &CString) -> Option<i32> {
    let path = path.to_str().ok()?;
    let number =
        ["/proc/self/fd/", "/proc/thread-self/fd/", "/dev/fd/"].iter().find_map(|dir| path.strip_prefix(dir))?;
    number.parse().ok().filter(|descriptor| *descriptor >= 0)
}

fn working_directory(thread: u32) -> Result<OwnedFd, Errno> {
    open(format!("/proc/{thread}/cwd"), HANDLE, Mode::empty())
}

fn descriptor_of(thread: u32, descriptor: i32) -> Result<OwnedFd, Errno> {
    open(format!("/proc/{thread}/fd/{descriptor}"), HANDLE, Mode::empty())
        .map_err(|error| if error == Errno::NOENT { Errno::BADF } else { error })
}

/// Reads a path from the memory of a thread.
fn path_at(thread: u32, address: u64) -> Result<CString, Errno> {
    let errno = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::FAULT);
    let memory = File::open(PathBuf::from(format!("/proc/{thread}/mem"))).map_err(errno)?;
    let (mut path, mut buffer) = (Vec::new(), [0; MAX_PATH]);
    // A read ends early at a page that the thread does not have.
    while path.len() < MAX_PATH {
        let from = address.checked_add(path.len() as u64).ok_or(Errno::FAULT)?;
        let read = memory.read_at(&mut buffer, from).map_err(|_| Errno::FAULT)?;
        let read = buffer.get(..read).filter(|read| !read.is_empty()).ok_or(Errno::FAULT)?;
        if let Some(end) = read.iter().position(|byte| *byte == 0) {
            path.extend(read.iter().take(end));
            return if path.len() < MAX_PATH {
                CString::new(path).map_err(|_| Errno::INVAL)
            } else {
                Err(Errno::NAMETOOLONG)
            };
        }
        path.extend_from_slice(read);
    }
    Err(Errno::NAMETOOLONG)
}
