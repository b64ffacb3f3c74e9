use super::{Call, CallPhase, Phase, Run, State, Turn};
use crate::call::CallKind;
use crate::ids::{CallId, InputId, RunKey, RunNo, SessionId, Text};
use crate::message::Message;
use crate::outcome::Outcome;
use crate::place::BranchKind;
use crate::record::{Hold, Lane, Notice, Park};

impl State {
    /// Returns the phase of the run in flight: the column of the table in `decide`.
    pub fn phase(&self) -> Phase {
        let Some(run) = &self.run else { return Phase::Quiet };
        match &run.hold {
            Some(Hold::Interrupted { .. }) => return Phase::HeldInterrupted,
            Some(Hold::OutOfTurns) => return Phase::HeldOutOfTurns,
            Some(Hold::Closing { .. }) => return Phase::Closing,
            None => {}
        }
        if !run.started {
            return Phase::Queued;
        }
        let Some(turn) = &run.turn else { return Phase::Working };
        if turn.limited.is_some() {
            // Parked at the limit, or for the slot after the reset.
            Phase::WaitingMidTurn
        } else if turn.streaming || turn.local > 0 || self.has_due_calls(run, turn) {
            Phase::Working
        } else if turn.open > 0 {
            Phase::WaitingMidTurn
        } else if run.parked == Some(Park::Slot) {
            if turn.calls.is_empty() { Phase::WaitingAtRest } else { Phase::WaitingMidTurn }
        } else if turn.calls.is_empty() && !run.owned.is_empty() {
            Phase::WaitingAtRest
        } else {
            Phase::Working
        }
    }

    /// Returns the turn allowance of a run whose input does not set one.
    pub fn allowance(&self) -> u32 {
        self.agent.as_ref().and_then(|agent| agent.turns).unwrap_or(self.own_turns).min(self.limits.turns)
    }

    /// Returns whether the session can be unloaded: no due stream, started local call or pending admission.
    pub fn can_unload(&self) -> bool {
        match self.turn() {
            None => true,
            Some(turn) => {
                let due = self.run.as_ref().is_some_and(|run| self.has_due_calls(run, turn));
                !turn.streaming && turn.local == 0 && !due
            }
        }
    }

    /// Returns whether an unstarted call waits neither for the slot nor for an approval, its own or an earlier call's.
    fn has_due_calls(&self, run: &Run, turn: &Turn) -> bool {
        let due = || turn.asked == 0 || self.due.admissions > 0 || self.due.is_due();
        turn.unstarted > 0 && run.parked.is_none() && due()
    }

    /// Returns the run that an input belongs to: the current or last run. A run that a model's call opened takes only
    /// steering inputs, so other inputs that are queued meanwhile belong to the next run.
    pub fn run_of(&self, input: InputId) -> RunNo {
        let is_later = |run: &Run| run.opened.owner.is_model_call() && !run.opened.inputs.contains(&input);
        let is_queued = || self.queue.iter().any(|queued| queued.input.id == input && queued.lane() == Lane::Send);
        match &self.run {
            Some(run) if is_later(run) && is_queued() => run.no.next(),
            Some(_) | None => self.last_run,
        }
    }

    /// Returns the text of the run's last answer with a text, including the continuations of a truncated answer. A run that
    /// never started added none: the search would visit all messages of earlier runs.
    pub(crate) fn last_text(&self, run: &Run) -> Option<Text> {
        if !run.started {
            return None;
        }
        let found = self.transcript.iter().skip(run.from).rev().find_map(|message| match message {
            Message::Assistant { seq, text: Some(text), .. } if !text.trim().is_empty() => Some((*seq, text)),
            Message::Assistant { .. }
            | Message::User { .. }
            | Message::Result { .. }
            | Message::Notice { .. }
            | Message::Prompt { .. } => None,
        });
        let (seq, text) = found?;
        let whole = run.answer.as_ref().filter(|answer| answer.seq == seq).map(|answer| answer.text.text());
        Some(whole.unwrap_or_else(|| Text::clone(text)))
    }

    /// Clears the volatile fields, so that two states of the same journal are equal.
    pub fn forget_volatile(&mut self) {
        self.arrived.clear();
        self.due.clear();
        self.recalled.clear();
        self.window = None;
        self.queued_children.clear();
    }

    /// Returns the owned run of `child` whose end this session takes next. The actual number is higher if people opened
    /// runs of the child in between.
    pub fn owned_run(&self, child: SessionId) -> RunKey {
        let last_taken = self.children.get(&child).map(|child| child.last_taken).unwrap_or_default();
        RunKey { session: child, run: last_taken.next() }
    }

    /// Returns the key of the owned run in flight that `run` refers to; `None` if it has ended or was never owned.
    pub fn owned_key(&self, run: &RunKey) -> Option<CallId> {
        self.children.get(&run.session).filter(|child| run.run > child.last_taken).and_then(|child| child.key)
    }

    /// Returns the key as [`State::owned_key`] does, and also if the owning run has ended before the notice arrived.
    pub fn awaited_key(&self, run: &RunKey) -> Option<CallId> {
        let owed = || self.children.get(&run.session).and_then(|child| child.owed);
        self.owned_key(run).or_else(owed)
    }

    /// Returns whether the model receives this end. The end of a run that a person opened is stored for views only.
    pub fn reaches_model(&self, notice: &Notice) -> bool {
        let detached = || {
            let child = self.children.get(&notice.child);
            notice.run == Some(RunNo(1)) && child.is_some_and(|child| child.detached)
        };
        notice.key.is_some() || detached()
    }

    /// Returns whether the end's text is used: the model receives it, or the child is an alternative of an answer here.
    pub(crate) fn keeps_text(&self, notice: &Notice) -> bool {
        let is_alternative = || {
            let child = self.children.get(&notice.child);
            notice.run == Some(RunNo(1)) && child.is_some_and(|child| child.kind == BranchKind::Alternative)
        };
        let is_answer = || notice.outcome == Outcome::Completed && is_alternative();
        self.reaches_model(notice) || is_answer()
    }

    /// Returns whether the model fetches the ends of `child`. Such ends are sent only to an idle model.
    pub(crate) fn is_pulled(&self, child: SessionId) -> bool {
        self.children.get(&child).is_some_and(|child| child.call.is_some() && child.dialect.is_pulled())
    }

    pub fn turn(&self) -> Option<&Turn> {
        self.run.as_ref().and_then(|run| run.turn.as_deref())
    }

    /// Returns the call `id`, if it belongs to the current turn.
    pub fn call(&self, id: CallId) -> Option<&Call> {
        self.turn().filter(|turn| turn.no == id.turn).and_then(|turn| turn.calls.get(id.ix as usize))
    }

    /// Returns whether `id` is a started call without a result.
    pub fn is_open(&self, id: CallId) -> bool {
        self.call(id).is_some_and(|call| call.phase == CallPhase::Started)
    }
}

impl Turn {
    /// Returns whether the model is idle: its answer has no calls, or a `return` that was refused.
    pub(crate) fn is_idle(&self) -> bool {
        self.calls.is_empty() || self.calls.iter().any(|call| call.kind == Some(CallKind::Return))
    }
}

impl Run {
    /// Returns the reset time of the provider's limit in milliseconds since the epoch, if the run is parked at a limit.
    pub fn limit_reset_at(&self) -> Option<i64> {
        match self.parked {
            Some(Park::Limit { until }) => Some(until),
            Some(Park::MidTurn | Park::AtRest | Park::Ask | Park::Slot) | None => None,
        }
    }

    pub fn is_spent(&self) -> bool {
        self.spent >= self.allowance
    }

    /// Returns whether local work is active: a model stream or a local tool.
    pub fn has_local_work(&self) -> bool {
        self.turn.as_ref().is_some_and(|turn| turn.streaming || turn.local > 0)
    }

    /// Returns the number of calls of the current turn without a result.
    pub fn open_calls(&self) -> u32 {
        self.turn.as_ref().map_or(0, |turn| turn.open)
    }

    /// Returns whether the run has a slot or a clock that it releases when it waits.
    pub fn has_clock(&self) -> bool {
        self.opened.slot || self.opened.deadline_ms.is_some()
    }
}
