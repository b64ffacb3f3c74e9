//! A run that stays as an earlier process left it: its session can be looked at and changed, and goes on with what concerns the run.

use subtend_session::command::Command;

use crate::cell::driver::{Driver, First};
use crate::delivery::inbox::InboxItem;
use crate::recovery::rows::rows_to;

impl Driver {
    /// Lets the run go on where it stayed and `item` concerns it: an input, a cancel, an interrupt, what comes from above.
    ///
    /// Anything else finds the session as it was left. A process that lists a queue, or lets a branch be born, has perhaps no model
    /// and no tools: going on there, the run would fail.
    pub(crate) fn wake_for(&mut self, item: &InboxItem) {
        if self.stays && item.concerns_the_run() {
            self.wake();
        }
    }

    fn wake(&mut self) {
        let session = self.session();
        self.stays = false;
        self.cells.takeover.reached(session);
        // Nobody told it while it stayed: what it is owed is in the outbox.
        let rows = rows_to(&self.cells.log.journal, session).unwrap_or_else(|error| {
            tracing::error!(%session, %error, "what it is owed cannot be read: it hears of it at its next activation");
            Default::default()
        });
        let (mut asked, mut owed) = (rows.asked, rows.owed);
        owed.extend(self.cells.takeover.unreadable.owed(&self.state));
        asked.extend(self.cells.runs.words_from_above(&self.state));
        let command =
            Command::Reactivated { calls: self.unstarted(), owner_over: self.cells.runs.owner_over(&self.state) };
        self.written.starts = self.written.starts.saturating_add(1);
        self.written.unmarked = true;
        self.decide_first(First { lost: false, asked, command: Some(command), owed });
    }
}
