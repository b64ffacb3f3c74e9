//! Computes the state that follows from changed records.

use subtend_session::record::{Carrier, Notice, Record};
use subtend_session::state::State;

use super::Case;

/// Folds a record that may be invalid, and advances the sequence number in any case.
pub(super) fn force(state: &mut State, record: &Record) {
    let next = state.next_seq;
    state.apply(record);
    if state.next_seq == next {
        state.next_seq = next.next();
    }
}

/// Replaces `state`, the fold of the records `decided`, by the fold of `records` over the state before the command.
pub(super) fn refold(case: &Case, state: &mut State, decided: &[Record], records: &[Record]) {
    let mut folded = case.before.clone();
    records.iter().for_each(|record| force(&mut folded, record));
    let row = |notice: &Notice| (notice.child, notice.row_key());
    let taken: Vec<_> = notices(records).map(row).collect();
    let arrived = case.before.arrived.iter().chain(state.arrived.iter()).chain(notices(decided));
    let arrived: Vec<Notice> = arrived.filter(|notice| !taken.contains(&row(notice))).cloned().collect();
    folded.arrived.clear();
    for notice in arrived {
        folded.arrived.push(notice);
    }
    folded.due = std::mem::take(&mut state.due);
    folded.recalled = std::mem::take(&mut state.recalled);
    folded.window = state.window;
    folded.queued_children = std::mem::take(&mut state.queued_children);
    *state = folded;
}

fn notices(records: &[Record]) -> impl Iterator<Item = &Notice> {
    let taken = records.iter().filter_map(|record| {
        let Record::NoticeTaken(taken) = record else { return None };
        Some(&taken.items)
    });
    taken.flatten()
}

pub(super) fn takes_message(record: &Record) -> bool {
    matches!(record, Record::NoticeTaken(taken) if taken.carrier == Carrier::Message)
}
