//! Starts of runs and turns, with their slots and clocks.

use std::sync::Arc;

use super::draft::Draft;
use crate::command::Deadline;
use crate::compaction;
use crate::context;
use crate::effect::Effect;
use crate::ids::{AttemptNo, InputId, Text};
use crate::limits::time_after;
use crate::outcome::{Budget, Outcome};
use crate::place::{Mode, Owner, Place};
use crate::record::{CompactionCause, InputAccepted, Lane, Park, Prompt, Record, RunOpened};
use crate::state::Queued;
use crate::state::waiting::{first, ids, messages_last, opening};

impl Draft<'_> {
    /// Opens the next run with the first queued inputs, if no run is in flight.
    pub(super) fn open_next(&mut self) {
        let with = opening(self.state.queue.iter());
        let Some(input) = with.first().filter(|_| self.state.run.is_none()).map(|queued| Arc::clone(&queued.input))
        else {
            return;
        };
        let inputs = ids(with);
        let limits = &self.state.limits;
        // A detached run has no owner that could end it, so it gets a cap of its own.
        let ms = match &input.as_owner {
            Owner::Detached { .. } => Some(limits.wall_ms.map_or(limits.detached_ms, |ms| ms.min(limits.detached_ms))),
            Owner::Run { .. } | Owner::Person | Owner::Host(_) => limits.wall_ms,
        };
        let wall_cap_at = ms.map(|ms| time_after(self.clock.wall_ms, ms));
        let opened = RunOpened { inputs, ..self.run_opened_by(&input, Mode::Background, wall_cap_at) };
        self.open(opened);
    }

    /// Returns whether a person's message is queued that the run in flight will take.
    pub(super) fn has_waiting_message(&self) -> bool {
        let extends = self.run().is_some_and(|run| !run.opened.owner.is_model_call());
        extends && self.state.queue.iter().any(Queued::is_message)
    }

    pub(super) fn run_opened_by(&self, input: &InputAccepted, mode: Mode, wall_cap_at: Option<i64>) -> RunOpened {
        let slot = match &input.as_owner {
            Owner::Run { .. } | Owner::Detached { .. } => true,
            Owner::Person => matches!(self.state.created.place, Place::Child { .. }),
            Owner::Host(_) => false,
        };
        let limited = matches!(input.as_owner, Owner::Run { .. }) || self.state.created.task;
        RunOpened {
            run: self.state.last_run.next(),
            owner: input.as_owner.clone(),
            inputs: vec![input.id],
            mode,
            max_turns: input.allowance().unwrap_or_else(|| self.state.allowance()).min(self.state.limits.turns),
            base_turns: self.state.turns,
            deadline_ms: self.state.limits.run_ms.filter(|_| limited),
            wall_cap_at,
            on_restart: self.state.created.on_restart,
            slot,
        }
    }

    /// Opens a run: it waits for its slot, or starts if it needs none.
    pub(super) fn open(&mut self, opened: RunOpened) {
        let (run, slot, wall_cap_at) = (opened.run, opened.slot, opened.wall_cap_at);
        self.emit(Record::RunOpened(Box::new(opened)));
        if let Some(at) = wall_cap_at {
            self.arm(Deadline::WallCap(run), ms_until(at, self.clock.wall_ms));
        }
        if slot {
            self.effect(Effect::RequestSlot { run, resumed: false });
            self.arm(Deadline::Queue(run), self.state.limits.queue_ms);
        } else {
            self.begin();
        }
    }

    /// Starts the queued run and its first turn, with its inputs and the notices that have arrived.
    pub(super) fn begin(&mut self) {
        let Some(run) = self.run() else { return };
        let (no, slot) = (run.no, run.opened.slot);
        let steers = self.state.queue.iter().filter(|queued| queued.lane() == Lane::Steer);
        let taken = ids(messages_last(run.waiting.iter().chain(steers)));
        self.decision.records.reserve(8);
        self.emit(Record::RunStarted { run: no, slot });
        self.arm_run();
        self.take_notices();
        self.take_inputs(taken);
        self.start_turn(Prompt::Plain);
    }

    /// Returns the inputs that a boundary takes: all steering inputs. Without any, a rest point of a run that a
    /// person or the host opened takes the first queued inputs. A message never extends a run that a model's call
    /// opened: it opens the next run.
    ///
    /// A relative's message does not resume a held run, and does not extend a run whose turns are spent.
    pub(super) fn takeable(&self, rest: bool) -> Vec<InputId> {
        let spent = self.run().is_none_or(|run| run.hold.is_some() || run.is_spent());
        let steers = |queued: &&Queued| queued.lane() == Lane::Steer && !(spent && queued.input.is_from_relative());
        let steers = messages_last(self.state.queue.iter().filter(steers));
        let extends = self.run().is_some_and(|run| !run.opened.owner.is_model_call());
        if !steers.is_empty() || !rest || !extends {
            return ids(steers);
        }
        ids(messages_last(first(self.state.queue.iter())))
    }

    /// Takes `inputs`, and the due completions unless an input is a person's message.
    pub(super) fn take_with_notices(&mut self, inputs: Vec<InputId>) {
        let is_message = |id: &InputId| self.state.queue.iter().any(|it| it.input.id == *id && it.is_message());
        let message = inputs.iter().any(is_message);
        self.take_inputs(inputs);
        if !message {
            self.take_due_notices();
        }
    }

    pub(super) fn take_inputs(&mut self, ids: Vec<InputId>) {
        let Some(run) = self.run().map(|run| run.no).filter(|_| !ids.is_empty()) else { return };
        let turn = self.state.last_turn.next();
        self.emit(Record::InputsTaken { ids, run, turn });
    }

    /// Starts the next turn. If the run has no slot, requests one first. The caller has taken inputs and notices.
    pub(super) fn start_turn_with_slot(&mut self, prompt: Prompt) {
        let Some(run) = self.run() else { return };
        let (no, slot, parked) = (run.no, run.slot, run.parked);
        if self.state.limits.recorded_bytes.is_some_and(|max| run.recorded > max) {
            return self.end(Outcome::OutOfBudget { which: Budget::Recorded });
        }
        if run.opened.slot && !slot {
            self.emit(Record::RunParked { run: no, why: Park::Slot, worked_ms: self.clock.worked_ms });
            self.effect(Effect::RequestSlot { run: no, resumed: true });
            return;
        }
        if let Some(why) = parked {
            self.resume(why, slot);
        }
        self.start_turn(prompt);
    }

    pub(super) fn resume(&mut self, why: Park, slot: bool) {
        let Some(run) = self.run().map(|run| run.no) else { return };
        self.emit(Record::RunResumed { run, why, slot });
        self.arm_run();
    }

    /// Starts the next attempt, with `model` or the same. The turn's deadline bounds all attempts, so it stays armed.
    pub(super) fn start_again(&mut self, model: Option<Text>, after_ms: u64, compacts: Option<CompactionCause>) {
        let Some(run) = self.run() else { return };
        let Some(turn) = &run.turn else { return };
        let model = model.unwrap_or_else(|| turn.model.clone());
        let (run, turn, attempt, prompt) = (run.no, turn.no, turn.attempt.next(), turn.prompt);
        let reserved = self.reserved();
        self.emit(Record::TurnStarted { run, turn, attempt, prompt, reserved, model, compacts });
        self.effect(match compacts {
            Some(_) => Effect::Compact { turn, attempt },
            None => Effect::CallModel { turn, attempt, after_ms },
        });
    }

    pub(super) fn start_turn(&mut self, prompt: Prompt) {
        let Some(run) = self.run().map(|run| run.no) else { return };
        let (turn, attempt) = (self.state.last_turn.next(), AttemptNo(1));
        let (model, reserved) = (context::model(self.state), self.reserved());
        let compacts = compaction::is_due(self.state).then_some(CompactionCause::Share);
        self.emit(Record::TurnStarted { run, turn, attempt, prompt, reserved, model, compacts });
        self.arm(Deadline::Turn(turn), self.state.limits.turn_ms);
        self.effect(match compacts {
            Some(_) => Effect::Compact { turn, attempt },
            None => Effect::CallModel { turn, attempt, after_ms: 0 },
        });
    }

    /// Parks the run: releases its slot and stops its clock. For a run without a slot and clock, the record only keeps the
    /// working time since the last answer: unloading the session would lose it.
    pub(super) fn park(&mut self, why: Park) {
        let Some(run) = self.run() else { return };
        let must_park = run.has_clock() || self.clock.worked_ms > run.worked_ms;
        // A run that is already parked needs no new record for another reason to wait.
        if !must_park || run.parked.is_some() {
            return;
        }
        let run = run.no;
        self.stop_clock();
        self.emit(Record::RunParked { run, why, worked_ms: self.clock.worked_ms });
    }

    fn arm_run(&mut self) {
        let Some(run) = self.run() else { return };
        if let Some(ms) = run.opened.deadline_ms {
            let deadline = Deadline::Run(run.no);
            self.arm(deadline, ms.saturating_sub(self.clock.worked_ms.max(run.worked_ms)));
        }
    }

    /// Releases the slot or the queued request, and disarms the working-time deadline.
    pub(super) fn stop_clock(&mut self) {
        let Some(run) = self.run() else { return };
        let (no, opened) = (run.no, &run.opened);
        let has_slot = run.slot || run.parked == Some(Park::Slot) || (!run.started && opened.slot);
        let is_timed = run.started && run.parked.is_none() && run.hold.is_none() && opened.deadline_ms.is_some();
        let limited = run.turn.as_ref().filter(|_| run.limit_reset_at().is_some()).map(|turn| turn.no);
        if let Some(turn) = limited {
            self.disarm(Deadline::Limit(turn));
        }
        if has_slot {
            self.effect(Effect::ReleaseSlot { run: no });
        }
        if is_timed {
            self.disarm(Deadline::Run(no));
        }
    }
}

/// Returns the milliseconds from `now` until `at`, at least 0.
pub(super) fn ms_until(at: i64, now: i64) -> u64 {
    u64::try_from(at.saturating_sub(now)).unwrap_or(0)
}
