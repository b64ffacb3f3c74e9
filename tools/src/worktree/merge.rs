//! A merge into the files of a workspace, in two parts: a plan, which changes nothing, and its execution, which a later call finishes
//! where it is interrupted.
//!
//! Neither the index nor a commit of the workspace changes: the files arrive there as if they had been edited.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};
use subtend_session::ids::{Hash, SessionId};

use super::checked::RawChange;
use super::git::GitPlace;
use super::make::base_of;
use super::{WorktreeEntry, WorktreeError, Worktrees, cannot, gone, replace};
use crate::escape::on_one_line;
use crate::policy::PROTECTED;
use crate::workspace::Workspace;
use crate::workspace::state::{FileState, Side, prune, put, seen};

/// Bytes of a file that is merged.
const MOST: u64 = 64 << 20;
const PLAN: &str = "plan.json";

/// The result of a merge.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Merged {
    /// Files that it changed.
    pub files: Vec<String>,
    /// Files that were changed by others after an interrupted merge was planned; they were left as they are.
    pub left: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct MergePlan {
    tip: String,
    items: Vec<MergeItem>,
}

#[derive(Debug, Serialize, Deserialize)]
struct MergeItem {
    path: String,
    before: FileState,
    after: FileState,
    /// The file of the plan that has the content.
    content: usize,
}

impl Worktrees {
    /// Merges the changes of a worktree, as [`Worktrees::changes`] returned them with `tip`, into the workspace that it was made from. All
    /// files or none: a file that was changed there too is merged by lines. Blocks.
    ///
    /// # Errors
    /// [`WorktreeError::Changed`] if there are other changes by now, [`WorktreeError::Conflicts`] with each file that cannot be merged.
    pub fn merge(&self, session: SessionId, tip: &str) -> Result<Merged, WorktreeError> {
        let _lock = self.lock(session)?;
        let mut entry = self.ready(session)?;
        self.unchanged(&entry, tip)?;
        let dir = self.file(session, "merge");
        gone(&dir)?;
        fs::create_dir(&dir).map_err(cannot("merged"))?;
        let target = Workspace::open(&entry.target)?;
        let (mut items, mut conflicts) = (Vec::new(), Vec::new());
        self.checked(&entry, tip, |at| {
            for change in self.raw(at, &entry, tip, &[])? {
                match self.planned((&entry, at), &target, &change, (&dir, items.len()))? {
                    Ok(item) => items.extend(item),
                    Err(why) => conflicts.push(format!("`{}` {why}", on_one_line(&change.path.to_string_lossy()))),
                }
            }
            Ok(())
        })?;
        if !conflicts.is_empty() {
            gone(&dir)?;
            return Err(WorktreeError::Conflicts(conflicts));
        }
        // Files make room for directories, and the other way round.
        items.sort_by_key(|item: &MergeItem| item.after != FileState::Absent);
        self.step("plan")?;
        let plan = serde_json::to_vec(&MergePlan { tip: tip.to_owned(), items });
        replace(&dir.join(PLAN), &plan.map_err(|error| cannot("merged")(error.into()))?).map_err(cannot("merged"))?;
        self.resume_merge(&mut entry)?.map_or_else(|| Ok(Merged::default()), Ok)
    }

    /// Finishes an interrupted merge; `None` without one.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn recover(&self, session: SessionId) -> Result<Option<Merged>, WorktreeError> {
        let _lock = self.lock(session)?;
        match self.entry(session)? {
            Some(mut entry) => self.resume_merge(&mut entry),
            None => Ok(None),
        }
    }

    /// As [`Worktrees::recover`]; for a caller that has the lock.
    pub(super) fn resume_merge(&self, entry: &mut WorktreeEntry) -> Result<Option<Merged>, WorktreeError> {
        let dir = self.file(entry.session, "merge");
        let plan = match fs::read(dir.join(PLAN)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            plan => plan.map_err(cannot("merged"))?,
        };
        let plan: MergePlan = serde_json::from_slice(&plan).map_err(|error| cannot("merged")(error.into()))?;
        let target = Workspace::open(&entry.target)?;
        let mut merged = Merged::default();
        for item in &plan.items {
            self.step("file")?;
            let present = seen(&target, &item.path, MOST).map_err(cannot("merged"))?.seen;
            if present == item.before {
                exchange(&target, item, (&dir, entry.session)).map_err(cannot("merged"))?;
            } else if present != item.after {
                merged.left.push(item.path.clone());
                continue;
            }
            merged.files.push(item.path.clone());
        }
        self.step("merged")?;
        let at = self.refs(&entry.repository, &entry.repository)?;
        self.git.run(&at, &["update-ref", &base_of(entry), &plan.tip])?;
        entry.base = plan.tip;
        self.write(entry)?;
        self.step("unplan")?;
        gone(&dir.join(PLAN))?;
        gone(&dir)?;
        Ok(Some(merged))
    }

    /// Returns how one file is merged: `None` if it is as it should be, an error if it cannot be.
    fn planned(
        &self,
        (entry, at): (&WorktreeEntry, &GitPlace),
        target: &Workspace,
        change: &RawChange,
        (dir, content): (&Path, usize),
    ) -> Result<Result<Option<MergeItem>, String>, WorktreeError> {
        let Some(path) = change.path.to_str() else {
            return Ok(Err("has a name that is not UTF-8: rename it in the worktree".to_owned()));
        };
        let Some(path) = path.strip_prefix(&entry.prefix) else {
            return Ok(Err(format!("lies outside of the workspace {}", entry.target.display())));
        };
        // No git lists such a path, but a session may have written the index itself.
        if path.split('/').any(|part| part.eq_ignore_ascii_case(".git")) {
            return Ok(Err("lies in a repository".to_owned()));
        }
        // Where none exists yet, a command may have made what rules protect in the workspace.
        if PROTECTED.iter().any(|protected| Path::new(path).starts_with(protected)) {
            return Ok(Err(
                "configures agents: take it from the branch by git, after `subtend worktree keep`".to_owned()
            ));
        }
        let [base, theirs] = [0, 1].map(|ix| self.side(at, change, ix));
        let (base, theirs) = (base?, theirs?);
        let ours = match seen(target, path, MOST) {
            Ok(ours) => ours,
            Err(error) => return Ok(Err(format!("cannot be read in the workspace: {error}"))),
        };
        if [&base.seen, &theirs.seen].contains(&&FileState::Other) {
            return Ok(Err("is a repository of its own".to_owned()));
        }
        if let FileState::Link { to } = &theirs.seen
            && leads_out(path, to)
        {
            return Ok(Err(format!("is a link that leads out of the workspace, to `{}`", on_one_line(to))));
        }
        let merged = match (&ours.seen, &base.seen, &theirs.seen) {
            (ours, _, theirs) if ours == theirs => return Ok(Ok(None)),
            (
                FileState::File { executable: our, .. },
                FileState::File { executable: old, .. },
                FileState::File { executable: new, .. },
            ) => {
                let executable = if new == old { *our } else { *new };
                match self.lines(at, [&ours.bytes, &base.bytes, &theirs.bytes])? {
                    Some(bytes) => Side { seen: FileState::File { hash: Hash::of(&bytes), executable }, bytes },
                    None => return Ok(Err("was changed in the workspace, too, in the same lines".to_owned())),
                }
            }
            (ours, base, _) if ours == base => theirs,
            (FileState::Other, ..) => {
                return Ok(Err("is a directory in the workspace, or lies behind a link".to_owned()));
            }
            (FileState::Absent, ..) => return Ok(Err("was removed in the workspace".to_owned())),
            (FileState::File { .. } | FileState::Link { .. }, ..) => {
                return Ok(Err("was changed in the workspace, too".to_owned()));
            }
        };
        if merged.seen == ours.seen {
            return Ok(Ok(None));
        }
        if let FileState::File { .. } = merged.seen {
            let mut file = fs::File::create(dir.join(content.to_string())).map_err(cannot("merged"))?;
            file.write_all(&merged.bytes).and_then(|()| file.sync_all()).map_err(cannot("merged"))?;
        }
        Ok(Ok(Some(MergeItem { path: path.to_owned(), before: ours.seen, after: merged.seen, content })))
    }

    /// Returns a file of one of the two commits, with the line ends of a working tree.
    fn side(&self, at: &GitPlace, change: &RawChange, ix: usize) -> Result<Side, WorktreeError> {
        let (mode, object) = (change.modes.get(ix), change.objects.get(ix));
        let (mode, object) = (mode.map_or("", String::as_str), object.map_or("", String::as_str));
        let file = |executable| {
            let mut path = OsString::from("--path=");
            path.push(&change.path);
            let args = ["cat-file".as_ref(), "--filters".as_ref(), path.as_os_str(), object.as_ref()];
            let bytes = self.git.run(at, &args)?;
            Ok(Side { seen: FileState::File { hash: Hash::of(&bytes), executable }, bytes })
        };
        match mode {
            "000000" => Ok(Side { seen: FileState::Absent, bytes: Vec::new() }),
            "100644" => file(false),
            "100755" => file(true),
            "120000" => {
                let to = self.git.run(at, &["cat-file", "blob", object])?;
                let to = String::from_utf8_lossy(&to).into_owned();
                Ok(Side { seen: FileState::Link { to }, bytes: Vec::new() })
            }
            _ => Ok(Side { seen: FileState::Other, bytes: Vec::new() }),
        }
    }

    /// Merges by lines; `None` where both sides changed the same.
    fn lines(&self, at: &GitPlace, sides: [&[u8]; 3]) -> Result<Option<Vec<u8>>, WorktreeError> {
        let [ours, base, theirs] = sides;
        if ours == base || ours == theirs {
            return Ok(Some(theirs.to_vec()));
        }
        if theirs == base {
            return Ok(Some(ours.to_vec()));
        }
        let mut paths: Vec<PathBuf> = Vec::new();
        for (name, bytes) in ["ours", "base", "theirs"].into_iter().zip(sides) {
            let path = at.start.join(name);
            fs::write(&path, bytes).map_err(cannot("merged"))?;
            paths.push(path);
        }
        let mut args = vec!["merge-file".into(), "-p".into(), "--quiet".into()];
        args.extend(paths.iter().map(|path| path.as_os_str().to_owned()));
        let answer = self.git.ask(at, &args)?;
        paths.iter().try_for_each(|path| gone(path))?;
        Ok(answer.status.success().then_some(answer.out))
    }
}

/// Has `item` be as it is after the merge.
fn exchange(target: &Workspace, item: &MergeItem, (plan, session): (&Path, SessionId)) -> io::Result<()> {
    let bytes = match item.after {
        FileState::File { .. } => fs::read(plan.join(item.content.to_string()))?,
        FileState::Absent | FileState::Link { .. } | FileState::Other => Vec::new(),
    };
    put(target, &item.path, (&item.after, &bytes), &format!(".subtend-{session}.tmp"))?;
    if item.after == FileState::Absent {
        let (above, _) = item.path.rsplit_once('/').unwrap_or((".", &item.path));
        prune(target.dir(), (above, ""));
    }
    Ok(())
}

/// Returns whether a link at `path` with the target `to` leads out of the tree.
fn leads_out(path: &str, to: &str) -> bool {
    let mut depth = path.matches('/').count();
    for part in Path::new(to).components() {
        match part {
            Component::Normal(_) => depth = depth.saturating_add(1),
            Component::CurDir => {}
            Component::ParentDir => match depth.checked_sub(1) {
                Some(less) => depth = less,
                None => return true,
            },
            Component::Prefix(_) | Component::RootDir => return true,
        }
    }
    false
}
