use crate::command::{Clock, Deadline};
use crate::effect::{Decision, Effect, Reply};
use crate::ids::RunNo;
use crate::record::Record;
use crate::state::{Run, State};

/// A decision in progress. Each record is applied when it is emitted, so that later steps see its effect.
pub(super) struct Draft<'a> {
    pub(super) state: &'a mut State,
    pub(super) decision: Decision,
    pub(super) clock: Clock,
    /// True if this decision handles an answer of the model.
    pub(super) answered: bool,
    /// True if queued inputs stay queued after the end.
    pub(super) keeps_queue: bool,
}

impl<'a> Draft<'a> {
    pub(super) fn new(state: &'a mut State, clock: Clock) -> Self {
        Self { state, decision: Decision::default(), clock, answered: false, keeps_queue: false }
    }

    /// Returns the decision, with `Unload` if nothing remains to do.
    pub(super) fn finish(mut self) -> Decision {
        if !self.decision.records.is_empty() && self.state.can_unload() {
            self.effect(Effect::Unload);
        }
        self.decision
    }

    pub(super) fn emit(&mut self, record: Record) {
        self.state.apply(&record);
        self.decision.records.push(record);
    }

    pub(super) fn effect(&mut self, effect: Effect) {
        // Most decisions have five to eight effects.
        if self.decision.effects.capacity() == 0 {
            self.decision.effects.reserve_exact(8);
        }
        self.decision.effects.push(effect);
    }

    pub(super) fn reply(&mut self, reply: Reply) {
        self.decision.reply = reply;
    }

    pub(super) fn arm(&mut self, deadline: Deadline, after_ms: u64) {
        self.effect(Effect::Arm { deadline, after_ms });
    }

    pub(super) fn disarm(&mut self, deadline: Deadline) {
        self.effect(Effect::Disarm { deadline });
    }

    pub(super) fn run(&self) -> Option<&Run> {
        self.state.run.as_deref()
    }

    /// Returns the run in flight, if its number is `no`.
    pub(super) fn run_is(&self, no: RunNo) -> Option<&Run> {
        self.run().filter(|run| run.no == no)
    }
}
