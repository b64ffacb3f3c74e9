use subtend_journal::ReadError;

use super::SessionHandle;
use crate::views::usage::UsageView;

impl SessionHandle {
    /// Returns the usage of the session so far: its own, including the runs that it owns, and including all sessions below it.
    ///
    /// For a run in flight, the ended attempts count. A missing report of a provider makes a sum unreliable: unknown is not zero.
    /// # Errors
    /// The error of reading the session.
    pub async fn usage(&self) -> Result<UsageView, ReadError> {
        // A poisoned journal can still be read.
        drop(self.sessions.log.journal.settled().await);
        let agents = self.sessions.environments.of_root(self.root);
        UsageView::read(&self.sessions.log.journal, self.id, |model| agents.models.window(model))
    }
}
