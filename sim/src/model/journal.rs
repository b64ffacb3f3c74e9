//! The journal of a session in the model, and queries of its records.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use subtend_session::ids::{CallId, Epoch, RunKey, RunNo, SessionId};
use subtend_session::index::{self, RowKey};
use subtend_session::outcome::{Outcome, OutcomeKind};
use subtend_session::place::{Owner, Place};
use subtend_session::record::{Hold, Notice, Record, RunEnded, RunOpened, SessionCreated};

#[derive(Clone, Debug, Default)]
pub(super) struct Journal {
    pub(super) records: Arc<Vec<Record>>,
    pub(super) epoch: Epoch,
    /// Digest of the records, kept for fast comparisons of states.
    pub(super) digest: u64,
}

impl Journal {
    pub(super) fn append(&mut self, records: &[Record]) {
        let mut hasher = DefaultHasher::new();
        self.digest.hash(&mut hasher);
        for record in records {
            // Every record can be written as JSON, so the fallback is never used.
            serde_json::to_vec(record).unwrap_or_default().hash(&mut hasher);
        }
        self.digest = hasher.finish();
        Arc::make_mut(&mut self.records).extend_from_slice(records);
    }
}

fn created(journal: &Journal) -> Option<&SessionCreated> {
    let Some(Record::SessionCreated(created)) = journal.records.first() else { return None };
    Some(created)
}

pub(super) fn place(journal: &Journal) -> Option<&Place> {
    created(journal).map(|created| &created.place)
}

pub(super) fn last_run(journal: &Journal) -> Option<(&RunOpened, bool)> {
    let mut ended = false;
    for record in journal.records.iter().rev() {
        if let Record::RunOpened(opened) = record {
            return Some((opened, ended));
        }
        ended |= matches!(record, Record::RunEnded(_));
    }
    None
}

pub(super) fn owner_of(opened: &RunOpened) -> Option<RunKey> {
    match &opened.owner {
        Owner::Run { session, run, .. } => Some(RunKey { session: *session, run: *run }),
        Owner::Person | Owner::Host(_) | Owner::Detached { .. } => None,
    }
}

pub(super) fn key_of(opened: &RunOpened) -> Option<CallId> {
    match &opened.owner {
        Owner::Run { call, .. } => Some(*call),
        Owner::Person | Owner::Host(_) | Owner::Detached { .. } => None,
    }
}

fn opened(journal: &Journal, run: RunNo) -> Option<&RunOpened> {
    journal.records.iter().find_map(|record| {
        let Record::RunOpened(opened) = record else { return None };
        (opened.run == run).then_some(&**opened)
    })
}

pub(super) fn is_persons(journal: &Journal, run: RunNo) -> bool {
    opened(journal, run).is_some_and(|opened| opened.owner == Owner::Person)
}

/// Returns the last hold of a run, unless the run has resumed since.
pub(super) fn hold_of(journal: &Journal, run: RunNo) -> Option<&Hold> {
    let about = |record: &&Record| matches!(record, Record::RunHeld { run: of, .. } | Record::InputsTaken { run: of, .. } if *of == run);
    let last = journal.records.iter().rev().find(about)?;
    if let Record::RunHeld { why, .. } = last { Some(&**why) } else { None }
}

/// Returns the outcome of a run that has ended or whose outcome is fixed.
pub(super) fn decided_outcome(journal: &Journal, run: RunNo) -> Option<&Outcome> {
    let ended = ends(journal).find(|ended| ended.run == run).map(|ended| &ended.outcome);
    ended.or_else(|| match hold_of(journal, run) {
        Some(Hold::Closing { outcome, .. }) => Some(outcome),
        Some(Hold::Interrupted { .. } | Hold::OutOfTurns) | None => None,
    })
}

pub(super) fn ends(journal: &Journal) -> impl DoubleEndedIterator<Item = &RunEnded> {
    journal.records.iter().filter_map(|record| {
        let Record::RunEnded(ended) = record else { return None };
        Some(&**ended)
    })
}

pub(super) fn ended(journal: &Journal, run: RunNo) -> Option<OutcomeKind> {
    ends(journal).find(|ended| ended.run == run).map(|ended| ended.outcome.kind())
}

pub(super) fn notice(from: SessionId, to: SessionId, journal: &Journal, key: RowKey) -> Option<Notice> {
    let place = place(journal)?;
    let refused = journal.records.iter().find_map(|record| {
        let Record::ContinueRefused { owner, key: refused, why } = record else { return None };
        (*owner == to && key == RowKey::Call(*refused)).then(|| index::refusal_from(from, *refused, *why))
    });
    let openings = journal.records.iter().filter_map(|record| {
        let Record::RunOpened(opened) = record else { return None };
        Some(opened)
    });
    let matches = |opened: &RunOpened| match (key, &opened.owner) {
        (RowKey::Call(call), Owner::Run { session, call: by, .. }) => (*session, *by) == (to, call),
        (RowKey::Run(run), _) => run == opened.run,
        (RowKey::Call(_), Owner::Person | Owner::Host(_) | Owner::Detached { .. }) => false,
    };
    let ended = |opened: &RunOpened| {
        let ended = ends(journal).find(|ended| ended.run == opened.run)?;
        index::notice_from(from, place, opened, ended).map(|(_, notice)| notice)
    };
    refused.or_else(|| openings.into_iter().find(|opened| matches(opened)).and_then(|opened| ended(opened)))
}
