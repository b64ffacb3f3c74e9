//! Objects of a repository under the ids of their contents.
//!
//! A session may write the objects of the repository of its workspace, and git reads an object without a check of its id. So what a person
//! is shown, and what is merged, comes from a copy that no session reaches: git gives each object an id there, which must be the one that
//! it was asked for. The id of the commit then stands for all that was shown.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::git::{GitPlace, GitReach, os};
use super::{WorktreeEntry, WorktreeError, Worktrees, cannot, gone};

/// Files that one command hashes.
const TOGETHER: usize = 256;
const NO_OBJECT: char = '0';
const ATTRIBUTES: &str = ".gitattributes";

/// A change between base and tip, as git lists it.
pub(super) struct RawChange {
    pub(super) path: PathBuf,
    pub(super) modes: [String; 2],
    pub(super) objects: [String; 2],
}

impl Worktrees {
    /// Runs `act` where a copy lies of all that differs between base and tip, and of the attributes that its files had before. Requires the lock.
    ///
    /// # Errors
    /// [`WorktreeError::Spoiled`] if an object has other bytes than its id says, [`WorktreeError::TooLarge`], and those of `act`.
    pub(super) fn checked<T>(
        &self,
        entry: &WorktreeEntry,
        tip: &str,
        act: impl FnOnce(&GitPlace) -> Result<T, WorktreeError>,
    ) -> Result<T, WorktreeError> {
        let done = self.copied(entry, tip).and_then(|at| act(&at));
        gone(&self.copies(entry))?;
        done
    }

    fn copied(&self, entry: &WorktreeEntry, tip: &str) -> Result<GitPlace, WorktreeError> {
        let from = self.plainly(entry)?;
        gone(&self.copies(entry))?;
        fs::create_dir(self.copies(entry)).map_err(cannot("read"))?;
        let dir = self.copies(entry).canonicalize().map_err(cannot("read"))?;
        let start = dir.join("start");
        fs::create_dir(&start).map_err(cannot("read"))?;
        let reach = GitReach { written: vec![dir.clone()], read: from.reach.read.clone() };
        let mut to = GitPlace { reach, start, ..from.clone() };
        for (name, value) in &mut to.variables {
            match *name {
                "GIT_OBJECT_DIRECTORY" => *value = dir.clone().into(),
                "GIT_INDEX_FILE" => *value = dir.join("index").into(), // Never written: no command needs an index.
                _ => {}
            }
        }
        // Attributes are those that the files had before the session changed them, and none of the directory in which git starts.
        to.variables.push(("GIT_ATTR_SOURCE", entry.base.clone().into()));
        let copy = |kind, objects| self.copy(entry, (&from, &to), kind, objects);
        copy("commit", unnamed([entry.base.clone(), tip.to_owned()]))?;
        let trees = [&entry.base, tip].map(|commit| {
            let text = self.git.run(&to, &["cat-file", "commit", commit])?;
            let text = String::from_utf8_lossy(&text);
            Ok(text.lines().find_map(|line| line.strip_prefix("tree ")).unwrap_or_default().to_owned())
        });
        copy("tree", unnamed(trees.into_iter().collect::<Result<Vec<_>, WorktreeError>>()?))?;
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

    /// Where the copies of a worktree lie while they are needed.
    pub(super) fn copies(&self, entry: &WorktreeEntry) -> PathBuf {
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

    /// Copies objects of one kind, each under the id that git gives its bytes. Errors name the path that an object has.
    fn copy(
        &self,
        entry: &WorktreeEntry,
        (from, to): (&GitPlace, &GitPlace),
        kind: &str,
        objects: BTreeMap<String, PathBuf>,
    ) -> Result<(), WorktreeError> {
        let dir = self.copies(entry).canonicalize().map_err(cannot("read"))?;
        let objects: Vec<(String, PathBuf)> = objects.into_iter().collect();
        for objects in objects.chunks(TOGETHER) {
            let path = |object: &String| dir.join(format!("{object}.bytes"));
            for (object, name) in objects {
                let bytes = match self.git.run(from, &["cat-file", kind, object]) {
                    Err(WorktreeError::TooLong { .. }) => return Err(WorktreeError::TooLarge { path: name.clone() }),
                    bytes => bytes?,
                };
                fs::write(path(object), bytes).map_err(cannot("read"))?;
            }
            let mut args: Vec<std::ffi::OsString> =
                ["hash-object", "-w", "-t", kind, "--literally", "--no-filters", "--"].map(Into::into).into();
            args.extend(objects.iter().map(|(object, _)| path(object).into()));
            let found = self.git.line(to, &args)?;
            if let Some(((object, _), _)) =
                objects.iter().zip(found.lines()).find(|((object, _), found)| object != found)
            {
                let (object, repository) = (object.clone(), entry.repository.clone());
                return Err(WorktreeError::Spoiled { object, repository });
            }
            objects.iter().try_for_each(|(object, _)| gone(&path(object)))?;
        }
        Ok(())
    }

    /// Returns the attribute files of the base, by object, of the directories in which something changed.
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
        for paths in paths.chunks(TOGETHER) {
            let mut args: Vec<std::ffi::OsString> =
                ["ls-tree", "-z", "--full-tree", &*entry.base, "--"].map(Into::into).into();
            args.extend(paths.iter().map(Into::into));
            let out = self.git.run(at, &args)?;
            for line in out.split(|byte| *byte == 0).filter(|line| !line.is_empty()) {
                let mut parts = line.splitn(2, |byte| *byte == b'\t');
                let (Some(head), Some(path)) = (parts.next(), parts.next()) else { continue };
                let head = String::from_utf8_lossy(head);
                let mut fields = head.split(' ');
                // Git reads attributes from files alone.
                if let (Some("100644" | "100755"), _, Some(object)) = (fields.next(), fields.next(), fields.next()) {
                    found.insert(object.to_owned(), os(path)?.into());
                }
            }
        }
        Ok(found)
    }
}

/// Returns objects that have no path.
fn unnamed(objects: impl IntoIterator<Item = String>) -> BTreeMap<String, PathBuf> {
    objects.into_iter().map(|object| (object, PathBuf::new())).collect()
}
