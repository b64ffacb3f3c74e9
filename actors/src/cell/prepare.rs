//! Collects the inputs of `decide` other than the session's own state.

use subtend_session::command::Command;
use subtend_session::effect::Rejection;
use subtend_session::ids::{InputId, RunKey, Text};

use crate::cell::driver::Driver;
use crate::delivery::commands::{Needs, Prepared, handling};
use crate::spawn::tool_set::lists_all;

impl Driver {
    pub(super) fn prepare(&mut self, command: &mut Command) -> Prepared {
        if matches!(command, Command::Submit(_)) && self.agents.unusable.is_some() {
            self.renew_offer();
        }
        if let (Some(why), Command::Submit(_)) = (&self.agents.unusable, &*command) {
            return Prepared::Refused(Rejection::BadInput(why.to_string()));
        }
        if let Command::Submit(input) = &*command
            && let Err(busy) = self.check_working_text(input)
        {
            return Prepared::Refused(busy);
        }
        if let Command::Submit(input) = &mut *command
            && input.is_from_relative()
            && let Some(only) = input.tools.take()
            && self.exceeds(&only, input.id)
        {
            let why = "it has tools that you do not have now";
            return Prepared::Refused(Rejection::Misplaced { command: "message", why });
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

    /// Returns whether the session has tools beyond `only`, which the sender of the message `input` has. Compared here,
    /// since a call may have continued the session with other tools after the message was sent.
    fn exceeds(&self, only: &[Text], input: InputId) -> bool {
        let is_repeated = self.state.accepted.binary_search(&input).is_ok();
        let mut waiting = self.state.run.iter().flat_map(|run| &run.waiting).rev();
        let tools = waiting.find_map(|queued| queued.input.tools.as_ref());
        !is_repeated && !lists_all(only, tools.or(self.state.tools.as_ref()))
    }
}
