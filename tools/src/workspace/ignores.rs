//! What `.gitignore` and `.ignore` leave out, read through the handle.

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use cap_std::fs::{Dir, OpenOptions};
use ignore::gitignore::{Gitignore, GitignoreBuilder};

/// Bytes of one ignore file that are read.
const MAX_FILE: u64 = 1 << 20;
/// The later file wins.
const FILES: [&str; 2] = [".gitignore", ".ignore"];

/// The ignore files of a directory and of those above it, up to the workspace.
#[derive(Debug, Default)]
pub(super) struct Ignores {
    own: Option<Gitignore>,
    above: Option<Arc<Ignores>>,
}

impl Ignores {
    /// With the files in `dir`, which is `path` from the workspace.
    pub(super) fn below(self: &Arc<Self>, dir: &Dir, path: &Path) -> Arc<Self> {
        let texts: Vec<String> = FILES.iter().filter_map(|name| read(dir, name)).collect();
        if texts.is_empty() {
            return Arc::clone(self);
        }
        let mut builder = GitignoreBuilder::new(path);
        for line in texts.iter().flat_map(|text| text.lines()) {
            // git passes over a line that it cannot read, and so do we.
            drop(builder.add_line(None, line));
        }
        Arc::new(Self { own: builder.build().ok(), above: Some(Arc::clone(self)) })
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

/// Reads a file of `dir` if it is a regular one: a pipe of that name must not stop us.
fn read(dir: &Dir, name: &str) -> Option<String> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    {
        use cap_std::fs::OpenOptionsExt as _;
        options.custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed());
    }
    let file = dir.open_with(name, &options).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
