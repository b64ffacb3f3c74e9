//! Journals of one session.

use subtend_session::ids::{Epoch, Lsn, SessionId};
use subtend_session::index::{self, Before, Stamp};
use subtend_session::record::Record;
use subtend_session::state::State;

use super::{Came, tape};

/// The bytes as a story, folded: it becomes a state, or is refused where it stops being one, and nothing of the refused record is kept.
pub fn any_bytes(bytes: &[u8]) -> Came {
    let (session, records) = tape::story(bytes);
    fold(session, &records)
}

/// As [`any_bytes`], for records.
pub fn fold(session: SessionId, records: &[Record]) -> Came {
    let whole = State::fold(session, records);
    let Some((first, rest)) = records.split_first() else {
        assert!(whole.is_err(), "no records are no journal");
        return Came::Refused;
    };
    let Ok(mut state) = State::fold(session, [first]) else {
        assert!(whole.is_err(), "it begins with no birth");
        return Came::Refused;
    };
    let mut refused = None;
    for record in rest {
        let before = state.clone();
        match state.follow(record) {
            Ok(()) => looked_at(&before, &state, record),
            Err(error) => {
                assert_eq!(state, before, "a refused record leaves the state as it was: {error}");
                state.apply(record);
                assert_eq!(state, before, "a record that does not fit changes nothing: {error}");
                refused.get_or_insert(error);
            }
        }
    }
    assert_eq!(whole.as_ref().err(), refused.as_ref(), "at once and record by record");
    let Ok(folded) = whole else { return Came::Refused };
    assert_eq!(folded, state, "at once and record by record");
    Came::Taken
}

/// What is made of a state, of any legal story: it must come to something.
fn looked_at(before: &State, after: &State, record: &Record) {
    let stamp = Stamp { epoch: Epoch(1), starts: 0, opened_lsn: Lsn(1), created_ms: 0, updated_ms: 0 };
    let changes = index::changes(&Before::of(before), after, std::slice::from_ref(record), stamp);
    let head = changes.head.map(|head| head.last_seq.next());
    assert_eq!(head, Some(after.next_seq), "the head says where the journal ends");
    assert_eq!(after.next_seq, before.next_seq.next(), "a record is one record");
    assert_eq!(
        index::inflight(after, Lsn(1), Epoch(1), 0).is_some(),
        after.run.is_some(),
        "the boot finds runs in flight"
    );
}
