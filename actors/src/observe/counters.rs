//! Counts of what sessions recorded, for monitoring.

use std::collections::BTreeMap;

use subtend_session::outcome::{ModelFail, OutcomeKind};
use subtend_session::record::Record;
use subtend_session::usage::Usage;

/// Counts of the records that a runtime appended since it started, including those of its recovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Answered model calls.
    pub turns: u64,
    /// The usage of answered model calls.
    pub usage: Usage,
    /// Failed attempts of model calls.
    pub failed_attempts: BTreeMap<ModelFail, u64>,
    pub ended_runs: BTreeMap<OutcomeKind, u64>,
}

impl Counters {
    /// Returns the counts of `records`; `None` if none of them counts, as for most batches.
    pub(crate) fn of(records: &[Record]) -> Option<Self> {
        let mut counters = Self::default();
        records.iter().for_each(|record| counters.add_record(record));
        (counters != Self::default()).then_some(counters)
    }

    fn add_record(&mut self, record: &Record) {
        if let Record::TurnAnswered(answered) = record {
            self.turns = self.turns.saturating_add(1);
            self.usage.add(&answered.usage);
        } else if let Record::AttemptDiscarded(discarded) = record {
            add(&mut self.failed_attempts, discarded.error, 1);
        } else if let Record::RunEnded(ended) = record {
            add(&mut self.ended_runs, ended.outcome.kind(), 1);
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.turns = self.turns.saturating_add(other.turns);
        self.usage.add(&other.usage);
        other.failed_attempts.iter().for_each(|(error, more)| add(&mut self.failed_attempts, *error, *more));
        other.ended_runs.iter().for_each(|(outcome, more)| add(&mut self.ended_runs, *outcome, *more));
    }
}

fn add<K: Ord>(counts: &mut BTreeMap<K, u64>, key: K, more: u64) {
    let count = counts.entry(key).or_default();
    *count = count.saturating_add(more);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::streams::tests::{answered, discarded, started};

    #[test]
    fn records_without_an_end_are_not_counted() {
        assert_eq!(Counters::of(&[started(1, 1)]), None);
        let batch = Counters::of(&[started(1, 1), discarded(1, 1), started(1, 2), answered(1, 2)]).expect("counts");
        let mut sum = batch.clone();
        sum.add(&batch);
        let failed = |sum: &Counters| sum.failed_attempts.values().copied().collect::<Vec<_>>();
        assert_eq!((batch.turns, failed(&batch)), (1, vec![1]));
        assert_eq!((sum.turns, failed(&sum)), (2, vec![2]));
    }
}
