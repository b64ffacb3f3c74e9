//! Dormant runs: the start could resume them, but does not ([`Options::resumes`](crate::Options::resumes)). Their sessions
//! can be read and changed, and an item that concerns the run resumes it.

use subtend_session::command::Command;

use crate::cell::driver::{Driver, First};
use crate::delivery::inbox::InboxItem;

impl Driver {
    /// Resumes a dormant run if `item` concerns it: an input, a cancel, an interrupt, or a command of its owner.
    /// Others do not: a process that lists a queue or creates a branch may have no model and no tools.
    pub(crate) fn wake_for(&mut self, item: &InboxItem) {
        if self.dormant && item.concerns_the_run() {
            self.wake();
        }
    }

    fn wake(&mut self) {
        let session = self.session();
        self.dormant = false;
        self.cells.takeover.take_mark(session);
        // While the run was dormant, its notices remained in the outbox.
        let rows = self.cells.due_rows(session).unwrap_or_else(|error| {
            tracing::error!(%session, %error, "cannot read the owed ends of the session; its next activation retries");
            Default::default()
        });
        let (mut requests, mut owed) = (rows.requests, rows.owed);
        owed.extend(self.cells.takeover.unreadable.owed_notices(&self.state));
        requests.extend(self.cells.runs.pending_cancels(&self.state));
        let command = Command::Reactivated {
            calls: self.unstarted_calls(),
            owner_ended: self.cells.runs.ended_owner_outcome(&self.state),
        };
        self.written.starts = self.written.starts.saturating_add(1);
        self.written.unmarked = true;
        self.decide_first(First { lost: false, requests, command: Some(command), owed });
    }
}
