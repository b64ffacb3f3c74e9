//! Checks that other users cannot replace the store's directories or the user's configuration. A user who can replace
//! the store controls which runs resume and which servers get this user's keys. A user who can replace the configuration
//! controls which programs start.

use std::path::{Path, PathBuf};

#[cfg(unix)]
use subtend_session::owners::TrustedUsers;

/// Refuses a data directory or a store that another user owns, or can replace through a parent directory. Accepts
/// missing directories, because this user will create them.
///
/// # Errors
/// A text with the path, its owner, and a remedy.
#[cfg(unix)]
pub(crate) fn check(data: Option<&Path>, store: Option<&Path>, siblings: &[PathBuf]) -> Result<(), String> {
    let owners = Owners::of_this_process();
    let checked = || {
        let data = data.map_or(Ok(None), |data| owners.resolve(data, None))?;
        data.iter().try_for_each(|(data, found)| owners.check_owner(data, found))?;
        let own = data.as_ref().map(|(data, _)| &**data);
        let store = store.map_or(Ok(None), |store| owners.resolve(store, own))?;
        store.map_or(Ok(()), |(store, _)| owners.check_tree(&store, true))?;
        siblings.iter().try_for_each(|dir| owners.check_tree(dir, false))
    };
    checked().map_err(|unsafe_path| match unsafe_path {
        UnsafePath::Owned(what) => format!("{what}: {ADVICE}"),
        UnsafePath::Writable { what, .. } => format!("{what}: remove their access (chmod go-w), or {OTHER_DIR_ADVICE}"),
        UnsafePath::TooManyFiles(what) => what,
    })
}

/// Refuses a file or directory of the configuration that another user owns, can write or can replace. The superuser may
/// own it. If `deep`, checks all files in it too.
///
/// # Errors
/// A text with the path, its owner, and a remedy.
#[cfg(unix)]
pub(crate) fn check_settings(path: &Path, deep: bool) -> Result<(), String> {
    Owners::of_this_process().check_settings(path, deep).map_err(|unsafe_path| match unsafe_path {
        UnsafePath::Owned(what) => {
            format!("{what}. Change its owner to the user of this process (chown) if you trust its content")
        }
        UnsafePath::Writable { what, .. } => format!("{what}. Remove their access (chmod go-w)"),
        UnsafePath::TooManyFiles(what) => {
            format!("{what}. Move files that are not part of the configuration elsewhere")
        }
    })
}

/// Refuses a file or directory of the configuration that this user owns, or that lies in a directory of this user, if the
/// mode denies this user to read it, or (if `unshared`) allows others to write it. A sandboxed command may change modes,
/// so such a path must not count as missing.
///
/// # Errors
/// A text with the path and the command that corrects its mode.
#[cfg(unix)]
pub(crate) fn check_own_mode(path: &Path, deep: bool, unshared: bool) -> Result<(), String> {
    let owners = Owners::of_this_process();
    let shown = path.display();
    if let Some((at, mend)) = owners.closed_by_mode(path) {
        return Err(format!("{shown} cannot be read, because of the mode of {}. {mend}", at.display()));
    }
    let checked = if unshared { owners.check_settings(path, deep) } else { Ok(()) };
    match checked {
        Err(UnsafePath::Writable { what, path: at, is_own: true }) if path.symlink_metadata().is_ok() => {
            Err(format!("{shown} is not used: {what}. Check its content. {}", mend(&at)))
        }
        Ok(()) | Err(UnsafePath::Owned(_) | UnsafePath::Writable { .. } | UnsafePath::TooManyFiles(_)) => Ok(()),
    }
}

#[cfg(unix)]
fn mend(path: &Path) -> String {
    format!("Correct it with `chmod {} {}`", if path.is_dir() { "700" } else { "600" }, path.display())
}

#[cfg(not(unix))]
pub(crate) fn check_own_mode(_: &Path, _: bool, _: bool) -> Result<(), String> {
    Ok(())
}

#[cfg(not(unix))]
pub(crate) fn check_settings(_: &Path, _: bool) -> Result<(), String> {
    Ok(())
}

#[cfg(not(unix))]
pub(crate) fn check(_: Option<&Path>, _: Option<&Path>, _: &[PathBuf]) -> Result<(), String> {
    Ok(())
}

#[cfg(unix)]
pub(crate) fn is_writable_by_others(dir: &Path) -> bool {
    let owners = Owners::of_this_process();
    std::fs::metadata(dir).is_ok_and(|found| owners.is_writable_by_others(&found))
}

#[cfg(not(unix))]
pub(crate) fn is_writable_by_others(_: &Path) -> bool {
    false
}

/// Maximum number of files in a directory of the configuration.
#[cfg(unix)]
const MAX_SETTINGS: u32 = 20_000;

#[cfg(unix)]
const MAX_LINKS: u32 = 40;

/// The reason why a path cannot be trusted.
#[cfg(unix)]
enum UnsafePath {
    Owned(String),
    Writable { what: String, path: PathBuf, is_own: bool },
    TooManyFiles(String),
}

#[cfg(unix)]
struct Owners {
    users: TrustedUsers,
}

#[cfg(unix)]
impl Owners {
    fn of_this_process() -> Self {
        let map = std::fs::read_to_string("/proc/self/uid_map").ok();
        Self { users: TrustedUsers::new(rustix::process::geteuid().as_raw(), map.as_deref()) }
    }

    /// Resolves `path` and checks each directory and link on the way; `None` if a part is missing.
    /// Ignores unreadable parts and the mode of `own`: opening the store reports the former and restricts the latter.
    fn resolve(&self, path: &Path, own: Option<&Path>) -> Result<Option<(PathBuf, std::fs::Metadata)>, UnsafePath> {
        use std::path::Component;
        let Ok(path) = std::path::absolute(path) else { return Ok(None) };
        let (mut at, mut links) = (PathBuf::from("/"), 0_u32);
        let mut left: Vec<PathBuf> = path.components().rev().map(|part| PathBuf::from(part.as_os_str())).collect();
        let mut found = std::fs::symlink_metadata(&at).ok();
        while let Some(part) = left.pop() {
            match part.components().next() {
                Some(Component::RootDir | Component::Prefix(_)) => at = PathBuf::from("/"),
                Some(Component::ParentDir) => drop(at.pop()),
                Some(Component::CurDir) | None => {}
                Some(Component::Normal(_)) => {
                    if let Some(parent) = &found
                        && own != Some(&*at)
                    {
                        self.check_parent(&at, parent)?;
                    }
                    let next = at.join(&part);
                    let Ok(metadata) = std::fs::symlink_metadata(&next) else { return Ok(None) };
                    if metadata.is_symlink() {
                        links = links.saturating_add(1);
                        self.check_link(&next, &metadata)?;
                        let Ok(target) = std::fs::read_link(&next) else { return Ok(None) };
                        if links > MAX_LINKS {
                            return Ok(None);
                        }
                        left.extend(target.components().rev().map(|part| PathBuf::from(part.as_os_str())));
                        continue;
                    }
                    at = next;
                }
            }
            found = std::fs::symlink_metadata(&at).ok();
        }
        Ok(found.map(|found| (at, found)))
    }

    /// Returns the path of this user that denies this process to read `path`, and how to correct its mode.
    fn closed_by_mode(&self, path: &Path) -> Option<(PathBuf, String)> {
        use std::os::unix::fs::MetadataExt as _;
        if rustix::fs::access(path, rustix::fs::Access::READ_OK) != Err(rustix::io::Errno::ACCESS) {
            return None;
        }
        let mut path = std::path::absolute(path).ok()?;
        for _ in 0..MAX_LINKS {
            let at = path.ancestors().find(|at| at.symlink_metadata().is_ok())?;
            let Ok(target) = at.read_link() else {
                return (at.symlink_metadata().ok()?.uid() == self.users.own).then(|| (at.to_owned(), mend(at)));
            };
            path = at.parent()?.join(target).join(path.strip_prefix(at).ok()?);
        }
        None
    }

    fn is_writable_by_others(&self, found: &std::fs::Metadata) -> bool {
        use std::os::unix::fs::MetadataExt as _;
        self.users.is_writable_by_others(found.gid(), found.mode())
    }

    /// Checks a parent directory: its owner and all who can write it could replace its content.
    fn check_parent(&self, dir: &Path, found: &std::fs::Metadata) -> Result<(), UnsafePath> {
        use std::os::unix::fs::MetadataExt as _;
        let shown = dir.display();
        if !self.users.includes(found.uid()) {
            let (owner, user) = (found.uid(), self.users.own);
            let power = if found.is_dir() { ", who can replace its content," } else { "" };
            let what = format!("{shown} belongs to user {owner}{power} and this process runs as user {user}");
            return Err(UnsafePath::Owned(what));
        }
        // In a sticky directory, such as /tmp, users can replace only their own files.
        if found.mode() & 0o1000 == 0 { self.check_mode(dir, found) } else { Ok(()) }
    }

    fn check_mode(&self, path: &Path, found: &std::fs::Metadata) -> Result<(), UnsafePath> {
        use std::os::unix::fs::MetadataExt as _;
        if !self.is_writable_by_others(found) {
            return Ok(());
        }
        let (shown, mode) = (path.display(), found.mode() & 0o7777);
        let what = format!("other users can write {shown} (mode {mode:o}), and so replace its content");
        Err(UnsafePath::Writable { what, path: path.to_owned(), is_own: found.uid() == self.users.own })
    }

    fn check_link(&self, path: &Path, found: &std::fs::Metadata) -> Result<(), UnsafePath> {
        use std::os::unix::fs::MetadataExt as _;
        if self.users.includes(found.uid()) { Ok(()) } else { Err(self.other_owner(path, found.uid())) }
    }

    fn check_owner(&self, path: &Path, found: &std::fs::Metadata) -> Result<(), UnsafePath> {
        use std::os::unix::fs::MetadataExt as _;
        if found.uid() == self.users.own { Ok(()) } else { Err(self.other_owner(path, found.uid())) }
    }

    fn other_owner(&self, path: &Path, owner: u32) -> UnsafePath {
        let (shown, user) = (path.display(), self.users.own);
        UnsafePath::Owned(format!("{shown} belongs to user {owner}, and this process runs as user {user}"))
    }

    fn check_settings(&self, path: &Path, deep: bool) -> Result<(), UnsafePath> {
        let Some((at, found)) = self.resolve(path, None)? else { return Ok(()) };
        self.check_settings_tree(&at, &found, &mut if deep { MAX_SETTINGS } else { 0 })
    }

    /// Checks a file or directory of the configuration, and up to `left` files in it. Links are resolved, and their targets checked.
    fn check_settings_tree(&self, path: &Path, found: &std::fs::Metadata, left: &mut u32) -> Result<(), UnsafePath> {
        self.check_parent(path, found)?;
        self.check_mode(path, found)?;
        if !found.is_dir() || *left == 0 {
            return Ok(());
        }
        // subtend cannot read these files either, so they have no effect.
        let Ok(entries) = std::fs::read_dir(path) else { return Ok(()) };
        for entry in entries.flatten() {
            *left = left.saturating_sub(1);
            if *left == 0 {
                let what = format!("more than {MAX_SETTINGS} files to check; stopped in {}", path.display());
                return Err(UnsafePath::TooManyFiles(what));
            }
            if let Some((at, found)) = self.resolve(&entry.path(), Some(path))? {
                self.check_settings_tree(&at, &found, left)?;
            }
        }
        Ok(())
    }

    /// Checks `path`, and everything below it if `deep`. Blobs are skipped, because their names are hashes of their content.
    fn check_tree(&self, path: &Path, deep: bool) -> Result<(), UnsafePath> {
        // The engine may remove files concurrently.
        let Ok(found) = std::fs::symlink_metadata(path) else { return Ok(()) };
        self.check_owner(path, &found)?;
        if !deep || !found.is_dir() || path.ends_with("blobs") {
            return Ok(());
        }
        let Ok(entries) = std::fs::read_dir(path) else { return Ok(()) };
        entries.flatten().try_for_each(|entry| self.check_tree(&entry.path(), true))
    }
}

#[cfg(unix)]
const ADVICE: &str = "change its owner to the user of this process (chown) if you trust its content, or name another store with --data DIR or --store ENGINE:PATH";
#[cfg(unix)]
const OTHER_DIR_ADVICE: &str = "name another directory with --data DIR or --store ENGINE:PATH";
