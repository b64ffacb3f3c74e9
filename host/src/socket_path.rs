//! Short paths to the socket of a host: the address of a Unix socket holds fewer bytes than a path may have.

use std::fs::DirBuilder;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, symlink};
use std::path::{Path, PathBuf};

use tokio::net::UnixStream;

/// Maximum bytes of the path in the address of a socket.
const MAX_BYTES: usize = if cfg!(target_os = "linux") { 107 } else { 103 };

/// A path to a socket that is short enough for a socket address. The path is valid until this value is dropped.
///
/// If the path of the socket is too long, the short one leads through an open handle of its directory, or through a
/// link in a private directory. The socket itself does not move. Host and client each make their own short path, so
/// another user cannot take its name.
#[derive(Debug)]
pub struct SocketPath {
    path: PathBuf,
    _alias: Option<DirAlias>,
}

/// The handle or link that a short path leads through.
#[derive(Debug)]
enum DirAlias {
    Handle { _dir: OwnedFd },
    Link { _link: PrivateLink },
}

impl SocketPath {
    /// Returns a path by which `socket` can be bound or connected.
    ///
    /// # Errors
    /// If its directory cannot be opened.
    pub fn of(socket: &Path) -> io::Result<Self> {
        if socket.as_os_str().len() <= MAX_BYTES {
            return Ok(Self { path: socket.to_owned(), _alias: None });
        }
        let (Some(dir), Some(name)) = (socket.parent(), socket.file_name()) else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the path of the socket has no directory: give it one",
            ));
        };
        if let Some((handle, path)) = open_by_handle(dir)? {
            return Ok(Self { path: path.join(name), _alias: Some(DirAlias::Handle { _dir: handle }) });
        }
        let link = PrivateLink::to(dir)?;
        Ok(Self { path: link.path().join(name), _alias: Some(DirAlias::Link { _link: link }) })
    }

    /// Returns the short path.
    pub fn as_path(&self) -> &Path {
        &self.path
    }
}

/// Opens `dir` and returns the path of the handle in `/proc`; `None` if `/proc` is not mounted.
#[cfg(target_os = "linux")]
fn open_by_handle(dir: &Path) -> io::Result<Option<(OwnedFd, PathBuf)>> {
    use rustix::fs::{CWD, Mode, OFlags, openat};
    use std::os::fd::AsRawFd as _;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let handle = openat(CWD, dir, flags, Mode::empty())?;
    let path = PathBuf::from(format!("/proc/self/fd/{}", handle.as_raw_fd()));
    Ok(path.exists().then_some((handle, path)))
}

#[cfg(not(target_os = "linux"))]
fn open_by_handle(_: &Path) -> io::Result<Option<(OwnedFd, PathBuf)>> {
    Ok(None)
}

/// A link to a directory, in a private directory of this process. Dropping it removes both.
#[derive(Debug)]
struct PrivateLink {
    dir: PathBuf,
}

impl PrivateLink {
    fn to(target: &Path) -> io::Result<Self> {
        let target = std::path::absolute(target)?;
        let dir = std::env::temp_dir().join(format!("subtend-{:016x}", getrandom::u64().map_err(io::Error::other)?));
        // Fails if the name exists, so the directory cannot be one that another user made.
        DirBuilder::new().mode(0o700).create(&dir)?;
        let link = Self { dir };
        symlink(target, link.path())?;
        Ok(link)
    }

    fn path(&self) -> PathBuf {
        self.dir.join("d")
    }
}

impl Drop for PrivateLink {
    fn drop(&mut self) {
        // A leftover temporary directory does no harm.
        drop(std::fs::remove_file(self.path()));
        drop(std::fs::remove_dir(&self.dir));
    }
}

/// Connects to the Unix socket at `socket`, whose path may have any length.
///
/// # Errors
/// If nothing listens there, or the system refuses.
pub async fn connect(socket: &Path) -> io::Result<UnixStream> {
    let short = SocketPath::of(socket)?;
    UnixStream::connect(short.as_path()).await
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    fn deep(home: &Path) -> PathBuf {
        let dir = home.join("d".repeat(120));
        std::fs::create_dir(&dir).expect("a directory");
        dir
    }

    #[test]
    fn short_path_is_used_unchanged() {
        let longest = format!("/{}", "s".repeat(MAX_BYTES - 1));
        let path = SocketPath::of(Path::new(&longest)).expect("a path");
        assert_eq!((path.as_path(), path._alias.is_none()), (Path::new(&longest), true));
    }

    #[test]
    fn long_path_leads_to_the_socket_in_its_directory() {
        let home = tempfile::tempdir().expect("a directory");
        let dir = deep(home.path());
        let socket = dir.join("host.sock");
        let short = SocketPath::of(&socket).expect("a path");
        assert!(short.as_path().as_os_str().len() <= MAX_BYTES, "{short:?}");
        let _listener = UnixListener::bind(short.as_path()).expect("bound");
        drop(short);
        assert!(socket.exists());
        let again = SocketPath::of(&socket).expect("a path");
        UnixStream::connect(again.as_path()).expect("connected");
    }

    /// The fallback for systems where a handle has no path.
    #[test]
    fn link_leads_to_the_socket_and_leaves_nothing() {
        let home = tempfile::tempdir().expect("a directory");
        let dir = deep(home.path());
        let link = PrivateLink::to(&dir).expect("a link");
        let (private, path) = (link.dir.clone(), link.path().join("host.sock"));
        let mode = std::fs::metadata(&private).expect("a directory").permissions().mode() & 0o777;
        assert_eq!((mode, path.as_os_str().len() <= MAX_BYTES), (0o700, true), "{path:?}");
        let _listener = UnixListener::bind(&path).expect("bound");
        UnixStream::connect(&path).expect("connected");
        drop(link);
        assert_eq!((private.exists(), dir.join("host.sock").exists()), (false, true));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn handle_of_a_link_is_refused() {
        let home = tempfile::tempdir().expect("a directory");
        let link = home.path().join("l".repeat(120));
        symlink(home.path(), &link).expect("a link");
        let error = SocketPath::of(&link.join("host.sock")).expect_err("a link");
        assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::NOTDIR.raw_os_error()));
    }
}
