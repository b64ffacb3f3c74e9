//! The permissions that a replaced file keeps.

use cap_std::fs::{Metadata, Permissions};

/// Returns the permissions of a file without the bits that would give other users the rights of this user. With a kept
/// setuid bit, another user who can write to the new file could run programs as this user. The old file may belong to
/// another user, who chose its permissions.
#[cfg(unix)]
pub(crate) fn safe_permissions(found: &Metadata) -> Permissions {
    use cap_std::fs::{MetadataExt as _, PermissionsExt as _};

    let is_own = found.uid() == rustix::process::geteuid().as_raw();
    let mut permissions = found.permissions();
    permissions.set_mode(permissions.mode() & if is_own { 0o777 } else { 0o755 });
    permissions
}

#[cfg(not(unix))]
pub(crate) fn safe_permissions(found: &Metadata) -> Permissions {
    found.permissions()
}
