use super::draft::Draft;
use crate::ids::{CallId, SessionId};
use crate::record::{Carrier, Notice, NoticeTaken, Record};
use crate::state::Turn;

impl Draft<'_> {
    /// Returns whether a notice wakes a run at rest: the end of an owned run that was not cancelled by a person.
    pub(super) fn has_waking_arrival(&self) -> bool {
        let Some(run) = self.run() else { return false };
        let wakes = |row: &Notice| row.waking && row.key.is_some_and(|key| run.owned.contains_key(&key));
        self.state.arrived.iter().any(wakes)
    }

    /// Takes the notices that the next turn shows the model. Takes none while a person's message is queued. Takes ends
    /// that the model fetches by a tool only if the model is idle.
    pub(super) fn take_due_notices(&mut self) {
        let held = self.has_waiting_message();
        let idle = self.run().and_then(|run| run.turn.as_deref()).is_none_or(Turn::is_idle);
        let due =
            |row: &Notice| !self.state.reaches_model(row) || (!held && (idle || !self.state.is_pulled(row.child)));
        if self.state.arrived.iter().all(due) {
            return self.take_notices();
        }
        let items: Vec<Notice> = self.state.arrived.iter().filter(|row| due(row)).cloned().collect();
        if !items.is_empty() {
            self.emit(Record::NoticeTaken(Box::new(NoticeTaken { items, carrier: Carrier::Message })));
        }
    }

    pub(super) fn take_notices(&mut self) {
        if self.state.arrived.is_empty() {
            return;
        }
        let items = std::mem::take(&mut self.state.arrived).into_rows();
        self.emit(Record::NoticeTaken(Box::new(NoticeTaken { items, carrier: Carrier::Message })));
    }

    /// Takes notices for a held run, which calls no model. While a call is open, takes only those of owned runs: the held
    /// run cannot end before them.
    pub(super) fn store_notices(&mut self) {
        if self.run().is_none_or(|run| run.open_calls() == 0) {
            return self.take_notices();
        }
        let items = self.arrived_notices(|_, _| true);
        if !items.is_empty() {
            self.emit(Record::NoticeTaken(Box::new(NoticeTaken { items, carrier: Carrier::Message })));
        }
    }

    /// Returns the arrived notices of owned runs that `wanted` selects by child and key.
    pub(super) fn arrived_notices(&self, wanted: impl Fn(SessionId, CallId) -> bool) -> Vec<Notice> {
        let owned = |row: &&Notice| row.key.is_some_and(|key| self.state.owes(key) && wanted(row.child, key));
        self.state.arrived.iter().filter(owned).cloned().collect()
    }
}
