//! The workspace: a directory handle through which all file access goes.
//!
//! Paths cannot leave the directory. Links are followed once, to resolve a path. The rules check the resolved path, which is then opened
//! without following links. So a tool acts on the checked object even if a link is swapped in meanwhile.

pub(crate) mod beneath;
mod in_memory;
pub(crate) mod mode;
pub(crate) mod names;
mod spelling;
pub(crate) mod state;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Component, Path, PathBuf};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, File, Metadata, OpenOptions};
use subtend_session::authority::Authority;
use subtend_session::ids::Text;
use tokio_util::sync::CancellationToken;

use crate::result::ToolError;

pub use crate::path::resource;
pub use spelling::Listings;
pub use state::FileState;

/// A directory that sessions work in. The open handle stays valid when the directory is renamed.
#[derive(Debug)]
pub struct Workspace {
    dir: Dir,
    path: PathBuf,
    /// For a worktree, the workspaces that it was made for: commands must not write there or anywhere else.
    made_for: Option<Vec<PathBuf>>,
    /// Whether the directory is on a file system of this machine, which no server or other process answers for.
    is_local: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    #[error("the workspace `{}` does not exist: create it, or name another directory", path.display())]
    Missing { path: PathBuf },
    #[error("the workspace `{}` is not a directory: name the directory to work in", path.display())]
    NotADirectory { path: PathBuf },
    #[error("the workspace `{}` cannot be read: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    /// A session may have created the link.
    #[error("the workspace `{}` was replaced by a link, or is behind one: restore the directory", path.display())]
    Link { path: PathBuf },
}

impl Workspace {
    /// Opens the directory at `path`. Blocks for a few system calls.
    ///
    /// # Errors
    /// If `path` is missing, not a directory, or unreadable.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, WorkspaceError> {
        let path = path.as_ref();
        Self::of(Dir::open_ambient_dir(path, ambient_authority()), path)
    }

    /// Opens the directory at the canonical `path`, which was recorded earlier. A session of a parent directory may have replaced it with a
    /// link meanwhile. Blocks for a few system calls.
    ///
    /// # Errors
    /// The errors of [`Workspace::open`], and [`WorkspaceError::Link`] if a part of the path is a link.
    pub fn open_canonical(path: impl AsRef<Path>) -> Result<Self, WorkspaceError> {
        let path = path.as_ref();
        if path.ancestors().any(Path::is_symlink) {
            return Err(WorkspaceError::Link { path: path.into() });
        }
        // Open without following links, because a link may be swapped in after the check.
        Self::of(beneath::absolute_dir(path), path)
    }

    /// Returns the canonical path of the opened directory. Blocks for a few system calls.
    ///
    /// # Errors
    /// [`WorkspaceError::Link`] if the path now leads to another directory, and the errors of [`Workspace::open`].
    pub fn canonical_path(&self) -> Result<PathBuf, WorkspaceError> {
        let failed = |source| WorkspaceError::Unreadable { path: self.path.clone(), source };
        let found = Self::open_canonical(self.path.canonicalize().map_err(failed)?)?;
        let [opened, present] = [self, &found].map(|workspace| workspace.dir.dir_metadata());
        match is_same_entry(&opened.map_err(failed)?, &present.map_err(failed)?) {
            true => Ok(found.path),
            false => Err(WorkspaceError::Link { path: self.path.clone() }),
        }
    }

    fn of(dir: io::Result<Dir>, path: &Path) -> Result<Self, WorkspaceError> {
        let failed = |source: io::Error| {
            let (path, kind) = (path.into(), source.kind());
            if kind == io::ErrorKind::NotFound {
                WorkspaceError::Missing { path }
            } else if kind == io::ErrorKind::NotADirectory {
                WorkspaceError::NotADirectory { path }
            } else {
                WorkspaceError::Unreadable { path, source }
            }
        };
        let dir = dir.map_err(failed)?;
        // Check the list permission here: without it, the directory can be opened, but every tool fails.
        dir.entries().map_err(failed)?;
        let is_local = in_memory::is_local(&dir);
        Ok(Self { dir, path: std::path::absolute(path).unwrap_or_else(|_| path.into()), made_for: None, is_local })
    }

    /// Restricts commands to this directory: they run in a sandbox, or are refused. The sandbox follows no links of the `workspaces` that the
    /// directory was made for.
    #[must_use]
    pub fn confine_commands(self, workspaces: Vec<PathBuf>) -> Self {
        Self { made_for: Some(workspaces), ..self }
    }

    pub(crate) fn made_for(&self) -> Option<&[PathBuf]> {
        self.made_for.as_deref()
    }

    /// Returns the path with which the workspace was opened. For display only, because the directory may have been renamed.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the text of the file at `path` for the host itself. Paths and links must not leave the workspace, as for tools. Blocks.
    ///
    /// # Errors
    /// If the path leaves the workspace, or if the file is missing, not regular, larger than `most` bytes, or not UTF-8.
    pub fn text(&self, path: &str, most: u64) -> io::Result<String> {
        let path = resource(path).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error.message))?;
        let file = self.open_file(Path::new(&*path)).map_err(|error| {
            // A refusal by the handle itself has no OS error code.
            let escapes = error.kind() == io::ErrorKind::PermissionDenied && error.raw_os_error().is_none();
            let why = "a link in the path leads out of the workspace";
            if escapes { io::Error::new(io::ErrorKind::InvalidInput, why) } else { error }
        })?;
        text_of(file, most)
    }

    /// Returns the text of the file at `real`, a path without links, for a session whose `authority` allows that path.
    ///
    /// # Errors
    /// The errors of [`Workspace::text`], and an error if the path contains a link or the authority denies another name of the file.
    pub fn text_for(&self, authority: &Authority, real: &str, most: u64) -> io::Result<String> {
        let refused = |why: String| io::Error::new(io::ErrorKind::PermissionDenied, why);
        let (dir, name) = beneath::parent(&self.dir, Path::new(real))?;
        let file = beneath::file(&dir, name)?;
        names::OtherNames::new(authority, CancellationToken::new())
            .permit(self, authority, (&dir, name), &file)
            .map_err(|error| match error {
                names::OpenNamedError::Io(error) => error,
                names::OpenNamedError::OtherName(why) => refused(why),
            })?;
        text_of(file, most)
    }

    /// Returns the text of the file at `real`, a path without links, for the host itself.
    ///
    /// # Errors
    /// The errors of [`Workspace::text`], and an error if the path contains a link. Also an error if the file has other names (hard
    /// links), because these may be outside of the workspace.
    pub fn read_host_text(&self, real: &str, most: u64) -> io::Result<String> {
        let (dir, name) = beneath::parent(&self.dir, Path::new(real))?;
        let file = beneath::file(&dir, name)?;
        names::check_single_name((&dir, name), &file)?;
        text_of(file, most)
    }

    pub(crate) fn dir(&self) -> &Dir {
        &self.dir
    }

    /// Returns the path after links are resolved.
    ///
    /// # Errors
    /// If the path is missing, not UTF-8 or spelled differently on disk, or if a link leads out of the workspace.
    pub fn real(&self, resource: &str) -> Result<Text, ToolError> {
        self.real_spelled(resource, None)
    }

    /// As [`real`](Self::real), for one of many paths that are resolved at the same time.
    ///
    /// # Errors
    /// The errors of [`Workspace::real`], and an error if the directories have more than a million names. A file that was created after its
    /// directory was listed counts as misspelled where case is ignored, or if its name is not ASCII or has no letter.
    pub fn real_of_many(&self, resource: &str, listings: &Listings) -> Result<Text, ToolError> {
        self.real_spelled(resource, Some(listings))
    }

    fn real_spelled(&self, resource: &str, listings: Option<&Listings>) -> Result<Text, ToolError> {
        let real = self.resolve(resource).map_err(|error| failure("open", resource, &error))?;
        let misspelled =
            spelling::misspelled_part(&self.dir, &real, listings).map_err(|error| failure("open", resource, &error))?;
        if let Some(part) = misspelled {
            return Err(ToolError::refused(format!(
                "`{part}` of `{resource}` has other letters on disk: spell it as list shows it"
            )));
        }
        match real.to_str() {
            Some("") => Ok(".".into()),
            Some(real) => Ok(real.into()),
            None => Err(ToolError::refused(format!(
                "`{resource}` leads to a file whose name is not UTF-8, which tools cannot open"
            ))),
        }
    }

    /// Resolves links. A normalized path without one is itself, which takes fewer system calls to find.
    fn resolve(&self, path: &str) -> io::Result<PathBuf> {
        let parts: PathBuf = Path::new(path).components().filter(|part| matches!(part, Component::Normal(_))).collect();
        if parts.as_os_str() == path && beneath::has_no_links(&self.dir, &parts) {
            return Ok(parts);
        }
        let resolve = || self.dir.canonicalize(path);
        let is_missing =
            |path: &Path| self.dir.symlink_metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        resolve_path(resolve, is_missing)
    }

    /// Returns the content of the small file at the normalized `path`, if reading it waits for no disk, server or other process. Does not
    /// block. Checks no rules.
    pub(crate) fn read_cached(&self, path: &Path) -> Option<Vec<u8>> {
        self.is_local.then(|| in_memory::read_cached(&self.dir, path))?
    }

    /// Opens a file for reading, without blocking on a pipe.
    pub(crate) fn open_file(&self, path: &Path) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true);
        #[cfg(unix)]
        {
            use cap_std::fs::OpenOptionsExt as _;
            options.custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed());
        }
        self.dir.open_with(path, &options)
    }
}

/// Linux returns `NAME (deleted)` for a file that was replaced meanwhile. Then this function resolves again.
fn resolve_path(
    mut resolve: impl FnMut() -> io::Result<PathBuf>,
    is_missing: impl Fn(&Path) -> bool,
) -> io::Result<PathBuf> {
    /// An attempt fails only if the file is replaced during it.
    const MAX_ATTEMPTS: usize = 100;
    for _ in 0..MAX_ATTEMPTS {
        let path = resolve()?;
        if !path.as_os_str().as_encoded_bytes().ends_with(b" (deleted)") || !is_missing(&path) {
            return Ok(path);
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

fn text_of(file: File, most: u64) -> io::Result<String> {
    use std::io::Read as _;
    let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
    if !file.metadata()?.is_file() {
        return Err(invalid("it is not a file".to_owned()));
    }
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > most {
        return Err(invalid(format!("it is larger than {most} bytes")));
    }
    String::from_utf8(bytes).map_err(|error| invalid(format!("it is not UTF-8 text: {}", error.utf8_error())))
}

pub(crate) fn failure(verb: &str, resource: &str, error: &io::Error) -> ToolError {
    let kind = error.kind();
    // A refusal by the handle itself has no OS error code.
    if kind == io::ErrorKind::PermissionDenied && error.raw_os_error().is_none() {
        return ToolError::refused(format!(
            "cannot {verb} `{resource}`: a link in the path leads out of the workspace, and links are followed only inside it"
        ));
    }
    let cannot = format!("cannot {verb} `{resource}`");
    if beneath::is_link(error) {
        ToolError {
            retryable: true,
            ..ToolError::refused(format!(
                "{cannot}: a link in the path was changed while it was opened, or links lead in a circle; try again"
            ))
        }
    } else if kind == io::ErrorKind::NotFound {
        ToolError::not_found(format!("{cannot}: no such file or directory; check with list"))
    } else if kind == io::ErrorKind::NotADirectory {
        ToolError::not_found(format!("{cannot}: a part of the path is a file, not a directory"))
    } else if kind == io::ErrorKind::PermissionDenied {
        ToolError::failed(format!("{cannot}: the system denies permission"))
    } else {
        ToolError::failed(format!("{cannot}: {error}"))
    }
}

#[cfg(unix)]
fn is_same_entry(a: &Metadata, b: &Metadata) -> bool {
    use cap_std::fs::MetadataExt as _;
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

/// Returns true, because other systems do not rename an open directory.
#[cfg(not(unix))]
fn is_same_entry(_: &Metadata, _: &Metadata) -> bool {
    true
}
