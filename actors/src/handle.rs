//! Handles: what embedders hold. Cheap to clone; dropping one, or a wait on one, cancels nothing.

use std::sync::Arc;

use subtend_session::command::Command;
use subtend_session::effect::{Rejection, Reply};
use subtend_session::ids::{InputId, RunNo, SessionId, Text};
use subtend_session::outcome::{By, Outcome};
use subtend_session::place::Owner;
use subtend_session::record::{From, InputAccepted, Lane};
use subtend_session::usage::Usage;
use tokio::sync::oneshot;

use crate::event::Subscription;
use crate::hub::Hub;
use crate::lane::{Item, Probed};

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

/// An accepted input: durable when the receipt is in hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The input.
    pub input: InputId,
    /// The run that it opened, or that was in flight when it was accepted.
    pub run: RunNo,
    /// Whether it had been accepted before, by its key.
    pub again: bool,
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

/// Why an input was not accepted. Nothing of it is kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The inbox or the queue is full: try again later.
    #[error("the session is busy: {what} holds {limit}, its limit; try again when it has taken some")]
    Busy {
        /// What is full.
        what: &'static str,
        /// Its bound.
        limit: u64,
    },
    /// The input cannot be accepted as it is.
    #[error("{0}")]
    BadInput(String),
    /// The runtime is shutting down or its store failed.
    #[error("{0}")]
    Stopped(Stopped),
    /// The session's verb is not there.
    #[error("{0}")]
    Refused(String),
}

/// Why a wait or a control came to nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WaitError {
    /// The runtime is shutting down or its store failed; the run is in the journal.
    #[error("{0}")]
    Stopped(Stopped),
    /// There is no such run.
    #[error("session {session} has no run {run}")]
    NoSuchRun {
        /// The session.
        session: SessionId,
        /// The run.
        run: RunNo,
    },
    /// The session refused the command.
    #[error("{0}")]
    Refused(String),
}

/// Why the runtime does not answer any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stopped {
    /// It was shut down.
    #[error("the runtime is shut down; what was in flight is in the journal")]
    Shutdown,
    /// The journal failed: nothing is acknowledged until the store is opened again.
    #[error("the journal failed ({0}); open the store again to recover")]
    Poisoned(String),
    /// The session's actor went away before it answered; what it acknowledged is kept.
    #[error("the session went away before it answered; what it had acknowledged is in the journal")]
    Gone,
}

/// How often a probe that was lost is sent again: as often as an actor is restarted in one window, by default.
const PROBES: u32 = 3;

impl SessionHandle {
    /// The session's id.
    pub fn id(&self) -> SessionId {
        self.id
    }

    /// Events of the session's tree from here on.
    pub fn events(&self) -> Subscription {
        self.hub.events.subscribe(Some(self.root))
    }

    /// Sends an input that is taken at the next rest point; a quiet session opens a run for it at once.
    ///
    /// # Errors
    /// [`SendError`]; then nothing is kept of the input.
    ///
    /// # Cancel safety
    /// Dropping the future leaves open whether the input is accepted.
    ///
    /// # Durability
    /// The input is durable when the receipt is returned.
    pub async fn send(&self, text: impl Into<Text>) -> Result<Receipt, SendError> {
        self.submit(text.into(), Lane::Send).await
    }

    /// Sends an input that enters at the next turn boundary.
    ///
    /// # Errors
    /// As [`SessionHandle::send`].
    pub async fn steer(&self, text: impl Into<Text>) -> Result<Receipt, SendError> {
        self.submit(text.into(), Lane::Steer).await
    }

    async fn submit(&self, text: Text, lane: Lane) -> Result<Receipt, SendError> {
        let pass = self.hub.gate.enter().ok_or(SendError::Stopped(Stopped::Shutdown))?;
        let input = InputAccepted {
            id: self.hub.mint.input(),
            key: None,
            from: From::Person,
            lane,
            text,
            agent_override: None,
            metadata: None,
            format: None,
            as_owner: Owner::Person,
        };
        let mut resent = false;
        let answer = loop {
            let (reply, answer) = oneshot::channel();
            let item = Item::Command(Command::Submit(Box::new(input.clone())), Some(reply));
            self.hub
                .deliver_input(self.id, item)
                .map_err(|full| SendError::Busy { what: "the inbox", limit: full.0 as u64 })?;
            match answer.await {
                Ok(answer) => break answer,
                // A panic of the session's actor took the input, or its answer, with it: by its id it is accepted once.
                Err(_) if !resent && !self.hub.is_stopping() => resent = true,
                Err(_) => return Err(SendError::Stopped(self.hub.stopped())),
            }
        };
        drop(pass);
        match answer {
            Ok((Reply::Accepted { input, again }, run)) => Ok(Receipt { input, run, again: again && !resent }),
            Ok((Reply::None | Reply::Done(_) | Reply::AlreadyEnded(..) | Reply::NotFound, _)) => {
                Err(SendError::Refused("the session did not take the input".to_owned()))
            }
            Err(Rejection::Busy { what, limit }) => Err(SendError::Busy { what, limit }),
            Err(Rejection::BadInput(why)) => Err(SendError::BadInput(why)),
            Err(other @ (Rejection::Stale(_) | Rejection::NotYet(_) | Rejection::Misplaced { .. })) => {
                Err(SendError::Refused(other.to_string()))
            }
        }
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

    async fn control(&self, command: Command) -> Result<Control, WaitError> {
        let (reply, answer) = oneshot::channel();
        self.hub.deliver(self.id, Item::Command(command, Some(reply)));
        match answer.await.map_err(|_| WaitError::Stopped(self.hub.stopped()))? {
            Ok((Reply::Done(run), _)) => Ok(Control::Done(run)),
            Ok((Reply::AlreadyEnded(_, outcome), _)) => Ok(Control::AlreadyEnded(outcome)),
            Ok((Reply::NotFound | Reply::None | Reply::Accepted { .. }, _)) => Ok(Control::NotFound),
            Err(rejection) => Err(WaitError::Refused(rejection.to_string())),
        }
    }

    /// Waits until `run` has ended.
    ///
    /// # Errors
    /// [`WaitError`].
    ///
    /// # Cancel safety
    /// Dropping the future cancels nothing.
    ///
    /// # Durability
    /// The end is durable when it is returned.
    pub async fn run_ended(&self, run: RunNo) -> Result<Ended, WaitError> {
        // Registered before the probe: an end between the two is seen by one of them at least.
        let waiter = self.hub.waiters.register(self.id, run);
        let probed = self.probe().await.map_err(WaitError::Stopped)?;
        if let Some(ended) = probed.last.filter(|ended| ended.run == run) {
            return Ok(ended);
        }
        if probed.in_flight.is_none_or(|at| at > run) {
            // It may have ended before the last one: an input that was queued opens the next run at once.
            let ended = self.hub.ended(self.id, run).map_err(|error| WaitError::Refused(error.to_string()))?;
            return ended.ok_or(WaitError::NoSuchRun { session: self.id, run });
        }
        waiter.await.map_err(|_| WaitError::Stopped(self.hub.stopped()))
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
