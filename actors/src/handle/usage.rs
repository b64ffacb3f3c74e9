//! What a session cost.

use subtend_journal::ReadError;

use super::SessionHandle;
use crate::views::usage::UsageView;

impl SessionHandle {
    /// What the session cost so far: by itself, with the runs that it owns, and with all sessions below it.
    ///
    /// Of a run in flight the attempts are counted that have ended. A part that no provider told makes a sum unreliable:
    /// unknown is not zero.
    ///
    /// # Errors
    /// When the session cannot be read.
    ///
    /// # Cancel safety
    /// Safe: dropping the future changes nothing.
    ///
    /// # Durability
    /// What is counted is durable; all that was appended before the call is seen.
    pub async fn usage(&self) -> Result<UsageView, ReadError> {
        // A journal that failed still says what it has.
        drop(self.sessions.log.journal.settled().await);
        let agents = self.sessions.environments.of_root(self.root);
        UsageView::read(&self.sessions.log.journal, self.id, |model| agents.models.window(model))
    }
}
