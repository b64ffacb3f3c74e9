//! Finds the system settings that a sandboxed command can read: those that everyone may read.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

const MAX_DEPTH: u32 = 32;

/// Mode bits that let everyone read a file, or read and enter a directory.
const READ: u32 = 0o004;
const ENTER: u32 = 0o005;

/// Returns the files below `dir` that everyone may read, and the directories that everyone may read completely.
///
/// The superuser owns the files with password hashes and could read them even without capabilities. So only modes for everyone count.
pub(super) fn readable_by_all(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    if collect_readable(dir, MAX_DEPTH, &mut found) {
        found.push(dir.to_owned());
    }
    found
}

/// Returns whether everyone may read all of `dir`. If not, adds the readable parts to `found`.
fn collect_readable(dir: &Path, depth: u32, found: &mut Vec<PathBuf>) -> bool {
    let Some(entries) = depth.checked_sub(1).and_then(|_| std::fs::read_dir(dir).ok()) else { return false };
    let (mut parts, mut whole) = (Vec::new(), true);
    for entry in entries {
        // An unreadable entry is not granted.
        let Some((path, metadata)) = entry.ok().and_then(|entry| Some((entry.path(), entry.metadata().ok()?))) else {
            whole = false;
            continue;
        };
        if metadata.is_dir() {
            let open = is_open(&metadata, ENTER) && collect_readable(&path, depth - 1, &mut parts);
            whole &= open;
            parts.extend(open.then_some(path));
        } else if metadata.is_file() {
            let open = is_open(&metadata, READ);
            whole &= open;
            parts.extend(open.then_some(path));
        }
    }
    if !whole {
        found.append(&mut parts);
    }
    whole
}

fn is_open(metadata: &Metadata, bits: u32) -> bool {
    metadata.mode() & bits == bits
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, create_dir_all, set_permissions, write};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn readable_by_all_excludes_owner_only_files() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path();
        for (path, mode) in
            [("open/a", 0o644), ("mixed/a", 0o644), ("mixed/key", 0o600), ("closed/a", 0o644), ("top", 0o640)]
        {
            create_dir_all(at.join(path).parent().unwrap()).unwrap();
            write(at.join(path), "").unwrap();
            set_permissions(at.join(path), Permissions::from_mode(mode)).unwrap();
        }
        set_permissions(at.join("closed"), Permissions::from_mode(0o700)).unwrap();
        let mut found = readable_by_all(at);
        found.sort();
        assert_eq!(found, ["mixed/a", "open"].map(|path| at.join(path)));
        assert_eq!(readable_by_all(&at.join("open")), [at.join("open")]);
    }
}
