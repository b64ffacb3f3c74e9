//! Interrupts.

use subtend_session::command::Command;
use subtend_session::outcome::By;

use super::{Control, SessionHandle, WaitError};

impl SessionHandle {
    /// Interrupts the run in flight: its model's stream and its tools stop, and the runs that it waits for are cancelled.
    ///
    /// Runs that it started in the background go on; what they come to is kept for it and wakes nothing. The next input
    /// resumes it with everything in context and a new allowance of turns. Where nothing is left to wait for and no input
    /// came, it ends as interrupted. A run that did not start yet ends at once. Doing it again changes nothing.
    ///
    /// # Errors
    /// [`WaitError`].
    ///
    /// # Cancel safety
    /// Dropping the future leaves open whether the run is interrupted.
    ///
    /// # Durability
    /// The interrupt is durable when the answer is returned; what it stops has stopped within one grace.
    pub async fn interrupt(&self) -> Result<Control, WaitError> {
        self.control(Command::Interrupt { by: By::Person }).await
    }
}
