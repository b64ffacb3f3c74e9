//! The permissions that a replaced file keeps.

use std::io;
use std::path::Path;

use cap_std::fs::{Dir, File, Metadata, Permissions};

/// The permissions of a replaced file, for the file that replaces it.
#[derive(Clone, Debug)]
pub(crate) struct KeptMode {
    permissions: Permissions,
    #[cfg(unix)]
    group: u32,
    /// The access control list, if the file has one; empty if it is unknown or not kept. With a list, the group may do less than the bits
    /// of the group in the mode say.
    #[cfg(target_os = "linux")]
    list: Option<Vec<u8>>,
}

/// Returns the permissions of the entry `name` of `dir` without the bits that would give other users the rights of this user. With a kept
/// setuid bit, another user who can write to the new file could run programs as this user. The old file may belong to
/// another user, who chose its permissions.
#[cfg(unix)]
pub(crate) fn kept_mode(dir: &Dir, name: &Path, found: &Metadata) -> KeptMode {
    use cap_std::fs::{MetadataExt as _, PermissionsExt as _};

    #[cfg(not(target_os = "linux"))]
    let _ = (dir, name);
    let is_own = found.uid() == rustix::process::geteuid().as_raw();
    let mut permissions = found.permissions();
    permissions.set_mode(permissions.mode() & if is_own { 0o777 } else { 0o755 });
    KeptMode {
        permissions,
        group: found.gid(),
        #[cfg(target_os = "linux")]
        list: access_list::of(dir, name).map(|list| if is_own { list } else { Vec::new() }),
    }
}

#[cfg(not(unix))]
pub(crate) fn kept_mode(_: &Dir, _: &Path, found: &Metadata) -> KeptMode {
    KeptMode { permissions: found.permissions() }
}

impl KeptMode {
    /// Gives `file` the group, the mode as `change` returns it, and the access control list. Without the group, its bits are dropped: in a
    /// setgid directory a new file has the group of the directory, whose members may not read the old one.
    #[cfg(unix)]
    pub(crate) fn apply(&self, file: &File, change: impl FnOnce(u32) -> u32) -> io::Result<()> {
        use cap_std::fs::{MetadataExt as _, PermissionsExt as _};

        let is_kept =
            file.metadata()?.gid() == self.group || std::os::unix::fs::fchown(file, None, Some(self.group)).is_ok();
        #[cfg(target_os = "linux")]
        let is_kept = is_kept && self.list.is_none();
        let bits = self.permissions.mode() & if is_kept { 0o777 } else { 0o707 };
        #[cfg(target_os = "linux")]
        access_list::remove(file);
        file.set_permissions(Permissions::from_mode(change(bits) & 0o777))?;
        #[cfg(target_os = "linux")]
        if let Some(list) = &self.list {
            access_list::set(file, list);
        }
        Ok(())
    }

    #[cfg(not(unix))]
    pub(crate) fn apply(&self, file: &File, _: impl FnOnce(u32) -> u32) -> io::Result<()> {
        file.set_permissions(self.permissions.clone())
    }
}

/// Access control lists, in the form of the system.
#[cfg(target_os = "linux")]
mod access_list {
    use rustix::fs::{XattrFlags, fgetxattr, fremovexattr, fsetxattr};
    use rustix::io::Errno;

    use super::{Dir, File, Path};
    use crate::workspace::beneath;

    const NAME: &str = "system.posix_acl_access";
    /// Maximum bytes of an attribute in Linux.
    const MAX_BYTES: usize = 64 << 10;

    /// Returns the list; `None` if the file has no list, empty if the list cannot be read.
    pub(super) fn of(dir: &Dir, name: &Path) -> Option<Vec<u8>> {
        let mut list = vec![0; MAX_BYTES];
        let Ok(file) = beneath::file(dir, name) else { return Some(Vec::new()) };
        match fgetxattr(&file, NAME, list.as_mut_slice()) {
            Ok(bytes) => {
                list.truncate(bytes);
                Some(list)
            }
            Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::NOSYS) => None,
            Err(_) => Some(Vec::new()),
        }
    }

    /// Removes the list that a new file has from its directory. An error means that the file has no list.
    pub(super) fn remove(file: &File) {
        let _ = fremovexattr(file, NAME);
    }

    /// Sets the list. After an error the group has no access.
    pub(super) fn set(file: &File, list: &[u8]) {
        if !list.is_empty() {
            let _ = fsetxattr(file, NAME, list, XattrFlags::empty());
        }
    }
}
