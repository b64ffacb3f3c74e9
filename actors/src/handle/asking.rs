//! The audit of a session.

use subtend_journal::ReadError;

use super::SessionHandle;
use crate::views::audit::{Audit, Decision};

impl SessionHandle {
    /// Returns the decisions on the session's calls in order, each with the deciding party.
    /// # Errors
    /// The error of reading the session.
    pub async fn audit(&self) -> Result<Vec<Decision>, ReadError> {
        // A poisoned journal can still be read.
        drop(self.sessions.log.journal.settled().await);
        Ok(Audit::of(&self.sessions.log.journal.records(self.id)?))
    }
}
