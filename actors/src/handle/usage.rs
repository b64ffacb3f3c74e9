use subtend_journal::ReadError;

use super::SessionHandle;
use crate::views::usage::UsageView;

impl SessionHandle {
    /// Returns three sums of the session's usage so far: its own, with the runs that it owns, and with all sessions
    /// below it.
    ///
    /// For a run in flight, the ended attempts count. A sum is unreliable if a provider did not report usage, which
    /// differs from zero usage.
    /// # Errors
    /// The error of reading the session.
    pub async fn usage(&self) -> Result<UsageView, ReadError> {
        // A poisoned journal can still be read.
        drop(self.sessions.log.journal.settled().await);
        let agents = self.sessions.environments.of_root(self.root);
        UsageView::read(&self.sessions.log.journal, self.id, |model| agents.models.window(model))
    }
}
