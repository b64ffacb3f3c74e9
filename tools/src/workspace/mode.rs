//! The permissions that a replaced file keeps.

use std::io;

use cap_std::fs::{File, Metadata, Permissions};

/// The permissions of a replaced file, for the file that replaces it.
#[derive(Clone, Debug)]
pub(crate) struct KeptMode {
    permissions: Permissions,
    #[cfg(unix)]
    group: u32,
}

/// Returns the permissions of a file without the bits that would give other users the rights of this user. With a kept
/// setuid bit, another user who can write to the new file could run programs as this user. The old file may belong to
/// another user, who chose its permissions.
#[cfg(unix)]
pub(crate) fn kept_mode(found: &Metadata) -> KeptMode {
    use cap_std::fs::{MetadataExt as _, PermissionsExt as _};

    let is_own = found.uid() == rustix::process::geteuid().as_raw();
    let mut permissions = found.permissions();
    permissions.set_mode(permissions.mode() & if is_own { 0o777 } else { 0o755 });
    KeptMode { permissions, group: found.gid() }
}

#[cfg(not(unix))]
pub(crate) fn kept_mode(found: &Metadata) -> KeptMode {
    KeptMode { permissions: found.permissions() }
}

impl KeptMode {
    /// Gives `file` the group and the mode, as `change` returns it. Without the group, the bits of the group are dropped:
    /// a new file has the group of its directory in a setgid directory, whose members may not read the old one.
    #[cfg(unix)]
    pub(crate) fn apply(&self, file: &File, change: impl FnOnce(u32) -> u32) -> io::Result<()> {
        use cap_std::fs::{MetadataExt as _, PermissionsExt as _};

        let is_kept =
            file.metadata()?.gid() == self.group || std::os::unix::fs::fchown(file, None, Some(self.group)).is_ok();
        let bits = self.permissions.mode() & if is_kept { 0o777 } else { 0o707 };
        file.set_permissions(Permissions::from_mode(change(bits) & 0o777))
    }

    #[cfg(not(unix))]
    pub(crate) fn apply(&self, file: &File, _: impl FnOnce(u32) -> u32) -> io::Result<()> {
        file.set_permissions(self.permissions.clone())
    }
}
