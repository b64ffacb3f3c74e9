//! Handles: what embedders hold. Cheap to clone; dropping one, or a wait on one, cancels nothing.

use std::sync::Arc;

use subtend_session::command::Command;
use subtend_session::effect::Reply;
use subtend_session::ids::{RunNo, Seq, SessionId, Text};
use subtend_session::outcome::{By, Outcome};
use subtend_session::usage::Usage;
use tokio::sync::oneshot;

use crate::following::Events;
use crate::hub::Hub;
use crate::lane::{Item, Probed};
use crate::subscription::{Scope, Subscription};

pub use error::{SendError, Stopped, WaitError};
pub use input::Input;
pub use run::RunHandle;

mod error;
mod input;
mod run;

/// A session of a runtime.
#[derive(Clone)]
pub struct SessionHandle {
    pub(crate) hub: Arc<Hub>,
    pub(crate) id: SessionId,
    pub(crate) root: SessionId,
}

impl std::fmt::Debug for SessionHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("SessionHandle").field(&self.id).finish()
    }
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Ended {
    /// The run.
    pub run: RunNo,
    /// Its outcome.
    pub outcome: Outcome,
    /// The whole answer of a completed run; partial output of any other.
    pub text: Option<Text>,
    /// Answered turns.
    pub turns: u32,
    /// What it and all that it owned cost.
    pub usage: Usage,
}

/// What a control did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control {
    /// Done, or under way, for this run.
    Done(RunNo),
    /// The run had ended, or its outcome was fixed before.
    AlreadyEnded(Outcome),
    /// There never was such a run.
    NotFound,
}

/// How often a probe that was lost is sent again: as often as an actor is restarted in one window, by default.
const PROBES: u32 = 3;

impl SessionHandle {
    /// The session's id.
    pub fn id(&self) -> SessionId {
        self.id
    }

    /// The session's own events: its records from `from` on, then live. `Seq(1)` is the first; after having seen record `n`,
    /// `n.next()` goes on.
    pub fn events(&self, from: Seq) -> Events {
        Events::new(Arc::clone(&self.hub), self.id, self.root, from)
    }

    /// Events of the session's whole tree from here on, live: the text so far of what streams first. See [`Subscription`].
    pub fn watch(&self) -> Subscription {
        self.hub.events.subscribe(Scope::Tree(self.root))
    }

    /// Cancels the run in flight and all that it owns.
    ///
    /// # Errors
    /// [`WaitError`].
    ///
    /// # Durability
    /// The cancel is durable when the answer is returned; ends follow within one grace.
    pub async fn cancel(&self) -> Result<Control, WaitError> {
        self.control(Command::Cancel { run: None, by: By::Person }).await
    }

    pub(crate) async fn control(&self, command: Command) -> Result<Control, WaitError> {
        let (reply, answer) = oneshot::channel();
        self.hub.deliver(self.id, Item::Command(command, Some(reply)));
        match answer.await.map_err(|_| WaitError::Stopped(self.hub.stopped()))? {
            Ok((Reply::Done(run), _)) => Ok(Control::Done(run)),
            Ok((Reply::AlreadyEnded(_, outcome), _)) => Ok(Control::AlreadyEnded(outcome)),
            Ok((Reply::NotFound | Reply::None | Reply::Accepted { .. }, _)) => Ok(Control::NotFound),
            Err(rejection) => Err(WaitError::Refused(rejection.to_string())),
        }
    }

    /// The session's run `no`, whether there is one or not.
    pub fn run(&self, no: RunNo) -> RunHandle {
        RunHandle { session: self.clone(), no }
    }

    /// The run in flight, if there is one.
    ///
    /// # Errors
    /// [`WaitError::Stopped`].
    ///
    /// # Cancel safety
    /// Safe: dropping the future changes nothing.
    pub async fn current_run(&self) -> Result<Option<RunHandle>, WaitError> {
        let probed = self.probe().await.map_err(WaitError::Stopped)?;
        Ok(probed.in_flight.map(|no| self.run(no)))
    }

    /// Waits until `run` has ended: the same as `run(run).ended()`.
    ///
    /// # Errors
    /// As [`RunHandle::ended`].
    pub async fn run_ended(&self, run: RunNo) -> Result<Ended, WaitError> {
        self.run(run).ended().await
    }

    async fn probe(&self) -> Result<Probed, Stopped> {
        let mut lost = 0;
        let probed = loop {
            let (tell, told) = oneshot::channel();
            self.hub.deliver(self.id, Item::Probe(tell));
            match told.await {
                Ok(probed) => break probed,
                // A panic of the session's actor took it; a session that cannot be activated takes each.
                Err(_) if lost < PROBES && !self.hub.is_stopping() => lost += 1,
                Err(_) => return Err(self.hub.stopped()),
            }
        };
        self.hub.journal.wait(probed.lsn).await.map_err(|poison| Stopped::Poisoned(poison.to_string()))?;
        Ok(probed)
    }
}
