//! The life of a session and of the tree below it: going on, detaching, cancelling all, closing, deleting.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use subtend_journal::ReadError;
use subtend_session::command::Command;
use subtend_session::ids::{CallId, RunKey, SessionId, Text};
use subtend_session::index::Head;
use subtend_session::outcome::By;
use subtend_session::place::{BranchKind, Owner};
use subtend_session::record::From;

use super::{BranchOptions, Control, ControlError, SendError, SessionHandle, Stopped, WaitError};
use crate::answer::Receipt;

/// What an ended session is told that is to go on, where nothing else is said (B6).
const GO_ON: &str = "Continue your previous work.";
/// Bytes of the title of a detached session: the start of its prompt.
const TITLE: usize = 80;
/// How often a tree is looked at for runs that were opened while it was cancelled.
const ROUNDS: usize = 16;
/// What a forced delete waits for ends beyond their grace: for the store, and for actors that are restarted meanwhile.
const PATIENCE: Duration = Duration::from_secs(60);

impl SessionHandle {
    /// A child of this session, by its short name.
    ///
    /// # Errors
    /// When the journal cannot be read.
    pub fn child(&self, short: &str) -> Result<Option<Self>, ReadError> {
        for kid in self.sessions.log.journal.kids(self.id)? {
            if self.sessions.log.journal.head(kid)?.is_some_and(|head| &*head.short.0 == short) {
                return Ok(Some(self.of_tree(kid)));
            }
        }
        Ok(None)
    }

    pub(crate) fn of_tree(&self, id: SessionId) -> Self {
        Self { sessions: Arc::clone(&self.sessions), id, root: self.root }
    }

    /// Has the session go on, however its last run ended: everything that it did is in context. Its new run may take as many
    /// turns as any; [`Input::turns`](super::Input::turns) says otherwise.
    ///
    /// # Errors
    /// As [`SessionHandle::send`].
    ///
    /// # Cancel safety
    /// As [`SessionHandle::send`].
    ///
    /// # Durability
    /// As [`SessionHandle::send`].
    pub async fn continue_with(&self, text: Option<&str>) -> Result<Receipt, SendError> {
        self.input(text.unwrap_or(GO_ON)).send().await
    }

    /// Moves a call that waits for a task to the background: it answers at once, the task goes on, and its end comes as a
    /// message.
    ///
    /// # Errors
    /// [`ControlError::Refused`] for a call that waits for no task.
    ///
    /// # Cancel safety
    /// Dropping the future leaves open whether it is moved. Doing it again changes nothing.
    ///
    /// # Durability
    /// The answer of the call is durable when this returns.
    pub async fn background(&self, call: CallId) -> Result<Control, ControlError> {
        let (reply, _) = self.order(Command::Background { call }).await?;
        Ok(Control::of(reply))
    }

    /// Closes a quiet session: tasks and models cannot have it go on any more. An input reopens it. Closing twice is as once.
    ///
    /// A root session is then summed up, where the host does that (`Options::summaries`); the close waits for none of it.
    ///
    /// # Errors
    /// [`ControlError::Working`] while a run is in flight, [`ControlError::Waiting`] while inputs wait.
    ///
    /// # Cancel safety
    /// Dropping the future leaves open whether it is closed.
    ///
    /// # Durability
    /// The close is durable when it is returned.
    pub async fn close(&self) -> Result<(), ControlError> {
        self.order(Command::Close { by: By::Person }).await?;
        self.summed_up_aside();
        Ok(())
    }

    /// Cancels every run of this session and of all below it, detached ones and persons' own included, and tells how many
    /// were told; those that these own end with them. Inputs that wait stay where they are.
    ///
    /// # Errors
    /// [`WaitError`], after all that could be told were.
    ///
    /// # Cancel safety
    /// Dropping the future leaves open which runs are cancelled. Doing it again tells the rest.
    ///
    /// # Durability
    /// Each cancel is durable when this returns; ends follow within one grace. A host that dies before leaves it open for runs that
    /// nothing below this session owns (a person's in a branch): one that had not heard ends as lost, and what waits behind it goes on.
    pub async fn cancel_tree(&self) -> Result<u32, WaitError> {
        let (mut told, mut done, mut failed) = (HashSet::new(), 0, None);
        for _ in 0..ROUNDS {
            let mut tops = self.tops().await?;
            tops.retain(|key| told.insert(*key));
            if tops.is_empty() {
                break;
            }
            let cancels = tops.iter().map(|key| async move {
                let cancel = Command::Cancel { run: Some(key.run), by: By::Person, queue_stands: true };
                self.of_tree(key.session).control(cancel).await
            });
            for answer in join_all(cancels).await {
                match answer {
                    Ok(Control::Done(_)) => done += 1,
                    Ok(Control::AlreadyEnded(_) | Control::NotFound) => {}
                    Err(error) => failed = Some(error),
                }
            }
        }
        failed.map_or(Ok(done), Err)
    }

    /// Runs in flight of this session and of all below it that no other of these runs owns.
    async fn tops(&self) -> Result<Vec<RunKey>, WaitError> {
        let in_flight = self.in_flight().await.map_err(|error| match error {
            ControlError::Stopped(stopped) => WaitError::Stopped(stopped),
            ControlError::Working(_)
            | ControlError::Waiting(_)
            | ControlError::NotFound(_)
            | ControlError::Deleted
            | ControlError::Refused(_) => WaitError::Refused(error.to_string()),
        })?;
        let top = |(key, owner): &(RunKey, Owner)| key.session == self.id || owner.run().is_none();
        Ok(in_flight.into_iter().filter(top).map(|(key, _)| key).collect())
    }

    /// Runs in flight of this session and of all below it, each with its owner.
    async fn in_flight(&self) -> Result<Vec<(RunKey, Owner)>, ControlError> {
        self.all_settled().await?;
        let mut found = Vec::new();
        for (session, row) in self.sessions.log.journal.inflight().map_err(|error| self.sessions.life.unread(&error))? {
            if row.root == self.root && self.is_above(session).map_err(|error| self.sessions.life.unread(&error))? {
                found.push((RunKey { session, run: row.run }, row.owner));
            }
        }
        Ok(found)
    }

    /// Whether `session`, which is of the same tree, is this one or stands below it.
    fn is_above(&self, session: SessionId) -> Result<bool, ReadError> {
        let mut at = session;
        while at != self.id && self.id != self.root {
            match self.sessions.log.journal.head(at)?.and_then(|head| head.parent) {
                Some(parent) => at = parent,
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    async fn all_settled(&self) -> Result<(), ControlError> {
        let settled = self.sessions.log.journal.settled().await;
        settled.map_err(|poison| ControlError::Stopped(Stopped::Poisoned(poison.to_string())))
    }

    /// Deletes this session and all below it, parents before their children, and returns how many. They take nothing any more, are in no
    /// listing and no export, and `compact_store` erases them from the store.
    ///
    /// With `force` what is in flight is cancelled first, as by [`SessionHandle::cancel_tree`], and its end is waited for. Services of
    /// the host (titles, summaries) are ended and waited for in any case, for a grace at most.
    ///
    /// # Errors
    /// [`ControlError::Working`] where a run is in flight and not forced; then nothing is deleted.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the whole tree deleted or all of it as it was: with the deletion of this session, all below it
    /// count as deleted. Doing it again, or the next start of a runtime, completes it.
    ///
    /// # Durability
    /// The deletion is durable when this returns.
    pub async fn delete(&self, force: bool) -> Result<u32, ControlError> {
        if force {
            self.cancel_tree().await?;
        } else if let Some((key, _)) = self.others().await?.first() {
            return Err(ControlError::Working(format!(
                "run {} of session {} is in flight: wait for its end, or let the deletion cancel it (force)",
                key.run, key.session
            )));
        }
        self.without_services().await?;
        if force {
            self.ended_below().await?;
        }
        self.all_settled().await?;
        let mut deleted = 0;
        // A branch may be born while others are deleted: checked again until nothing is left.
        for _ in 0..ROUNDS {
            let mut left = self.parents_first().map_err(|error| self.sessions.life.unread(&error))?;
            left.retain(|(_, head)| !head.deleted);
            if left.is_empty() {
                break;
            }
            let mut begun = false;
            for (id, _) in left {
                match self.of_tree(id).order(Command::Delete { by: By::Person }).await {
                    Ok(_) => deleted += 1,
                    // Its run began meanwhile, below a session that is deleted: it ends with it.
                    Err(ControlError::Working(_)) if id != self.id => begun = true,
                    Err(error) => return Err(error),
                }
            }
            if begun {
                self.cancel_tree().await?;
                self.ended_below().await?;
            }
            self.all_settled().await?;
        }
        Ok(deleted)
    }

    /// Runs in flight of this session and of all below it, but for those of the host's services: nobody waits for these.
    async fn others(&self) -> Result<Vec<(RunKey, Owner)>, ControlError> {
        let mut in_flight = self.in_flight().await?;
        in_flight.retain(|(_, owner)| !matches!(owner, Owner::Host(_)));
        Ok(in_flight)
    }

    /// Ends the services of this session and of all below it. One that a close has just put to work has no run yet that could be
    /// found and cancelled: it would open it in the middle of the deletion.
    async fn without_services(&self) -> Result<(), ControlError> {
        for (id, _) in self.parents_first().map_err(|error| self.sessions.life.unread(&error))? {
            self.sessions.services.stop(Some(id));
            self.sessions.services.done(Some(id)).await;
        }
        // A service of an earlier process has nobody here whom it works for.
        for (key, owner) in self.in_flight().await? {
            if matches!(owner, Owner::Host(_)) {
                let cancel = Command::Cancel { run: Some(key.run), by: By::Host, queue_stands: true };
                self.of_tree(key.session).control(cancel).await?;
                self.of_tree(key.session).run_ended(key.run).await?;
            }
        }
        Ok(())
    }

    /// Waits until the runs that are in flight now have ended: they were cancelled.
    async fn ended_below(&self) -> Result<(), ControlError> {
        let grace = Duration::from_millis(self.sessions.environments.home().limits_body().grace_ms);
        let ends = async {
            for (key, _) in self.in_flight().await? {
                self.of_tree(key.session).run_ended(key.run).await?;
            }
            Ok(())
        };
        let waited = tokio::time::timeout(grace.saturating_mul(2).saturating_add(PATIENCE), ends).await;
        waited.unwrap_or_else(|_| Err(ControlError::Working("it was cancelled and has not ended yet".to_owned())))
    }

    /// This session and all below it, each parent before its children.
    fn parents_first(&self) -> Result<Vec<(SessionId, Head)>, ReadError> {
        let mut found = Vec::new();
        let mut seen = HashSet::new();
        let mut next = vec![self.id];
        while let Some(id) = next.pop() {
            // Each once: a damaged store may hold a ring.
            if seen.insert(id)
                && let Some(head) = self.sessions.log.journal.head(id)?
            {
                next.extend(self.sessions.log.journal.kids(id)?);
                found.push((id, head));
            }
        }
        Ok(found)
    }

    /// Has another agent work beside this session, in a session of its own below it: nobody waits for it, no cancel but that
    /// of the tree ends it, and its end is told to this session without waking it. It takes a slot and has a wall-clock cap.
    ///
    /// # Errors
    /// [`ControlError::Refused`] where there is no such agent, or the tree is too deep.
    ///
    /// # Cancel safety
    /// Dropping the future leaves open whether the session is born, and whether it has its prompt.
    ///
    /// # Durability
    /// The prompt is durable when the handle is returned.
    pub async fn detach(&self, agent: &str, prompt: impl Into<Text>) -> Result<Self, ControlError> {
        let (agent, prompt) = (Some(agent.into()), prompt.into());
        // Listings show what it works on, not what the session is about.
        let title = prompt.get(..prompt.floor_char_boundary(TITLE)).map(Text::from);
        let options = BranchOptions { kind: BranchKind::Subagent, agent, title, ..BranchOptions::default() };
        let child = self.branch_as(options, false).await?;
        let sent = child.input(prompt).by(From::Host, Owner::Detached { by_host: true }).send().await;
        sent.map(|_| child).map_err(|error| match error {
            SendError::Stopped(stopped) => ControlError::Stopped(stopped),
            SendError::Busy { .. } | SendError::BadInput(_) | SendError::Refused(_) => {
                ControlError::Refused(error.to_string())
            }
        })
    }
}
