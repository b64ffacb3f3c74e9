//! Finds pipes and devices in place of files that git opens. They make git wait endlessly.
//!
//! A session can create such a file while git runs, so a check before git starts is not enough.

use std::path::{Path, PathBuf};

use ignore::{DirEntry, WalkBuilder};

#[cfg(target_os = "linux")]
use crate::guard::reap;

/// Maximum number of files that a search inspects.
const MAX_FILES: usize = 1_000_000;

/// Returns a pipe that git would open in a working tree, or any pipe in the repository, the first of `written`.
pub(super) fn pipe(written: &[PathBuf], read: &[PathBuf]) -> Option<PathBuf> {
    let (repository, trees) = written.split_first()?;
    let is_read = |entry: &DirEntry| entry.file_name().as_encoded_bytes().starts_with(b".git");
    let in_tree = trees.iter().chain(read).find_map(|tree| entries(tree).filter(is_read).find(may_block_readers));
    let found = in_tree.or_else(|| entries(repository).find(may_block_readers));
    found.map(DirEntry::into_path)
}

/// Returns any pipe in a working tree. A session may have created it for its own use.
pub(super) fn any_pipe(written: &[PathBuf], read: &[PathBuf]) -> Option<PathBuf> {
    let trees = written.iter().skip(1).chain(read);
    trees.into_iter().find_map(|tree| entries(tree).find(may_block_readers)).map(DirEntry::into_path)
}

/// Returns the CPU time of a process and its descendants, if all their threads sleep. A thread that computes or waits for a disk does not
/// sleep.
#[cfg(target_os = "linux")]
pub(super) fn asleep(root: u32) -> Option<u64> {
    let mut used = 0_u64;
    for id in reap::with_descendants(root) {
        for task in std::fs::read_dir(format!("/proc/{id}/task")).ok()? {
            let stat = std::fs::read_to_string(task.ok()?.path().join("stat")).ok()?;
            used = used.checked_add(sleeper(&stat)?)?;
        }
    }
    Some(used)
}

/// Returns the CPU time of a sleeping thread from its line of `/proc`. The name before the state may contain any characters.
#[cfg(target_os = "linux")]
fn sleeper(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    fields.next().filter(|state| *state == "S")?;
    // User and system time are the 14th and the 15th field of the line.
    let (user, system): (u64, u64) = (fields.nth(10)?.parse().ok()?, fields.next()?.parse().ok()?);
    user.checked_add(system)
}

#[cfg(not(target_os = "linux"))]
pub(super) fn asleep(_: u32) -> Option<u64> {
    None
}

fn entries(dir: &Path) -> impl Iterator<Item = DirEntry> {
    WalkBuilder::new(dir).standard_filters(false).build().take(MAX_FILES).filter_map(Result::ok)
}

#[cfg(unix)]
fn may_block_readers(entry: &DirEntry) -> bool {
    use std::os::unix::fs::FileTypeExt as _;

    let kind = match entry.file_type() {
        // A link may lead to a pipe.
        Some(kind) if kind.is_symlink() => entry.path().metadata().ok().map(|found| found.file_type()),
        kind => kind,
    };
    kind.is_some_and(|kind| kind.is_fifo() || kind.is_char_device())
}

#[cfg(not(unix))]
fn may_block_readers(_: &DirEntry) -> bool {
    false
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::sleeper;

    #[test]
    fn sleeping_threads_are_found_with_their_cpu_time() {
        let line = |state: &str| format!("12 (a) S 1) {state} 1 2 3 4 5 6 7 8 9 10 40 2 0 0");
        assert_eq!(sleeper(&line("S")), Some(42));
        assert_eq!(["R", "D", "T", "Z"].map(|state| sleeper(&line(state))), [None; 4]);
        assert_eq!(sleeper("12 (a) S 1"), None);
    }
}
