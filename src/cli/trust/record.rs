//! The user's answers about trust, by directory, stored next to the user's configuration, never in a workspace.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use subtend_session::ids::Hash;

use super::super::fail::Fail;
use super::super::settings;
use super::super::written_file::{self, write_private};

/// The file, next to the user's own `subtend.yaml`.
pub(crate) const FILE: &str = settings::TRUSTED;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TrustAnswer {
    pub(super) path: String,
    identity: String,
    pub(super) trusted: bool,
    /// Names of protected paths that the answer covers.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    covers: BTreeSet<String>,
    /// Hash of the `.mcp.json` that the answer covers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    servers: Option<Hash>,
}

impl TrustAnswer {
    /// Returns the answer for the directory at `path`; `None` if the directory was replaced.
    pub(super) fn of(path: &Path) -> Result<Option<Self>, Fail> {
        let (name, identity) = (path.to_str(), identity(path));
        Ok(Self::read_all()?
            .into_iter()
            .find(|entry| Some(&*entry.path) == name && entry.applies_to(identity.as_deref())))
    }

    /// Returns whether the answer applies to this directory. If the identity is unknown, only a refusal applies.
    fn applies_to(&self, identity: Option<&str>) -> bool {
        identity.map_or(!self.trusted, |identity| self.identity == identity)
    }

    pub(super) fn covers(&self, name: &str) -> bool {
        self.covers.contains(name)
    }

    pub(super) fn covers_servers(&self, servers: Option<Hash>) -> bool {
        servers.is_none() || self.servers == servers
    }

    /// Returns the files that the answer covers, or the directory that hides them by its mode.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        let path = Path::new(&self.path);
        let is_hidden = path.join(".").metadata().is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied);
        match path.ancestors().find(|at| at.symlink_metadata().is_ok()).filter(|_| is_hidden) {
            Some(closed) => vec![closed.to_owned()],
            None => self.covers.iter().map(|name| path.join(name)).collect(),
        }
    }

    /// Returns whether the answer covers a protected path other than `names`.
    pub(super) fn covers_more(&self, names: &BTreeSet<String>) -> bool {
        !self.covers.is_subset(names)
    }

    /// Stores an answer; returns whether it did. A positive one is stored only if a replaced directory can be detected.
    pub(super) fn keep(
        path: &Path,
        trusted: bool,
        (covers, servers): (&BTreeSet<String>, Option<Hash>),
    ) -> Result<bool, Fail> {
        let Some(name) = path.to_str() else {
            let why = "its name is not UTF-8; rename it";
            return Err(Fail::Usage(format!("{} cannot be trusted: {why}", path.display())));
        };
        let identity = identity(path);
        let is_kept = identity.is_some() || !trusted;
        let identity = identity.unwrap_or_else(|| UNKNOWN.to_owned());
        let answer = Self { path: name.to_owned(), identity, trusted, covers: covers.clone(), servers };
        change(|all| {
            all.retain(|entry| entry.path != name);
            all.extend(is_kept.then_some(answer));
        })?;
        Ok(is_kept)
    }

    /// Removes from the answer the protected paths other than `names`.
    pub(super) fn cover_only(path: &Path, names: &BTreeSet<String>) -> Result<(), Fail> {
        change(|all| {
            let own = all.iter_mut().filter(|entry| Some(&*entry.path) == path.to_str());
            own.for_each(|entry| entry.covers.retain(|name| names.contains(name)));
        })
    }

    /// Removes the answer, and returns whether it was positive.
    pub(super) fn forget(path: &Path) -> Result<bool, Fail> {
        let mut before = false;
        change(|all| {
            before = all.iter().any(|entry| Some(&*entry.path) == path.to_str() && entry.trusted);
            all.retain(|entry| Some(&*entry.path) != path.to_str());
        })?;
        Ok(before)
    }

    /// Returns all answers; empty without a home directory.
    pub(super) fn read_all() -> Result<Vec<Self>, Fail> {
        let Some(file) = settings::restricting_path(FILE)? else { return Ok(Vec::new()) };
        let wrong = |why: String| {
            Fail::Usage(format!(
                "{} cannot be read: {why}; correct it, or remove it and answer the question again",
                file.display()
            ))
        };
        match std::fs::read_to_string(&file) {
            Ok(text) => serde_json::from_str(&text).map_err(|error| wrong(error.to_string())),
            // A file that cannot be read, for example under `sudo`, belongs to another user and does not apply.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => {
                Ok(Vec::new())
            }
            Err(error) => Err(wrong(error.to_string())),
        }
    }

    pub(super) fn is_same(&self) -> bool {
        self.applies_to(identity(Path::new(&self.path)).as_deref())
    }

    /// Returns false if the directory is known to be gone or replaced. A command may have closed a directory above it.
    pub(super) fn may_be_same(&self) -> bool {
        match Path::new(&self.path).metadata() {
            Ok(found) => identity_in(&found).is_none_or(|identity| identity == self.identity),
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        }
    }
}

/// Changes the answers under a lock, so that no answer of another process is lost.
fn change(change: impl FnOnce(&mut Vec<TrustAnswer>)) -> Result<(), Fail> {
    let file = settings::user_path_to_write(FILE, "the answer")?;
    let lock = file.with_added_extension("lock");
    let failed = |error: io::Error| Fail::Other(format!("{} cannot be locked: {error}", lock.display()));
    let _locked = written_file::lock(&lock).map_err(failed)?;
    let mut all = TrustAnswer::read_all()?;
    change(&mut all);
    write_private(&file, &(serde_json::to_string_pretty(&all)? + "\n"))
}

/// Placeholder for a directory without an identity.
const UNKNOWN: &str = "unknown";

/// Returns inode and creation time, which differ for a replaced directory. Returns `None` if the file system does not
/// record creation times, because inodes are reused.
fn identity(path: &Path) -> Option<String> {
    identity_in(&path.metadata().ok()?)
}

fn identity_in(metadata: &std::fs::Metadata) -> Option<String> {
    #[cfg(unix)]
    let inode = std::os::unix::fs::MetadataExt::ino(metadata);
    #[cfg(not(unix))]
    let inode = 0_u64;
    identity_of(inode, metadata.created())
}

fn identity_of(inode: u64, created: io::Result<SystemTime>) -> Option<String> {
    let created = created.ok()?.duration_since(UNIX_EPOCH).ok()?.as_nanos();
    (created > 0).then(|| format!("{inode}-{created}"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn record(trusted: bool, identity: &str) -> TrustAnswer {
        let (covers, servers) = (BTreeSet::new(), None);
        TrustAnswer { path: "/w".into(), identity: identity.into(), trusted, covers, servers }
    }

    /// Inodes are reused: without creation times trust would apply to another directory. The control: one with a time.
    #[test]
    fn directory_without_creation_time_is_not_trusted_permanently() {
        let none = || Err(io::Error::from(io::ErrorKind::Unsupported));
        for identity in [identity_of(7, none()), identity_of(7, Ok(UNIX_EPOCH))] {
            assert_eq!(identity, None);
            // An answer of an earlier version with creation time 0 does not apply either.
            assert!(
                !record(true, "7-0").applies_to(identity.as_deref())
                    && record(false, UNKNOWN).applies_to(identity.as_deref())
            );
        }
        let known = identity_of(7, Ok(UNIX_EPOCH + Duration::from_nanos(3)));
        assert_eq!(known.as_deref(), Some("7-3"));
        assert!(record(true, "7-3").applies_to(known.as_deref()) && !record(true, "7-4").applies_to(known.as_deref()));
    }
}
