//! Makes verified copies of a repository's objects.
//!
//! A session may write to the objects of its workspace's repository, and git reads objects without checking their ids. So diffs and merges
//! use a copy that sessions cannot reach. Git computes the id of each copied object, which must equal the requested id. Then the commit id
//! identifies all content that was shown.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::contents::ContentsTurn;
use super::git::{GitPlace, GitReach, os};
use super::{WorktreeEntry, WorktreeError, Worktrees, cannot, remove_if_exists};

/// Maximum number of files that one command hashes.
const BATCH_SIZE: usize = 256;
const NO_OBJECT: char = '0';
const ATTRIBUTES: &str = ".gitattributes";

/// A change between base and tip, as in git's raw diff format.
pub(super) struct RawChange {
    pub(super) path: PathBuf,
    pub(super) modes: [String; 2],
    pub(super) objects: [String; 2],
}

impl Worktrees {
    /// Runs `act` with a verified copy of the objects that differ between base and tip, and of the attributes of the base. The caller must
    /// hold the lock.
    ///
    /// # Errors
    /// [`WorktreeError::WrongObject`] if an object does not match its id, [`WorktreeError::TooLarge`], and errors of `act`.
    pub(super) fn run_checked<T>(
        &self,
        entry: &WorktreeEntry,
        tip: &str,
        act: impl FnOnce(&GitPlace) -> Result<T, WorktreeError>,
    ) -> Result<T, WorktreeError> {
        let done = self.copy_objects(entry, tip).and_then(|at| act(&at));
        remove_if_exists(&self.copy_dir(entry))?;
        done
    }

    fn copy_objects(&self, entry: &WorktreeEntry, tip: &str) -> Result<GitPlace, WorktreeError> {
        let from = self.files_place(entry)?;
        remove_if_exists(&self.copy_dir(entry))?;
        fs::create_dir(self.copy_dir(entry)).map_err(cannot("read"))?;
        let dir = self.copy_dir(entry).canonicalize().map_err(cannot("read"))?;
        let start = dir.join("start");
        fs::create_dir(&start).map_err(cannot("read"))?;
        let reach = GitReach { written: vec![dir.clone()], read: from.reach.read.clone() };
        let mut to = GitPlace { reach, start, ..from.clone() };
        for (name, value) in &mut to.variables {
            match *name {
                "GIT_OBJECT_DIRECTORY" => *value = dir.clone().into(),
                "GIT_INDEX_FILE" => *value = dir.join("index").into(), // Not created, because no command needs an index.
                _ => {}
            }
        }
        // Use the attributes of the base, not those of the session or of the directory in which git starts.
        to.variables.push(("GIT_ATTR_SOURCE", entry.base.clone().into()));
        let copy = |kind, objects| self.copy(entry, (&from, &to), kind, objects);
        copy("commit", with_empty_paths([entry.base.clone(), tip.to_owned()]))?;
        let trees = [&entry.base, tip].map(|commit| {
            let text = self.git.run(&to, &["cat-file", "commit", commit])?;
            let text = String::from_utf8_lossy(&text);
            Ok(text.lines().find_map(|line| line.strip_prefix("tree ")).unwrap_or_default().to_owned())
        });
        copy("tree", with_empty_paths(trees.into_iter().collect::<Result<Vec<_>, WorktreeError>>()?))?;
        let changes = self.raw(&from, entry, tip, &["-t"])?;
        let of = |is_tree: bool| {
            let sides = changes.iter().flat_map(|change| {
                change.modes.iter().zip(&change.objects).map(|(mode, object)| (mode, object, &change.path))
            });
            let sides = sides.filter(|(mode, object, _)| {
                object.chars().any(|digit| digit != NO_OBJECT) && *mode != "160000" && is_tree == (*mode == "040000")
            });
            sides.map(|(_, object, path)| (object.clone(), path.clone())).collect::<BTreeMap<_, _>>()
        };
        copy("tree", of(true))?;
        copy("blob", of(false))?;
        copy("blob", self.attributes(&to, entry, tip)?)?;
        Ok(to)
    }

    pub(super) fn copy_dir(&self, entry: &WorktreeEntry) -> PathBuf {
        self.file(entry.session, "objects")
    }

    pub(super) fn raw(
        &self,
        at: &GitPlace,
        entry: &WorktreeEntry,
        tip: &str,
        more: &[&str],
    ) -> Result<Vec<RawChange>, WorktreeError> {
        let args = ["diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", "--no-commit-id"];
        let out = self.git.run(at, &[&args[..], more, &[&entry.base, tip]].concat())?;
        let mut parts = out.split(|byte| *byte == 0);
        let mut changes = Vec::new();
        while let (Some(head), Some(path)) = (parts.next(), parts.next()) {
            let head = String::from_utf8_lossy(head);
            let mut fields = head.trim_start_matches(':').split(' ').map(str::to_owned);
            let mut field = || fields.next().unwrap_or_default();
            changes.push(RawChange { path: os(path)?.into(), modes: [field(), field()], objects: [field(), field()] });
        }
        Ok(changes)
    }

    /// Copies objects of one kind and verifies their ids. Errors contain the path of the object.
    fn copy(
        &self,
        entry: &WorktreeEntry,
        (from, to): (&GitPlace, &GitPlace),
        kind: &str,
        objects: BTreeMap<String, PathBuf>,
    ) -> Result<(), WorktreeError> {
        let dir = self.copy_dir(entry).canonicalize().map_err(cannot("read"))?;
        let objects: Vec<(String, PathBuf)> = objects.into_iter().collect();
        for objects in objects.chunks(BATCH_SIZE) {
            let path = |object: &String| dir.join(format!("{object}.bytes"));
            for (object, name) in objects {
                let mut turn = ContentsTurn::default();
                let bytes = match self.content(from, &["cat-file", kind, object], &mut turn) {
                    Err(WorktreeError::TooLong { .. }) => return Err(WorktreeError::TooLarge { path: name.clone() }),
                    bytes => bytes?,
                };
                fs::write(path(object), bytes).map_err(cannot("read"))?;
            }
            let mut args: Vec<std::ffi::OsString> =
                ["hash-object", "-w", "-t", kind, "--literally", "--no-filters", "--"].map(Into::into).into();
            args.extend(objects.iter().map(|(object, _)| path(object).into()));
            let found = self.git.run_for_line(to, &args)?;
            if let Some(((object, _), _)) =
                objects.iter().zip(found.lines()).find(|((object, _), found)| object != found)
            {
                let (object, repository) = (object.clone(), entry.repository.clone());
                return Err(WorktreeError::WrongObject { object, repository });
            }
            objects.iter().try_for_each(|(object, _)| remove_if_exists(&path(object)))?;
        }
        Ok(())
    }

    /// Returns the attribute files of the base in all directories with changes, by object.
    fn attributes(
        &self,
        at: &GitPlace,
        entry: &WorktreeEntry,
        tip: &str,
    ) -> Result<BTreeMap<String, PathBuf>, WorktreeError> {
        let changes = self.raw(at, entry, tip, &[])?;
        let dirs: BTreeSet<&Path> = changes.iter().flat_map(|change| change.path.ancestors().skip(1)).collect();
        let paths: Vec<PathBuf> = dirs.into_iter().map(|dir| dir.join(ATTRIBUTES)).collect();
        let mut found = BTreeMap::new();
        for paths in paths.chunks(BATCH_SIZE) {
            let mut args: Vec<std::ffi::OsString> =
                ["ls-tree", "-z", "--full-tree", &*entry.base, "--"].map(Into::into).into();
            args.extend(paths.iter().map(Into::into));
            let out = self.git.run(at, &args)?;
            for line in out.split(|byte| *byte == 0).filter(|line| !line.is_empty()) {
                let mut parts = line.splitn(2, |byte| *byte == b'\t');
                let (Some(head), Some(path)) = (parts.next(), parts.next()) else { continue };
                let head = String::from_utf8_lossy(head);
                let mut fields = head.split(' ');
                // Git reads attributes from regular files only.
                if let (Some("100644" | "100755"), _, Some(object)) = (fields.next(), fields.next(), fields.next()) {
                    found.insert(object.to_owned(), os(path)?.into());
                }
            }
        }
        Ok(found)
    }
}

fn with_empty_paths(objects: impl IntoIterator<Item = String>) -> BTreeMap<String, PathBuf> {
    objects.into_iter().map(|object| (object, PathBuf::new())).collect()
}
