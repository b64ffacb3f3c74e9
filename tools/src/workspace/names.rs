//! Hard links: a file is its content under every name, so that one denied name denies the file.
//!
//! The rules are about paths of the workspace. A file with several names is refused where one of them, in the workspace, is not
//! allowed; names outside of it have no rules, and count for nothing.

use std::cell::OnceCell;
use std::collections::HashSet;
use std::io;
use std::path::Path;

use cap_std::fs::{Dir, File};
use subtend_session::authority::Authority;

use super::Workspace;

/// The action of reading a file.
pub(crate) const READ: &str = "fs.read";

/// Device and inode.
type Inode = (u64, u64);

/// Why a file is not opened.
#[derive(Debug)]
pub(crate) enum Unopened {
    /// The system's reason.
    Io(io::Error),
    /// Another name of it is not allowed, or it is unknown whether.
    OtherName(String),
}

impl From<io::Error> for Unopened {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// What one call knows of files with several names.
#[derive(Debug)]
pub(crate) struct OtherNames {
    /// Whether the authority denies reading anything of the workspace.
    limited: bool,
    /// Files with a name that may not be read: found once, when the first file with several names is met.
    unread: OnceCell<Result<HashSet<Inode>, String>>,
}

impl OtherNames {
    pub(crate) fn new(authority: &Authority) -> Self {
        Self { limited: !authority.allows_below(READ, "."), unread: OnceCell::new() }
    }

    /// Checks that `file`, which was opened as `name` in `dir`, has no name that `authority` denies.
    ///
    /// # Errors
    /// When it has one, and when the name is another file's by now: then its number of names says nothing.
    pub(crate) fn permit(
        &self,
        workspace: &Workspace,
        authority: &Authority,
        (dir, name): (&Dir, &Path),
        file: &File,
    ) -> Result<(), Unopened> {
        if !self.limited {
            return Ok(());
        }
        let Some((inode, names)) = identity(dir, name, file)? else { return Ok(()) };
        if names <= 1 {
            return Ok(());
        }
        let unread = self.unread.get_or_init(|| unread(workspace, authority));
        match unread {
            Ok(unread) if unread.contains(&inode) => Err(Unopened::OtherName(
                "it has another name (a hard link), which this session may not read".to_owned(),
            )),
            Ok(_) => Ok(()),
            Err(why) => {
                Err(Unopened::OtherName(format!("it has other names (hard links), which cannot be checked: {why}")))
            }
        }
    }
}

/// What the file is, and how many names it has while `name` is one of them.
#[cfg(unix)]
fn identity(dir: &Dir, name: &Path, file: &File) -> io::Result<Option<(Inode, u64)>> {
    use rustix::fs::{AtFlags, fstat, statat};

    // The count is read by the name: read from the open file, it could have fallen since, by a removal of this very name.
    let (named, opened) = (statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?, fstat(file)?);
    #[allow(
        clippy::useless_conversion,
        clippy::unnecessary_cast,
        reason = "the types of these fields differ between systems"
    )]
    let inode = |stat: &rustix::fs::Stat| (stat.st_dev as u64, stat.st_ino as u64);
    if inode(&named) != inode(&opened) {
        return Err(io::Error::other("another file took its place while it was opened; try again"));
    }
    #[allow(clippy::useless_conversion, reason = "the types of these fields differ between systems")]
    let names = u64::from(named.st_nlink);
    Ok(Some((inode(&opened), names)))
}

#[cfg(not(unix))]
fn identity(_: &Dir, _: &Path, _: &File) -> io::Result<Option<(Inode, u64)>> {
    Ok(None)
}

#[cfg(target_os = "linux")]
fn unread(workspace: &Workspace, authority: &Authority) -> Result<HashSet<Inode>, String> {
    let root = workspace.dir().try_clone().map_err(|error| format!("the workspace cannot be opened: {error}"))?;
    crate::sandbox::unread(root.into(), authority)
}

#[cfg(not(target_os = "linux"))]
fn unread(_: &Workspace, _: &Authority) -> Result<HashSet<Inode>, String> {
    Err("only Linux can".to_owned())
}
