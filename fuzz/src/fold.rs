//! Fuzzes the fold of one session's journal.

use subtend_session::ids::{Epoch, Lsn, SessionId};
use subtend_session::index::{self, Before, Stamp};
use subtend_session::record::Record;
use subtend_session::state::State;

use super::{InputResult, tape};

/// Folds records that are derived from the bytes. Each is applied, or refused without changing the state.
pub fn any_bytes(bytes: &[u8]) -> InputResult {
    let (session, records) = tape::records(bytes);
    fold(session, &records)
}

/// Folds records all at once and one by one. Both give the same result.
pub fn fold(session: SessionId, records: &[Record]) -> InputResult {
    let whole = State::fold(session, records);
    let Some((first, rest)) = records.split_first() else {
        assert!(whole.is_err(), "an empty list was accepted");
        return InputResult::Refused;
    };
    let Ok(mut state) = State::fold(session, [first]) else {
        assert!(whole.is_err(), "records without a creation were accepted");
        return InputResult::Refused;
    };
    let mut refused = None;
    for record in rest {
        let before = state.clone();
        match state.follow(record) {
            Ok(()) => check_readers(&before, &state, record),
            Err(error) => {
                assert_eq!(state, before, "a refused record changed the state: {error}");
                state.apply(record);
                assert_eq!(state, before, "a rejected record changed the state: {error}");
                refused.get_or_insert(error);
            }
        }
    }
    assert_eq!(whole.as_ref().err(), refused.as_ref(), "folding at once and record by record differ");
    let Ok(folded) = whole else { return InputResult::Refused };
    assert_eq!(folded, state, "folding at once and record by record differ");
    InputResult::Accepted
}

/// Derives the index rows, which must agree with the state.
fn check_readers(before: &State, after: &State, record: &Record) {
    let stamp = Stamp { epoch: Epoch(1), starts: 0, opened_lsn: Lsn(1), created_ms: 0, updated_ms: 0 };
    let changes = index::changes(&Before::of(before), after, std::slice::from_ref(record), stamp);
    let head = changes.head.map(|head| head.last_seq.next());
    assert_eq!(head, Some(after.next_seq), "the head and the fold have different next records");
    assert_eq!(after.next_seq, before.next_seq.next(), "the sequence has a gap");
    assert_eq!(
        index::inflight(after, Lsn(1), Epoch(1), 0).is_some(),
        after.run.is_some(),
        "the index of runs in flight differs"
    );
}
