//! The content of a store, read after a kill or at rest.

use std::collections::{BTreeMap, BTreeSet};

use subtend_journal::{Auditor, Journal, ReadError};
use subtend_session::ids::{CallId, Epoch, RunKey, Seq, SessionId};
use subtend_session::index::Head;
use subtend_session::record::{Carrier, NoticeTaken, Record};

pub(crate) type Sessions<'a> = BTreeMap<SessionId, &'a [Record]>;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StoreSnapshot {
    pub(crate) sessions: u64,
    pub(crate) erased: u64,
    pub(crate) in_flight: u64,
    /// Number of outbox rows that their receivers have not handled.
    pub(crate) owed: u64,
    /// True if a run in flight has an open call.
    pub(crate) open_call: bool,
    /// True if a deletion is recorded for only some sessions of its tree.
    pub(crate) half_deleted: bool,
}

impl StoreSnapshot {
    pub(crate) fn needs_recovery(self) -> bool {
        self.in_flight > 0 || self.owed > 0
    }
}

/// Reads the whole journal, and checks its bytes and rows. The predicates are those of the model checker.
pub(crate) fn read(
    journal: &Journal,
    auditor: &mut Auditor,
    at_rest: bool,
) -> Result<(StoreSnapshot, StoreHeads, Vec<String>), ReadError> {
    let report = journal.verify(&mut |_| ())?;
    let mut unsound: Vec<String> = report.problems.iter().map(|problem| format!("verify: {problem:?}")).collect();
    auditor.read(journal)?;
    if let Err(error) = auditor.check(at_rest) {
        unsound.push(format!("audit: {error}"));
    }
    let inflight = journal.inflight()?;
    let sessions = sessions(auditor);
    let mut working = inflight.iter().filter_map(|(session, _)| sessions.get(session));
    let half = journal.unfinished_deletions()?;
    let snapshot = StoreSnapshot {
        sessions: sessions.len() as u64,
        erased: auditor.erased_sessions().len() as u64,
        in_flight: inflight.len() as u64,
        owed: auditor.rows().len() as u64,
        open_call: working.any(|records| open(records).next().is_some()),
        half_deleted: !half.is_empty(),
    };
    let incomplete = half.iter().filter(|_| at_rest);
    unsound.extend(incomplete.map(|session| format!("at rest the deletion of {session} is not complete")));
    Ok((snapshot, StoreHeads(journal.heads()?.into_iter().collect()), unsound))
}

/// The heads of all sessions, which tell the deleted ones and the ancestors of each session.
#[derive(Debug, Default)]
pub(crate) struct StoreHeads(BTreeMap<SessionId, Head>);

impl<const N: usize> From<[(SessionId, Head); N]> for StoreHeads {
    fn from(heads: [(SessionId, Head); N]) -> Self {
        Self(heads.into())
    }
}

impl StoreHeads {
    pub(crate) fn deleted(&self) -> impl Iterator<Item = SessionId> {
        self.0.iter().filter(|(_, head)| head.deleted).map(|(session, _)| *session)
    }

    pub(crate) fn is_erased(&self, session: SessionId) -> bool {
        self.0.get(&session).is_some_and(Head::is_erased)
    }

    /// Returns the session and its ancestors.
    pub(crate) fn ancestors(&self, session: SessionId) -> impl Iterator<Item = SessionId> {
        let parent = |at: &SessionId| self.0.get(at).and_then(|head| head.parent);
        std::iter::successors(Some(session), parent).take(self.0.len())
    }
}

pub(crate) fn sessions(auditor: &Auditor) -> Sessions<'_> {
    auditor.sessions().collect()
}

/// Returns the last record of each session, with its epoch.
pub(crate) fn last_records(auditor: &Auditor) -> BTreeMap<SessionId, (Seq, Epoch)> {
    let ends = auditor.sessions().map(|(session, records)| (session, Seq(records.len() as u64)));
    ends.filter_map(|(session, last)| Some((session, (last, auditor.epoch(session, last)?)))).collect()
}

/// Returns the calls of a session without a result.
pub(crate) fn open(records: &[Record]) -> impl Iterator<Item = CallId> {
    let mut open = BTreeSet::new();
    for record in records {
        if let Record::TurnAnswered(answer) = record {
            open.extend((0..).zip(&answer.calls).map(|(ix, _)| CallId { turn: answer.turn, ix }));
        } else if let Record::CallFinished(finished) = record {
            open.remove(&finished.call);
        } else if let Record::NoticeTaken(taken) = record {
            for call in results(taken) {
                open.remove(&call);
            }
        }
    }
    open.into_iter()
}

fn results(taken: &NoticeTaken) -> impl Iterator<Item = CallId> {
    let (own, other) = match taken.carrier {
        Carrier::Result => (true, None),
        Carrier::Await { call } => (false, Some(call)),
        Carrier::Message => (false, None),
    };
    taken.items.iter().filter_map(move |item| item.key.filter(|_| own)).chain(other)
}

pub(crate) fn ends(session: SessionId, records: &[Record]) -> BTreeMap<RunKey, u32> {
    let mut ends: BTreeMap<RunKey, u32> = BTreeMap::new();
    for record in records {
        if let Record::RunOpened(opened) = record {
            ends.entry(RunKey { session, run: opened.run }).or_default();
        } else if let Record::RunEnded(ended) = record {
            let count = ends.entry(RunKey { session, run: ended.run }).or_default();
            *count = count.saturating_add(1);
        }
    }
    ends
}
