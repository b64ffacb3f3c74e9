//! Files of a worktree that git does not list, as those of a repository within it, and that would be lost with the worktree.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::git::GitPlace;
use super::staged::SUBMODULE_MODE;
use super::walk::walk;
use super::{WorktreeError, Worktrees, cannot};

/// Directories besides those of listed files. A worktree with more of them stays, so that no session makes the search long.
const MAX_OTHER_DIRS: usize = 10_000;

impl Worktrees {
    /// Returns whether a worktree without changes has more than the files that git lists.
    pub(super) fn has_unlisted(&self, at: &GitPlace) -> Result<bool, WorktreeError> {
        let listed = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&listed);
        let is_whole = self.git.run_scanned(at, &["ls-files", "-z", "--stage"], move |out| {
            let mut line = Vec::new();
            while out.read_until(0, &mut line)? > 0 {
                count.fetch_add(usize::from(!line.starts_with(SUBMODULE_MODE)), Ordering::Relaxed);
                line.clear();
            }
            Ok(true)
        })?;
        Ok(!is_whole || has_more_files(at.tree(), listed.load(Ordering::Relaxed)).map_err(cannot("read"))?)
    }
}

/// Returns whether a tree has more than `listed` files, a directory `.git`, or very many directories. The file `.git` at the top is of the host.
fn has_more_files(tree: &Path, listed: usize) -> io::Result<bool> {
    let (mut files, mut dirs) = (0_usize, 0_usize);
    let is_whole = walk(tree, |dir, entry, kind| {
        let is_git = entry.file_name() == ".git";
        if kind.is_dir() {
            dirs = dirs.saturating_add(1);
        } else if !(kind.is_file() && is_git && dir == tree) {
            files = files.saturating_add(1);
        }
        Ok(files <= listed && !(kind.is_dir() && is_git) && dirs <= listed.saturating_add(MAX_OTHER_DIRS))
    })?;
    Ok(!is_whole)
}
