use crate::ids::RunNo;
use crate::state::{MessageRange, Ranges, State};

impl State {
    pub(super) fn apply_rolled_back(&mut self, run: RunNo) {
        let Some(stretch) = self.message_ranges.get_mut(&run) else { return };
        stretch.hidden = true;
        // A summary of the hidden messages would still show their content.
        let (from, empty) = (stretch.from, stretch.from == stretch.to);
        // Each compaction hides the messages of the earlier ones too.
        while !empty && self.compactions.last().is_some_and(|last| last.upto > from) {
            self.compactions.pop();
        }
        self.revise();
    }

    pub fn is_rolled_back(&self, run: RunNo) -> bool {
        self.message_ranges.get(&run).is_some_and(|stretch| stretch.hidden)
    }

    /// Returns the hidden ranges in the order of the transcript.
    pub(crate) fn hidden(&self) -> impl Iterator<Item = (RunNo, MessageRange)> {
        self.message_ranges.iter().filter(|(_, stretch)| stretch.hidden).map(|(run, stretch)| (*run, *stretch))
    }

    pub(crate) fn hidden_ranges(&self) -> Ranges {
        Ranges::new(self.hidden().map(|(_, stretch)| (stretch.from, stretch.to)))
    }

    /// Returns the run whose rollback hid the message at position `at`, if any.
    pub(crate) fn hidden_at(&self, at: usize) -> Option<RunNo> {
        self.hidden().find(|(_, stretch)| (stretch.from..stretch.to).contains(&at)).map(|(run, _)| run)
    }
}
