//! The check that follows every removal of local work, an open call or an owned run.

use super::draft::Draft;
use crate::command::Deadline;
use crate::ids::CallId;
use crate::index::RowKey;
use crate::outcome::Outcome;
use crate::record::{Hold, Park, Prompt};
use crate::state::{Owned, Phase, Run};

impl Draft<'_> {
    /// Performs the steps that are due now, in any phase. They follow from the state rather than from an event: a
    /// notice may arrive before the call or run that waits for it.
    pub(super) fn advance(&mut self) {
        match self.state.phase() {
            Phase::Quiet => self.take_notices_when_quiet(),
            Phase::Queued => self.take_notices(),
            Phase::Working | Phase::WaitingMidTurn | Phase::WaitingAtRest => self.boundary(),
            Phase::HeldInterrupted | Phase::HeldOutOfTurns => self.check_held(),
            Phase::Closing => self.end_check(None),
        }
    }

    fn boundary(&mut self) {
        let Some(run) = self.run() else { return };
        let Some(turn) = &run.turn else { return };
        // If the run is parked for a slot, its turn is already due, and later inputs are taken when the slot is
        // granted. If it is parked at a limit, the model call of its turn is not answered yet.
        if turn.limited.is_some() || turn.streaming || run.parked == Some(Park::Slot) {
            return;
        }
        if self.has_open_calls() {
            if !self.may_start() {
                return;
            }
            self.start_calls();
            self.close_waits();
            if self.try_finish_return() {
                return;
            }
            if self.has_open_calls() {
                if let Some(why) = self.park_reason() {
                    self.park(why);
                }
                return;
            }
        }
        self.next_turn();
    }

    /// Returns whether calls of the answer have no result yet. The number of live children does not show this, because a
    /// fast child may end before its sibling is spawned.
    fn has_open_calls(&self) -> bool {
        self.run().is_some_and(|run| run.open_calls() > 0)
    }

    /// Ends the turn. Queued inputs, results or notices start the next turn. Without any, the run waits, is held or ends.
    fn next_turn(&mut self) {
        let Some(run) = self.run() else { return };
        let rest = run.turn.as_ref().is_some_and(|turn| turn.calls.is_empty());
        let spent = run.is_spent();
        let inputs = self.takeable(rest);
        if !inputs.is_empty() {
            return self.take_and_start_turn(inputs, Prompt::Plain);
        }
        let wakes = rest && self.has_waking_arrival();
        if !spent && (wakes || !rest) {
            return self.take_and_start_turn(inputs, Prompt::Plain);
        }
        if !rest {
            return self.out_of_turns();
        }
        self.take_notices();
        let alone = self.run().is_none_or(|run| run.owned.is_empty());
        match wakes {
            true if alone || self.answered => self.out_of_turns(),
            false if alone => self.end(Outcome::Completed),
            _ => self.park(Park::AtRest),
        }
    }

    /// Takes `inputs` and starts the next turn. Completions are taken too, unless the newest input is a person's message.
    pub(super) fn take_and_start_turn(&mut self, inputs: Vec<crate::ids::InputId>, prompt: Prompt) {
        self.take_with_notices(inputs);
        self.start_turn_with_slot(prompt);
    }

    /// Ends the run out of turns, or holds it until its owned runs have ended.
    pub(super) fn out_of_turns(&mut self) {
        let Some(run) = self.run() else { return };
        let ended = |(key, owned): (&CallId, &Owned)| self.state.arrived.contains(owned.child, RowKey::Call(*key));
        if run.owned.iter().all(ended) {
            return self.end(Outcome::OutOfTurns);
        }
        // A held run with nothing open is at rest: a queued input resumes it at once, with a new allowance.
        let inputs = self.takeable(true);
        if !inputs.is_empty() {
            return self.take_and_start_turn(inputs, Prompt::Plain);
        }
        // A held run takes no notices later, so it takes those that have arrived now.
        self.take_notices();
        self.hold(Hold::OutOfTurns);
    }

    /// Checks a run that is held interrupted or out of turns.
    fn check_held(&mut self) {
        self.store_notices();
        let busy = |run: &Run| run.has_local_work() || run.open_calls() > 0;
        if self.run().is_none_or(busy) {
            return;
        }
        let inputs = self.takeable(true);
        if !inputs.is_empty() {
            return self.resume_held(inputs);
        }
        let Some(run) = self.run().filter(|run| run.owned.is_empty()) else { return };
        match run.hold.clone() {
            Some(Hold::Interrupted { by }) => self.end_now(Outcome::Interrupted { by }, None),
            Some(Hold::OutOfTurns) => self.end_now(Outcome::OutOfTurns, None),
            Some(Hold::Closing { .. }) | None => {}
        }
    }

    /// Resumes a held run with inputs, which renew its turn allowance.
    fn resume_held(&mut self, inputs: Vec<crate::ids::InputId>) {
        // The interrupt's grace must not stop the work that starts now.
        if let Some(run) = self.run().filter(|run| matches!(run.hold, Some(Hold::Interrupted { .. }))).map(|run| run.no)
        {
            self.disarm(Deadline::Grace(run));
        }
        self.take_inputs(inputs);
        // The clock stops while the run is held. With a slot it restarts when the slot is granted.
        if self.run().is_some_and(|run| run.has_clock() && !run.opened.slot) {
            self.resume(Park::AtRest, false);
        }
        self.start_turn_with_slot(Prompt::Plain);
    }

    /// Ends a closing run if nothing remains open.
    pub(super) fn end_check(&mut self, gave_up: Option<crate::ids::Text>) {
        self.store_notices();
        let Some(run) = self.run() else { return };
        if run.has_local_work() || !run.owned.is_empty() {
            return;
        }
        if let Some(Hold::Closing { outcome, .. }) = run.hold.clone() {
            self.end_now(outcome, gave_up);
        }
    }
}
