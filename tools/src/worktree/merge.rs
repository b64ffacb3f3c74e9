//! Merges changes into the files of a workspace. A merge has two steps: a plan, which does not change files, and its execution. If the
//! execution is interrupted, a later call finishes it.
//!
//! A merge changes only files of the workspace. It does not change the index or commits of its repository.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};
use subtend_session::ids::{Hash, SessionId};

use super::checked::RawChange;
use super::contents::ContentsTurn;
use super::git::GitPlace;
use super::make::base_reference;
use super::{Stage, WorktreeEntry, WorktreeError, Worktrees, cannot, remove_if_exists, replace};
use crate::escape::on_one_line;
use crate::policy;
use crate::workspace::Workspace;
use crate::workspace::state::{FileState, PathState, prune, remove_temporary, replace_entry, temporary_name};

/// Maximum size of the target of a link, as of the system. A plan holds the targets of all links.
const MAX_LINK: usize = 4095;
const PLAN_FILE: &str = "plan.json";

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Merged {
    pub files: Vec<String>,
    /// Files that were not merged, because other programs changed them after an interrupted merge was planned.
    pub left: Vec<String>,
    /// True if there was nothing to merge: no file was changed, or an earlier merge has merged the changes.
    pub already_merged: bool,
}

#[derive(Debug, Serialize, Deserialize)]
struct MergePlan {
    tip: String,
    items: Vec<MergeItem>,
    /// Random, so that a session cannot block the name of the temporary file with a file or directory.
    #[serde(default = "temporary_name")]
    temporary: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct MergeItem {
    path: String,
    before: FileState,
    after: FileState,
    /// Number of the file with the content, in the directory of the plan.
    content: usize,
}

impl Worktrees {
    /// Merges the changes of a worktree up to `tip`, as returned by [`Worktrees::changes`], into its workspace. Merges all files or none. A
    /// file that was also changed in the workspace is merged by lines. A repeated call after a kill finishes the merge, and returns the whole
    /// result. Blocks.
    ///
    /// # Errors
    /// [`WorktreeError::Changed`] if there are further changes, [`WorktreeError::Conflicts`] with all files that cannot be merged.
    pub fn merge(&self, session: SessionId, tip: &str) -> Result<Merged, WorktreeError> {
        let _lock = self.lock(session)?;
        let resumed = self.resume_if_ready(session)?;
        let mut entry = self.ready(session)?;
        self.check_unchanged(&entry, tip)?;
        if entry.base == tip {
            return Ok(resumed.unwrap_or(Merged { already_merged: true, ..Merged::default() }));
        }
        let dir = self.file(session, "merge");
        remove_if_exists(&dir)?;
        fs::create_dir(&dir).map_err(cannot("merged"))?;
        let target = Workspace::open_canonical(&entry.target)?;
        let (mut items, mut conflicts) = (Vec::new(), Vec::new());
        self.run_checked(&entry, tip, |at| {
            for change in self.raw(at, &entry, tip, &[])? {
                match self.plan_file((&entry, at), &target, &change, (&dir, items.len()))? {
                    Ok(item) => items.extend(item),
                    Err(why) => conflicts.push(format!("`{}` {why}", on_one_line(&change.path.to_string_lossy()))),
                }
            }
            Ok(())
        })?;
        if !conflicts.is_empty() {
            remove_if_exists(&dir)?;
            return Err(WorktreeError::Conflicts(conflicts));
        }
        // Removals come first, because a directory may replace a file, or a file a directory.
        items.sort_by_key(|item: &MergeItem| item.after != FileState::Absent);
        self.step("plan")?;
        let plan = serde_json::to_vec(&MergePlan { tip: tip.to_owned(), items, temporary: temporary_name() });
        replace(&dir.join(PLAN_FILE), &plan.map_err(|error| cannot("merged")(error.into()))?)
            .map_err(cannot("merged"))?;
        self.resume_merge(&mut entry)?.map_or_else(|| Ok(Merged::default()), Ok)
    }

    /// Finishes an interrupted merge. Returns `None` if no merge was interrupted.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn recover(&self, session: SessionId) -> Result<Option<Merged>, WorktreeError> {
        // Without a plan, return before the lock: the start of a host must not wait for a command that holds it.
        if !self.file(session, "merge").join(PLAN_FILE).exists() {
            return Ok(None);
        }
        let _lock = self.lock(session)?;
        self.resume_if_ready(session)
    }

    /// Does the work of [`Worktrees::recover`]. The caller must hold the lock.
    fn resume_if_ready(&self, session: SessionId) -> Result<Option<Merged>, WorktreeError> {
        match self.entry(session)? {
            Some(mut entry) if entry.stage == Stage::Ready => self.resume_merge(&mut entry),
            Some(_) | None => Ok(None),
        }
    }

    /// Finishes an interrupted merge of `entry`. The caller must hold the lock.
    pub(super) fn resume_merge(&self, entry: &mut WorktreeEntry) -> Result<Option<Merged>, WorktreeError> {
        let dir = self.file(entry.session, "merge");
        let plan = match fs::read(dir.join(PLAN_FILE)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            plan => plan.map_err(cannot("merged"))?,
        };
        let plan: MergePlan = serde_json::from_slice(&plan).map_err(|error| cannot("merged")(error.into()))?;
        let target = Workspace::open_canonical(&entry.target)?;
        let mut merged = Merged::default();
        for item in &plan.items {
            self.step("file")?;
            let failed = |error: io::Error| {
                let why = format!("{}: {error}", on_one_line(&item.path));
                cannot("merged completely")(io::Error::new(error.kind(), why))
            };
            let mut turn = ContentsTurn::default();
            let present = turn.read_entry(&target, &item.path).map_err(failed)?.state;
            if present == item.before {
                apply_item(&target, item, (&dir, &plan.temporary), &mut turn).map_err(failed)?;
            } else if present != item.after {
                // A killed process may have left its temporary file here. Ignore an error, because the merge does not depend on the removal.
                drop(remove_temporary(&target, &item.path, &plan.temporary));
                merged.left.push(item.path.clone());
                continue;
            }
            merged.files.push(item.path.clone());
        }
        self.step("merged")?;
        let at = self.refs_place(&entry.repository, &entry.repository)?;
        self.git.run(&at, &["update-ref", &base_reference(entry), &plan.tip])?;
        entry.base = plan.tip;
        let named: BTreeSet<&String> = merged.left.iter().chain(&merged.files).collect();
        entry.left.retain(|path| !named.contains(path));
        entry.left.extend_from_slice(&merged.left);
        self.write(entry)?;
        self.step("unplan")?;
        remove_if_exists(&dir.join(PLAN_FILE))?;
        remove_if_exists(&dir)?;
        Ok(Some(merged))
    }

    /// Plans the merge of one file. Returns `None` if the file needs no change, and a reason if it cannot be merged.
    fn plan_file(
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
        // Git lists such paths if a session has modified the index, or if it does not know the spelling.
        if policy::is_in_repository(path) {
            return Ok(Err("lies in a repository".to_owned()));
        }
        // A command of the session can create protected paths in the worktree, so the merge must refuse them.
        if policy::is_protected(path) {
            return Ok(Err(
                "configures agents: run `subtend worktree keep`, then take it from the branch with git".to_owned()
            ));
        }
        let mut turn = ContentsTurn::default();
        let [base, theirs] = [0, 1].map(|ix| self.side(at, change, ix, &mut turn));
        let (Some(base), Some(theirs)) = (base?, theirs?) else {
            return Ok(Err("has an attribute such as `working-tree-encoding` or `ident`, by which another text would be written than the \
                           diff shows: run `subtend worktree keep`, then take it from the branch with git"
                .to_owned()));
        };
        let ours = match turn.read_entry(target, path) {
            Ok(ours) => ours,
            Err(error) => return Ok(Err(format!("cannot be read in the workspace: {error}"))),
        };
        if [&base.state, &theirs.state].contains(&&FileState::Other) {
            return Ok(Err("is a repository of its own: take its commits by git".to_owned()));
        }
        if let FileState::Link { to } = &theirs.state {
            if to.len() > MAX_LINK {
                return Ok(Err("is a link whose target is too long".to_owned()));
            }
            if to.contains(char::REPLACEMENT_CHARACTER) {
                return Ok(Err("is a link whose target is not UTF-8".to_owned()));
            }
            if leaves_workspace(path, to) {
                return Ok(Err(format!("is a link that leads out of the workspace, or may, to `{}`", on_one_line(to))));
            }
        }
        let merged = match (&ours.state, &base.state, &theirs.state) {
            (ours, _, theirs) if ours == theirs => return Ok(Ok(None)),
            (
                FileState::File { executable: our, .. },
                FileState::File { executable: old, .. },
                FileState::File { executable: new, .. },
            ) => {
                let executable = if new == old { *our } else { *new };
                match self.lines(at, [ours.bytes, base.bytes, theirs.bytes], &mut turn)? {
                    Some(bytes) => PathState { state: FileState::File { hash: Hash::of(&bytes), executable }, bytes },
                    None => return Ok(Err("was also changed in the workspace, in the same lines".to_owned())),
                }
            }
            (ours, base, _) if ours == base => theirs,
            (FileState::Other, ..) => {
                return Ok(Err("is a directory in the workspace, or is reached through a link".to_owned()));
            }
            (FileState::Absent, ..) => return Ok(Err("was removed in the workspace".to_owned())),
            (FileState::File { .. } | FileState::Link { .. }, ..) => {
                return Ok(Err("was also changed in the workspace".to_owned()));
            }
        };
        if merged.state == ours.state {
            return Ok(Ok(None));
        }
        if let FileState::File { .. } = merged.state {
            let mut file = fs::File::create(dir.join(content.to_string())).map_err(cannot("merged"))?;
            file.write_all(&merged.bytes).and_then(|()| file.sync_all()).map_err(cannot("merged"))?;
        }
        Ok(Ok(Some(MergeItem { path: path.to_owned(), before: ours.state, after: merged.state, content })))
    }

    /// Returns a file of the base (0) or the tip (1), with the line endings of a working tree. Returns `None` if its attributes would change
    /// more than line endings: the diff shows the text without attributes.
    fn side(
        &self,
        at: &GitPlace,
        change: &RawChange,
        ix: usize,
        turn: &mut ContentsTurn,
    ) -> Result<Option<PathState>, WorktreeError> {
        let (mode, object) = (change.modes.get(ix), change.objects.get(ix));
        let (mode, object) = (mode.map_or("", String::as_str), object.map_or("", String::as_str));
        let mut file = |executable| {
            let mut path = OsString::from("--path=");
            path.push(&change.path);
            let args = ["cat-file".as_ref(), "--filters".as_ref(), path.as_os_str(), object.as_ref()];
            let bytes = self.content(at, &args, turn)?;
            let shown = self.content(at, &["cat-file", "blob", object], turn)?;
            let is_shown = lines_without_ends(&bytes).eq(lines_without_ends(&shown));
            Ok(is_shown.then(|| PathState { state: FileState::File { hash: Hash::of(&bytes), executable }, bytes }))
        };
        let without_bytes = |state| Ok(Some(PathState { state, bytes: Vec::new() }));
        match mode {
            "000000" => without_bytes(FileState::Absent),
            "100644" => file(false),
            "100755" => file(true),
            "120000" => {
                let to = self.git.run_for_start(at, &["cat-file", "blob", object], MAX_LINK as u64 + 1)?;
                let to = String::from_utf8_lossy(&to).into_owned();
                without_bytes(FileState::Link { to })
            }
            _ => without_bytes(FileState::Other),
        }
    }

    /// Merges by lines. Returns `None` if both sides changed the same lines.
    fn lines(
        &self,
        at: &GitPlace,
        sides: [Vec<u8>; 3],
        turn: &mut ContentsTurn,
    ) -> Result<Option<Vec<u8>>, WorktreeError> {
        let [ours, base, theirs] = &sides;
        if ours == base || ours == theirs {
            let [.., theirs] = sides;
            return Ok(Some(theirs));
        }
        if theirs == base {
            let [ours, ..] = sides;
            return Ok(Some(ours));
        }
        let mut paths: Vec<PathBuf> = Vec::new();
        for (name, bytes) in ["ours", "base", "theirs"].into_iter().zip(sides) {
            let path = at.start.join(name);
            // Each content is freed when it is written, before the result takes as much.
            fs::write(&path, bytes).map_err(cannot("merged"))?;
            paths.push(path);
        }
        let mut args = vec!["merge-file".into(), "-p".into(), "--quiet".into()];
        args.extend(paths.iter().map(|path| path.as_os_str().to_owned()));
        // Git may take minutes. Meanwhile other work has the turn.
        turn.release();
        let answer = self.git.run_for_output(at, &args)?;
        turn.take_for(answer.out.len() as u64);
        paths.iter().try_for_each(|path| remove_if_exists(path))?;
        Ok(answer.status.success().then_some(answer.out))
    }
}

fn apply_item(
    target: &Workspace,
    item: &MergeItem,
    (plan, temporary): (&Path, &str),
    turn: &mut ContentsTurn,
) -> io::Result<()> {
    let bytes = match item.after {
        FileState::File { .. } => {
            let content = plan.join(item.content.to_string());
            turn.take_for(fs::metadata(&content)?.len());
            fs::read(content)?
        }
        FileState::Absent | FileState::Link { .. } | FileState::Other => Vec::new(),
    };
    replace_entry(target, &item.path, (&item.after, &bytes), temporary)?;
    if item.after == FileState::Absent {
        let (parent, _) = item.path.rsplit_once('/').unwrap_or((".", &item.path));
        prune(target.dir(), (parent, ""));
    }
    Ok(())
}

fn lines_without_ends(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line))
}

/// Returns whether a link may lead out of the tree. `..` after a name counts too: the name may be a link.
fn leaves_workspace(path: &str, to: &str) -> bool {
    let depth = path.matches('/').count();
    let (mut parents, mut has_name) = (0_usize, false);
    for part in Path::new(to).components() {
        match part {
            Component::Normal(_) => has_name = true,
            Component::CurDir => {}
            Component::ParentDir if has_name => return true,
            Component::ParentDir => parents = parents.saturating_add(1),
            Component::Prefix(_) | Component::RootDir => return true,
        }
    }
    parents > depth
}
