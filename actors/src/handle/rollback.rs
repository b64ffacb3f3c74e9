//! Rollback of a failed run.

use subtend_session::command::Command;
use subtend_session::effect::Reply;
use subtend_session::ids::RunNo;
use subtend_session::outcome::Initiator;

use super::branch::{refuse_for_process, unexpected, unreadable};
use super::{ControlError, SessionHandle};

impl SessionHandle {
    /// Rolls back a run that ended without completing, or the last run, and returns its number. Later model calls and branches no longer see its
    /// messages; an owner keeps the result that it received.
    ///
    /// This hides the inputs that the run took, and its answers, results and notices; the journal keeps all of them. **Effects are not undone**:
    /// files and costs remain, and so does an agent override by one of its inputs. A repetition changes nothing.
    /// # Errors
    /// [`ControlError::Working`] while a run is in flight; [`ControlError::NotFound`] for an unknown run; [`ControlError::Refused`] if it
    /// completed.
    /// # Cancel safety
    /// If the future is dropped, the run may or may not have been rolled back.
    pub async fn roll_back(&self, run: Option<RunNo>) -> Result<RunNo, ControlError> {
        if let Some(head) = self.sessions.log.journal.head(self.id).map_err(|error| unreadable(&error))? {
            refuse_for_process(&head.agent)?;
        }
        match self.order(Command::RollBack { run, by: Initiator::Person }).await?.0 {
            Reply::Done(run) => Ok(run),
            other @ (Reply::None
            | Reply::NotFound
            | Reply::Accepted { .. }
            | Reply::Switched { .. }
            | Reply::Branched { .. }
            | Reply::AlreadyEnded(..)) => Err(unexpected(&other)),
        }
    }
}
