//! What `.gitignore` and `.ignore` leave out, read through the handle.

use std::cell::Cell;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use cap_std::fs::Dir;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use super::glob;
use crate::bounded::len;
use crate::workspace::beneath;

/// Bytes of one ignore file that are read: a line takes some hundred times its bytes of memory.
const MAX_FILE: u64 = 32 << 10;
/// Bytes of all ignore files that one call reads.
const MAX_CALL: u64 = 128 << 10;
/// How several that were left aside are noted.
pub(super) const ASIDE: &str = "ignore files or lines of them left aside, too large";
/// The later file wins.
const FILES: [&str; 2] = [".gitignore", ".ignore"];

/// What one call may spend on ignore files.
#[derive(Debug)]
pub(super) struct Budget {
    /// Bytes that it may still read.
    left: Cell<u64>,
    /// Files and lines that were left aside.
    aside: Cell<u64>,
}

impl Budget {
    pub(super) fn new() -> Self {
        Self { left: Cell::new(MAX_CALL), aside: Cell::new(0) }
    }

    fn leave_aside(&self) {
        self.aside.set(self.aside.get().saturating_add(1));
    }

    /// Files and lines that were too large to compile: what they would leave out is shown.
    pub(super) fn aside(&self) -> u64 {
        self.aside.get()
    }
}

/// The ignore files of a directory and of those above it, up to the workspace.
#[derive(Debug, Default)]
pub(super) struct Ignores {
    own: Option<Gitignore>,
    above: Option<Arc<Ignores>>,
}

impl Ignores {
    /// With the files in `dir`, which is `path` from the workspace.
    pub(super) fn below(self: &Arc<Self>, dir: &Dir, path: &Path, budget: &Budget) -> Arc<Self> {
        let texts: Vec<String> = FILES.iter().filter_map(|name| read(dir, name, budget)).collect();
        if texts.is_empty() {
            return Arc::clone(self);
        }
        let mut builder = GitignoreBuilder::new(path);
        for line in texts.iter().flat_map(|text| text.lines()) {
            if glob::check(line).is_err() {
                budget.leave_aside();
                continue;
            }
            // git passes over a line that it cannot read, and so do we.
            drop(builder.add_line(None, line));
        }
        let own = builder.build().ok();
        if own.is_none() {
            budget.leave_aside();
        }
        Arc::new(Self { own, above: Some(Arc::clone(self)) })
    }

    /// Whether `path`, from the workspace, is left out: the nearest file that speaks of it decides.
    pub(super) fn ignored(&self, path: &Path, is_dir: bool) -> bool {
        let mut level = Some(self);
        while let Some(ignores) = level {
            let found = ignores.own.as_ref().map(|own| own.matched(path, is_dir));
            match found {
                Some(found) if !found.is_none() => return found.is_ignore(),
                Some(_) | None => level = ignores.above.as_deref(),
            }
        }
        false
    }
}

/// Reads a file of `dir` if it is a regular one: a pipe of that name must not stop us, and a link is not followed, as by git.
fn read(dir: &Dir, name: &str, budget: &Budget) -> Option<String> {
    let file = beneath::file(dir, Path::new(name)).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let most = MAX_FILE.min(budget.left.get());
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut bytes).ok()?;
    let Some(left) = budget.left.get().checked_sub(len(bytes.len())).filter(|_| len(bytes.len()) <= most) else {
        // A part of it could mean the opposite of the whole.
        budget.leave_aside();
        return None;
    };
    budget.left.set(left);
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
