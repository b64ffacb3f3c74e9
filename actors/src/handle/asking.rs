//! The audit of a session.

use subtend_journal::ReadError;

use super::SessionHandle;
use crate::views::audit::{Audit, Decision};
use crate::views::history;

impl SessionHandle {
    /// Returns the decisions on the session's calls in order, each with the deciding party.
    /// # Errors
    /// The error of reading the session.
    pub async fn audit(&self) -> Result<Vec<Decision>, ReadError> {
        // A poisoned journal can still be read.
        drop(self.sessions.log.journal.settled().await);
        let mut audit = Audit::default();
        history::each(&self.sessions.log.journal, self.id, |stored| audit.add(stored.seq, &stored.record))?;
        Ok(audit.decisions)
    }
}
