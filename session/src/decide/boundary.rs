//! The one check that follows whatever removes local work, an open call or an owned run (rule 2).

use super::draft::Draft;
use crate::command::Deadline;
use crate::ids::CallId;
use crate::index::RowKey;
use crate::outcome::Outcome;
use crate::record::{Hold, Park, Prompt};
use crate::state::{Owned, Phase, Run};

impl Draft<'_> {
    /// Looks what is due now, in whatever column the run stands.
    ///
    /// There is no waiting for an event here: a row may have arrived before the call or the run that waits for it did.
    pub(super) fn check(&mut self) {
        match self.state.phase() {
            Phase::Quiet => self.take_quietly(),
            Phase::Queued => self.take_notices(),
            Phase::Working | Phase::WaitingMidTurn | Phase::WaitingAtRest => self.boundary(),
            Phase::HeldInterrupted | Phase::HeldOutOfTurns => self.quiet(),
            Phase::Closing => self.end_check(None),
        }
    }

    fn boundary(&mut self) {
        let Some(run) = self.run() else { return };
        let Some(turn) = &run.turn else { return };
        // Parked for a slot the turn is due already: what comes meanwhile is taken when the slot is given.
        if turn.streaming || run.parked == Some(Park::Slot) {
            return;
        }
        if self.calls_open() {
            if !self.may_start() {
                return;
            }
            self.start_calls();
            self.close_waits();
            if self.finish_return() {
                return;
            }
            if self.calls_open() {
                if let Some(why) = self.only_waits() {
                    self.park(why);
                }
                return;
            }
        }
        self.next_turn();
    }

    /// Whether calls of the turn have no result: counted from the answer, since a fast child may end before its sibling is born.
    fn calls_open(&self) -> bool {
        self.run().is_some_and(|run| run.open_calls() > 0)
    }

    /// The turn is over: an input, else results, else notices open the next one; else the run waits, is held or ends.
    fn next_turn(&mut self) {
        let Some(run) = self.run() else { return };
        let rest = run.turn.as_ref().is_some_and(|turn| turn.calls.is_empty());
        let spent = run.is_spent();
        let inputs = self.takeable(rest);
        if !inputs.is_empty() {
            return self.take_and_go(inputs, Prompt::Plain);
        }
        let waking = rest && self.arrived_wakes();
        if !spent && (waking || !rest) {
            return self.take_and_go(inputs, Prompt::Plain);
        }
        if !rest {
            return self.out_of_turns();
        }
        self.take_notices();
        let alone = self.run().is_none_or(|run| run.owned.is_empty());
        match waking {
            true if alone || self.answered => self.out_of_turns(),
            false if alone => self.end(Outcome::Completed),
            _ => self.park(Park::AtRest),
        }
    }

    /// Takes `inputs` and starts the next turn. Completions follow when no person's message is the newest thing (B11).
    pub(super) fn take_and_go(&mut self, inputs: Vec<crate::ids::InputId>, prompt: Prompt) {
        self.take_with_notices(inputs);
        self.turn_due(prompt);
    }

    /// The allowance is spent before a final answer: owned runs finish first.
    pub(super) fn out_of_turns(&mut self) {
        let Some(run) = self.run() else { return };
        let ended = |(key, owned): (&CallId, &Owned)| self.state.arrived.contains(owned.child, RowKey::Call(*key));
        if run.owned.iter().all(ended) {
            return self.end(Outcome::OutOfTurns);
        }
        // To be held with nothing open is a rest point: a queued input goes on at once, with a new allowance (rule 3).
        let inputs = self.takeable(true);
        if !inputs.is_empty() {
            return self.take_and_go(inputs, Prompt::Plain);
        }
        // Ends that came meanwhile: nothing takes them in a held run (rule 1).
        self.take_notices();
        self.hold(Hold::OutOfTurns);
    }

    /// QUIET: the check of a run that is held interrupted or out of turns.
    fn quiet(&mut self) {
        self.store_notices();
        let busy = |run: &Run| run.has_local_work() || run.open_calls() > 0;
        if self.run().is_none_or(busy) {
            return;
        }
        let inputs = self.takeable(true);
        if !inputs.is_empty() {
            return self.go_on(inputs);
        }
        let Some(run) = self.run().filter(|run| run.owned.is_empty()) else { return };
        match run.hold.clone() {
            Some(Hold::Interrupted { by }) => self.end_now(Outcome::Interrupted { by }, None),
            Some(Hold::OutOfTurns) => self.end_now(Outcome::OutOfTurns, None),
            Some(Hold::Closing { .. }) | None => {}
        }
    }

    /// A held run takes an input: it goes on as from a rest point, with a new allowance.
    fn go_on(&mut self, inputs: Vec<crate::ids::InputId>) {
        // The grace of the interrupt is over with it: it must not stop what starts now.
        if let Some(run) = self.run().filter(|run| matches!(run.hold, Some(Hold::Interrupted { .. }))).map(|run| run.no)
        {
            self.disarm(Deadline::Grace(run));
        }
        self.take_inputs(inputs);
        // The clock stood while the run was held. With a slot it runs again when the slot is given.
        if self.run().is_some_and(|run| run.has_clock() && !run.opened.slot) {
            self.resume(Park::AtRest, false);
        }
        self.turn_due(Prompt::Plain);
    }

    /// END check: whether a closing run has ended.
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
