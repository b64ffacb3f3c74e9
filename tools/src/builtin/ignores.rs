//! `.gitignore` and `.ignore` files, read through the workspace handle.

use std::cell::Cell;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use cap_std::fs::Dir;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use super::glob;
use crate::bounded::len;
use crate::workspace::beneath;

/// Bytes read of one ignore file: a line takes some hundred times its size in memory.
const MAX_FILE: u64 = 32 << 10;
/// Bytes of all ignore files of one call.
const MAX_CALL: u64 = 128 << 10;
pub(super) const ASIDE: &str = "ignore files or lines of them skipped: too large";
/// In ascending priority.
const FILES: [&str; 2] = [".gitignore", ".ignore"];

#[derive(Debug)]
pub(super) struct Budget {
    left: Cell<u64>,
    aside: Cell<u64>,
}

impl Budget {
    pub(super) fn new() -> Self {
        Self { left: Cell::new(MAX_CALL), aside: Cell::new(0) }
    }

    fn leave_aside(&self) {
        self.aside.set(self.aside.get().saturating_add(1));
    }

    /// Returns the number of skipped files and lines: what they would exclude is shown.
    pub(super) fn aside(&self) -> u64 {
        self.aside.get()
    }
}

/// The ignore files of a directory and its ancestors, up to the workspace.
#[derive(Debug, Default)]
pub(super) struct Ignores {
    own: Option<Gitignore>,
    above: Option<Arc<Ignores>>,
}

impl Ignores {
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
            // Like git, skip an invalid line.
            drop(builder.add_line(None, line));
        }
        let own = builder.build().ok();
        if own.is_none() {
            budget.leave_aside();
        }
        Arc::new(Self { own, above: Some(Arc::clone(self)) })
    }

    /// Returns whether `path` is ignored: the nearest file with a matching line decides.
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

/// Reads a regular file of `dir`. A pipe must not block, and a link is not followed, as in git.
fn read(dir: &Dir, name: &str, budget: &Budget) -> Option<String> {
    let file = beneath::file(dir, Path::new(name)).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let most = MAX_FILE.min(budget.left.get());
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut bytes).ok()?;
    let Some(left) = budget.left.get().checked_sub(len(bytes.len())).filter(|_| len(bytes.len()) <= most) else {
        // A truncated file could mean the opposite of the whole.
        budget.leave_aside();
        return None;
    };
    budget.left.set(left);
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
