//! The directory of a session's tools: the workspace, or a worktree, which is created before the first tool runs.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::Value;
use subtend_journal::{Journal, ReadError, Stored};
use subtend_models::model::Answer;
use subtend_session::authority::{Access, Authority};
use subtend_session::call::ToolEffect;
use subtend_session::command::CallObstacle;
use subtend_session::ids::{RunNo, Seq, SessionId, Text};
use subtend_session::message::ToolSpec;
use subtend_session::outcome::Outcome;
use subtend_session::place::Worktree;
use subtend_session::record::Record;
use subtend_tools::display::Display;
use subtend_tools::memory_threads::spawn_with_memory;
use subtend_tools::option::ToolOption;
use subtend_tools::tool::{Tool, ToolError, ToolInvocation, ToolOutput};
use subtend_tools::workspace::Workspace;
use subtend_tools::worktree::{Removal, Stage, WorktreeEntry, WorktreeError, WorktreeOrigin, Worktrees, note};
use tokio::sync::OwnedMutexGuard;
use tokio_util::sync::CancellationToken;

use crate::values::paging;
use crate::values::panic::truncate_message;

#[derive(Clone)]
pub(crate) struct ToolDirectory {
    pub(crate) workspace: Arc<Workspace>,
    pub(crate) worktree: Option<Worktree>,
    /// `None` if this host has no worktrees, although the session may come from a host that had some.
    pub(crate) worktrees: Option<Arc<Worktrees>>,
}

impl ToolDirectory {
    /// Returns the directory; creates the worktree if it is missing. Blocks.
    pub(crate) fn open(&self) -> Result<Arc<Workspace>, String> {
        let Some(worktree) = self.worktree else { return Ok(Arc::clone(&self.workspace)) };
        let worktrees = self.worktrees.as_ref().ok_or("this host has no directory for worktrees")?;
        // Resolves the path that was opened: a session in a parent directory may have replaced what is there now.
        let workspace = self.workspace.canonical_path();
        // The worktree of a parent without changes is removed after its run. Then the child starts as the parent did.
        let is_removed = |parent| {
            let is_missing = worktrees.entry(parent).is_ok_and(|entry| entry.is_none());
            let of = workspace.as_ref().ok().filter(|_| is_missing);
            of.is_some_and(|path| worktrees.kept_branch(parent, path).is_ok_and(|branch| branch.is_none()))
        };
        let from = worktree.from.filter(|parent| !is_removed(*parent));
        let origin = match (from, &workspace) {
            (Some(parent), _) => WorktreeOrigin::Worktree(parent),
            (None, Ok(path)) => WorktreeOrigin::Workspace(path),
            (None, Err(_)) if worktrees.path(worktree.of).exists() => WorktreeOrigin::Workspace(self.workspace.path()),
            (None, Err(error)) => return Err(error.to_string()),
        };
        worktrees.open(worktree.of, origin).map_err(|error| error.to_string())
    }

    /// Waits until no other task uses the worktree.
    pub(crate) async fn turn(&self) -> Option<OwnedMutexGuard<()>> {
        match (self.worktree, &self.worktrees) {
            (Some(worktree), Some(worktrees)) => Some(worktrees.turn(worktree.of).await),
            (None, _) | (_, None) => None,
        }
    }

    async fn open_async(self) -> Result<Arc<Workspace>, String> {
        let turn = self.turn().await;
        let opened = spawn_with_memory(move || {
            let _turn = turn;
            self.open()
        })
        .await;
        opened.unwrap_or_else(|error| Err(format!("the worktree cannot be opened: {error}")))
    }

    /// Creates the worktree of a run that starts. If that fails, the run ends: it must not change the shared workspace.
    pub(crate) async fn prepare(&self) -> Result<(), CallObstacle> {
        if self.worktree.is_none() {
            return Ok(());
        }
        // Boxed, as below: every model call holds this future, and few have a worktree.
        let opened = Box::pin(self.clone().open_async()).await;
        opened.map(drop).map_err(|why| CallObstacle::Workspace(truncate_message(&why).into()))
    }

    /// Ends the work in the own worktree of a session after the last answer of its run: a worktree without changes is removed. If `is_noted`,
    /// appends a note on the changes to the answer.
    pub(crate) async fn finish_run(
        &self,
        (root, session): (SessionId, SessionId),
        journal: &Journal,
        is_noted: bool,
        mut answer: Answer,
    ) -> Answer {
        if !answer.calls.is_empty() {
            return answer;
        }
        let Some(note) = self.finish_worktree((root, session), journal, move |id| id != session).await else {
            return answer;
        };
        if let (true, Some(text)) = (is_noted, answer.text.as_ref().filter(|text| !text.trim().is_empty())) {
            answer.text = Some(format!("{}\n\n{note}", text.trim_end()).into());
        }
        answer
    }

    /// Removes the own worktree of a session after the end of a run that gave no last answer, if it has no changes.
    pub(crate) async fn remove_unchanged(&self, ids: (SessionId, SessionId), journal: &Journal) {
        drop(self.finish_worktree(ids, journal, |_| true).await);
    }

    /// Does the work of [`finish_worktree`] for the own worktree of a session; returns `None` without such a worktree.
    async fn finish_worktree(
        &self,
        (root, session): (SessionId, SessionId),
        journal: &Journal,
        is_other: impl Fn(SessionId) -> bool + Send + 'static,
    ) -> Option<Text> {
        self.worktree.filter(|worktree| worktree.of == session)?;
        let worktrees = self.worktrees.clone()?;
        Box::pin(finish_worktree(worktrees, journal.clone(), (root, session), is_other)).await
    }

    pub(crate) fn wrap_tool(self, tool: Arc<dyn Tool>) -> Arc<dyn Tool> {
        if self.worktree.is_some() { Arc::new(InWorktree { tool, directory: self }) } else { tool }
    }
}

/// Removes the worktree of a session if it has no changes, and no run works in it that `is_other` accepts. Returns a note on the changes.
async fn finish_worktree(
    worktrees: Arc<Worktrees>,
    journal: Journal,
    (root, session): (SessionId, SessionId),
    is_other: impl Fn(SessionId) -> bool + Send + 'static,
) -> Option<Text> {
    let turn = worktrees.turn(session).await;
    let finished = spawn_with_memory(move || {
        let _turn = turn;
        // A run that begins later waits for its turn, and gets the worktree re-created.
        let others = || running_in(&journal, root, session).map(|runs| runs.into_iter().any(|(id, _)| is_other(id)));
        let finished = worktrees.finish_run(session, || others().unwrap_or(true));
        if let Ok((_, Removal::Failed(error))) = &finished {
            tracing::warn!(%session, %error, "cannot remove a worktree without changes; `worktree list` retries");
        }
        note(session, &finished)
    });
    finished.await.ok()
}

/// Removes what earlier processes left: worktrees of deleted sessions, those whose removal was interrupted, and those without changes whose
/// run gave no last answer. Other ends have examined theirs. In the background, because hostile repositories take any time; a shutdown leaves
/// the rest.
pub(crate) async fn remove_left_worktrees(worktrees: Arc<Worktrees>, journal: Journal, halt: CancellationToken) {
    let removed = async {
        remove_deleted_worktrees(Arc::clone(&worktrees), &journal).await;
        remove_unchanged_worktrees(worktrees, journal).await;
    };
    halt.run_until_cancelled(removed).await;
}

async fn remove_unchanged_worktrees(worktrees: Arc<Worktrees>, journal: Journal) {
    let ready = worktrees.list().unwrap_or_default().entries.into_iter().filter(|entry| entry.stage == Stage::Ready);
    for session in ready.map(|entry| entry.session) {
        let read = journal.clone();
        // Of a thread, because a session may be large.
        let root = spawn_with_memory(move || {
            let root = read.head(session).ok()??.root;
            has_no_answer(&read, session).then_some(root)
        });
        let Some(root) = root.await.ok().flatten() else { continue };
        drop(finish_worktree(Arc::clone(&worktrees), journal.clone(), (root, session), |_| true).await);
    }
}

/// Returns whether the last run of a session ended without an answer. A session that cannot be read keeps its worktree.
fn has_no_answer(journal: &Journal, session: SessionId) -> bool {
    let mut last = None;
    let ends = |stored: &Stored| {
        if let Record::RunEnded(ended) = &stored.record {
            last = Some(ended.outcome.clone());
        }
        None::<()>
    };
    let read = paging::walk(&journal.without_bodies(), session, &mut Seq(1), ends);
    read.is_ok() && last.is_some_and(|outcome| outcome != Outcome::Completed)
}

/// Returns the runs in flight that work in the worktree of session `of`, in the tree of `root`.
pub(crate) fn running_in(
    journal: &Journal,
    root: SessionId,
    of: SessionId,
) -> Result<Vec<(SessionId, RunNo)>, ReadError> {
    let mut found = Vec::new();
    for (id, row) in journal.inflight()?.into_iter().filter(|(_, row)| row.root == root) {
        let Record::SessionCreated(created) = journal.without_bodies().first_record(id)?.record else { continue };
        if created.worktree.is_some_and(|worktree| worktree.of == of) {
            found.push((id, row.run));
        }
    }
    Ok(found)
}

/// Removes the worktrees of deleted sessions. The next start retries those that cannot be removed.
pub(crate) async fn remove_worktrees(worktrees: Option<Arc<Worktrees>>, of: Vec<SessionId>) {
    let Some(worktrees) = worktrees.filter(|_| !of.is_empty()) else { return };
    // A task, so that a caller that disappears does not stop it.
    let removed = tokio::spawn(async move {
        for session in of {
            remove_left(&worktrees, session, true).await;
        }
    });
    drop(removed.await);
}

/// Removes worktrees of deleted sessions that remained from an earlier process, and those whose removal was interrupted.
async fn remove_deleted_worktrees(worktrees: Arc<Worktrees>, journal: &Journal) {
    let is_deleted = |id: SessionId| journal.head(id).ok().flatten().is_some_and(|head| head.deleted);
    let list = worktrees.list().unwrap_or_default();
    for WorktreeEntry { session, stage, .. } in list.entries {
        let is_deleted = is_deleted(session);
        if is_deleted || matches!(stage, Stage::Discarding | Stage::Keeping) {
            remove_left(&worktrees, session, is_deleted).await;
        }
    }
    let removed = spawn_with_memory(move || worktrees.remove_unused_locks()).await;
    if let Err(error) =
        removed.map_err(|error| error.to_string()).and_then(|removed| removed.map_err(|error| error.to_string()))
    {
        tracing::warn!(%error, "cannot remove the locks of removed worktrees; the next start retries");
    }
}

/// Removes the worktree of a deleted session, or finishes an interrupted removal. A run of a session that is not deleted may have
/// re-created its worktree since the list was read: that one stays.
async fn remove_left(worktrees: &Arc<Worktrees>, session: SessionId, is_deleted: bool) {
    let (worktrees, turn) = (Arc::clone(worktrees), worktrees.turn(session).await);
    let removed = spawn_with_memory(move || {
        let _turn = turn;
        let removed = if is_deleted { worktrees.discard(session, None) } else { worktrees.find(session).map(drop) };
        match removed {
            Ok(()) | Err(WorktreeError::Missing(_) | WorktreeError::Unfinished(_)) => {}
            Err(error) => tracing::warn!(%session, %error, "cannot remove a worktree; the next start retries"),
        }
    });
    // A panic of the task is treated like an error.
    drop(removed.await);
}

struct InWorktree {
    tool: Arc<dyn Tool>,
    directory: ToolDirectory,
}

impl Tool for InWorktree {
    fn spec(&self) -> &ToolSpec {
        self.tool.spec()
    }

    fn full_name(&self) -> &str {
        self.tool.full_name()
    }

    fn effect(&self) -> ToolEffect {
        self.tool.effect()
    }

    fn access(&self, args: Option<&Value>) -> Vec<Access> {
        self.tool.access(args)
    }

    fn exclusion_error(&self, authority: &Authority) -> Option<ToolError> {
        self.tool.exclusion_error(authority)
    }

    fn options(&self) -> &[ToolOption] {
        self.tool.options()
    }

    fn display(&self) -> Display {
        self.tool.display()
    }

    fn render_input(&self, args: &Value) -> Option<Text> {
        self.tool.render_input(args)
    }

    fn render_output(&self, result: &str) -> Option<Text> {
        self.tool.render_output(result)
    }

    fn run(&self, call: ToolInvocation) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
        let (tool, directory) = (Arc::clone(&self.tool), self.directory.clone());
        async move {
            let workspace = directory.open_async().await.map_err(ToolError::failed)?;
            tool.run(ToolInvocation { workspace, ..call }).await
        }
        .boxed()
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    /// The worktree of a parent without changes was removed before its child starts. The control: one that still exists.
    #[test]
    fn child_starts_from_the_workspace_of_an_ended_parent() {
        let dir = tempfile::tempdir().expect("a directory");
        let files = dir.path().join("files");
        std::fs::create_dir(&files).expect("a directory");
        std::fs::write(files.join("a.txt"), "a").expect("a file");
        let worktrees = Arc::new(Worktrees::new(dir.path().join("worktrees"), None));
        let ids =
            [1, 2].map(|n| format!("01920000-0000-7000-8000-00000000000{n}").parse::<SessionId>().expect("an id"));
        let open = |of, from| {
            let workspace = Arc::new(Workspace::open(&files).expect("a workspace"));
            let worktree = Some(Worktree { of, from });
            let opened = ToolDirectory { workspace, worktree, worktrees: Some(Arc::clone(&worktrees)) }.open();
            opened.expect("a worktree").path().to_owned()
        };
        let child = || std::fs::read_to_string(open(ids[1], Some(ids[0])).join("a.txt")).expect("a file");
        assert_eq!(child(), "a");
        worktrees.discard(ids[1], None).expect("removed");
        std::fs::write(open(ids[0], None).join("a.txt"), "of the parent").expect("a file");
        assert_eq!(child(), "of the parent");
    }

    /// A start has read that the removal of a worktree was interrupted, and a run has re-created it since. The controls: an interrupted
    /// removal, and a deleted session.
    #[tokio::test]
    async fn start_keeps_a_worktree_that_a_run_has_re_created() {
        let dir = tempfile::tempdir().expect("a directory");
        let (files, at) = (dir.path().join("files"), dir.path().join("worktrees"));
        std::fs::create_dir(&files).expect("a directory");
        let worktrees = Arc::new(Worktrees::new(&at, None));
        let of: SessionId = "01920000-0000-7000-8000-000000000001".parse().expect("an id");
        for (stage, is_deleted, is_kept) in [("ready", false, true), ("keeping", false, false), ("ready", true, false)]
        {
            let workspace = worktrees.open(of, WorktreeOrigin::Workspace(&files)).expect("a worktree");
            let file = workspace.path().join("a.txt");
            std::fs::write(&file, "work").expect("a file");
            let record = at.join(format!("{of}.json"));
            let text = std::fs::read_to_string(&record).expect("a record");
            assert!(text.contains("\"ready\""), "{text}");
            std::fs::write(&record, text.replace("\"ready\"", &format!("\"{stage}\""))).expect("written");
            remove_left(&worktrees, of, is_deleted).await;
            assert_eq!(file.exists(), is_kept, "{stage}, {is_deleted}");
        }
    }
}
