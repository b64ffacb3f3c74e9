//! Reads one directory of the workspace without its ignored and denied entries.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::entry_memory::ReservedMemory;
use super::file_tool::Job;
use super::ignores::Ignores;
use crate::path::join;
use crate::tool::ToolError;
use crate::workspace::beneath;
use crate::workspace::names::READ;

/// Kind of an entry. Links are not followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LevelKind {
    Dir,
    File,
    Link,
    Other,
}

#[derive(Debug)]
pub(super) struct LevelItem {
    pub(super) kind: LevelKind,
    pub(super) name: String,
    pub(super) path: String,
    /// The path in the file system, relative to the workspace. It may not be UTF-8.
    pub(super) os: PathBuf,
    /// The memory reserved for this entry; `None` if the call named the entry.
    pub(super) _memory: Option<ReservedMemory>,
}

/// The entries of a directory, subdirectories first, sorted by name.
#[derive(Debug, Default)]
pub(super) struct Level {
    pub(super) items: Vec<LevelItem>,
    pub(super) ignored: u64,
    pub(super) denied: u64,
    pub(super) ignores: Arc<Ignores>,
}

pub(super) fn ancestor_ignores(job: &Job, path: &str) -> Arc<Ignores> {
    let mut ignores = Arc::new(Ignores::default());
    if path == "." {
        return ignores;
    }
    let mut ancestors: Vec<&Path> = Path::new(path).ancestors().skip(1).collect();
    ancestors.reverse();
    for ancestor in ancestors {
        let opened = if ancestor.as_os_str().is_empty() { Path::new(".") } else { ancestor };
        if let Ok(dir) = beneath::dir(job.workspace.dir(), opened) {
            ignores = ignores.for_subdirectory(&dir, ancestor, &job.ignores);
        }
    }
    ignores
}

impl Level {
    pub(super) fn read(job: &Job, os: &Path, path: &str, parent: &Arc<Ignores>) -> Result<io::Result<Self>, ToolError> {
        let entries = beneath::dir(job.workspace.dir(), os).and_then(|dir| Ok((dir.entries()?, dir)));
        let (entries, dir) = match entries {
            Ok(entries) => entries,
            Err(error) => return Ok(Err(error)),
        };
        let base = if path == "." { Path::new("") } else { os };
        let mut level = Self { ignores: parent.for_subdirectory(&dir, base, &job.ignores), ..Self::default() };
        for entry in entries {
            job.check_cancelled()?;
            // On an error, the entry was removed meanwhile.
            let Ok(entry) = entry else { continue };
            let Ok(file_type) = entry.file_type() else { continue };
            let name = entry.file_name();
            let kind = match (file_type.is_dir(), file_type.is_file(), file_type.is_symlink()) {
                (true, _, _) => LevelKind::Dir,
                (_, true, _) => LevelKind::File,
                (_, _, true) => LevelKind::Link,
                (false, false, false) => LevelKind::Other,
            };
            let (os, name) = (base.join(&name), name.to_string_lossy().into_owned());
            // The displayed path has the same length as `os`.
            let names = name.len().saturating_add(os.as_os_str().len().saturating_mul(2));
            let Some(memory) = job.memory.reserve(names) else {
                job.memory.record_truncated();
                break;
            };
            level.add(job, path, LevelItem { kind, name, path: String::new(), os, _memory: Some(memory) });
        }
        level.items.sort_unstable_by(|a, b| (a.kind != LevelKind::Dir, &a.os).cmp(&(b.kind != LevelKind::Dir, &b.os)));
        Ok(Ok(level))
    }

    fn add(&mut self, job: &Job, dir: &str, mut item: LevelItem) {
        // The content of `.git` belongs to git, not to the project.
        if item.name == ".git" || self.ignores.is_ignored(&item.os, item.kind == LevelKind::Dir, &job.ignores) {
            self.ignored = self.ignored.saturating_add(1);
            return;
        }
        item.path = join(dir, &item.name);
        // A denied directory may contain permitted entries.
        let permitted = match item.kind {
            LevelKind::Dir => job.may_permit_below(READ, &item.path),
            LevelKind::File | LevelKind::Link | LevelKind::Other => job.permits(READ, &item.path),
        };
        if permitted {
            self.items.push(item);
        } else {
            self.denied = self.denied.saturating_add(1);
        }
    }
}
