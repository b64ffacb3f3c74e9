//! What a session was allowed and denied.

use subtend_journal::ReadError;

use super::SessionHandle;
use crate::views::audit::{Audit, Decision};

impl SessionHandle {
    /// What the session's calls were allowed and denied, in order: one entry for each decision, with who decided.
    ///
    /// # Errors
    /// When the session cannot be read.
    ///
    /// # Cancel safety
    /// Safe: dropping the future changes nothing.
    ///
    /// # Durability
    /// What is listed is durable; all that was appended before the call is seen.
    pub async fn audit(&self) -> Result<Vec<Decision>, ReadError> {
        // A journal that failed still says what it has.
        drop(self.sessions.log.journal.settled().await);
        Ok(Audit::of(&self.sessions.log.journal.records(self.id)?))
    }
}
