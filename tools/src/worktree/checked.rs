//! Objects of a repository under the ids of their contents.
//!
//! A session may write the objects of the repository of its workspace, and git reads an object without a check of its id. So what a person
//! is shown, and what is merged, comes from a copy that no session reaches: git gives each object an id there, which must be the one that
//! it was asked for. The id of the commit then stands for all that was shown.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::git::GitPlace;
use super::{WorktreeEntry, WorktreeError, Worktrees, cannot, gone};

/// Files that one command hashes.
const TOGETHER: usize = 256;
const NO_OBJECT: char = '0';
const ATTRIBUTES: &str = ".gitattributes";

/// A change between base and tip, as git lists it.
pub(super) struct RawChange {
    pub(super) path: String,
    pub(super) modes: [String; 2],
    pub(super) objects: [String; 2],
}

impl Worktrees {
    /// Copies all that differs between base and tip, and the attributes that apply to it. Requires the lock.
    ///
    /// # Errors
    /// [`WorktreeError::Spoiled`] if an object has other bytes than its id says.
    pub(super) fn checked(&self, entry: &WorktreeEntry, tip: &str) -> Result<GitPlace, WorktreeError> {
        let from = self.plainly(entry)?;
        let dir = self.copies(entry);
        gone(&dir)?;
        fs::create_dir(&dir).map_err(cannot("read"))?;
        let mut to = GitPlace { within: vec![self.dir.canonicalize().map_err(cannot("read"))?], ..from.clone() };
        for (name, value) in &mut to.variables {
            match *name {
                "GIT_OBJECT_DIRECTORY" => *value = dir.clone().into(),
                "GIT_INDEX_FILE" => *value = dir.join("index").into(),
                _ => {}
            }
        }
        let copy = |kind, objects: BTreeSet<String>| self.copy(entry, (&from, &to), kind, objects);
        copy("commit", [entry.base.clone(), tip.to_owned()].into())?;
        let trees = [&entry.base, tip].map(|commit| {
            let text = self.git.run(&to, &["cat-file", "commit", commit])?;
            let text = String::from_utf8_lossy(&text);
            Ok(text.lines().find_map(|line| line.strip_prefix("tree ")).unwrap_or_default().to_owned())
        });
        copy("tree", trees.into_iter().collect::<Result<_, WorktreeError>>()?)?;
        let changes = self.raw(&from, entry, tip, &["-t"])?;
        let of = |is_tree: bool| {
            let sides = changes.iter().flat_map(|change| change.modes.iter().zip(&change.objects));
            let sides = sides.filter(|(mode, object)| {
                object.chars().any(|digit| digit != NO_OBJECT) && *mode != "160000" && is_tree == (*mode == "040000")
            });
            sides.map(|(_, object)| object.clone()).collect::<BTreeSet<_>>()
        };
        copy("tree", of(true))?;
        copy("blob", of(false))?;
        for (object, path) in self.attributes(&to, entry, tip)? {
            copy("blob", [object.clone()].into())?;
            self.git.run(&to, &["update-index", "--add", "--cacheinfo", &format!("100644,{object},{path}")])?;
        }
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
        let text = String::from_utf8(out)
            .map_err(|_| WorktreeError::Conflicts(vec!["the name of a changed file is not UTF-8".to_owned()]))?;
        let mut parts = text.split('\0');
        let mut changes = Vec::new();
        while let (Some(head), Some(path)) = (parts.next(), parts.next()) {
            let mut fields = head.trim_start_matches(':').split(' ').map(str::to_owned);
            let mut field = || fields.next().unwrap_or_default();
            changes.push(RawChange { path: path.to_owned(), modes: [field(), field()], objects: [field(), field()] });
        }
        Ok(changes)
    }

    /// Copies objects of one kind, each under the id that git gives its bytes.
    fn copy(
        &self,
        entry: &WorktreeEntry,
        (from, to): (&GitPlace, &GitPlace),
        kind: &str,
        objects: BTreeSet<String>,
    ) -> Result<(), WorktreeError> {
        let dir = self.copies(entry);
        let objects: Vec<String> = objects.into_iter().collect();
        for objects in objects.chunks(TOGETHER) {
            let path = |object: &String| dir.join(format!("{object}.bytes"));
            for object in objects {
                let bytes = self.git.run(from, &["cat-file", kind, object])?;
                fs::write(path(object), bytes).map_err(cannot("read"))?;
            }
            let mut args: Vec<std::ffi::OsString> =
                ["hash-object", "-w", "-t", kind, "--literally", "--no-filters", "--"].map(Into::into).into();
            args.extend(objects.iter().map(|object| path(object).into()));
            let found = self.git.line(to, &args)?;
            if let Some((object, _)) = objects.iter().zip(found.lines()).find(|(object, found)| object != found) {
                let (object, repository) = (object.clone(), entry.repository.clone());
                return Err(WorktreeError::Spoiled { object, repository });
            }
            objects.iter().try_for_each(|object| gone(&path(object)))?;
        }
        Ok(())
    }

    /// Returns the attribute files, by object and path, of the directories in which something changed.
    fn attributes(
        &self,
        at: &GitPlace,
        entry: &WorktreeEntry,
        tip: &str,
    ) -> Result<Vec<(String, String)>, WorktreeError> {
        let changes = self.raw(at, entry, tip, &[])?;
        let dirs: BTreeSet<&Path> =
            changes.iter().flat_map(|change| Path::new(&change.path).ancestors().skip(1)).collect();
        let paths: Vec<PathBuf> = dirs.into_iter().map(|dir| dir.join(ATTRIBUTES)).collect();
        let mut found = Vec::new();
        for paths in paths.chunks(TOGETHER) {
            let mut args: Vec<std::ffi::OsString> = ["ls-tree", "-z", "--full-tree", tip, "--"].map(Into::into).into();
            args.extend(paths.iter().map(Into::into));
            let out = String::from_utf8(self.git.run(at, &args)?).unwrap_or_default();
            for (head, path) in out.split('\0').filter_map(|entry| entry.split_once('\t')) {
                let mut fields = head.split(' ');
                // Git reads attributes from files alone.
                if let (Some("100644" | "100755"), _, Some(object)) = (fields.next(), fields.next(), fields.next()) {
                    found.push((object.to_owned(), path.to_owned()));
                }
            }
        }
        Ok(found)
    }
}
