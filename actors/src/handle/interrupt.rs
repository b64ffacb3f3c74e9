use subtend_session::command::Command;
use subtend_session::outcome::Initiator;

use super::{Control, SessionHandle, WaitError};

impl SessionHandle {
    /// Interrupts the run in flight: its model stream and tools stop, and the runs that it waits for are cancelled.
    ///
    /// Its background runs continue, and their ends are kept without waking it. The next input resumes it with its whole context and a new turn
    /// limit. If it has nothing to wait for and no input is queued, it ends as interrupted. A queued run ends at once. A repetition changes nothing.
    /// # Cancel safety
    /// If the future is dropped, the run may or may not have been interrupted.
    /// # Durability
    /// The interrupt is durable when this returns; stopped work ends within one grace period.
    pub async fn interrupt(&self) -> Result<Control, WaitError> {
        self.control(Command::Interrupt { by: Initiator::Person }).await
    }
}
