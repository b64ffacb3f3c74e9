//! Lifecycle of a session and its tree: continue, background, close, cancel, delete, detach.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use subtend_journal::ReadError;
use subtend_session::command::Command;
use subtend_session::ids::{CallId, RunKey, SessionId, Text};
use subtend_session::index::Head;
use subtend_session::outcome::Initiator;
use subtend_session::place::{BranchKind, Owner};
use subtend_session::record::From;

use super::{BranchOptions, Control, ControlError, Input, SendError, SessionHandle, Stopped, WaitError};
use crate::answer::Receipt;
use crate::calls::tool_directory::remove_worktrees;
use crate::recovery::restores::erase;

/// The default message that continues an ended session.
pub const CONTINUE_TEXT: &str = "Continue your previous work.";
/// Maximum length in bytes of a detached session's title, which is the start of its prompt.
const MAX_TITLE_BYTES: usize = 80;
/// Maximum number of searches of a tree for runs that were opened during its cancel.
const MAX_ROUNDS: usize = 16;
/// Time that a forced delete waits beyond the grace, for the store and for actor restarts.
const DELETE_MARGIN: Duration = Duration::from_secs(60);

impl SessionHandle {
    /// Returns the child with this short name.
    /// # Errors
    /// The error of reading the journal.
    pub fn child(&self, short: &str) -> Result<Option<Self>, ReadError> {
        for child in self.sessions.log.journal.children(self.id)? {
            if self.sessions.log.journal.head(child)?.is_some_and(|head| &*head.short.0 == short) {
                return Ok(Some(self.of_tree(child)));
            }
        }
        Ok(None)
    }

    pub(crate) fn of_tree(&self, id: SessionId) -> Self {
        Self { sessions: Arc::clone(&self.sessions), id, root: self.root }
    }

    /// Continues the session after any outcome, with its whole context. The new run has the session's turn limit unless
    /// [`Input::turns`](super::Input::turns) sets another.
    /// # Errors, cancel safety
    /// As [`SessionHandle::send`].
    pub async fn continue_with(&self, text: Option<&str>) -> Result<Receipt, SendError> {
        self.continuation(text).send().await
    }

    /// Builds the input of [`SessionHandle::continue_with`], such as one with a key.
    pub fn continuation(&self, text: Option<&str>) -> Input {
        self.input(text.unwrap_or(CONTINUE_TEXT))
    }

    /// Moves a blocking call to the background: the call returns at once, the task continues, and its end arrives as a message.
    /// # Errors
    /// [`ControlError::Refused`] for a call that does not wait for a task.
    /// # Cancel safety
    /// If the future is dropped, the call may or may not have been moved; a repetition changes nothing.
    pub async fn background(&self, call: CallId) -> Result<Control, ControlError> {
        let (reply, _) = self.order(Command::Background { call }).await?;
        Ok(Control::of(reply))
    }

    /// Closes an idle session: tasks and models can no longer continue it. An input reopens it. A repetition changes nothing.
    ///
    /// The host may then summarise a root session (`Options::summaries`); the close does not wait for that.
    /// # Errors
    /// [`ControlError::Working`] while a run is in flight, [`ControlError::Waiting`] while inputs are queued.
    /// # Cancel safety
    /// If the future is dropped, the session may or may not have been closed.
    pub async fn close(&self) -> Result<(), ControlError> {
        self.order(Command::Close { by: Initiator::Person }).await?;
        self.summarise_closed();
        Ok(())
    }

    /// Cancels every run of this session and of all sessions below it, including detached runs and people's runs.
    /// Returns the number of cancelled runs, not counting those that end with their owner. Queued inputs remain.
    /// # Errors
    /// [`WaitError`], after all reachable runs were notified.
    /// # Cancel safety
    /// If the future is dropped, some runs may not have been cancelled; a repetition notifies the rest.
    /// # Durability
    /// Each cancel is durable when this returns; ends follow within one grace period. After an earlier crash, a run
    /// without an owner, such as a person's run in a branch, ends as lost instead. Its queued inputs are processed.
    pub async fn cancel_tree(&self) -> Result<u32, WaitError> {
        let (mut notified, mut done, mut failed) = (HashSet::new(), 0, None);
        for _ in 0..MAX_ROUNDS {
            let mut unowned_runs = self.unowned_runs().await?;
            unowned_runs.retain(|key| notified.insert(*key));
            if unowned_runs.is_empty() {
                break;
            }
            let cancels = unowned_runs.iter().map(|key| async move {
                let cancel = Command::Cancel { run: Some(key.run), by: Initiator::Person, keeps_queue: true };
                self.of_tree(key.session).control(cancel).await
            });
            for answer in join_all(cancels).await {
                match answer {
                    Ok(Control::Done(_)) => done += 1,
                    Ok(Control::AlreadyEnded(..) | Control::NotFound) => {}
                    Err(error) => failed = Some(error),
                }
            }
        }
        failed.map_or(Ok(done), Err)
    }

    /// Returns the runs in flight of the tree that no other run of the tree owns.
    async fn unowned_runs(&self) -> Result<Vec<RunKey>, WaitError> {
        let in_flight = self.in_flight().await.map_err(|error| match error {
            ControlError::Stopped(stopped) => WaitError::Stopped(stopped),
            ControlError::Working(_)
            | ControlError::Waiting(_)
            | ControlError::NotFound(_)
            | ControlError::Deleted
            | ControlError::Refused(_) => WaitError::Refused(error.to_string()),
        })?;
        let is_unowned = |(key, owner): &(RunKey, Owner)| key.session == self.id || owner.run().is_none();
        Ok(in_flight.into_iter().filter(is_unowned).map(|(key, _)| key).collect())
    }

    async fn in_flight(&self) -> Result<Vec<(RunKey, Owner)>, ControlError> {
        self.await_settled().await?;
        let mut found = Vec::new();
        for (session, row) in
            self.sessions.log.journal.inflight().map_err(|error| self.sessions.life.read_failed(&error))?
        {
            if row.root == self.root
                && self.contains_session(session).map_err(|error| self.sessions.life.read_failed(&error))?
            {
                found.push((RunKey { session, run: row.run }, row.owner));
            }
        }
        Ok(found)
    }

    /// Returns whether `session`, of the same tree, is this session or below it.
    fn contains_session(&self, session: SessionId) -> Result<bool, ReadError> {
        let mut at = session;
        while at != self.id && self.id != self.root {
            match self.sessions.log.journal.head(at)?.and_then(|head| head.parent) {
                Some(parent) => at = parent,
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    async fn await_settled(&self) -> Result<(), ControlError> {
        let settled = self.sessions.log.journal.settled().await;
        settled.map_err(|poison| ControlError::Stopped(Stopped::Poisoned(poison.to_string())))
    }

    /// Deletes this session and all sessions below it, parents first, and returns their number. They no longer accept anything, listings and exports
    /// omit them, and `compact_store` erases them from the store.
    ///
    /// With `force`, runs in flight are cancelled as by [`SessionHandle::cancel_tree`] and their ends awaited. Services of the host are always ended
    /// and awaited, for at most one grace period.
    /// # Errors
    /// [`ControlError::Working`] if a run is in flight without `force`; then nothing is deleted.
    /// # Cancel safety
    /// Either the whole tree is deleted or none of it: once this session is deleted, all below it count as deleted. A repetition or the next start
    /// completes it.
    /// # Durability
    /// The deletion is durable when this returns.
    pub async fn delete(&self, force: bool) -> Result<u32, ControlError> {
        if force {
            self.cancel_tree().await?;
        } else if let Some((key, _)) = self.runs_without_services().await?.first() {
            return Err(ControlError::Working(format!(
                "run {} of session {} is in flight: wait for its end, or force the deletion, which cancels it (`--force`)",
                key.run, key.session
            )));
        }
        self.end_services().await?;
        if force {
            self.await_ends().await?;
        }
        self.await_settled().await?;
        let (mut deleted, mut deleted_ids) = (0, Vec::new());
        // A branch may be created meanwhile, so this repeats until the whole tree is deleted.
        for _ in 0..MAX_ROUNDS {
            let mut remaining =
                self.sessions_parents_first().map_err(|error| self.sessions.life.read_failed(&error))?;
            remaining.retain(|(_, head)| !head.deleted);
            if remaining.is_empty() {
                break;
            }
            if self.sessions.host.faults.deletes_deepest_first() {
                remaining.reverse();
            }
            let mut has_started_run = false;
            for (id, _) in remaining {
                match self.of_tree(id).order(Command::Delete { by: Initiator::Person }).await {
                    Ok(_) => {
                        deleted += 1;
                        deleted_ids.push(id);
                    }
                    // A run of this session started meanwhile, below a deleted session, and ends with it.
                    Err(ControlError::Working(_)) if id != self.id => has_started_run = true,
                    Err(error) => return Err(error),
                }
            }
            if has_started_run {
                self.cancel_tree().await?;
                self.await_ends().await?;
            }
            self.await_settled().await?;
        }
        erase(self.sessions.environments.home().checkpoints.as_ref(), deleted_ids.clone()).await;
        remove_worktrees(self.sessions.environments.home().worktrees.clone(), deleted_ids).await;
        Ok(deleted)
    }

    /// Returns the runs in flight of the tree, except those of services, which no caller waits for.
    async fn runs_without_services(&self) -> Result<Vec<(RunKey, Owner)>, ControlError> {
        let mut in_flight = self.in_flight().await?;
        in_flight.retain(|(_, owner)| !matches!(owner, Owner::Host(_)));
        Ok(in_flight)
    }

    /// Ends the services of the tree, also one that a close just started: its run would open during the deletion.
    async fn end_services(&self) -> Result<(), ControlError> {
        for (id, _) in self.sessions_parents_first().map_err(|error| self.sessions.life.read_failed(&error))? {
            self.sessions.services.stop(Some(id));
            self.sessions.services.done(Some(id)).await;
        }
        // No caller in this process waits for a service of an earlier process.
        for (key, owner) in self.in_flight().await? {
            if matches!(owner, Owner::Host(_)) {
                let cancel = Command::Cancel { run: Some(key.run), by: Initiator::Host, keeps_queue: true };
                self.of_tree(key.session).control(cancel).await?;
                self.of_tree(key.session).run_ended(key.run).await?;
            }
        }
        Ok(())
    }

    async fn await_ends(&self) -> Result<(), ControlError> {
        let grace = Duration::from_millis(self.sessions.environments.home().limits_body().grace_ms);
        let ends = async {
            for (key, _) in self.in_flight().await? {
                self.of_tree(key.session).run_ended(key.run).await?;
            }
            Ok(())
        };
        let waited = tokio::time::timeout(grace.saturating_mul(2).saturating_add(DELETE_MARGIN), ends).await;
        waited.unwrap_or_else(|_| {
            Err(ControlError::Working(
                "a run of the tree was cancelled and has not ended yet; retry the deletion".to_owned(),
            ))
        })
    }

    fn sessions_parents_first(&self) -> Result<Vec<(SessionId, Head)>, ReadError> {
        let mut found = Vec::new();
        let mut seen = HashSet::new();
        let mut next = vec![self.id];
        while let Some(id) = next.pop() {
            // Visits each once: a damaged store may hold a cycle.
            if seen.insert(id)
                && let Some(head) = self.sessions.log.journal.head(id)?
            {
                next.extend(self.sessions.log.journal.children(id)?);
                found.push((id, head));
            }
        }
        Ok(found)
    }

    /// Starts another agent in a detached session below this one. No run waits for it, only a cancel of the tree ends it, and its end is reported to
    /// this session without waking it. It takes a slot and has a wall-clock limit.
    /// # Errors
    /// [`ControlError::Refused`] for an unknown agent, or if the tree is too deep.
    /// # Cancel safety
    /// If the future is dropped, the session may or may not have been created and started.
    pub async fn detach(&self, agent: &str, prompt: impl Into<Text>) -> Result<Self, ControlError> {
        let (agent, prompt) = (Some(agent.into()), prompt.into());
        let title = title_of(&prompt);
        let options = BranchOptions { kind: BranchKind::Subagent, agent, title, ..BranchOptions::default() };
        let child = self.branch_as(options, false).await?;
        let sent = child.input(prompt).with_sender(From::Host, Owner::Detached { by_host: true }).send().await;
        sent.map(|_| child).map_err(|error| match error {
            SendError::Stopped(stopped) => ControlError::Stopped(stopped),
            SendError::Busy { .. } | SendError::BadInput(_) | SendError::Refused(_) => {
                ControlError::Refused(error.to_string())
            }
        })
    }
}

/// Returns the title of a detached session, so that listings show its task and not the parent's title.
pub(crate) fn title_of(prompt: &Text) -> Option<Text> {
    prompt.get(..prompt.floor_char_boundary(MAX_TITLE_BYTES)).map(Text::from)
}
