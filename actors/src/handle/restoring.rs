//! Restoring files together with a rollback or a branch.

use std::sync::Arc;

use subtend_journal::Journal;
use subtend_session::ids::{Hash, RunNo, SessionId};
use subtend_tools::checkpoint::{
    AwaitedRecord, CheckpointError, Checkpoints, Patches, PendingRestore, RestorePlan, Restored,
};
use subtend_tools::memory_threads::spawn_with_memory;
use tokio::sync::{AcquireError, OwnedSemaphorePermit};

use super::{BranchOptions, ControlError, SessionHandle};
use crate::views::checkpoints::{RestorePoint, restore_plan, rolled_back, unreadable, unrestored};

impl SessionHandle {
    /// Returns the file changes that a rollback or a branch would make. They come from the checkpoints of the session and of the runs that it owned;
    /// files that shell commands changed have no checkpoints. Only `with_patch`, the plan has their patch, which takes most of the time.
    /// # Errors
    /// [`ControlError::Refused`] if the host keeps no checkpoints or they cannot be read; [`ControlError::Working`] while a session whose
    /// files would be restored has a run in flight.
    pub async fn restore_plan(&self, point: RestorePoint, with_patch: bool) -> Result<RestorePlan, ControlError> {
        let checkpoints = self.checkpoints()?;
        drop(self.sessions.log.journal.settled().await);
        let (journal, id) = (self.sessions.log.journal.clone(), self.id);
        let permit = self.restore_permit().await;
        let plan = spawn_with_memory(move || {
            let _permit = permit;
            restore_plan(&journal, &checkpoints, (id, point), with_patch.then(Patches::default))
        });
        Ok(plan.await.map_err(|error| unreadable(&error))??.1)
    }

    /// Rolls back as [`SessionHandle::roll_back`] does, and restores the files that the run changed. `shown` is the digest of the plan that a person
    /// confirmed: either all its files are restored or none. If the process is killed, the next start completes or undoes the conversation and the
    /// files together. A repetition restores no file.
    /// # Errors
    /// As [`SessionHandle::roll_back`]; [`ControlError::Refused`] if the plan has changed since, or cannot be carried out.
    /// # Cancel safety
    /// Dropping the future does not stop the rollback once it has begun; before, it may wait for other restores.
    pub async fn roll_back_files(&self, run: Option<RunNo>, shown: Hash) -> Result<(RunNo, Restored), ControlError> {
        let handle = self.clone();
        let awaits = |run| AwaitedRecord::RolledBack(run);
        let order = async move |run: RunNo| handle.roll_back(Some(run)).await;
        match self.restoring(RestorePoint::Run(run), awaits, shown, order).await {
            Err(error @ ControlError::Refused(_)) => match self.restored_before(run).await? {
                Some(run) => Ok((run, Restored::default())),
                None => Err(error),
            },
            done => done,
        }
    }

    /// Returns the run if it is rolled back already and no file is left to restore, so that a repetition with its outdated plan succeeds.
    async fn restored_before(&self, run: Option<RunNo>) -> Result<Option<RunNo>, ControlError> {
        let checkpoints = self.checkpoints()?;
        let (journal, id) = (self.sessions.log.journal.clone(), self.id);
        let permit = self.restore_permit().await;
        let found = spawn_with_memory(move || {
            let _permit = permit;
            let (run, plan) = restore_plan(&journal, &checkpoints, (id, RestorePoint::Run(run)), None)?;
            let is_done = plan.changes.is_empty() && plan.conflicts.is_empty();
            let rolled_back = rolled_back(&journal, id).map_err(|error| unreadable(&error))?;
            Ok(Some(run).filter(|run| is_done && rolled_back.contains(run)))
        });
        found.await.map_err(|error| unreadable(&error))?
    }

    /// Branches as [`SessionHandle::branch`] does, and restores the files to their state at the message. See [`SessionHandle::roll_back_files`].
    /// # Errors
    /// As [`SessionHandle::branch`] and [`SessionHandle::roll_back_files`].
    /// # Cancel safety
    /// As [`SessionHandle::roll_back_files`].
    pub async fn branch_files(
        &self,
        options: BranchOptions,
        shown: Hash,
    ) -> Result<(SessionHandle, Restored), ControlError> {
        let id: SessionId = options.id.unwrap_or_else(|| self.sessions.host.ids.session());
        let (handle, point) = (self.clone(), RestorePoint::Message(options.at));
        let order = async move |_| handle.branch(BranchOptions { id: Some(id), ..options }).await;
        self.restoring(point, move |_| AwaitedRecord::Branch(id), shown, order).await
    }

    /// Records the restore, lets `order` decide, and restores the files if the decision is in the journal.
    async fn restoring<T: Send + 'static, F>(
        &self,
        point: RestorePoint,
        awaits: impl Fn(RunNo) -> AwaitedRecord + Send + 'static,
        shown: Hash,
        order: impl FnOnce(RunNo) -> F + Send + 'static,
    ) -> Result<(T, Restored), ControlError>
    where
        F: Future<Output = Result<T, ControlError>> + Send + 'static,
    {
        let checkpoints = self.checkpoints()?;
        drop(self.sessions.log.journal.settled().await);
        let (journal, id, of) = (self.sessions.log.journal.clone(), self.id, checkpoints.clone());
        // Before the task starts, so that a caller that disappears while it waits leaves nothing behind.
        let permit = self.restore_permit().await;
        // Runs in a task, so that a caller that disappears does not leave the restore half done.
        let task = self.sessions.life.tasks.spawn(async move {
            let _permit = permit;
            let recorded = spawn_with_memory(move || record(&journal, &of, (id, point), shown, &awaits));
            let (run, awaits, pending) = recorded.await.map_err(|error| unreadable(&error))??;
            let order = order(run);
            let done = order.await;
            let Some(pending) = pending else { return Ok((done?, Restored::default())) };
            let done = match done {
                Ok(done) => done,
                // The next start finds out whether the decision is in the journal.
                Err(error @ ControlError::Stopped(_)) => return Err(error),
                Err(error) => {
                    let withdrawn = spawn_with_memory(move || checkpoints.withdraw(&pending));
                    if let Err(left) = withdrawn.await.map_err(|left| left.to_string()).and_then(|done| done.map_err(|left| left.to_string()))
                    {
                        tracing::warn!(session = %id, error = left, "cannot remove a refused restore; the next start removes it");
                    }
                    return Err(error);
                }
            };
            let restored = spawn_with_memory(move || checkpoints.perform(pending)).await;
            let restored = restored.map_err(|error| unreadable(&error))?;
            Ok((done, restored.map_err(|error| after_record(awaits, &error))?))
        });
        task.await.map_err(|error| unreadable(&error))?
    }

    /// Waits for a permit to plan and perform one restore: a plan reads the records of a whole tree. Activations need other permits, because
    /// a restore waits for an activation.
    async fn restore_permit(&self) -> Result<OwnedSemaphorePermit, AcquireError> {
        // The semaphore is never closed.
        Arc::clone(&self.sessions.restores).acquire_owned().await
    }

    fn checkpoints(&self) -> Result<Checkpoints, ControlError> {
        let none = || ControlError::Refused("this host keeps no checkpoints, so no file can be restored".to_owned());
        self.sessions.environments.home().checkpoints.clone().ok_or_else(none)
    }
}

/// Plans a restore and records it. Files are read without excluding writes: if a session writes one meanwhile, the restore is planned again. Blocks.
fn record(
    journal: &Journal,
    checkpoints: &Checkpoints,
    of: (SessionId, RestorePoint),
    shown: Hash,
    awaits: &dyn Fn(RunNo) -> AwaitedRecord,
) -> Result<(RunNo, AwaitedRecord, Option<PendingRestore>), ControlError> {
    const MAX_PLANS: usize = 3;
    for _ in 0..MAX_PLANS {
        let start = checkpoints.begin_plan().map_err(|error| unreadable(&error))?;
        let (run, plan) = restore_plan(journal, checkpoints, of, None)?;
        let awaits = awaits(run);
        match checkpoints.intend((of.0, run), (plan, shown), awaits, start) {
            Err(CheckpointError::Stale) => {}
            recorded => return Ok((run, awaits, recorded.map_err(|error| unrestored(&error))?)),
        }
    }
    Err(unrestored(&CheckpointError::Stale))
}

/// Returns the error for a change that is in the journal, but whose files are not restored.
fn after_record(awaits: AwaitedRecord, error: &CheckpointError) -> ControlError {
    let did = match awaits {
        AwaitedRecord::RolledBack(run) => format!("run {run} was rolled back"),
        AwaitedRecord::Branch(branch) => format!("the branch {branch} was created"),
    };
    ControlError::Refused(format!("{did}, but its files were not restored: {error}"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use subtend_session::ids::Seq;
    use tokio::time::timeout;

    use super::*;
    use crate::{OpenOptions, Runtime};

    /// Attack: many clients restore files at a time, or leave while they wait, and each plan reads the records of a tree. The control: with a
    /// permit, each is planned.
    #[tokio::test]
    async fn restores_wait_for_a_permit() {
        let dir = tempfile::tempdir().expect("a directory");
        let model = subtend_models::closure::fn_model("x", |_, _| std::future::pending());
        let runtime = Runtime::builder().model(Arc::new(model)).checkpoints(Checkpoints::new(dir.path()));
        let runtime = runtime.start().await.expect("a runtime");
        let session = runtime.open(OpenOptions::agent("general")).expect("a session");
        let (point, other) = (RestorePoint::Run(None), Hash::of(b"another"));
        let branch = || BranchOptions::at(Seq(1));
        let limit = Duration::from_millis(50);
        let all = session.sessions.restores.acquire_many(4).await.expect("all permits");
        let tasks = session.sessions.life.tasks.len();
        assert!(timeout(limit, session.restore_plan(point, false)).await.is_err());
        assert!(timeout(limit, session.roll_back_files(None, other)).await.is_err());
        assert!(timeout(limit, session.branch_files(branch(), other)).await.is_err());
        assert!(timeout(limit, session.restored_before(None)).await.is_err());
        assert_eq!(session.sessions.life.tasks.len(), tasks, "a client that left is still waited for");
        drop(all);
        let limit = Duration::from_secs(60);
        assert!(
            timeout(limit, session.restore_plan(point, false)).await.expect("a permit").expect("a plan").is_empty()
        );
        let stale = timeout(limit, session.roll_back_files(None, other)).await.expect("a permit");
        assert!(matches!(stale, Err(ControlError::Refused(_))), "{stale:?}");
        let stale = timeout(limit, session.branch_files(branch(), other)).await.expect("a permit");
        assert!(matches!(stale, Err(ControlError::Refused(_))));
    }
}
