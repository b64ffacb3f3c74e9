//! Checks hard links: if rules deny one name of a file, the file is denied under all its names.
//!
//! Only names in the workspace count, because rules do not apply to names outside of it.

use std::cell::OnceCell;
use std::collections::HashSet;
use std::io;
use std::path::Path;

use cap_std::fs::{Dir, File};
use subtend_session::authority::Authority;
use tokio_util::sync::CancellationToken;

use super::Workspace;

pub(crate) const READ: &str = "fs.read";

type Inode = (u64, u64);

#[derive(Debug)]
pub(crate) enum OpenNamedError {
    Io(io::Error),
    OtherName(String),
}

/// The error of [`check_single_name`].
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("it has other names (hard links), which may be outside of the workspace: copy the file")]
pub(crate) struct OtherNamesError;

impl From<io::Error> for OpenNamedError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// A cache of the files with several names, for one call.
#[derive(Debug)]
pub(crate) struct OtherNames {
    /// True if the authority denies reading a part of the workspace.
    limited: bool,
    /// Files with a denied name. The search runs when the first file with several names is opened.
    unread: OnceCell<Result<HashSet<Inode>, String>>,
    /// Ends the search.
    cancel: CancellationToken,
}

impl OtherNames {
    pub(crate) fn new(authority: &Authority, cancel: CancellationToken) -> Self {
        Self { limited: !authority.allows_below(READ, "."), unread: OnceCell::new(), cancel }
    }

    /// Returns whether the authority allows reading the whole workspace, so that [`permit`](Self::permit) never searches it.
    pub(crate) fn need_no_search(&self) -> bool {
        !self.limited
    }

    /// Checks that `authority` does not deny any name of `file`, which was opened as `name` in `dir`.
    ///
    /// # Errors
    /// If a name is denied, or if `name` now refers to another file: then the link count of `file` is unknown.
    pub(crate) fn permit(
        &self,
        workspace: &Workspace,
        authority: &Authority,
        (dir, name): (&Dir, &Path),
        file: &File,
    ) -> Result<(), OpenNamedError> {
        if !self.limited {
            return Ok(());
        }
        let Some((inode, names)) = identity(dir, name, file)? else { return Ok(()) };
        if names <= 1 {
            return Ok(());
        }
        let unread = self.unread.get_or_init(|| unread(workspace, authority, &self.cancel));
        match unread {
            Ok(unread) if unread.contains(&inode) => Err(OpenNamedError::OtherName(
                "it has another name (a hard link), which this session may not read".to_owned(),
            )),
            Ok(_) => Ok(()),
            Err(why) => Err(OpenNamedError::OtherName(format!(
                "it has other names (hard links), which cannot be checked: {why}"
            ))),
        }
    }
}

/// Checks that `file`, which was opened as `name` in `dir`, has only one name.
pub(crate) fn check_single_name((dir, name): (&Dir, &Path), file: &File) -> io::Result<()> {
    match identity(dir, name, file)? {
        Some((_, names)) if names > 1 => Err(io::Error::new(io::ErrorKind::PermissionDenied, OtherNamesError)),
        Some(_) | None => Ok(()),
    }
}

/// Returns the file's identity and its link count while `name` refers to it.
#[cfg(unix)]
fn identity(dir: &Dir, name: &Path, file: &File) -> io::Result<Option<(Inode, u64)>> {
    use rustix::fs::{AtFlags, fstat, statat};

    // Use the link count of the name. The count of the open file would be too low if this name was removed meanwhile.
    let (named, opened) = (statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?, fstat(file)?);
    #[allow(
        clippy::useless_conversion,
        clippy::unnecessary_cast,
        reason = "the types of these fields differ between systems"
    )]
    let inode = |stat: &rustix::fs::Stat| (stat.st_dev as u64, stat.st_ino as u64);
    if inode(&named) != inode(&opened) {
        return Err(io::Error::other("the file was replaced while it was opened; try again"));
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
fn unread(workspace: &Workspace, authority: &Authority, cancel: &CancellationToken) -> Result<HashSet<Inode>, String> {
    let _permit = search_permit(cancel)?;
    let root = workspace.dir().try_clone().map_err(|error| format!("cannot open the workspace: {error}"))?;
    crate::sandbox::unread(root.into(), authority, cancel)
}

#[cfg(not(target_os = "linux"))]
fn unread(_: &Workspace, _: &Authority, _: &CancellationToken) -> Result<HashSet<Inode>, String> {
    Err("only Linux supports this".to_owned())
}

/// Searches of a workspace that run at the same time in this process, for all sessions: each takes a thread, memory and descriptors.
#[cfg(target_os = "linux")]
pub(crate) static SEARCHES: tokio::sync::Semaphore = tokio::sync::Semaphore::const_new(2);

/// Waits for a permit on this thread, in the order of all waiting threads. The thread may block, and may have no runtime.
#[cfg(target_os = "linux")]
fn search_permit(cancel: &CancellationToken) -> Result<tokio::sync::SemaphorePermit<'static>, String> {
    use std::task::{Context, Poll, Wake, Waker};

    use tokio::task::unconstrained;

    struct WaitingThread(std::thread::Thread);
    impl Wake for WaitingThread {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }

    let waker = Waker::from(std::sync::Arc::new(WaitingThread(std::thread::current())));
    // Without the budget of a task of the runtime, which would be renewed only after the wait.
    let mut waiting = std::pin::pin!(unconstrained(cancel.run_until_cancelled(SEARCHES.acquire())));
    loop {
        match waiting.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(Some(Ok(permit))) => return Ok(permit),
            Poll::Ready(None) => return Err("the call was cancelled".to_owned()),
            Poll::Ready(Some(Err(error))) => return Err(error.to_string()),
            Poll::Pending => std::thread::park(),
        }
    }
}
