//! Handles for embedders. They are cheap to clone; dropping one, or a wait on one, cancels nothing.
//!
//! Unless a method says otherwise, its results are durable, and dropping the future of a reading method changes nothing.

use std::sync::Arc;

use subtend_session::command::Command;
use subtend_session::effect::Reply;
use subtend_session::ids::{Lsn, RunNo, Seq, SessionId};
use subtend_session::outcome::Initiator;
use tokio::sync::oneshot;

use crate::delivery::commands::handling;
use crate::delivery::inbox::{CommandReply, InboxItem, Probed};
use crate::handle::sessions::SessionServices;
use crate::observe::event::subscription::{Subscription, SubscriptionScope};
use crate::observe::following::Events;
use crate::values::paging;

pub use crate::values::alternatives::{Alternative, Alternatives};
pub use crate::values::control::Control;
pub use crate::values::ended::Ended;
pub use crate::values::error::{ControlError, SendError, Stopped, WaitError};
pub use crate::values::queue_entry::{QueueEntry, QueueKind};
pub use branch::{BranchOptions, Switched};
pub use compaction::CompactedHistory;
pub use input::Input;
pub use life::CONTINUE_TEXT;
pub(crate) use life::title_of;
pub use reload::AgentChanges;
pub use run::RunHandle;
pub use subtend_tools::worktree::KeptBranch;
pub use worktrees::{SessionWorktree, TreeWorktrees};

mod asking;
mod branch;
mod compaction;
mod describe;
mod input;
mod interrupt;
mod life;
mod overriding;
mod queue;
mod reload;
mod restoring;
mod rollback;
mod run;
pub(crate) mod sessions;
mod usage;
mod worktrees;

#[derive(Clone)]
pub struct SessionHandle {
    pub(crate) sessions: Arc<SessionServices>,
    pub(crate) id: SessionId,
    pub(crate) root: SessionId,
}

impl std::fmt::Debug for SessionHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("SessionHandle").field(&self.id).finish()
    }
}

/// Maximum number of times that a lost probe or control is resent: the default restarts of an actor in one window.
const MAX_RETRIES: u32 = 3;

impl SessionHandle {
    pub fn id(&self) -> SessionId {
        self.id
    }

    pub fn is_root(&self) -> bool {
        self.id == self.root
    }

    /// Returns the session's events: its records from `from` on, then live ones. `Seq(1)` is the first; after record `n`, start at `n.next()`.
    pub fn events(&self, from: Seq) -> Events {
        Events::new(Arc::clone(&self.sessions.log), Arc::clone(&self.sessions.life), self.id, self.root, from)
    }

    /// Returns the live events of the whole tree from now on, starting with the text of running streams. See [`Subscription`].
    pub fn watch(&self) -> Subscription {
        self.sessions.log.events.subscribe(SubscriptionScope::Tree(self.root))
    }

    /// Cancels the run in flight and all runs it owns.
    /// # Durability
    /// The cancel is durable when this returns; ends follow within one grace period.
    pub async fn cancel(&self) -> Result<Control, WaitError> {
        // The queued inputs of a dormant run remain: this process does not resume them.
        let keeps_queue = self.sessions.takeover.is_dormant(self.id);
        self.control(Command::Cancel { run: None, by: Initiator::Person, keeps_queue }).await
    }

    pub(crate) async fn control(&self, command: Command) -> Result<Control, WaitError> {
        let answer = self.reply_to(command).await.map_err(WaitError::Stopped)?;
        let (reply, _) = answer.map_err(|rejection| WaitError::Refused(rejection.to_string()))?;
        Ok(Control::of(reply))
    }

    /// Sends an idempotent command and waits until its result is durable.
    pub(crate) async fn order(&self, command: Command) -> Result<(Reply, RunNo), ControlError> {
        let answer = self.reply_to(command).await.map_err(ControlError::Stopped)?;
        answer.map_err(|rejection| ControlError::of(&rejection))
    }

    pub(crate) async fn reply_to(&self, command: Command) -> Result<CommandReply, Stopped> {
        Ok(self.reply_or_resend(command).await?.0)
    }

    /// Returns the reply to `command`, and whether the command was resent. The first one may then have been applied.
    pub(crate) async fn reply_or_resend(&self, command: Command) -> Result<(CommandReply, bool), Stopped> {
        let mut lost = 0;
        let seen = self.sessions.log.journal.head(self.id).ok().flatten().map_or(Seq(0), |head| head.last_seq);
        loop {
            let (reply, answer) = oneshot::channel();
            self.sessions.cells.deliver(self.id, InboxItem::Command(command.clone(), Some(reply)));
            match answer.await {
                Ok(answer) => return Ok((answer, lost > 0)),
                // A panic lost the command or its reply. A session that cannot be activated loses every command.
                Err(_) if lost < MAX_RETRIES && !self.sessions.life.is_stopping() => lost += 1,
                Err(_) => return Err(self.sessions.life.stopped_at(self.id)),
            }
            if let Some(done) = self.effect_since(&command, seen).await {
                return Ok((Ok(done), true));
            }
        }
    }

    /// Returns the effect of a command with a lost reply, from the records after `seen`. Used for commands without a run number, or with a relative
    /// one, which a repetition would apply to the next run.
    async fn effect_since(&self, command: &Command, seen: Seq) -> Option<(Reply, RunNo)> {
        let did = handling(command).evidence?;
        self.sessions.log.journal.settled().await.ok()?;
        let mut next = seen.next();
        paging::walk(&self.sessions.log.journal, self.id, &mut next, |stored| did(&stored.record)).ok()?
    }

    pub(crate) async fn settled(&self, lsn: Lsn) -> Result<(), ControlError> {
        let waited = self.sessions.log.journal.wait(lsn).await;
        waited.map_err(|poison| ControlError::Stopped(Stopped::Poisoned(poison.to_string())))
    }

    /// Returns the session's run `no`, which may not exist.
    pub fn run(&self, no: RunNo) -> RunHandle {
        RunHandle { session: self.clone(), no }
    }

    /// Returns the run in flight, if any.
    /// # Errors
    /// [`WaitError::Stopped`].
    pub async fn current_run(&self) -> Result<Option<RunHandle>, WaitError> {
        let probed = self.probe().await.map_err(WaitError::Stopped)?;
        Ok(probed.in_flight.map(|no| self.run(no)))
    }

    /// Waits until `run` has ended; the same as `run(run).ended()`.
    /// # Errors
    /// As [`RunHandle::ended`].
    pub async fn run_ended(&self, run: RunNo) -> Result<Ended, WaitError> {
        self.run(run).ended().await
    }

    async fn probe(&self) -> Result<Probed, Stopped> {
        let mut lost = 0;
        let probed = loop {
            let (sender, receiver) = oneshot::channel();
            self.sessions.cells.deliver(self.id, InboxItem::Probe(sender));
            match receiver.await {
                Ok(probed) => break probed,
                // A panic of the actor lost the probe. A session that cannot be activated loses every probe.
                Err(_) if lost < MAX_RETRIES && !self.sessions.life.is_stopping() => lost += 1,
                Err(_) => return Err(self.sessions.life.stopped_at(self.id)),
            }
        };
        self.sessions.log.journal.wait(probed.lsn).await.map_err(|poison| Stopped::Poisoned(poison.to_string()))?;
        Ok(probed)
    }
}
