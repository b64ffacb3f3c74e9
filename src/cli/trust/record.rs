//! The user's answers about trust, by directory: stored with the user's configuration, never in a workspace.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use subtend_session::ids::Hash;

use super::super::config::write_private;
use super::super::fail::Fail;
use super::super::settings;

/// The file, next to the user's own `subtend.yaml`.
pub(crate) const FILE: &str = "trusted.json";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) path: String,
    identity: String,
    pub(super) trusted: bool,
    /// Names of protected paths that the answer is about.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    covers: BTreeSet<String>,
    /// The content of the file of servers that the answer is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    servers: Option<Hash>,
}

impl Record {
    /// Returns the answer for the directory at `path`; `None` if another directory is there now.
    pub(super) fn of(path: &Path) -> Result<Option<Self>, Fail> {
        let (name, identity) = (path.to_str(), identity(path));
        Ok(Self::all()?.into_iter().find(|entry| Some(&*entry.path) == name && entry.is_of(identity.as_deref())))
    }

    /// Returns whether the answer is about the directory with this identity. Without one only a no counts.
    fn is_of(&self, identity: Option<&str>) -> bool {
        identity.map_or(!self.trusted, |identity| self.identity == identity)
    }

    /// Returns the content of the file of servers that the answer is about.
    pub(super) fn servers(&self) -> Option<Hash> {
        self.servers
    }

    /// Returns whether the answer is about the protected path.
    pub(super) fn covers(&self, name: &str) -> bool {
        self.covers.contains(name)
    }

    /// Returns whether the answer is about a file of servers with this content.
    pub(super) fn covers_servers(&self, servers: Option<Hash>) -> bool {
        servers.is_none() || self.servers == servers
    }

    /// Returns whether the answer is about a protected path besides `names`.
    pub(super) fn covers_more(&self, names: &BTreeSet<String>) -> bool {
        !self.covers.is_subset(names)
    }

    /// Keeps an answer; returns whether it was kept. A yes needs a directory that is distinct from any put in its place.
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
        let mut all = Self::all()?;
        all.retain(|entry| entry.path != name);
        if is_kept {
            let identity = identity.unwrap_or_else(|| UNKNOWN.to_owned());
            all.push(Self { path: name.to_owned(), identity, trusted, covers: covers.clone(), servers });
        }
        store(&all)?;
        Ok(is_kept)
    }

    /// Forgets the answer; whether it was a yes.
    pub(super) fn forget(path: &Path) -> Result<bool, Fail> {
        let mut all = Self::all()?;
        let before = all.iter().any(|entry| Some(&*entry.path) == path.to_str() && entry.trusted);
        all.retain(|entry| Some(&*entry.path) != path.to_str());
        store(&all)?;
        Ok(before)
    }

    /// Returns all answers; none without a home directory.
    pub(super) fn all() -> Result<Vec<Self>, Fail> {
        let Some(file) = file() else { return Ok(Vec::new()) };
        let wrong = |why: String| {
            Fail::Usage(format!("{} cannot be read: {why}; correct it, or remove it and answer again", file.display()))
        };
        match std::fs::read_to_string(&file) {
            Ok(text) => serde_json::from_str(&text).map_err(|error| wrong(error.to_string())),
            // Another user's home, under `sudo` say, holds no answer of this user.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => {
                Ok(Vec::new())
            }
            Err(error) => Err(wrong(error.to_string())),
        }
    }

    pub(super) fn is_same(&self) -> bool {
        self.is_of(identity(Path::new(&self.path)).as_deref())
    }
}

fn file() -> Option<PathBuf> {
    settings::user_file().map(|file| file.with_file_name(FILE))
}

fn store(all: &[Record]) -> Result<(), Fail> {
    let file = file()
        .ok_or_else(|| Fail::Usage("no home directory for the answer: set HOME or XDG_CONFIG_HOME".to_owned()))?;
    write_private(&file, &(serde_json::to_string_pretty(all)? + "\n"))
}

/// The identity in an answer about a directory without one.
const UNKNOWN: &str = "unknown";

/// Returns inode and time of creation: a directory that is put in the place of another has others. `None` where the file system keeps no
/// such time, since an inode is used again.
fn identity(path: &Path) -> Option<String> {
    let metadata = path.metadata().ok()?;
    #[cfg(unix)]
    let inode = std::os::unix::fs::MetadataExt::ino(&metadata);
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

    fn record(trusted: bool, identity: &str) -> Record {
        let (covers, servers) = (BTreeSet::new(), None);
        Record { path: "/w".into(), identity: identity.into(), trusted, covers, servers }
    }

    /// An inode is used again: without a time of creation, a yes would hold for what is put in the place of the directory. The control: a
    /// directory with one.
    #[test]
    fn directory_without_a_time_of_creation_is_not_trusted_for_good() {
        let none = || Err(io::Error::from(io::ErrorKind::Unsupported));
        for identity in [identity_of(7, none()), identity_of(7, Ok(UNIX_EPOCH))] {
            assert_eq!(identity, None);
            // Also by an answer that an earlier version kept.
            assert!(
                !record(true, "7-0").is_of(identity.as_deref()) && record(false, UNKNOWN).is_of(identity.as_deref())
            );
        }
        let known = identity_of(7, Ok(UNIX_EPOCH + Duration::from_nanos(3)));
        assert_eq!(known.as_deref(), Some("7-3"));
        assert!(record(true, "7-3").is_of(known.as_deref()) && !record(true, "7-4").is_of(known.as_deref()));
    }
}
