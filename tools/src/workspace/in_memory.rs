//! Files that the system has in memory: reading one takes less time than a thread needs to wake up.

use std::path::Path;

use cap_std::fs::Dir;

/// Returns whether `dir` is on a file system that no server and no other process answers for.
#[cfg(target_os = "linux")]
pub(super) fn is_local(dir: &Dir) -> bool {
    // ext2 to ext4, XFS, Btrfs and tmpfs; see statfs(2).
    const LOCAL: [i128; 4] = [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994];
    rustix::fs::fstatfs(dir).is_ok_and(|found| LOCAL.contains(&i128::from(found.f_type)))
}

/// Returns whether `path` is a small regular file without links in its path, on the same file system as `root`, and the system has the path
/// and the whole content in its caches, so that reading them does not block. `path` must be normalized, and `root` local.
#[cfg(target_os = "linux")]
pub(super) fn is_in_memory(root: &Dir, path: &Path) -> bool {
    use std::io::IoSliceMut;

    use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, openat2};
    use rustix::io::{ReadWriteFlags, preadv2};

    const MAX_BYTES: usize = 16 << 10;
    let open = |flags: OFlags| {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV | ResolveFlags::CACHED;
        openat2(root, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve)
    };
    let read = || -> rustix::io::Result<bool> {
        // Checked before it is opened for reading, because opening a device can have side effects.
        let found = fstat(open(OFlags::PATH)?)?;
        let size = usize::try_from(found.st_size).unwrap_or(usize::MAX);
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile || size > MAX_BYTES {
            return Ok(false);
        }
        let mut bytes = [0; MAX_BYTES];
        let file = open(OFlags::RDONLY | OFlags::NONBLOCK)?;
        Ok(preadv2(&file, &mut [IoSliceMut::new(&mut bytes)], 0, ReadWriteFlags::NOWAIT)? == size)
    };
    // An error can mean that the system would have to wait.
    read().unwrap_or(false)
}

#[cfg(not(target_os = "linux"))]
pub(super) fn is_local(_: &Dir) -> bool {
    false
}

#[cfg(not(target_os = "linux"))]
pub(super) fn is_in_memory(_: &Dir, _: &Path) -> bool {
    false
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::fs::{create_dir, write};

    use super::*;

    /// A file that was just written is in memory. Where the directory for temporary files is not local, none counts as such.
    #[test]
    fn only_a_small_regular_file_counts_as_in_memory() {
        let temporary = tempfile::tempdir().unwrap();
        let at = |name: &str| temporary.path().join(name);
        create_dir(at("sub")).unwrap();
        write(at("sub/small"), "text").unwrap();
        write(at("empty"), "").unwrap();
        write(at("full"), vec![b'x'; 16 << 10]).unwrap();
        write(at("large"), vec![b'x'; (16 << 10) + 1]).unwrap();
        std::os::unix::fs::symlink("sub/small", at("link")).unwrap();
        std::os::unix::fs::symlink("sub", at("way")).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
            .unwrap();
        let dir = Dir::open_ambient_dir(temporary.path(), cap_std::ambient_authority()).unwrap();
        let found = |name: &str| is_local(&dir) && is_in_memory(&dir, Path::new(name));
        assert_eq!(["sub/small", "empty", "full"].map(found), [is_local(&dir); 3]);
        assert_eq!(["large", "link", "way/small", "pipe", "sub", ".", "none"].map(found), [false; 7]);
    }

    /// The control: files of the kernel, which are computed when they are read.
    #[test]
    fn system_of_the_kernel_is_not_local() {
        let dir = Dir::open_ambient_dir("/proc", cap_std::ambient_authority()).unwrap();
        assert!(!is_local(&dir));
    }
}
