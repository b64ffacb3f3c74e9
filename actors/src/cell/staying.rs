//! A run that stays as an earlier process left it: its session can be looked at and changed, and goes on with what concerns the run.

use std::sync::PoisonError;

use subtend_session::command::Command;
use subtend_session::ids::SessionId;

use crate::cell::driver::{Driver, First};
use crate::delivery::lane::Item;
use crate::hub::Hub;
use crate::values::at_boot::AtBoot;

impl Hub {
    /// Whether the run in flight of `session` stays as an earlier process left it, and nothing here has woken it.
    pub(crate) fn stays(&self, session: SessionId) -> bool {
        let boot = self.boot.lock().unwrap_or_else(PoisonError::into_inner);
        boot.get(&session) == Some(&AtBoot::Stays)
    }
}

impl Driver {
    /// Lets the run go on where it stayed and `item` concerns it: an input, a cancel, an interrupt, what comes from above.
    ///
    /// Anything else finds the session as it was left. A process that lists a queue, or lets a branch be born, has perhaps no model
    /// and no tools: going on there, the run would fail.
    pub(crate) fn wake_for(&mut self, item: &Item) {
        if self.stays && concerns_the_run(item) {
            self.wake();
        }
    }

    fn wake(&mut self) {
        let session = self.session();
        self.stays = false;
        self.hub.boot.lock().unwrap_or_else(PoisonError::into_inner).remove(&session);
        // Nobody told it while it stayed: what it is owed is in the outbox.
        let rows = self.hub.rows_to(session).unwrap_or_else(|error| {
            tracing::error!(%session, %error, "what it is owed cannot be read: it hears of it at its next activation");
            Default::default()
        });
        let (mut asked, mut owed) = (rows.asked, rows.owed);
        owed.extend(self.hub.unreadable.owed(&self.state));
        asked.extend(self.hub.words_from_above(&self.state));
        let command = Command::Reactivated { calls: self.unstarted(), owner_over: self.hub.owner_over(&self.state) };
        self.starts = self.starts.saturating_add(1);
        self.unmarked = true;
        self.decide_first(First { lost: false, asked, command: Some(command), owed });
    }
}

fn concerns_the_run(item: &Item) -> bool {
    match item {
        Item::Command(command, _) => match command {
            Command::ChangeQueue { .. }
            | Command::Delete { .. }
            | Command::Branch(_)
            | Command::Regenerate(_)
            | Command::Switch { .. }
            | Command::RollBack { .. }
            | Command::Describe(_)
            | Command::Close { .. } => false,
            Command::Submit(_)
            | Command::Admitted { .. }
            | Command::ModelAnswered(_)
            | Command::AttemptFailed(_)
            | Command::ToolFinished { .. }
            | Command::Spawn { .. }
            | Command::OwnedEnded(_)
            | Command::Cancel { .. }
            | Command::OwnerOver { .. }
            | Command::OwnerCancels { .. }
            | Command::Interrupt { .. }
            | Command::Deadline(_)
            | Command::BudgetRefused { .. }
            | Command::Continue(_)
            | Command::Background { .. }
            | Command::AskAnswered { .. }
            | Command::TurnPanicked { .. }
            | Command::ToolPanicked { .. }
            | Command::Reactivated { .. }
            | Command::RestartsExhausted { .. }
            | Command::Lost { .. } => true,
        },
        Item::Parsed(_) | Item::Granted(..) => true,
        Item::Idle | Item::Probe(_) | Item::Queue(_) | Item::ClearQueue(..) | Item::HasRead(_) => false,
    }
}
