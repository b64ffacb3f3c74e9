//! Handles of runs: wait, outcome and cancel.

use subtend_session::command::Command;
use subtend_session::ids::RunNo;
use subtend_session::outcome::Initiator;

use super::{Control, Ended, SessionHandle, WaitError};

/// A run of a session. Cheap to clone; dropping it, or a wait on it, cancels nothing.
#[derive(Clone, Debug)]
pub struct RunHandle {
    pub(super) session: SessionHandle,
    pub(super) no: RunNo,
}

enum RunPhase {
    Ended(Box<Ended>),
    InFlight,
    /// An earlier run is in flight.
    Behind(RunNo),
}

impl RunHandle {
    pub fn no(&self) -> RunNo {
        self.no
    }

    pub fn session(&self) -> &SessionHandle {
        &self.session
    }

    /// Waits until the run has ended; returns at once if it already has.
    pub async fn ended(&self) -> Result<Ended, WaitError> {
        let (SessionHandle { sessions, id, .. }, run) = (&self.session, self.no);
        loop {
            // Registered before the probe, so that an end in between is not missed.
            let waiter = sessions.waiters.register(*id, run);
            match self.phase().await? {
                RunPhase::Ended(ended) => return Ok(*ended),
                RunPhase::InFlight => return waiter.await.map_err(|_| WaitError::Stopped(sessions.life.stopped())),
                // The end of the earlier run shows whether this run opens.
                RunPhase::Behind(at) => {
                    let before = sessions.waiters.register(*id, at);
                    let is_in_flight = self.session.probe().await.map_err(WaitError::Stopped)?.in_flight == Some(at);
                    if is_in_flight {
                        before.await.map_err(|_| WaitError::Stopped(sessions.life.stopped()))?;
                    }
                }
            }
        }
    }

    /// Returns the outcome of the run; `None` while it is in flight or has not been opened.
    /// # Errors
    /// [`WaitError::NoSuchRun`] if no input can open it any more; otherwise an error if the runtime has stopped.
    pub async fn try_ended(&self) -> Result<Option<Ended>, WaitError> {
        Ok(match self.phase().await? {
            RunPhase::Ended(ended) => Some(*ended),
            RunPhase::InFlight | RunPhase::Behind(_) => None,
        })
    }

    /// Waits until the run may have ended, which [`RunHandle::try_ended`] tells. Does not read the journal.
    /// # Errors
    /// [`WaitError::Stopped`].
    pub async fn changed(&self) -> Result<(), WaitError> {
        let (SessionHandle { sessions, id, .. }, mut run) = (&self.session, self.no);
        loop {
            // Registered before the probe, so that an end in between is not missed.
            let waiter = sessions.waiters.register(*id, run);
            match self.session.probe().await.map_err(WaitError::Stopped)?.in_flight {
                Some(at) if at == run => {
                    return waiter.await.map(drop).map_err(|_| WaitError::Stopped(sessions.life.stopped()));
                }
                // The end of the earlier run shows whether this run opens.
                Some(at) if at < run => run = at,
                Some(_) | None => return Ok(()),
            }
        }
    }

    async fn phase(&self) -> Result<RunPhase, WaitError> {
        let (SessionHandle { sessions, id, .. }, run) = (&self.session, self.no);
        let probed = self.session.probe().await.map_err(WaitError::Stopped)?;
        if let Some(ended) = probed.last.filter(|ended| ended.run == run) {
            return Ok(RunPhase::Ended(Box::new(ended)));
        }
        match probed.in_flight {
            Some(at) if at == run => Ok(RunPhase::InFlight),
            Some(at) if at < run => Ok(RunPhase::Behind(at)),
            // The run may have ended before the last one: a queued input opens the next run at once.
            Some(_) | None => {
                let ended =
                    Ended::read(&sessions.log.journal, *id, run).map_err(|error| sessions.life.read_failed(&error))?;
                ended.map(|ended| RunPhase::Ended(Box::new(ended))).ok_or(WaitError::NoSuchRun { session: *id, run })
            }
        }
    }

    /// Cancels the run and all runs it owns, if it is in flight.
    /// # Cancel safety
    /// If the future is dropped, the run may or may not have been cancelled.
    /// # Durability
    /// The cancel is durable when this returns; ends follow within one grace period.
    pub async fn cancel(&self) -> Result<Control, WaitError> {
        self.session.control(Command::Cancel { run: Some(self.no), by: Initiator::Person, keeps_queue: false }).await
    }
}
