use subtend_journal::ReadError;

use super::SessionHandle;
use crate::views::usage::UsageView;

impl SessionHandle {
    /// Returns the cost of the session so far: its own, with the runs that it owns, and with all sessions below it.
    ///
    /// Of a run in flight the ended attempts count. A missing report of a provider makes a sum unreliable: unknown is not zero.
    /// # Errors
    /// When the session cannot be read.
    pub async fn usage(&self) -> Result<UsageView, ReadError> {
        // A failed journal can still be read.
        drop(self.sessions.log.journal.settled().await);
        let agents = self.sessions.environments.of_root(self.root);
        UsageView::read(&self.sessions.log.journal, self.id, |model| agents.models.window(model))
    }
}
