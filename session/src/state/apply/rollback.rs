//! What is rolled back.

use crate::ids::RunNo;
use crate::state::{State, Stretch};

impl State {
    pub(super) fn rolled_back(&mut self, run: RunNo) {
        if let Some(stretch) = self.stretches.get_mut(&run) {
            stretch.hidden = true;
        }
    }

    /// Whether what `run` said is hidden.
    pub fn is_rolled_back(&self, run: RunNo) -> bool {
        self.stretches.get(&run).is_some_and(|stretch| stretch.hidden)
    }

    /// What is hidden, in the order of the transcript: runs follow each other.
    pub(crate) fn hidden(&self) -> impl Iterator<Item = (RunNo, Stretch)> {
        self.stretches.iter().filter(|(_, stretch)| stretch.hidden).map(|(run, stretch)| (*run, *stretch))
    }

    /// The run that was rolled back and with it the message at `at` of the transcript, if it was.
    pub(crate) fn hidden_at(&self, at: usize) -> Option<RunNo> {
        self.hidden().find(|(_, stretch)| (stretch.from..stretch.to).contains(&at)).map(|(run, _)| run)
    }
}
