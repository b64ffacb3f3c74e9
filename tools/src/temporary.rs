//! The directory of this user for temporary files of the host, which no session may use: they include the `HOME` of other commands.

use std::path::PathBuf;

/// Returns the path, which may not exist; `None` where the system has no users.
#[cfg(unix)]
pub(crate) fn dir() -> Option<PathBuf> {
    let user = rustix::process::geteuid().as_raw();
    Some(std::env::temp_dir().join(subtend_session::owners::temporary_dir_name(user)))
}

#[cfg(not(unix))]
pub(crate) fn dir() -> Option<PathBuf> {
    None
}

/// Returns the directory for temporary files, without links: the sandbox refuses a path with a link, because a session may have created it.
#[cfg(target_os = "linux")]
pub(crate) fn base() -> std::io::Result<PathBuf> {
    std::env::temp_dir().canonicalize()
}

/// Creates the directory of this user in `base`, if it is missing.
///
/// # Errors
/// If another user could use or replace it: that user would choose the `HOME` of the commands, and with the files in it what programs such
/// as git start.
#[cfg(target_os = "linux")]
pub(crate) fn create_in(base: &std::path::Path) -> std::io::Result<PathBuf> {
    use std::io::{Error, ErrorKind};
    use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};

    use subtend_session::owners::{TrustedUsers, temporary_dir_name};

    let map = std::fs::read_to_string("/proc/self/uid_map").ok();
    let users = TrustedUsers::new(rustix::process::geteuid().as_raw(), map.as_deref());
    for above in base.ancestors() {
        let found = above.metadata()?;
        if let Some(why) = users.why_replaceable(above.display(), (found.uid(), found.gid(), found.mode())) {
            return Err(Error::other(why));
        }
    }
    let dir = base.join(temporary_dir_name(users.own));
    match std::fs::DirBuilder::new().mode(0o700).create(&dir) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let found = dir.symlink_metadata()?;
    match users.why_not_private(dir.display(), found.is_dir(), found.uid(), found.mode()) {
        None => Ok(dir),
        Some(why) => Err(Error::other(why)),
    }
}
