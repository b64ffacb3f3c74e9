//! Reads records that recovery appended before the subscription, and skips their events.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use subtend_actors::event::{Event, EventKind};
use subtend_journal::Journal;
use subtend_session::ids::{RunNo, Seq, SessionId, TurnNo};
use subtend_session::index::Inflight;
use subtend_session::record::Record;
use subtend_session::state::Phase;

use super::super::fail::Fail;

/// The last record of each session that was read from the journal. Events up to it are skipped.
#[derive(Debug, Default)]
pub(super) struct ReadPositions(HashMap<SessionId, ReadPosition>);

#[derive(Clone, Copy, Debug, Default)]
struct ReadPosition {
    seq: Seq,
    answered: Option<TurnNo>,
}

impl ReadPositions {
    /// Reads the records after `since` in `session`, and all records of children that it started after `since`. The
    /// caller must subscribe first, so that each record is read here, arrives as an event, or both.
    pub(super) fn read(journal: &Journal, session: SessionId, since: Seq) -> Result<(Self, Vec<Event>), Fail> {
        let (mut positions, mut events) = (Self::default(), Vec::new());
        let mut sessions = VecDeque::from([(session, since)]);
        while let Some((session, since)) = sessions.pop_front() {
            // A new child may have no record yet; its records arrive as events.
            let Some(head) = journal.head(session)? else { continue };
            for stored in journal.records_from(session, since.next(), usize::MAX)? {
                if let Record::ChildSpawned(spawned) = &stored.record {
                    sessions.push_back((spawned.child, Seq(0)));
                }
                let (seq, record) = (stored.seq, Arc::new(stored.record));
                let event = Event { root: head.root, session, what: EventKind::Record { seq, record } };
                positions.mark(&event);
                events.push(event);
            }
        }
        Ok((positions, events))
    }

    fn mark(&mut self, event: &Event) {
        let EventKind::Record { seq, record } = &event.what else { return };
        let mark = self.0.entry(event.session).or_default();
        mark.seq = *seq;
        if let Record::TurnAnswered(answered) = &**record {
            mark.answered = Some(answered.turn);
        }
    }

    /// Returns whether `event` was already read: a record, or a part of an answer that was read in full.
    pub(super) fn covers(&self, event: &Event) -> bool {
        let mark = self.0.get(&event.session).copied().unwrap_or_default();
        match &event.what {
            EventKind::Record { seq, .. } => *seq <= mark.seq,
            EventKind::Delta { turn, .. } => Some(*turn) <= mark.answered,
            EventKind::Progress { .. } | EventKind::Queue { .. } => false,
        }
    }
}

/// Returns the sessions with an active run among `session` and the descendants that its runs own.
pub(super) fn active(inflight: &[(SessionId, Inflight)], session: SessionId) -> BTreeSet<SessionId> {
    let mut tree = BTreeSet::from([session]);
    let mut before = 0;
    while before < tree.len() {
        before = tree.len();
        let owned = |row: &Inflight| row.owner.run().is_some_and(|owner| tree.contains(&owner.session));
        let owned = inflight.iter().filter(|(_, row)| owned(row));
        let owned: Vec<SessionId> = owned.map(|(id, _)| *id).collect();
        tree.extend(owned);
    }
    let held = |row: &Inflight| matches!(row.state, Phase::HeldInterrupted | Phase::HeldOutOfTurns);
    inflight.iter().filter(|(id, row)| tree.contains(id) && !held(row)).map(|(id, _)| *id).collect()
}

pub(super) fn ends(event: &Event, session: SessionId, run: RunNo) -> bool {
    let EventKind::Record { record, .. } = &event.what else { return false };
    event.session == session && matches!(&**record, Record::RunEnded(ended) if ended.run == run)
}

#[cfg(test)]
mod tests {
    use subtend_models::model::Delta;
    use subtend_session::ids::AttemptNo;
    use subtend_session::outcome::Initiator;

    use super::*;

    #[test]
    fn positions_cover_read_records_but_not_later_ones() {
        let (here, elsewhere) = (SessionId(uuid::Uuid::from_u128(1)), SessionId(uuid::Uuid::from_u128(2)));
        let positions = ReadPositions(HashMap::from([(here, ReadPosition { seq: Seq(7), answered: Some(TurnNo(2)) })]));
        let record = |session, seq| {
            let record = Arc::new(Record::SessionClosed { by: Initiator::Person });
            Event { root: here, session, what: EventKind::Record { seq: Seq(seq), record } }
        };
        let piece = |session, turn| {
            let (run, turn, attempt) = (RunNo(1), TurnNo(turn), AttemptNo(1));
            let what = EventKind::Delta { run, turn, attempt, offset: 0, delta: Delta::Text("so".into()) };
            Event { root: here, session, what }
        };
        let events = [record(here, 7), record(here, 8), piece(here, 2), piece(here, 3)];
        assert_eq!(events.map(|event| positions.covers(&event)), [true, false, true, false]);
        assert_eq!([record(elsewhere, 1), piece(elsewhere, 1)].map(|event| positions.covers(&event)), [false, false]);
    }
}
