//! Worktrees of a session and its descendants: listing, diff, merge, keep and discard.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use subtend_journal::{Journal, ReadError};
use subtend_session::ids::{RunNo, SessionId};
use subtend_session::record::Record;
use subtend_tools::memory_threads::spawn_with_memory;
use subtend_tools::worktree::{
    KeptBranch, Merged, WorktreeChanges, WorktreeEntry, WorktreeError, WorktreeList, Worktrees,
};

use super::{ControlError, SessionHandle};
use crate::calls::tool_directory::running_in;
use crate::views::checkpoints::below;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionWorktree {
    pub entry: WorktreeEntry,
    pub path: PathBuf,
    /// The run in flight that works there, and its session: the owner of the worktree or a descendant.
    pub busy: Option<(SessionId, RunNo)>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeWorktrees {
    pub worktrees: Vec<SessionWorktree>,
    /// Sessions whose worktree cannot be read, and why.
    pub damaged: Vec<(SessionId, String)>,
}

impl SessionHandle {
    /// Returns the worktrees of the session and its descendants.
    /// # Errors
    /// [`ControlError::Refused`] if the directory of the worktrees cannot be read.
    pub async fn worktrees(&self) -> Result<TreeWorktrees, ControlError> {
        let root = self.root;
        self.read_worktrees(move |worktrees, journal, id| {
            let tree: BTreeSet<SessionId> =
                below(journal, id).map_err(|error| cannot_use(&error))?.into_iter().collect();
            let WorktreeList { entries, damaged } = worktrees.list().map_err(control_error)?;
            let mut found = TreeWorktrees::default();
            for entry in entries {
                if tree.contains(&entry.session) {
                    let busy = busy(journal, (root, entry.session)).map_err(|error| cannot_use(&error))?;
                    found.worktrees.push(SessionWorktree { path: worktrees.path(entry.session), entry, busy });
                }
            }
            let damaged = damaged.into_iter().filter(|(id, _)| tree.contains(id));
            found.damaged.extend(damaged.map(|(id, error)| (id, damage_message(worktrees, id, &error))));
            Ok(found)
        })
        .await
    }

    /// Returns the worktree of the session; `None` if it works elsewhere, or the worktree is gone.
    /// # Errors
    /// As [`SessionHandle::worktrees`].
    pub async fn worktree(&self) -> Result<Option<SessionWorktree>, ControlError> {
        let root = self.root;
        self.read_worktrees(move |worktrees, journal, id| {
            let entry = worktrees.entry(id);
            let entry = entry.map_err(|error| ControlError::Refused(damage_message(worktrees, id, &error)))?;
            let Some(entry) = entry else { return Ok(None) };
            let busy = busy(journal, (root, id)).map_err(|error| cannot_use(&error))?;
            Ok(Some(SessionWorktree { path: worktrees.path(id), entry, busy }))
        })
        .await
    }

    /// Commits the changes in the worktree of the session on its branch. Returns what `show` makes of them and of at most `most` bytes of
    /// their patch. `show` runs with them on a thread that may block, so that few large results are made at a time.
    /// # Errors
    /// [`ControlError::NotFound`] if it has no worktree; [`ControlError::Refused`] if its changes cannot be read.
    pub async fn worktree_diff<T: Send + 'static>(
        &self,
        most: u64,
        show: impl FnOnce(WorktreeChanges, Vec<u8>) -> T + Send + 'static,
    ) -> Result<T, ControlError> {
        let work = move |worktrees: &Worktrees, _: &Journal, id| {
            let (changes, patch) = worktrees.diff_start(id, most).map_err(control_error)?;
            Ok(show(changes, patch))
        };
        self.on_worktree(work).await
    }

    /// Merges the changes in the worktree of the session into the files of its workspace: all files or none. `shown` is the tip of the
    /// reviewed diff. A repetition changes nothing.
    /// # Errors
    /// [`ControlError::Working`] while a run works there; [`ControlError::NotFound`] if it has no worktree; [`ControlError::Refused`] if the
    /// worktree changed since, or a file cannot be merged.
    /// # Cancel safety
    /// Dropping the future does not stop the merge once it has begun; before, it may wait for other work on worktrees.
    pub async fn merge_worktree(&self, shown: String) -> Result<Merged, ControlError> {
        self.on_idle_worktree(move |worktrees, journal, id| match worktrees.merge(id, &shown) {
            Err(error @ WorktreeError::Missing(_)) => Err(match kept_branch(worktrees, journal, id) {
                Some(branch) => ControlError::NotFound(format!(
                    "session {id} has no worktree any more: its changes are kept on a branch. {}",
                    branch.to_use()
                )),
                None => control_error(error),
            }),
            merged => merged.map_err(control_error),
        })
        .await
    }

    /// Commits the changes on the branch of the worktree and removes the worktree. A repetition returns the same branch.
    /// # Errors, cancel safety
    /// As [`SessionHandle::merge_worktree`], if `shown` is given.
    pub async fn keep_worktree(&self, shown: Option<String>) -> Result<KeptBranch, ControlError> {
        let keep = move |worktrees: &Worktrees, journal: &Journal, id| match worktrees.keep(id, shown.as_deref()) {
            Ok(branch) => Ok(branch),
            Err(error @ WorktreeError::Missing(_)) => {
                kept_branch(worktrees, journal, id).ok_or_else(|| control_error(error))
            }
            Err(error) => Err(control_error(error)),
        };
        self.on_idle_worktree(keep).await
    }

    /// Removes the worktree of the session and its branch with all changes. A repetition changes nothing.
    /// # Errors, cancel safety
    /// As [`SessionHandle::merge_worktree`], if `shown` is given; without it, a half-created worktree is removed too.
    /// [`ControlError::Refused`] if the worktree was removed and its branch kept.
    pub async fn discard_worktree(&self, shown: Option<String>) -> Result<(), ControlError> {
        self.on_idle_worktree(move |worktrees, journal, id| match kept_branch(worktrees, journal, id) {
            Some(branch) => Err(ControlError::Refused(format!(
                "the worktree of session {id} was removed before, and its changes are kept on a branch: {} deletes it",
                branch.to_delete()
            ))),
            None => worktrees.discard(id, shown.as_deref()).map_err(control_error),
        })
        .await
    }

    async fn on_idle_worktree<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Worktrees, &Journal, SessionId) -> Result<T, ControlError> + Send + 'static,
    ) -> Result<T, ControlError> {
        let root = self.root;
        self.on_worktree(move |worktrees, journal, id| {
            if let Some((session, run)) = busy(journal, (root, id)).map_err(|error| cannot_use(&error))? {
                let why = "works in that worktree: wait for its end, or cancel it";
                return Err(ControlError::Working(format!("run {run} of session {} {why}", session.short().0)));
            }
            work(worktrees, journal, id)
        })
        .await
    }

    /// Runs a read of the records of worktrees, which needs neither git nor their locks. Without worktrees, returns the default.
    async fn read_worktrees<T: Default + Send + 'static>(
        &self,
        read: impl FnOnce(&Worktrees, &Journal, SessionId) -> Result<T, ControlError> + Send + 'static,
    ) -> Result<T, ControlError> {
        let Some(worktrees) = self.sessions.environments.home().worktrees.clone() else { return Ok(T::default()) };
        drop(self.sessions.log.journal.settled().await);
        let id = self.id;
        self.sessions.log.read_whole(move |journal| read(&worktrees, journal, id)).await
    }

    /// Runs `work` on a thread that may wait for git, or for another process that locked the worktree. Other work of this process waits
    /// before, without a thread, so that no number of requests occupies all threads.
    async fn on_worktree<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Worktrees, &Journal, SessionId) -> Result<T, ControlError> + Send + 'static,
    ) -> Result<T, ControlError> {
        let none = || ControlError::NotFound(format!("session {} has no worktree: this host keeps none", self.id));
        let worktrees = self.sessions.environments.home().worktrees.clone().ok_or_else(none)?;
        drop(self.sessions.log.journal.settled().await);
        let (journal, id) = (self.sessions.log.journal.clone(), self.id);
        let turn = worktrees.turn(id).await;
        // The semaphore is never closed.
        let permit = Arc::clone(&self.sessions.worktree_work).acquire_owned().await;
        // The work keeps both if the caller is dropped. The result keeps them until the caller takes it, because it may be large.
        let work = move || (work(&worktrees, &journal, id), (turn, permit));
        match spawn_with_memory(work).await {
            Ok((done, _held)) => done,
            Err(error) => Err(cannot_use(&error)),
        }
    }
}

/// Returns a run in flight that works in the worktree of session `of`, in the tree of `root`.
fn busy(journal: &Journal, (root, of): (SessionId, SessionId)) -> Result<Option<(SessionId, RunNo)>, ReadError> {
    Ok(running_in(journal, root, of)?.into_iter().next())
}

/// Returns the branch that is left of the worktree of a session, if its repository can be read.
fn kept_branch(worktrees: &Worktrees, journal: &Journal, session: SessionId) -> Option<KeptBranch> {
    let Record::SessionCreated(created) = journal.first_record(session).ok()?.record else { return None };
    let workspace = created.worktree.filter(|worktree| worktree.of == session).map(|_| created.workspace)?;
    worktrees.kept_branch(session, Path::new(&*workspace)).ok().flatten()
}

fn damage_message(worktrees: &Worktrees, session: SessionId, error: &WorktreeError) -> String {
    format!("{error}. Run `subtend doctor` to see what to remove from {}", worktrees.path(session).display())
}

fn cannot_use(error: &dyn std::fmt::Display) -> ControlError {
    ControlError::Refused(format!("the worktrees cannot be used: {error}"))
}

fn control_error(error: WorktreeError) -> ControlError {
    let why = error.to_string();
    if matches!(error, WorktreeError::Missing(_)) { ControlError::NotFound(why) } else { ControlError::Refused(why) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::mpsc;
    use tokio::time::timeout;

    use super::*;
    use crate::{OpenOptions, Runtime};

    /// Attack: clients request large patches at once, and the finished ones wait for their tasks. The control: the next one is made when the
    /// first is taken.
    #[tokio::test]
    async fn result_of_worktree_work_keeps_its_permit() {
        let dir = tempfile::tempdir().expect("a directory");
        let model = subtend_models::closure::fn_model("x", |_, _| std::future::pending());
        let runtime = Runtime::builder().model(Arc::new(model)).worktrees(Worktrees::new(dir.path(), None));
        let runtime = runtime.start().await.expect("a runtime");
        let session = runtime.open(OpenOptions::agent("general")).expect("a session");
        let (begin, mut begun) = mpsc::channel(1);
        let (go, may_end) = std::sync::mpsc::channel::<()>();
        let mut first = Box::pin(session.on_worktree(move |_, _, _| {
            begin.blocking_send(()).expect("the test waits");
            may_end.recv().expect("the test ends it");
            Ok(())
        }));
        tokio::select! {
            _ = &mut first => panic!("it was not allowed to end"),
            begun = begun.recv() => begun.expect("it began"),
        }
        go.send(()).expect("it waits");
        let mut second = Box::pin(session.on_worktree(|_, _, _| Ok(())));
        timeout(Duration::from_secs(1), &mut second).await.expect_err("the first one was not taken");
        first.await.expect("no error");
        timeout(Duration::from_secs(60), second).await.expect("control: its turn").expect("no error");
    }
}
