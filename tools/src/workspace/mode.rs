//! The permissions that a file keeps when it is replaced.

use cap_std::fs::{Metadata, Permissions};

/// Returns the permissions of a file without the bits that would give other users this user's rights: a kept setuid bit
/// would let another user who can write to the new file run programs as this user. The old file may be of another user,
/// who also decided who can write to it.
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
