//! The user's answers about trust, by directory: stored with the user's configuration, never in a workspace.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use subtend_session::ids::Hash;

use super::super::config::write_private;
use super::super::fail::Fail;
use super::super::settings;

/// The file, next to the user's own `subtend.yaml`.
const FILE: &str = "trusted.json";

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
        Ok(Self::all()?.into_iter().find(|entry| Some(&*entry.path) == name && entry.identity == identity))
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

    pub(super) fn keep(
        path: &Path,
        trusted: bool,
        (covers, servers): (&BTreeSet<String>, Option<Hash>),
    ) -> Result<(), Fail> {
        let Some(name) = path.to_str() else {
            let why = "its name is not UTF-8; rename it";
            return Err(Fail::Usage(format!("{} cannot be trusted: {why}", path.display())));
        };
        let mut all = Self::all()?;
        all.retain(|entry| entry.path != name);
        all.push(Self { path: name.to_owned(), identity: identity(path), trusted, covers: covers.clone(), servers });
        store(&all)
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
        identity(Path::new(&self.path)) == self.identity
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

/// Inode and time of creation: a directory that is put in the place of another has others.
fn identity(path: &Path) -> String {
    let Ok(metadata) = path.metadata() else { return "gone".to_owned() };
    #[cfg(unix)]
    let inode = std::os::unix::fs::MetadataExt::ino(&metadata);
    #[cfg(not(unix))]
    let inode = 0_u64;
    let created = metadata.created().ok().and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
    format!("{inode}-{}", created.map_or(0, |at| at.as_nanos()))
}
