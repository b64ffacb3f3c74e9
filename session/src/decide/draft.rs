//! A decision in the making.

use crate::command::{Clock, Deadline};
use crate::effect::{Decision, Effect, Reply};
use crate::ids::RunNo;
use crate::record::Record;
use crate::state::{Run, State};

/// A decision in the making: each record is applied as it is emitted, so that later ones see what earlier ones did.
pub(super) struct Draft<'a> {
    pub(super) state: &'a mut State,
    pub(super) decision: Decision,
    pub(super) clock: Clock,
    /// Whether the model answered in this decision: at its rest point notices that no turn can follow hold the run.
    pub(super) answered: bool,
    /// Whether the end that is decided leaves the queue as it is.
    pub(super) queue_stands: bool,
}

impl<'a> Draft<'a> {
    pub(super) fn new(state: &'a mut State, clock: Clock) -> Self {
        Self { state, decision: Decision::default(), clock, answered: false, queue_stands: false }
    }

    /// The decision; the hub is told when nothing is left to do for the session.
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
        // Most decisions have five to eight.
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

    /// The run in flight, if it is `no`.
    pub(super) fn run_is(&self, no: RunNo) -> Option<&Run> {
        self.run().filter(|run| run.no == no)
    }
}
