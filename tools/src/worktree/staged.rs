//! Copies files of a working tree for git, without following links.
//!
//! A session may replace a directory with a link while git reads files. Git caches which directories are not links, and would follow
//! the new link. So git only lists the files of a working tree, and compares them with its index. The host opens each listed file itself,
//! and copies it to a directory that sessions cannot reach. Git adds the copies.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{self, Read as _};
use std::path::Path;

use cap_std::ambient_authority;
use cap_std::fs::Dir;

use super::git::{GitPlace, GitReach, os};
use super::{WorktreeError, Worktrees, cannot, remove_if_exists};
use crate::escape::on_one_line;
use crate::private;
use crate::workspace::beneath;
use crate::workspace::names::{self, OtherNamesError};

/// Number of files that are copied before git adds them. Each time, git writes the whole index.
const BATCH_FILES: usize = 8192;
/// Number of bytes after which git adds the copied files.
const BATCH_BYTES: u64 = 64 << 20;
/// Maximum number of paths in an error about hard links.
const MAX_NAMED: usize = 8;
/// Maximum number of directories that one command lists.
const BATCH_DIRS: usize = 256;
pub(super) const SUBMODULE_MODE: &[u8] = b"160000 ";
/// Maximum number of attempts to open a file that another process keeps replacing.
const MAX_ATTEMPTS: usize = 8;

impl Worktrees {
    /// Adds the current files at `paths` of the working tree of `at` to the index, and removes missing files from the index. Creates and
    /// removes the directory `staging`. Copies at most `max_bytes`.
    ///
    /// # Errors
    /// If a file cannot be read, has other names (hard links), or is neither a file nor a link.
    pub(super) fn add_files(
        &self,
        at: &GitPlace,
        staging: &Path,
        paths: &BTreeSet<Vec<u8>>,
        max_bytes: u64,
    ) -> Result<(), WorktreeError> {
        let added = self.add_batches(at, staging, paths, max_bytes);
        remove_if_exists(staging)?;
        added?;
        // The index has the times of the copies. Make git record the times of the real files.
        self.git.run(at, &["update-index", "-q", "--refresh"])?;
        Ok(())
    }

    fn add_batches(
        &self,
        at: &GitPlace,
        staging: &Path,
        paths: &BTreeSet<Vec<u8>>,
        max_bytes: u64,
    ) -> Result<(), WorktreeError> {
        let tree = beneath::absolute_dir(at.tree()).map_err(cannot("read"))?;
        // Git reads the attributes of a file from the index if no attribute file is copied with it.
        let is_attributes =
            |path: &&Vec<u8>| path.rsplit(|byte| *byte == b'/').next().is_some_and(|name| name == b".gitattributes");
        let (attributes, others): (Vec<_>, Vec<_>) = paths.iter().partition(is_attributes);
        let mut rest = attributes.into_iter().chain(others).peekable();
        let (mut left, mut linked) = (max_bytes, Vec::new());
        while rest.peek().is_some() {
            remove_if_exists(staging)?;
            private::create_dir(staging).map_err(cannot("read"))?;
            let staging = staging.canonicalize().map_err(cannot("read"))?;
            let into = Dir::open_ambient_dir(&staging, ambient_authority()).map_err(cannot("read"))?;
            let (mut batch, end) = (Vec::new(), left.saturating_sub(BATCH_BYTES));
            while let Some(path) = rest.next_if(|_| batch.len() < BATCH_FILES && (batch.is_empty() || left > end)) {
                let name = os(path)?;
                match stage((&tree, &into), Path::new(&name), &mut left) {
                    Ok(()) => batch.push(path.clone()),
                    Err(error) if error.get_ref().is_some_and(|cause| cause.is::<OtherNamesError>()) => {
                        linked.push(on_one_line(&String::from_utf8_lossy(path)));
                    }
                    Err(error) => {
                        let why = format!("{}: {error}", on_one_line(&String::from_utf8_lossy(path)));
                        return Err(cannot("read")(io::Error::new(error.kind(), why)));
                    }
                }
            }
            let add = ["update-index", "--add", "--remove", "--replace", "--"];
            self.git.run_for(&at.in_tree(&staging), &add, &batch)?;
        }
        if linked.is_empty() { Ok(()) } else { Err(cannot("read")(io::Error::other(refusal(&linked)))) }
    }

    /// Records commits of submodules, which copies do not contain. Git stores no file that replaces one meanwhile.
    pub(super) fn add_submodules(&self, at: &GitPlace, paths: &BTreeSet<Vec<u8>>) -> Result<(), WorktreeError> {
        let mut dirs: Vec<OsString> = Vec::new();
        for path in paths {
            let path = os(path)?;
            if at.tree().join(&path).symlink_metadata().is_ok_and(|found| found.is_dir()) {
                dirs.push(path);
            }
        }
        for dirs in dirs.chunks(BATCH_DIRS) {
            let submodules = self.submodules(at, dirs)?;
            self.git.run_for(at, &["update-index", "--info-only", "--"], &submodules)?;
        }
        Ok(())
    }

    /// Returns a submodule that has files but no repository: git does not list its files.
    pub(super) fn submodule_with_files(&self, at: &GitPlace) -> Result<Option<Vec<u8>>, WorktreeError> {
        let tree = beneath::absolute_dir(at.tree()).map_err(cannot("read"))?;
        let submodules = match self.submodules(at, &[]) {
            // A repository with too many files and without `.gitmodules` is not checked (see THREATS.md).
            Err(WorktreeError::TooLong { .. }) if tree.symlink_metadata(".gitmodules").is_err() => return Ok(None),
            submodules => submodules?,
        };
        for path in submodules {
            let name = os(&path)?;
            let Some(dir) = if_exists(beneath::dir(&tree, Path::new(&name))).map_err(cannot("read"))? else { continue };
            let has_entries =
                dir.entries().and_then(|mut entries| entries.next().transpose()).map_err(cannot("read"))?;
            if has_entries.is_some() && dir.symlink_metadata(".git").is_err() {
                return Ok(Some(path));
            }
        }
        Ok(None)
    }

    /// Returns the submodules of the index: all, or those at `paths`.
    fn submodules(&self, at: &GitPlace, paths: &[OsString]) -> Result<Vec<Vec<u8>>, WorktreeError> {
        let mut args: Vec<OsString> = ["ls-files", "-z", "--stage", "--"].map(Into::into).into();
        args.extend(paths.iter().cloned());
        let out = self.git.run(at, &args)?;
        let submodules = out.split(|byte| *byte == 0).filter(|line| line.starts_with(SUBMODULE_MODE));
        let paths = submodules.filter_map(|line| line.splitn(2, |byte| *byte == b'\t').nth(1));
        Ok(paths.map(<[u8]>::to_vec).collect())
    }
}

/// Returns the error for hard links: a rule that denies another name would not apply to the copy.
fn refusal(linked: &[String]) -> String {
    match linked {
        [path] => format!("{path}: {OtherNamesError}"),
        _ => {
            let named = linked.get(..MAX_NAMED).unwrap_or(linked).join(", ");
            let others = linked.len().saturating_sub(MAX_NAMED);
            let more = if others > 0 { format!(" and {others} others") } else { String::new() };
            format!(
                "{named}{more}: they have other names (hard links), which may be outside of the workspace: copy the files"
            )
        }
    }
}

impl GitPlace {
    pub(super) fn tree(&self) -> &Path {
        let tree = self.variables.iter().find(|(name, _)| *name == "GIT_WORK_TREE");
        tree.map_or(Path::new(""), |(_, tree)| Path::new(tree))
    }

    /// Returns the same environment with another working tree.
    fn in_tree(&self, tree: &Path) -> Self {
        let others = |paths: &[std::path::PathBuf]| paths.iter().filter(|path| *path != self.tree()).cloned().collect();
        let mut written: Vec<_> = others(&self.reach.written);
        written.push(tree.to_owned());
        let mut place = Self { reach: GitReach { written, read: others(&self.reach.read) }, ..self.clone() };
        place.variables.retain(|(name, _)| *name != "GIT_WORK_TREE");
        place.variables.push(("GIT_WORK_TREE", tree.into()));
        place
    }
}

/// Copies the current entry at `path`. Copies nothing if it is missing or behind a link.
pub(super) fn stage((tree, into): (&Dir, &Dir), path: &Path, left: &mut u64) -> io::Result<()> {
    let Some((dir, name)) = if_exists(beneath::parent(tree, path))? else { return Ok(()) };
    let Some(found) = if_exists(dir.symlink_metadata(name))? else { return Ok(()) };
    let parent = path.parent().unwrap_or(Path::new(""));
    // The directory was replaced meanwhile: an earlier copy is a link in its place.
    let Some(into) = if_exists(beneath::make_dir(into, parent))? else { return Ok(()) };
    if found.is_symlink() {
        let Some(to) = if_exists(dir.read_link_contents(name))? else { return Ok(()) };
        return link(&into, &to, name);
    }
    if found.is_dir() {
        // Git decides with the index whether the directory is a submodule or replaces a file.
        return match into.create_dir(name) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            Ok(()) | Err(_) => Ok(()),
        };
    }
    if !found.is_file() {
        return Err(io::Error::other("it is neither a file nor a link: remove it"));
    }
    copy((&dir, name), &into, left)
}

/// Copies a file that has no other names. A rule may deny another name, and would not apply to the copy.
fn copy((dir, name): (&Dir, &Path), into: &Dir, left: &mut u64) -> io::Result<()> {
    let mut attempts = MAX_ATTEMPTS;
    let file = loop {
        let Some(file) = if_exists(beneath::file(dir, name))? else { return Ok(()) };
        match names::check_single_name((dir, name), &file) {
            Ok(()) => break file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied || attempts == 0 => return Err(error),
            Err(_) => attempts = attempts.saturating_sub(1),
        }
    };
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::other("it is not a file any more: try again"));
    }
    let mut copy = beneath::create(into, name, true)?.into_std();
    let copied = io::copy(&mut file.into_std().take(left.saturating_add(1)), &mut copy)?;
    *left = left.checked_sub(copied).ok_or_else(|| {
        io::Error::new(io::ErrorKind::FileTooLarge, "with it, too many bytes would be copied: remove large files")
    })?;
    #[cfg(unix)]
    if cap_std::fs::PermissionsExt::mode(&found.permissions()) & 0o100 != 0 {
        copy.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o700))?;
    }
    Ok(())
}

/// Converts the error for a missing entry, or for a link in its path, to `None`.
fn if_exists<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if beneath::is_link(&error) => Ok(None),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(unix)]
fn link(into: &Dir, to: &Path, name: &Path) -> io::Result<()> {
    into.symlink_contents(to, name)
}

#[cfg(not(unix))]
fn link(_: &Dir, _: &Path, _: &Path) -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "links are not copied on this system"))
}
