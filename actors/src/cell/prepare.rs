//! Collects the inputs of `decide` other than the session's own state.

use subtend_session::command::Command;
use subtend_session::effect::Rejection;
use subtend_session::ids::{InputId, RunKey, Text};
use subtend_session::place::Owner;
use subtend_session::record::{From, InputAccepted};
use subtend_session::state::State;

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

    /// Counts the text of the session while it works for a client. Runs of models are bounded by their slots.
    pub(super) fn count_working_text(&mut self) {
        self.working.set(working_text(&self.state));
    }

    /// Refuses a client's input that would keep too much text in memory. It precedes the decision, so nothing is recorded.
    pub(super) fn check_working_text(&mut self, input: &InputAccepted) -> Result<(), Rejection> {
        let State { seen, accepted, deleted, text_bytes, .. } = &*self.state;
        let is_repeated =
            input.key.as_ref().is_some_and(|key| seen.contains_key(key)) || accepted.binary_search(&input.id).is_ok();
        // The services of a host send few inputs at a time.
        let is_own = matches!(input.from, From::Model { .. }) || matches!(input.as_owner, Owner::Host(_));
        if is_repeated || is_own || *deleted {
            return Ok(());
        }
        let of = |text: &Option<Text>| text.as_ref().map_or(0, |text| text.len());
        let added = input.text.len().saturating_add(of(&input.metadata)).saturating_add(of(&input.format));
        let text = text_bytes.saturating_add(added as u64);
        let most = self.cells.host.options.working_text;
        self.working.claim(self.inbox.sender(), text, most).map_err(|limit| Rejection::Busy {
            what: "the sender's memory for working sessions, which runs free when they end,",
            limit,
        })
    }
}

/// Returns the bytes of text of `state` if an input of a client keeps it in memory, else 0.
fn working_text(state: &State) -> u64 {
    let works = state.run.as_ref().is_some_and(|run| match run.opened.owner {
        Owner::Person | Owner::Host(_) | Owner::Detached { by_host: true } => true,
        Owner::Run { .. } | Owner::Detached { by_host: false } => false,
    });
    let is_queued = || state.queue.iter().any(|queued| !matches!(queued.input.from, From::Model { .. }));
    if works || is_queued() { state.text_bytes } else { 0 }
}
