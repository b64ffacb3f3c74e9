//! Files that the system has in memory: reading one takes less time than a thread needs to wake up.

use std::path::Path;

use cap_std::fs::Dir;

/// Returns whether `dir` is on a file system that no server and no other process answers for.
#[cfg(target_os = "linux")]
pub(super) fn is_local(dir: &Dir) -> bool {
    // ext2 to ext4, XFS and Btrfs; see statfs(2).
    const LOCAL: [i128; 3] = [0xef53, 0x5846_5342, 0x9123_683e];
    rustix::fs::fstatfs(dir).is_ok_and(|found| LOCAL.contains(&i128::from(found.f_type)))
}

/// Maximum number of parts of a path. Each is checked from the root, on a thread that serves all sessions.
#[cfg(target_os = "linux")]
const MAX_PARTS: usize = 8;

/// Returns the content of the small regular file at `path`, if the system has the path and the content in its caches, so that nothing blocks.
/// `path` must be normalized, and `root` local. Also `None` if the path is deep, or a part of it is a link or may have another spelling:
/// these take longer to check.
#[cfg(target_os = "linux")]
pub(super) fn read_cached(root: &Dir, path: &Path) -> Option<Vec<u8>> {
    use std::io::IoSliceMut;

    use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, openat2};
    use rustix::io::{Errno, ReadWriteFlags, preadv2};

    use super::spelling::must_be_listed;

    const MAX_BYTES: usize = 16 << 10;
    if path.components().nth(MAX_PARTS).is_some() {
        return None;
    }
    let open = |path: &Path, flags: OFlags| {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV | ResolveFlags::CACHED;
        openat2(root, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve)
    };
    for part in path.ancestors() {
        let Some(name) = part.file_name() else { continue };
        let name = name.to_str()?;
        // Only a name that is known to be missing: another error can mean that the system would have to wait.
        let is_missing = |other: &str| open(&part.with_file_name(other), OFlags::PATH).err() == Some(Errno::NOENT);
        if must_be_listed(name, is_missing) {
            return None;
        }
    }
    // Checked before it is opened for reading, because opening a device can have side effects.
    let found = fstat(open(path, OFlags::PATH).ok()?).ok()?;
    let size = usize::try_from(found.st_size).ok()?;
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile || size > MAX_BYTES {
        return None;
    }
    // Another file may take its place meanwhile: then this one byte more is read, or less than the size.
    let mut bytes = vec![0; size.saturating_add(1)];
    let file = open(path, OFlags::RDONLY | OFlags::NONBLOCK).ok()?;
    let read = preadv2(&file, &mut [IoSliceMut::new(&mut bytes)], 0, ReadWriteFlags::NOWAIT).ok()?;
    bytes.truncate(size);
    (read == size).then_some(bytes)
}

#[cfg(not(target_os = "linux"))]
pub(super) fn is_local(_: &Dir) -> bool {
    false
}

#[cfg(not(target_os = "linux"))]
pub(super) fn read_cached(_: &Dir, _: &Path) -> Option<Vec<u8>> {
    None
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::fs::{create_dir, create_dir_all, write};

    use super::*;

    /// A file that was just written is in memory. Where the directory for temporary files is not local, none counts as such.
    #[test]
    fn only_a_small_regular_file_is_read_from_memory() {
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
        // The system knows that a name is missing after it has searched for it.
        for other in ["SUB", "sub/SMALL", "EMPTY", "FULL", "LARGE", "LINK", "WAY", "way/SMALL", "PIPE", "NONE"] {
            assert!(!at(other).exists());
        }
        let dir = Dir::open_ambient_dir(temporary.path(), cap_std::ambient_authority()).unwrap();
        let found = |name: &str| read_cached(&dir, Path::new(name)).filter(|_| is_local(&dir));
        let expected = ["text".to_owned(), String::new(), "x".repeat(16 << 10)];
        let expected = expected.map(|text| is_local(&dir).then(|| text.into_bytes()));
        assert_eq!(["sub/small", "empty", "full"].map(found), expected);
        assert_eq!(["large", "link", "way/small", "pipe", "sub", ".", "none"].map(found), [const { None }; 7]);
    }

    /// Attack: a hard link with the other spelling in a directory of many names, which the check of the spelling lists. The control: the
    /// file before it has the link.
    #[test]
    fn file_with_another_spelling_is_not_read_from_memory() {
        let temporary = tempfile::tempdir().unwrap();
        let at = |name: &str| temporary.path().join(name);
        write(at("small"), "text").unwrap();
        assert!(!at("SMALL").exists());
        let dir = Dir::open_ambient_dir(temporary.path(), cap_std::ambient_authority()).unwrap();
        let is_read = || is_local(&dir) && read_cached(&dir, Path::new("small")).is_some();
        assert_eq!(is_read(), is_local(&dir));
        std::fs::hard_link(at("small"), at("SMALL")).unwrap();
        assert!(!is_read());
    }

    /// Attack: a name that may open another entry, which the check of the spelling lists. The control: a name with an ASCII letter.
    #[test]
    fn name_that_must_be_listed_is_not_read_from_memory() {
        let temporary = tempfile::tempdir().unwrap();
        let dir = Dir::open_ambient_dir(temporary.path(), cap_std::ambient_authority()).unwrap();
        let is_read = |name: &str| {
            std::fs::create_dir_all(temporary.path().join(name)).unwrap();
            write(temporary.path().join(name).join("f"), "text").unwrap();
            assert!(!temporary.path().join(name).join("F").exists() && !temporary.path().join("D").exists());
            is_local(&dir) && read_cached(&dir, &Path::new(name).join("f")).is_some()
        };
        assert_eq!(["d", "u\u{308}", "\u{304b}", "1"].map(is_read), [is_local(&dir), false, false, false]);
    }

    /// Attack: a file in deep directories, whose parts take a long time to check. The control: one part less.
    #[test]
    fn file_in_deep_directories_is_not_read_from_memory() {
        let temporary = tempfile::tempdir().unwrap();
        let path_of = |parts: usize| [&*"d/".repeat(parts - 1), "f"].concat();
        let at = |path: &str| temporary.path().join(path);
        create_dir_all(at(&path_of(MAX_PARTS + 1)).parent().unwrap()).unwrap();
        let dir = Dir::open_ambient_dir(temporary.path(), cap_std::ambient_authority()).unwrap();
        let is_read = |parts: usize| {
            let path = path_of(parts);
            write(at(&path), "text").unwrap();
            for way in Path::new(&path)
                .ancestors()
                .filter_map(|way| Some(way.with_file_name(way.file_name()?.to_ascii_uppercase())))
            {
                assert!(!temporary.path().join(way).exists());
            }
            is_local(&dir) && read_cached(&dir, Path::new(&path)).is_some()
        };
        assert_eq!([MAX_PARTS, MAX_PARTS + 1].map(is_read), [is_local(&dir), false]);
    }

    /// The control: files of the kernel, which are computed when they are read.
    #[test]
    fn system_of_the_kernel_is_not_local() {
        let dir = Dir::open_ambient_dir("/proc", cap_std::ambient_authority()).unwrap();
        assert!(!is_local(&dir));
    }
}
