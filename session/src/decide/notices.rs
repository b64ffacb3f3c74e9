//! Taking rows that have arrived.

use super::draft::Draft;
use crate::ids::{CallId, SessionId};
use crate::record::{Carrier, Notice, NoticeTaken, Record};
use crate::sabotage::Bug;

impl Draft<'_> {
    /// Whether a row is there that wakes a run at rest: of a run that this one owns, and not ended by a person.
    pub(super) fn arrived_wakes(&self) -> bool {
        let Some(run) = self.run() else { return false };
        let wakes = |row: &Notice| row.waking && row.key.is_some_and(|key| run.owned.contains_key(&key));
        self.state.arrived.iter().any(wakes)
    }

    /// Takes all rows that have arrived as one message (rule 1).
    pub(super) fn take_notices(&mut self) {
        if self.state.arrived.is_empty() || self.bug(Bug::RowsLeftPending) {
            return;
        }
        let items = std::mem::take(&mut self.state.arrived).into_rows();
        self.emit(Record::NoticeTaken(Box::new(NoticeTaken { items, carrier: Carrier::Message })));
    }

    /// Takes rows for a held run, whose model is not called: with a call open only those of owned runs, which its end waits for.
    pub(super) fn store_notices(&mut self) {
        if self.run().is_none_or(|run| run.open_calls() == 0) {
            return self.take_notices();
        }
        if self.bug(Bug::RowsLeftPending) {
            return;
        }
        let items = self.arrived_owned(|_, _| true);
        if !items.is_empty() {
            self.emit(Record::NoticeTaken(Box::new(NoticeTaken { items, carrier: Carrier::Message })));
        }
    }

    /// The arrived rows of owned runs that are wanted, by child and key.
    pub(super) fn arrived_owned(&self, wanted: impl Fn(SessionId, CallId) -> bool) -> Vec<Notice> {
        let owned = |row: &&Notice| row.key.is_some_and(|key| self.state.owes(key) && wanted(row.child, key));
        self.state.arrived.iter().filter(owned).cloned().collect()
    }
}
