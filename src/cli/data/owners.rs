//! Owners of the directories of a store. Another user who can replace a store decides which runs resume and which servers they call,
//! with the keys of this user.

use std::path::{Path, PathBuf};

/// Refuses a data directory or a store that another user owns, or can replace by way of a directory above it. What is missing is not
/// refused: it is made by this user.
///
/// # Errors
/// Which path, whose it is, and what to do.
#[cfg(unix)]
pub(super) fn check(data: Option<&Path>, store: Option<&Path>, beside: &[PathBuf]) -> Result<(), String> {
    let owners = Owners::of_this_process();
    let data = data.map_or(Ok(None), |data| owners.reach(data, None))?;
    let store = store.map_or(Ok(None), |store| owners.reach(store, data.as_deref()))?;
    store.map_or(Ok(()), |store| owners.own_tree(&store, true))?;
    beside.iter().try_for_each(|dir| owners.own_tree(dir, false))
}

#[cfg(not(unix))]
pub(super) fn check(_: Option<&Path>, _: Option<&Path>, _: &[PathBuf]) -> Result<(), String> {
    Ok(())
}

/// Returns whether other users can write the directory.
#[cfg(unix)]
pub(super) fn is_open(dir: &Path) -> bool {
    let owners = Owners::of_this_process();
    std::fs::metadata(dir).is_ok_and(|found| owners.is_open(&found))
}

#[cfg(not(unix))]
pub(super) fn is_open(_: &Path) -> bool {
    false
}

/// Symbolic links on the way to a directory.
#[cfg(unix)]
const LINKS: u32 = 40;

/// The number of an owner who is missing in this namespace.
#[cfg(unix)]
const OVERFLOW: u32 = 65_534;

#[cfg(unix)]
struct Owners {
    user: u32,
    /// Whether users of the machine have no number here, such as its superuser in a sandbox with a namespace of its own.
    has_unmapped: bool,
}

#[cfg(unix)]
impl Owners {
    fn of_this_process() -> Self {
        // Where each user is itself, the number of the overflow is that of a user like others.
        let has_unmapped = std::fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| {
            let holds = |line: &str| {
                let mut fields = line.split_whitespace().filter_map(|field| field.parse::<u64>().ok());
                let (first, _, count) = (fields.next()?, fields.next()?, fields.next()?);
                Some((first..first.saturating_add(count)).contains(&u64::from(OVERFLOW)))
            };
            !map.lines().any(|line| holds(line).unwrap_or(true))
        });
        Self { user: rustix::process::geteuid().as_raw(), has_unmapped }
    }

    /// Returns where `path` leads, after each directory and link on the way was found to be safe; `None` where something is missing.
    /// The opening reports what cannot be read. The mode of `own` is not checked: opening the store closes it.
    fn reach(&self, path: &Path, own: Option<&Path>) -> Result<Option<PathBuf>, String> {
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
                    if let Some(above) = &found
                        && own != Some(&*at)
                    {
                        self.above(&at, above)?;
                    }
                    let next = at.join(&part);
                    let Ok(metadata) = std::fs::symlink_metadata(&next) else { return Ok(None) };
                    if metadata.is_symlink() {
                        links = links.saturating_add(1);
                        self.link(&next, &metadata)?;
                        let Ok(target) = std::fs::read_link(&next) else { return Ok(None) };
                        if links > LINKS {
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
        let Some(found) = found else { return Ok(None) };
        self.own(&at, &found)?;
        Ok(Some(at))
    }

    fn is_safe(&self, owner: u32) -> bool {
        owner == self.user || owner == 0 || (owner == OVERFLOW && self.has_unmapped)
    }

    /// The group with the number of a user has no other members, and that of root none without its rights.
    fn is_open(&self, found: &std::fs::Metadata) -> bool {
        use std::os::unix::fs::MetadataExt as _;
        let is_private = found.gid() == 0 || found.gid() == self.user;
        found.mode() & 0o002 != 0 || (found.mode() & 0o020 != 0 && !is_private)
    }

    /// Checks a directory on the way: its owner and those who may write it can replace what it holds.
    fn above(&self, dir: &Path, found: &std::fs::Metadata) -> Result<(), String> {
        use std::os::unix::fs::MetadataExt as _;
        let shown = dir.display();
        if !self.is_safe(found.uid()) {
            return Err(format!(
                "{shown} belongs to user {}, who can replace what is in it, and this is user {}: {ADVICE}",
                found.uid(),
                self.user
            ));
        }
        // In a sticky directory, such as that for temporary files, users replace only what is theirs.
        if self.is_open(found) && found.mode() & 0o1000 == 0 {
            let mode = found.mode() & 0o7777;
            return Err(format!(
                "other users can write {shown} (mode {mode:o}), and so replace what is in it: close it (chmod go-w), or {ANOTHER}"
            ));
        }
        Ok(())
    }

    fn link(&self, path: &Path, found: &std::fs::Metadata) -> Result<(), String> {
        use std::os::unix::fs::MetadataExt as _;
        if self.is_safe(found.uid()) { Ok(()) } else { Err(self.foreign(path, found.uid())) }
    }

    fn own(&self, path: &Path, found: &std::fs::Metadata) -> Result<(), String> {
        use std::os::unix::fs::MetadataExt as _;
        if found.uid() == self.user { Ok(()) } else { Err(self.foreign(path, found.uid())) }
    }

    fn foreign(&self, path: &Path, owner: u32) -> String {
        format!("{} belongs to user {owner}, and this is user {}: {ADVICE}", path.display(), self.user)
    }

    /// Checks `path`, and what is below it if `deep`. Blobs are named by the hashes of what they hold.
    fn own_tree(&self, path: &Path, deep: bool) -> Result<(), String> {
        // The engine may remove files meanwhile.
        let Ok(found) = std::fs::symlink_metadata(path) else { return Ok(()) };
        self.own(path, &found)?;
        if !deep || !found.is_dir() || path.ends_with("blobs") {
            return Ok(());
        }
        let Ok(entries) = std::fs::read_dir(path) else { return Ok(()) };
        entries.flatten().try_for_each(|entry| self.own_tree(&entry.path(), true))
    }
}

#[cfg(unix)]
const ADVICE: &str = "make it that user's own (chown) if you trust what it holds, or name another with --data DIR or --store ENGINE:PATH";
#[cfg(unix)]
const ANOTHER: &str = "name another directory with --data DIR or --store ENGINE:PATH";
