//! The workspace survey: finds the existing files and directories that an authority allows.

mod second_names;
#[cfg(test)]
mod tests;

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, fstat, openat, statat};
use rustix::io::Errno;
use subtend_session::authority::{Access, Authority, Verdict};
use tokio_util::sync::CancellationToken;

use self::second_names::SecondNames;
use crate::path::join;

pub(crate) use self::second_names::unread;

const READ: &str = "fs.read";
const WRITE: &str = "fs.write";

const MAX_ENTRIES: u32 = 300_000;
const MAX_RULES: u32 = 20_000;
/// Maximum number of directory levels. Paths of file tools have no more parts, so that no tool creates a directory that prevents a survey.
const MAX_LEVELS: usize = Authority::MAX_PATH_PARTS;

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

/// Receives an entry, or what cannot be listed.
type EntryVisit<'a, S> = dyn FnMut(&mut S, Result<DirEntry, Unlisted>) -> Result<(), String> + 'a;

pub(super) struct WorkspaceSurvey<'a> {
    authority: &'a Authority,
    unread: SecondNames,
    unwritten: SecondNames,
    entries: u32,
    rules: u32,
    /// Bytes of the names of directories that are still to be searched for second names.
    queued_bytes: usize,
    /// Cancelled when no result is needed any more. A guard has no such signal: it ends.
    cancel: CancellationToken,
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
        let (unread, unwritten) = (SecondNames::default(), SecondNames::default());
        Self { authority, unread, unwritten, entries: 0, rules: 0, queued_bytes: 0, cancel: CancellationToken::new() }
    }

    /// Grants the allowed parts of the workspace `root`.
    ///
    /// # Errors
    /// If the workspace cannot be read or is too large, or if the sink fails.
    pub(super) fn grant(mut self, root: OwnedFd, sink: &mut Sink<'_>) -> Result<(), String> {
        let granted = |action: &str| !self.authority.denies_below(action, ".");
        let actions = (granted(READ), granted(WRITE));
        self.find_second_names(root.as_fd(), actions)?;
        self.grant_dir(root.as_fd(), ".", Grant::default(), 0, sink).map(drop)
    }

    fn verdict(&self, action: &str, path: &str) -> Verdict {
        self.authority.verdict(&Access { action: action.into(), resource: path.into() })
    }

    fn allows(&self, action: &str, path: &str) -> bool {
        self.verdict(action, path) == Verdict::Allow
    }

    /// Returns for which of the `actions` (read, write) a path at or below `path` is not allowed.
    fn restricted(&self, path: &str, actions: (bool, bool)) -> (bool, bool) {
        let partly = |action: &str| !self.authority.allows_below(action, path);
        (actions.0 && partly(READ), actions.1 && partly(WRITE))
    }

    /// Grants the allowed parts of one directory. `had` are the rights that its ancestors already grant. Returns whether the names in the
    /// directory and below may be listed.
    fn grant_dir(
        &mut self,
        dir: BorrowedFd<'_>,
        path: &str,
        had: Grant,
        depth: usize,
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
            let entry = match entry {
                Ok(entry) => entry,
                Err(Unlisted(path)) => {
                    listable &= survey.authority.allows_below(READ, &path);
                    return Ok(());
                }
            };
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
                    let read = !reads && survey.allows(READ, path) && !survey.unread.contains(&entry);
                    let write = !writes && survey.allows(WRITE, path) && !survey.unwritten.contains(&entry);
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
        depth: usize,
    ) -> Result<CoveredPart, String> {
        if had || (self.authority.allows_below(action, path) && !self.has_second_name(action, dir, path, depth)?) {
            return Ok(CoveredPart::All);
        }
        Ok(if self.authority.denies_below(action, path) { CoveredPart::None } else { CoveredPart::Some })
    }

    /// Returns whether a file in the directory has, or may have, another name that is not allowed.
    fn has_second_name(&mut self, action: &str, dir: BorrowedFd<'_>, path: &str, depth: usize) -> Result<bool, String> {
        let denied = if action == READ { &self.unread } else { &self.unwritten };
        if denied.is_empty() {
            return Ok(false);
        }
        let mut found = false;
        self.visit_entries(dir, path, depth, &mut |survey, entry| {
            // A command could make the directory listable again.
            let Ok(entry) = entry else {
                found = true;
                return Ok(());
            };
            let denied = if action == READ { &survey.unread } else { &survey.unwritten };
            found |= denied.contains(&entry);
            if let (false, EntryKind::Dir(dir)) = (found, &entry.kind) {
                let path = entry.path.as_deref().unwrap_or(UNNAMED);
                found = survey.has_second_name(action, dir.as_fd(), path, depth.saturating_add(1))?;
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// Visits each entry of a directory through an open handle, so that the checked object is the same as the granted object. Also visits
    /// what cannot be listed, unless it does not exist any more.
    fn visit_entries(
        &mut self,
        dir: BorrowedFd<'_>,
        path: &str,
        depth: usize,
        visit: &mut EntryVisit<'_, Self>,
    ) -> Result<(), String> {
        if depth >= MAX_LEVELS {
            return Err(format!("the workspace has more than {MAX_LEVELS} levels of directories"));
        }
        // Open a separate handle, because two walks of one directory must not share a position.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let entries = match openat(dir, ".", flags, Mode::empty()).and_then(Dir::new) {
            Ok(entries) => entries,
            Err(Errno::NOENT) => return Ok(()),
            Err(_) => return visit(self, Err(Unlisted(path.to_owned()))),
        };
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(Errno::NOENT) => continue,
                Err(_) => {
                    visit(self, Err(Unlisted(path.to_owned())))?;
                    continue;
                }
            };
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            if self.cancel.is_cancelled() {
                return Err("the call was cancelled".to_owned());
            }
            self.entries = self.entries.saturating_add(1);
            if self.entries > MAX_ENTRIES {
                return Err(format!("the workspace has more than {MAX_ENTRIES} files to inspect"));
            }
            match DirEntry::open(dir, name, path) {
                Ok(entry) => visit(self, Ok(entry))?,
                Err(Errno::NOENT) => {}
                Err(_) => visit(self, Err(Unlisted(named(name, path).unwrap_or_else(|| UNNAMED.to_owned()))))?,
            }
        }
        Ok(())
    }
}

/// Placeholder for a path that cannot be part of a rule. Everything below it is denied.
const UNNAMED: &str = "..";

/// The path of a directory that cannot be listed, or of an entry that cannot be inspected.
struct Unlisted(String);

struct DirEntry {
    name: CString,
    /// The path in the workspace, if it is UTF-8.
    path: Option<String>,
    kind: EntryKind,
    inode: Inode,
    /// False for directories.
    has_other_names: bool,
}

enum EntryKind {
    Dir(OwnedFd),
    File(OwnedFd),
    /// A socket, a device, or a link. The kernel checks the target of a link when it is used.
    Other,
}

impl DirEntry {
    fn open(dir: BorrowedFd<'_>, name: &CStr, path: &str) -> Result<Self, Errno> {
        let link_stat = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let (kind, stat) = match FileType::from_raw_mode(link_stat.st_mode) {
            FileType::Directory => {
                let fd = openat(dir, name, OFlags::RDONLY | OFlags::DIRECTORY | HANDLE, Mode::empty())?;
                let stat = fstat(&fd)?;
                (EntryKind::Dir(fd), stat)
            }
            FileType::RegularFile | FileType::Fifo => {
                let fd = openat(dir, name, OFlags::PATH | HANDLE, Mode::empty())?;
                let stat = fstat(&fd)?;
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
        let has_other_names = stat.st_nlink > 1 && !matches!(kind, EntryKind::Dir(_));
        Ok(Self { name: name.to_owned(), path: named(name, path), kind, inode: inode(&stat), has_other_names })
    }
}

/// Returns the path of an entry of the directory `path`, if it can be part of a rule.
fn named(name: &CStr, path: &str) -> Option<String> {
    name.to_str().ok().filter(|_| path != UNNAMED).map(|name| join(path, name))
}

const HANDLE: OFlags = OFlags::NOFOLLOW.union(OFlags::CLOEXEC);

fn inode(stat: &Stat) -> Inode {
    (stat.st_dev, stat.st_ino)
}
