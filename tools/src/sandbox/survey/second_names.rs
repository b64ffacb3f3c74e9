//! Finds files with several names (hard links), at least one of which is not allowed for an action.
//!
//! This walk also runs in the host, where the calls of all sessions share the descriptors of the process. So it holds one directory at a
//! time, whatever the depth, and not one for each level.

use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, fstat, openat};
use rustix::io::Errno;
use subtend_session::authority::Authority;
use tokio_util::sync::CancellationToken;

use super::{DirEntry, EntryKind, HANDLE, Inode, READ, UNNAMED, Unlisted, WRITE, WorkspaceSurvey, inode, named};

/// Maximum bytes of the names of directories that are found and not yet searched.
const MAX_QUEUED_BYTES: usize = 32 << 20;
/// Memory of one such name in addition to its bytes.
const NAME_BYTES: usize = 32;

/// The files found for one action.
#[derive(Debug, Default)]
pub(super) struct SecondNames {
    files: HashSet<Inode>,
    /// A directory that may hold denied names and cannot be listed. Then each file with several names counts as one with a denied name.
    unlisted: Option<String>,
}

impl SecondNames {
    pub(super) fn contains(&self, entry: &DirEntry) -> bool {
        self.files.contains(&entry.inode) || (entry.has_other_names && self.unlisted.is_some())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.files.is_empty() && self.unlisted.is_none()
    }
}

/// A directory on the way to the open one.
struct OpenLevel {
    /// Its name in the level above.
    name: CString,
    path: String,
    inode: Inode,
    /// Its directories that are still to be searched.
    dirs: Vec<CString>,
}

/// Returns the files in `root` that have several names, at least one of which `authority` does not allow to be read.
///
/// # Errors
/// If the workspace is too large or too deep, if a directory that may hold denied names cannot be listed, or if the call is cancelled.
pub(crate) fn unread(
    root: OwnedFd,
    authority: &Authority,
    cancel: &CancellationToken,
) -> Result<HashSet<Inode>, String> {
    let mut survey = WorkspaceSurvey { cancel: cancel.clone(), ..WorkspaceSurvey::new(authority) };
    survey.find_second_names(root.as_fd(), (true, false))?;
    match survey.unread.unlisted {
        None => Ok(survey.unread.files),
        Some(path) => {
            let dir =
                if path == UNNAMED { "a directory whose name is not UTF-8".to_owned() } else { format!("`{path}`") };
            Err(format!(
                "{dir} cannot be listed and may hold one of them. Make it listable (`chmod u+rx`), try again if it was moved meanwhile, or copy the \
                 file"
            ))
        }
    }
}

impl WorkspaceSurvey<'_> {
    /// Collects files with several names, one of which is not allowed for one of the `actions` (read, write): none is granted.
    pub(super) fn find_second_names(&mut self, root: BorrowedFd<'_>, actions: (bool, bool)) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("cannot open the workspace: {error}");
        let mut dir = root.try_clone_to_owned().map_err(failed)?;
        let mut levels = vec![self.search_level(dir.as_fd(), (c".".to_owned(), ".".to_owned()), 0, actions)?];
        while let Some(level) = levels.last_mut() {
            let Some(name) = level.dirs.pop() else {
                levels.pop();
                if let Some(above) = levels.last() {
                    dir = match open_same(dir.as_fd(), c"..", above.inode) {
                        Some(above) => above,
                        None => self.reopen(root, &mut levels, actions)?,
                    };
                }
                continue;
            };
            self.queued_bytes = self.queued_bytes.saturating_sub(queued_bytes_of(&name));
            let path = named(&name, &level.path).unwrap_or_else(|| UNNAMED.to_owned());
            if self.restricted(&path, actions) == (false, false) {
                continue;
            }
            let child = match openat(&dir, &*name, OFlags::RDONLY | OFlags::DIRECTORY | HANDLE, Mode::empty()) {
                Ok(child) => child,
                Err(Errno::NOENT) => continue,
                Err(_) => {
                    self.record_unlisted(path, actions);
                    continue;
                }
            };
            let level = self.search_level(child.as_fd(), (name, path), levels.len(), actions)?;
            if !level.dirs.is_empty() {
                // Without the right to search it, nothing in it can be opened, nor the way back.
                if openat(&child, ".", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).is_err() {
                    self.record_unlisted(level.path, actions);
                    continue;
                }
                levels.push(level);
                dir = child;
            }
        }
        Ok(())
    }

    /// Opens the last of the `levels` by their names, because a directory was moved away from it. A level that was moved itself cannot be
    /// found: it is removed with those below, and its remaining directories count as unlisted.
    fn reopen(
        &mut self,
        root: BorrowedFd<'_>,
        levels: &mut Vec<OpenLevel>,
        actions: (bool, bool),
    ) -> Result<OwnedFd, String> {
        let failed = |error: std::io::Error| format!("cannot open the workspace: {error}");
        let mut dir = root.try_clone_to_owned().map_err(failed)?;
        let mut found = 1;
        for level in levels.iter().skip(1) {
            let Some(opened) = open_same(dir.as_fd(), &level.name, level.inode) else { break };
            dir = opened;
            found += 1;
        }
        for lost in levels.drain(found..) {
            let queued: usize = lost.dirs.iter().map(queued_bytes_of).sum();
            self.queued_bytes = self.queued_bytes.saturating_sub(queued);
            if queued > 0 {
                self.record_unlisted(lost.path, actions);
            }
        }
        Ok(dir)
    }

    /// Searches the files of one directory. Returns it with the directories in it.
    fn search_level(
        &mut self,
        dir: BorrowedFd<'_>,
        (name, path): (CString, String),
        depth: usize,
        actions: (bool, bool),
    ) -> Result<OpenLevel, String> {
        let found = fstat(dir).map_err(|error| format!("cannot inspect `{path}`: {error}"))?;
        let mut dirs = Vec::new();
        let (reads, writes) = self.restricted(&path, actions);
        if !reads && !writes {
            return Ok(OpenLevel { name, path, inode: inode(&found), dirs });
        }
        self.visit_entries(dir, &path, depth, &mut |survey, entry| {
            let entry = match entry {
                Ok(entry) => entry,
                Err(Unlisted(path)) => {
                    survey.record_unlisted(path, actions);
                    return Ok(());
                }
            };
            if let EntryKind::Dir(_) = entry.kind {
                survey.queued_bytes = survey.queued_bytes.saturating_add(queued_bytes_of(&entry.name));
                if survey.queued_bytes > MAX_QUEUED_BYTES {
                    return Err("the workspace has too many directories to inspect".to_owned());
                }
                dirs.push(entry.name);
                return Ok(());
            }
            if !entry.has_other_names {
                return Ok(());
            }
            // A name that cannot be part of a rule is not allowed.
            let allowed = |action| entry.path.as_deref().is_some_and(|path| survey.allows(action, path));
            let (unread, unwritten) = (reads && !allowed(READ), writes && !allowed(WRITE));
            if unread {
                survey.unread.files.insert(entry.inode);
            }
            if unwritten {
                survey.unwritten.files.insert(entry.inode);
            }
            Ok(())
        })?;
        Ok(OpenLevel { name, path, inode: inode(&found), dirs })
    }

    fn record_unlisted(&mut self, path: String, actions: (bool, bool)) {
        let (reads, writes) = self.restricted(&path, actions);
        if reads {
            self.unread.unlisted.get_or_insert_with(|| path.clone());
        }
        if writes {
            self.unwritten.unlisted.get_or_insert(path);
        }
    }
}

/// Opens the directory `name` in `dir`, if it is still the `expected` one.
fn open_same(dir: BorrowedFd<'_>, name: &CStr, expected: Inode) -> Option<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = openat(dir, name, flags, Mode::empty()).ok()?;
    (inode(&fstat(&opened).ok()?) == expected).then_some(opened)
}

fn queued_bytes_of(name: &CString) -> usize {
    name.as_bytes().len().saturating_add(NAME_BYTES)
}

#[cfg(test)]
mod tests {
    use subtend_session::authority::{Rule, RuleSet, Verdict};

    use super::*;

    /// The control: levels that are still in place are opened, and nothing counts as unlisted.
    #[test]
    fn moved_level_counts_as_unlisted() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("a/b/c/d")).unwrap();
        let rule = Rule { action: READ.into(), resource: "**/.env".into(), verdict: Verdict::Deny };
        let no_env = Authority::of(RuleSet { default: Verdict::Allow, rules: vec![rule] });
        let root = OwnedFd::from(std::fs::File::open(dir.path()).unwrap());
        let root = root.as_fd();
        let reopened = || {
            let mut survey = WorkspaceSurvey::new(&no_env);
            let mut levels = Vec::new();
            for (name, path) in [(c".", "."), (c"a", "a"), (c"b", "a/b"), (c"c", "a/b/c")] {
                let opened = std::fs::File::open(dir.path().join(path)).unwrap();
                let level = (name.to_owned(), path.to_owned());
                levels.push(survey.search_level(opened.as_fd(), level, 0, (true, false)).unwrap());
            }
            move || {
                let dir = survey.reopen(root, &mut levels, (true, false)).unwrap();
                let last = levels.last().unwrap();
                assert_eq!(inode(&fstat(dir).unwrap()), last.inode);
                (last.path.clone(), survey.unread.unlisted)
            }
        };
        let [in_place, moved] = [reopened(), reopened()];
        assert_eq!(in_place(), ("a/b/c".to_owned(), None));
        std::fs::rename(dir.path().join("a/b"), dir.path().join("b")).unwrap();
        assert_eq!(moved(), ("a".to_owned(), Some("a/b".to_owned())));
    }
}
