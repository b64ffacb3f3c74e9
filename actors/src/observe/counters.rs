//! Counts of what sessions recorded, for monitoring.

use subtend_session::outcome::{ModelFail, OutcomeKind};
use subtend_session::record::Record;
use subtend_session::usage::Usage;

/// Counts of the records that a runtime appended since it started, including those of its recovery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    turns: u64,
    usage: Usage,
    failed_attempts: [u64; ModelFail::ALL.len()],
    ended_runs: [u64; OutcomeKind::ALL.len()],
}

impl Counters {
    /// Returns the counts of `records`; `None` if none of them counts, as for most batches.
    pub(crate) fn of(records: &[Record]) -> Option<Self> {
        let mut counters = Self::default();
        records.iter().for_each(|record| counters.add_record(record));
        (counters != Self::default()).then_some(counters)
    }

    /// Returns the number of answered model calls.
    pub fn turns(&self) -> u64 {
        self.turns
    }

    pub fn usage(&self) -> Usage {
        self.usage
    }

    pub fn failed_attempts(&self) -> impl Iterator<Item = (ModelFail, u64)> {
        ModelFail::ALL.into_iter().zip(self.failed_attempts)
    }

    pub fn ended_runs(&self) -> impl Iterator<Item = (OutcomeKind, u64)> {
        OutcomeKind::ALL.into_iter().zip(self.ended_runs)
    }

    fn add_record(&mut self, record: &Record) {
        if let Record::TurnAnswered(answered) = record {
            self.turns = self.turns.saturating_add(1);
            self.usage.add(&answered.usage);
        } else if let Record::AttemptDiscarded(discarded) = record {
            add(&mut self.failed_attempts, ModelFail::ALL.map(|fail| u64::from(fail == discarded.error)));
        } else if let Record::RunEnded(ended) = record {
            add(&mut self.ended_runs, OutcomeKind::ALL.map(|kind| u64::from(kind == ended.outcome.kind())));
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.turns = self.turns.saturating_add(other.turns);
        self.usage.add(&other.usage);
        add(&mut self.failed_attempts, other.failed_attempts);
        add(&mut self.ended_runs, other.ended_runs);
    }
}

fn add<const N: usize>(counts: &mut [u64; N], more: [u64; N]) {
    counts.iter_mut().zip(more).for_each(|(count, more)| *count = count.saturating_add(more));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::streams::tests::{answered, discarded, started};

    #[test]
    fn counts_of_batches_are_added() {
        assert_eq!(Counters::of(&[started(1, 1)]), None);
        let batch = Counters::of(&[started(1, 1), discarded(1, 1), started(1, 2), answered(1, 2)]).expect("counts");
        let mut sum = batch;
        sum.add(&batch);
        let failed = |counters: &Counters| counters.failed_attempts().map(|(_, count)| count).sum::<u64>();
        assert_eq!((batch.turns(), failed(&batch)), (1, 1));
        assert_eq!((sum.turns(), failed(&sum)), (2, 2));
    }
}
