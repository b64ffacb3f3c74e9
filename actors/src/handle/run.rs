//! One run of a session.

use subtend_session::command::Command;
use subtend_session::ids::RunNo;
use subtend_session::outcome::By;

use super::{Control, Ended, SessionHandle, WaitError};

/// A run of a session. Cheap to clone; dropping it, or a wait on it, cancels nothing.
#[derive(Clone, Debug)]
pub struct RunHandle {
    pub(super) session: SessionHandle,
    pub(super) no: RunNo,
}

impl RunHandle {
    /// Its number.
    pub fn no(&self) -> RunNo {
        self.no
    }

    /// Its session.
    pub fn session(&self) -> &SessionHandle {
        &self.session
    }

    /// Waits until it has ended. One that ended before is told at once.
    ///
    /// # Errors
    /// [`WaitError`].
    ///
    /// # Cancel safety
    /// Dropping the future cancels nothing.
    ///
    /// # Durability
    /// The end is durable when it is returned.
    pub async fn ended(&self) -> Result<Ended, WaitError> {
        let (SessionHandle { sessions, id, .. }, run) = (&self.session, self.no);
        loop {
            // Registered before the probe: an end between the two is seen by one of them at least.
            let waiter = sessions.waiters.register(*id, run);
            let probed = self.session.probe().await.map_err(WaitError::Stopped)?;
            if let Some(ended) = probed.last.filter(|ended| ended.run == run) {
                return Ok(ended);
            }
            match probed.in_flight {
                Some(at) if at == run => return waiter.await.map_err(|_| WaitError::Stopped(sessions.life.stopped())),
                // The end of the one before it opens it, or shows that there is none: nobody else would ever tell.
                Some(at) if at < run => {
                    let before = sessions.waiters.register(*id, at);
                    let still = self.session.probe().await.map_err(WaitError::Stopped)?.in_flight == Some(at);
                    if still {
                        before.await.map_err(|_| WaitError::Stopped(sessions.life.stopped()))?;
                    }
                }
                // It may have ended before the last one: an input that was queued opens the next run at once.
                Some(_) | None => {
                    let ended = sessions.log.ended(*id, run).map_err(|error| sessions.life.unread(&error))?;
                    return ended.ok_or(WaitError::NoSuchRun { session: *id, run });
                }
            }
        }
    }

    /// Cancels it and all that it owns, if it is the one in flight.
    ///
    /// # Errors
    /// [`WaitError`].
    ///
    /// # Cancel safety
    /// Dropping the future leaves open whether the run is cancelled.
    ///
    /// # Durability
    /// The cancel is durable when the answer is returned; ends follow within one grace.
    pub async fn cancel(&self) -> Result<Control, WaitError> {
        self.session.control(Command::Cancel { run: Some(self.no), by: By::Person, queue_stands: false }).await
    }
}
