//! The workspace survey: finds the existing files and directories that an authority allows.

#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::ffi::CStr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, fstat, openat, statat};
use subtend_session::authority::{Access, Authority, Verdict};

use crate::path::join;

const READ: &str = "fs.read";
const WRITE: &str = "fs.write";

const MAX_ENTRIES: u32 = 300_000;
const MAX_RULES: u32 = 20_000;
/// Maximum number of directory levels. Each level holds an open descriptor.
const MAX_DEPTH: u32 = 200;

/// The rights for a file, or for everything in a directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Grant {
    pub(super) read: bool,
    pub(super) list: bool,
    pub(super) write: bool,
    /// The right to create, rename and remove. Only if everything may be read: a rename could reveal a file.
    pub(super) change: bool,
}

impl Grant {
    fn minus(self, had: Self) -> Self {
        Self {
            read: self.read && !had.read,
            list: self.list && !had.list,
            write: self.write && !had.write,
            change: self.change && !had.change,
        }
    }
}

/// Receives the grant for an open handle.
pub(super) type Sink<'a> = dyn FnMut(BorrowedFd<'_>, Grant) -> Result<(), String> + 'a;

/// Device and inode, which identify a file under any name.
type Inode = (u64, u64);

pub(super) struct WorkspaceSurvey<'a> {
    authority: &'a Authority,
    /// Files with several names, at least one of which may not be read.
    unread: HashSet<Inode>,
    /// Files with several names, at least one of which may not be written.
    unwritten: HashSet<Inode>,
    entries: u32,
    rules: u32,
}

/// Returns the files in `root` that have several names, at least one of which `authority` does not allow to be read.
///
/// # Errors
/// If the workspace is too large or too deep.
pub(crate) fn unread(root: OwnedFd, authority: &Authority) -> Result<HashSet<Inode>, String> {
    let mut survey = WorkspaceSurvey::new(authority);
    survey.find_second_names(root.as_fd(), ".", 0, (true, false))?;
    Ok(survey.unread)
}

/// The part of a directory on which an action is allowed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CoveredPart {
    All,
    Some,
    None,
}

impl<'a> WorkspaceSurvey<'a> {
    pub(super) fn new(authority: &'a Authority) -> Self {
        let (unread, unwritten) = (HashSet::new(), HashSet::new());
        Self { authority, unread, unwritten, entries: 0, rules: 0 }
    }

    /// Grants the allowed parts of the workspace `root`.
    ///
    /// # Errors
    /// If the workspace cannot be read or is too large, or if the sink fails.
    pub(super) fn grant(mut self, root: OwnedFd, sink: &mut Sink<'_>) -> Result<(), String> {
        let granted = |action: &str| !self.authority.denies_below(action, ".");
        let actions = (granted(READ), granted(WRITE));
        self.find_second_names(root.as_fd(), ".", 0, actions)?;
        self.grant_dir(root.as_fd(), ".", Grant::default(), 0, sink).map(drop)
    }

    fn verdict(&self, action: &str, path: &str) -> Verdict {
        self.authority.verdict(&Access { action: action.into(), resource: path.into() })
    }

    fn allows(&self, action: &str, path: &str) -> bool {
        self.verdict(action, path) == Verdict::Allow
    }

    /// Collects files with several names, one of which is not allowed for an action: none is granted.
    fn find_second_names(
        &mut self,
        dir: BorrowedFd<'_>,
        path: &str,
        depth: u32,
        actions: (bool, bool),
    ) -> Result<(), String> {
        let partly = |action: &str| !self.authority.allows_below(action, path);
        let (reads, writes) = (actions.0 && partly(READ), actions.1 && partly(WRITE));
        if !reads && !writes {
            return Ok(());
        }
        self.visit_entries(dir, path, depth, &mut |survey, entry| {
            if let EntryKind::Dir(dir) = &entry.kind {
                let path = entry.path.as_deref().unwrap_or(UNNAMED);
                return survey.find_second_names(dir.as_fd(), path, depth.saturating_add(1), actions);
            }
            if !entry.has_other_names {
                return Ok(());
            }
            // A name that cannot be part of a rule is not allowed.
            let allowed = |action| entry.path.as_deref().is_some_and(|path| survey.allows(action, path));
            let (unread, unwritten) = (reads && !allowed(READ), writes && !allowed(WRITE));
            if unread {
                survey.unread.insert(entry.inode);
            }
            if unwritten {
                survey.unwritten.insert(entry.inode);
            }
            Ok(())
        })
    }

    /// Grants the allowed parts of one directory. `had` are the rights that its ancestors already grant. Returns whether the names in the
    /// directory and below may be listed.
    fn grant_dir(
        &mut self,
        dir: BorrowedFd<'_>,
        path: &str,
        had: Grant,
        depth: u32,
        sink: &mut Sink<'_>,
    ) -> Result<bool, String> {
        let read = self.part(READ, had.read, dir, path, depth)?;
        let write = self.part(WRITE, had.write, dir, path, depth)?;
        let (reads, writes) = (read == CoveredPart::All, write == CoveredPart::All);
        let has = Grant { read: reads, list: reads, write: writes, change: reads && writes };
        let grant = has.minus(had);
        self.add_rule(dir, grant, sink)?;
        if read != CoveredPart::Some && write != CoveredPart::Some {
            return Ok(reads);
        }
        let mut listable = reads || (read == CoveredPart::Some && self.allows(READ, path));
        self.visit_entries(dir, path, depth, &mut |survey, entry| {
            let Some(path) = entry.path.as_deref() else {
                // An entry whose name cannot be part of a rule is not granted. If it is a directory, this directory cannot be listed.
                listable &= !matches!(entry.kind, EntryKind::Dir(_));
                return Ok(());
            };
            match &entry.kind {
                EntryKind::Dir(dir) => {
                    listable &= survey.grant_dir(dir.as_fd(), path, has, depth.saturating_add(1), sink)?;
                }
                EntryKind::File(file) => {
                    let read = !reads && survey.allows(READ, path) && !survey.unread.contains(&entry.inode);
                    let write = !writes && survey.allows(WRITE, path) && !survey.unwritten.contains(&entry.inode);
                    survey.add_rule(file.as_fd(), Grant { read, write, ..Grant::default() }, sink)?;
                }
                EntryKind::Other => {}
            }
            Ok(())
        })?;
        if listable && !reads {
            self.add_rule(dir, Grant { list: true, ..Grant::default() }, sink)?;
        }
        Ok(listable)
    }

    fn add_rule(&mut self, fd: BorrowedFd<'_>, grant: Grant, sink: &mut Sink<'_>) -> Result<(), String> {
        if grant == Grant::default() {
            return Ok(());
        }
        self.rules = self.rules.saturating_add(1);
        if self.rules > MAX_RULES {
            return Err(format!(
                "the session's permissions need more than {MAX_RULES} sandbox rules in this workspace; use rules for whole \
                 directories, such as `src/**`, which need one each"
            ));
        }
        sink(fd, grant)
    }

    fn part(
        &mut self,
        action: &str,
        had: bool,
        dir: BorrowedFd<'_>,
        path: &str,
        depth: u32,
    ) -> Result<CoveredPart, String> {
        if had || (self.authority.allows_below(action, path) && !self.has_second_name(action, dir, path, depth)?) {
            return Ok(CoveredPart::All);
        }
        Ok(if self.authority.denies_below(action, path) { CoveredPart::None } else { CoveredPart::Some })
    }

    /// Returns whether a file in the directory has another name that is not allowed.
    fn has_second_name(&mut self, action: &str, dir: BorrowedFd<'_>, path: &str, depth: u32) -> Result<bool, String> {
        let denied = |survey: &Self| if action == READ { survey.unread.len() } else { survey.unwritten.len() };
        if denied(self) == 0 {
            return Ok(false);
        }
        let mut found = false;
        self.visit_entries(dir, path, depth, &mut |survey, entry| {
            let denied = if action == READ { &survey.unread } else { &survey.unwritten };
            found |= denied.contains(&entry.inode);
            if let (false, EntryKind::Dir(dir)) = (found, &entry.kind) {
                let path = entry.path.as_deref().unwrap_or(UNNAMED);
                found = survey.has_second_name(action, dir.as_fd(), path, depth.saturating_add(1))?;
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// Visits each entry of a directory through an open handle, so that the checked object is the same as the granted object.
    fn visit_entries(
        &mut self,
        dir: BorrowedFd<'_>,
        path: &str,
        depth: u32,
        visit: &mut dyn FnMut(&mut Self, DirEntry) -> Result<(), String>,
    ) -> Result<(), String> {
        if depth >= MAX_DEPTH {
            return Err(format!("the workspace has more than {MAX_DEPTH} levels of directories"));
        }
        // Open a separate handle, because two walks of one directory must not share a position.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(entries) = openat(dir, ".", flags, Mode::empty()).and_then(Dir::new) else { return Ok(()) };
        for entry in entries {
            // An entry that cannot be read or was removed meanwhile is not granted.
            let Ok(entry) = entry else { continue };
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            self.entries = self.entries.saturating_add(1);
            if self.entries > MAX_ENTRIES {
                return Err(format!("the workspace has more than {MAX_ENTRIES} files to inspect"));
            }
            if let Some(entry) = DirEntry::open(dir, name, path) {
                visit(self, entry)?;
            }
        }
        Ok(())
    }
}

/// Placeholder for a path that cannot be part of a rule. Everything below it is denied.
const UNNAMED: &str = "..";

struct DirEntry {
    /// The path in the workspace, if it is UTF-8.
    path: Option<String>,
    kind: EntryKind,
    inode: Inode,
    has_other_names: bool,
}

enum EntryKind {
    Dir(OwnedFd),
    File(OwnedFd),
    /// A socket, a device, or a link. The kernel checks the target of a link when it is used.
    Other,
}

impl DirEntry {
    fn open(dir: BorrowedFd<'_>, name: &CStr, path: &str) -> Option<Self> {
        let link_stat = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let (kind, stat) = match FileType::from_raw_mode(link_stat.st_mode) {
            FileType::Directory => {
                let fd = openat(dir, name, OFlags::RDONLY | OFlags::DIRECTORY | HANDLE, Mode::empty()).ok()?;
                let stat = fstat(&fd).ok()?;
                (EntryKind::Dir(fd), stat)
            }
            FileType::RegularFile | FileType::Fifo => {
                let fd = openat(dir, name, OFlags::PATH | HANDLE, Mode::empty()).ok()?;
                let stat = fstat(&fd).ok()?;
                // The entry may have been replaced after `statat`.
                let file = matches!(FileType::from_raw_mode(stat.st_mode), FileType::RegularFile | FileType::Fifo);
                (if file { EntryKind::File(fd) } else { EntryKind::Other }, stat)
            }
            FileType::Symlink
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => (EntryKind::Other, link_stat),
        };
        let path = name.to_str().ok().filter(|_| path != UNNAMED).map(|name| join(path, name));
        Some(Self { path, kind, inode: inode(&stat), has_other_names: stat.st_nlink > 1 })
    }
}

const HANDLE: OFlags = OFlags::NOFOLLOW.union(OFlags::CLOEXEC);

fn inode(stat: &Stat) -> Inode {
    (stat.st_dev, stat.st_ino)
}
