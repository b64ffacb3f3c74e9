//! The directory of a session's tools: the workspace, or a worktree, which is created before the first tool runs.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::Value;
use subtend_journal::Journal;
use subtend_models::model::Answer;
use subtend_session::authority::{Access, Authority};
use subtend_session::call::ToolEffect;
use subtend_session::command::CallObstacle;
use subtend_session::ids::{SessionId, Text};
use subtend_session::message::ToolSpec;
use subtend_session::place::Worktree;
use subtend_tools::display::Display;
use subtend_tools::memory_threads::spawn_with_memory;
use subtend_tools::option::ToolOption;
use subtend_tools::tool::{Tool, ToolError, ToolInvocation, ToolOutput};
use subtend_tools::workspace::Workspace;
use subtend_tools::worktree::{WorktreeOrigin, Worktrees, note};
use tokio::sync::OwnedMutexGuard;

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
        let origin = match (worktree.from, &workspace) {
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

    /// Appends a note on the changes in the session's own worktree to the last answer of `session`.
    pub(crate) async fn with_changes_note(&self, session: SessionId, mut answer: Answer) -> Answer {
        let own = self.worktree.is_some_and(|worktree| worktree.of == session);
        let (true, true, Some(worktrees)) = (own, answer.calls.is_empty(), self.worktrees.clone()) else {
            return answer;
        };
        let Some(text) = answer.text.as_ref().filter(|text| !text.trim().is_empty()) else { return answer };
        let changes = async move {
            let turn = worktrees.turn(session).await;
            spawn_with_memory(move || {
                let _turn = turn;
                note(session, &worktrees.changes(session))
            })
            .await
        };
        if let Ok(note) = Box::pin(changes).await {
            answer.text = Some(format!("{}\n\n{note}", text.trim_end()).into());
        }
        answer
    }

    pub(crate) fn wrap_tool(self, tool: Arc<dyn Tool>) -> Arc<dyn Tool> {
        if self.worktree.is_some() { Arc::new(InWorktree { tool, directory: self }) } else { tool }
    }
}

/// Removes the worktrees of deleted sessions. The next start retries those that cannot be removed.
pub(crate) async fn remove_worktrees(worktrees: Option<Arc<Worktrees>>, of: Vec<SessionId>) {
    let Some(worktrees) = worktrees.filter(|_| !of.is_empty()) else { return };
    // A task, so that a caller that disappears does not stop it.
    let removed = tokio::spawn(async move {
        for session in of {
            let (worktrees, turn) = (Arc::clone(&worktrees), worktrees.turn(session).await);
            let removed = spawn_with_memory(move || {
                let _turn = turn;
                if let Err(error) = worktrees.discard(session, None) {
                    tracing::warn!(%session, %error, "cannot remove the worktree of a deleted session; the next start retries");
                }
            });
            // A panic of the task is treated like an error.
            drop(removed.await);
        }
    });
    drop(removed.await);
}

/// Removes worktrees of deleted sessions that remained from an earlier process.
pub(crate) async fn remove_deleted_worktrees(worktrees: Option<Arc<Worktrees>>, journal: &Journal) {
    let is_deleted = |id: &SessionId| journal.head(*id).ok().flatten().is_some_and(|head| head.deleted);
    let list = worktrees.as_ref().and_then(|worktrees| worktrees.list().ok()).unwrap_or_default();
    let left = list.entries.into_iter().map(|entry| entry.session).filter(is_deleted).collect();
    remove_worktrees(worktrees.clone(), left).await;
    let Some(worktrees) = worktrees else { return };
    let removed = spawn_with_memory(move || worktrees.remove_unused_locks()).await;
    if let Err(error) =
        removed.map_err(|error| error.to_string()).and_then(|removed| removed.map_err(|error| error.to_string()))
    {
        tracing::warn!(%error, "cannot remove the locks of removed worktrees; the next start retries");
    }
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
