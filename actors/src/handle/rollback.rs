//! What a run that failed said is rolled back.

use subtend_session::command::Command;
use subtend_session::effect::Reply;
use subtend_session::ids::RunNo;
use subtend_session::outcome::By;

use super::{ControlError, SessionHandle};

impl SessionHandle {
    /// Rolls back an ended run that did not complete, or the last run: no later call of its model and no later branch is given what it
    /// said; an owner that was told of it keeps what it was told. Returns which run it was.
    ///
    /// What was said while the run was in flight is hidden: inputs that it took, answers, results and notices. Nothing is deleted, the
    /// journal keeps all of it. **What the run did is not undone**: files stay as it left them, what it cost counts, an agent that one of
    /// its inputs named goes on answering. Doing it again changes nothing.
    ///
    /// # Errors
    /// [`ControlError::Working`] while a run is in flight; [`ControlError::NotFound`] for an unknown
    /// run; [`ControlError::Refused`] where it completed.
    ///
    /// # Cancel safety
    /// Dropping the future leaves open whether it is rolled back.
    ///
    /// # Durability
    /// The rollback is durable when it is returned.
    pub async fn roll_back(&self, run: Option<RunNo>) -> Result<RunNo, ControlError> {
        match self.order(Command::RollBack { run, by: By::Person }).await?.0 {
            Reply::Done(run) => Ok(run),
            other @ (Reply::None
            | Reply::NotFound
            | Reply::Accepted { .. }
            | Reply::Switched { .. }
            | Reply::Branched { .. }
            | Reply::AlreadyEnded(..)) => Err(super::branch::unexpected(&other)),
        }
    }
}
