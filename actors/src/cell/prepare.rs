//! Collects the inputs of `decide` other than the session's own state.

use subtend_session::command::Command;
use subtend_session::effect::Rejection;
use subtend_session::ids::RunKey;

use crate::cell::driver::Driver;
use crate::delivery::commands::{Needs, Prepared, handling};

impl Driver {
    pub(super) fn prepare(&mut self, command: &mut Command) -> Prepared {
        if let (Some(why), Command::Submit(_)) = (&self.agents.unusable, &*command) {
            return Prepared::Refused(Rejection::BadInput(why.to_string()));
        }
        self.state.window = self.window();
        match (handling(command).needs, &mut *command) {
            (Needs::Time, Command::Deadline(deadline)) => {
                if self.rearm_queue_deadline(*deadline) {
                    return Prepared::Postponed;
                }
                self.stop_due_work(*deadline);
            }
            // The outcome is determined now, because the owner may have closed since the command was sent.
            (Needs::Asker, Command::Continue(ask)) => {
                ask.owner_ended = self.cells.runs.owner_outcome_of(RunKey { session: ask.owner, run: ask.run });
            }
            (Needs::Answer, Command::ModelAnswered(answer)) => {
                self.resolve_calls(answer);
                self.recall(command);
            }
            (Needs::Recalled, _) => self.recall(command),
            (Needs::Nothing | Needs::Time | Needs::Asker | Needs::Answer, _) => {}
        }
        self.record_queued_checks(command);
        Prepared::Ready
    }
}
