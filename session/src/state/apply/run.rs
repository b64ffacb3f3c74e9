use std::sync::Arc;

use crate::ids::RunNo;
use crate::message::Message;
use crate::outcome::Outcome;
use crate::place::Place;
use crate::record::{Hold, Park, RunEnded, RunOpened};
use crate::render;
use crate::state::{Ended, MessageRange, Queued, Run, State};

impl State {
    pub(super) fn apply_run_opened(&mut self, opened: &RunOpened) {
        // Removes the run's inputs from the queue, so that only later inputs can open the next run.
        let mut waiting = Vec::with_capacity(opened.inputs.len());
        for id in &opened.inputs {
            if let Some(queued) = self.unqueue(|queued| queued.input.id == *id) {
                waiting.push(queued);
            }
        }
        // A child's first run has the allowance of the child's agent.
        if opened.run == RunNo(1) && matches!(self.created.place, Place::Child { call: Some(_), .. }) {
            self.own_turns = opened.max_turns;
        }
        self.last_run = opened.run;
        self.run = Some(Box::new(Run {
            no: opened.run,
            opened: Arc::new(opened.clone()),
            waiting,
            started: false,
            slot: false,
            parked: None,
            hold: None,
            turns: 0,
            spent: 0,
            // An import may lower a session's limits, but does not change the numbers in its records.
            allowance: opened.max_turns.min(self.limits.turns),
            worked_ms: 0,
            turn: None,
            owned: Default::default(),
            cancels: 0,
            unanswered: Vec::new(),
            asked_from: 0,
            compaction_failed: false,
            format: None,
            answer: None,
            partial: Default::default(),
            // An owner could open any number of runs: those of a child have one limit together.
            recorded: if opened.owner.is_model_call() { self.recorded } else { 0 },
            usage_self: Default::default(),
            usage_owned: Default::default(),
            by_notices: false,
            from: 0,
            deferred: Vec::new(),
        }));
    }

    fn unqueue(&mut self, wanted: impl Fn(&Queued) -> bool) -> Option<Queued> {
        let at = self.queue.iter().position(wanted)?;
        self.queue.remove(at)
    }

    pub(super) fn apply_run_started(&mut self, slot: bool) {
        let from = self.transcript.len();
        if let Some(run) = &mut self.run {
            run.from = from;
            run.started = true;
            run.slot = slot;
        }
    }

    pub(super) fn apply_run_parked(&mut self, why: Park, worked_ms: u64) {
        if let Some(run) = &mut self.run {
            run.parked = Some(why);
            run.slot = false;
            run.worked_ms = worked_ms;
            if let (Park::Limit { until }, Some(turn)) = (why, &mut run.turn) {
                turn.limited = Some(until);
                // Attempts after the reset are counted from one again, and may compact an overflow again.
                turn.tries = 0;
                turn.overflowed = false;
                turn.compaction_failed = false;
                run.compaction_failed = false;
            }
        }
    }

    pub(super) fn apply_run_resumed(&mut self, slot: bool) {
        if let Some(run) = &mut self.run {
            run.parked = None;
            run.slot = slot;
        }
    }

    pub(super) fn apply_run_held(&mut self, why: &Hold) {
        if let Some(run) = &mut self.run {
            run.hold = Some(why.clone());
            run.parked = None;
            run.slot = false;
            if let Some(turn) = &mut run.turn {
                turn.limited = None;
            }
        }
    }

    /// Adds the request of a model's call to the transcript if the run never started, for a later `continue`.
    fn keep_task(&mut self, run: &Run) {
        let untaken = run.waiting.iter().filter(|_| run.opened.owner.is_model_call());
        for queued in untaken {
            self.push_message(Message::User { seq: self.next_seq, text: Arc::clone(&queued.input.text) });
        }
    }

    pub(super) fn apply_run_ended(&mut self, ended: &RunEnded) {
        self.flush_deferred();
        self.outcomes.push(ended.outcome.clone());
        self.turns = self.turns.saturating_add(ended.turns);
        let Some(run) = self.run.take() else { return };
        if ended.outcome != Outcome::Completed {
            // Notices that were stored while the run was queued do not belong to it.
            let from = if run.started { run.from } else { self.transcript.len() };
            self.keep_task(&run);
            let stretch = MessageRange { from, to: self.transcript.len(), hidden: false };
            self.message_ranges.insert(ended.run, stretch);
        }
        // Prefers the whole text from the journal: the text in the end record is truncated for the owner.
        let whole = match (&ended.outcome, ended.returned) {
            (Outcome::Completed, None) if !self.created.joins => run.answer.as_ref().map(|answer| answer.text.text()),
            (Outcome::Completed, Some(call)) => run
                .turn
                .as_ref()
                .filter(|turn| turn.no == call.turn)
                .and_then(|turn| turn.calls.get(call.ix as usize))
                .map(|call| render::return_result(&call.args)),
            (Outcome::OutOfTurns, _) if !self.created.joins => self.last_text(&run),
            _ => Some(run.partial.text()).filter(|text| !text.is_empty()),
        };
        for (key, owned) in run.owned {
            if let Some(child) = self.children.get_mut(&owned.child) {
                child.key = None;
                child.owed = Some(key);
            }
            self.owed.insert(key, owned.child);
        }
        self.last = Some(Box::new(Ended {
            run: ended.run,
            owner: run.opened.owner.clone(),
            outcome: ended.outcome.clone(),
            text: whole.or_else(|| ended.text.clone()),
            turns: ended.turns,
            usage_self: ended.usage_self,
            usage_owned: ended.usage_owned,
            max_turns: run.allowance,
        }));
    }
}
