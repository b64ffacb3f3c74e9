//! Visits all entries of a worktree.

use std::fs::{self, DirEntry, FileType};
use std::io;
use std::path::Path;

/// Visits the entries of a tree, with their directories and kinds, until `visit` returns false. Follows no links. Returns whether all were visited.
pub(super) fn walk(
    tree: &Path,
    mut visit: impl FnMut(&Path, &DirEntry, FileType) -> io::Result<bool>,
) -> io::Result<bool> {
    let mut left = vec![tree.to_owned()];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(&dir)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if !visit(&dir, &entry, kind)? {
                return Ok(false);
            }
            if kind.is_dir() {
                left.push(entry.path());
            }
        }
    }
    Ok(true)
}
