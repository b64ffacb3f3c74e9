//! Rollbacks.

use crate::ids::RunNo;
use crate::state::{State, Stretch};

impl State {
    pub(super) fn rolled_back(&mut self, run: RunNo) {
        if let Some(stretch) = self.stretches.get_mut(&run) {
            stretch.hidden = true;
        }
    }

    /// Returns whether the messages of `run` are hidden.
    pub fn is_rolled_back(&self, run: RunNo) -> bool {
        self.stretches.get(&run).is_some_and(|stretch| stretch.hidden)
    }

    /// Returns the hidden ranges in the order of the transcript.
    pub(crate) fn hidden(&self) -> impl Iterator<Item = (RunNo, Stretch)> {
        self.stretches.iter().filter(|(_, stretch)| stretch.hidden).map(|(run, stretch)| (*run, *stretch))
    }

    /// Returns the run whose rollback hid the message at position `at`, if any.
    pub(crate) fn hidden_at(&self, at: usize) -> Option<RunNo> {
        self.hidden().find(|(_, stretch)| (stretch.from..stretch.to).contains(&at)).map(|(run, _)| run)
    }
}
