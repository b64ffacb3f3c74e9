use std::collections::BTreeSet;

use crate::ids::{Seq, TurnNo};
use crate::record::Compacted;
use crate::state::{Compaction, State};

impl State {
    pub(super) fn apply_compacted(&mut self, compacted: &Compacted) {
        self.compactions.push(Compaction::from_record(compacted, self.next_seq));
        self.revise();
        self.measured = Some((compacted.after, self.transcript.len()));
        if let Some(child) = self.children.get_mut(&compacted.of) {
            child.described = true;
        }
        if compacted.turn.is_some()
            && let Some(turn) = self.run.as_mut().and_then(|run| run.turn.as_mut())
        {
            turn.compacting = None;
        }
    }

    pub(super) fn apply_compaction_failed(&mut self, no: TurnNo) {
        let Some(run) = &mut self.run else { return };
        run.compaction_failed = true;
        if let Some(turn) = run.turn.as_mut().filter(|turn| turn.no == no) {
            turn.compacting = None;
            turn.compaction_failed = true;
        }
    }

    pub(super) fn apply_compaction_undone(&mut self) {
        self.compactions.pop();
        self.revise();
    }

    /// Records that earlier messages became visible or hidden, which invalidates the provider's token count.
    pub(super) fn revise(&mut self) {
        self.revised = self.next_seq;
        self.measured = None;
    }

    /// Returns the records of the messages of this session that a compaction hides.
    pub fn compacted_records(&self) -> BTreeSet<Seq> {
        let own = self.transcript.iter().enumerate().skip(self.created.inherited.len());
        own.filter(|(at, _)| self.is_compacted(*at)).filter_map(|(_, message)| message.record()).collect()
    }

    pub(crate) fn is_compacted(&self, at: usize) -> bool {
        self.compactions.last().is_some_and(|last| last.hides(at))
    }
}
