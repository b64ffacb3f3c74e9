//! Finds what has git wait without end: a pipe or a device in the place of a file that git opens.
//!
//! A session can put one there while git runs, so a check before it starts would not be enough.

use std::path::{Path, PathBuf};

use ignore::{DirEntry, WalkBuilder};

/// Files that a search inspects.
const MOST: usize = 1_000_000;

/// Returns a pipe in the repository, the first of what is written, or in place of a file of a working tree that git itself uses, such as
/// `.gitignore`.
pub(super) fn pipe(written: &[PathBuf], read: &[PathBuf]) -> Option<PathBuf> {
    let (repository, trees) = written.split_first()?;
    let is_read = |entry: &DirEntry| entry.file_name().as_encoded_bytes().starts_with(b".git");
    let in_tree = trees.iter().chain(read).find_map(|tree| entries(tree).filter(is_read).find(has_readers_wait));
    let found = in_tree.or_else(|| entries(repository).find(has_readers_wait));
    found.map(DirEntry::into_path)
}

fn entries(dir: &Path) -> impl Iterator<Item = DirEntry> {
    WalkBuilder::new(dir).standard_filters(false).build().take(MOST).filter_map(Result::ok)
}

#[cfg(unix)]
fn has_readers_wait(entry: &DirEntry) -> bool {
    use std::os::unix::fs::FileTypeExt as _;

    let kind = match entry.file_type() {
        // A link may lead to a pipe.
        Some(kind) if kind.is_symlink() => entry.path().metadata().ok().map(|found| found.file_type()),
        kind => kind,
    };
    kind.is_some_and(|kind| kind.is_fifo() || kind.is_char_device())
}

#[cfg(not(unix))]
fn has_readers_wait(_: &DirEntry) -> bool {
    false
}
