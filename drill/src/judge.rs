//! The checks of a store after a kill, and at rest.

use std::collections::{BTreeMap, BTreeSet};

use subtend_journal::Auditor;
use subtend_session::ids::{CallId, Epoch, Seq, SessionId};
use subtend_session::place::Owner;
use subtend_session::record::Record;

use super::acknowledgements::Acknowledgements;
use super::finding::{FindingKind, Violation};
use super::marks::Marks;
use super::snapshot::{self, Sessions, StoreHeads, StoreSnapshot};
use super::store_dir::StoreDir;

/// The checks of one store across its kills. Keeps the acknowledgements and the last records that were found.
#[derive(Debug, Default)]
pub(crate) struct Judge {
    acknowledged: Acknowledgements,
    auditor: Auditor,
    last_records: BTreeMap<SessionId, (Seq, Epoch)>,
    /// Violations that an earlier inspection reported. Each inspection finds them again.
    known: BTreeSet<Violation>,
}

impl Judge {
    pub(crate) fn add(&mut self, acknowledged: Acknowledgements) {
        self.acknowledged.add(acknowledged);
    }

    /// Inspects the store, `at_rest` if a recovery left no run in flight. No snapshot if the store does not open.
    pub(crate) fn inspect(&mut self, store_dir: &StoreDir, at_rest: bool) -> (Option<StoreSnapshot>, Vec<Violation>) {
        let read = store_dir.open_after_kill().map_err(|error| format!("the store does not open: {error}"));
        let read = read.and_then(|journal| {
            snapshot::read(&journal, &mut self.auditor, at_rest)
                .map_err(|error| format!("the store cannot be read: {error}"))
        });
        let (snapshot, found) = match read {
            Ok((snapshot, heads, unsound)) => {
                let found = self.judge(store_dir, &heads, unsound, at_rest);
                self.acknowledged.add_found(&heads);
                self.last_records = snapshot::last_records(&self.auditor);
                (Some(snapshot), found)
            }
            Err(what) => (None, vec![Violation { kind: FindingKind::Unsound, what }]),
        };
        (snapshot, self.unknown(found))
    }

    /// Returns the violations of `found` that were not reported before.
    pub(crate) fn unknown(&mut self, found: Vec<Violation>) -> Vec<Violation> {
        found.into_iter().filter(|violation| self.known.insert(violation.clone())).collect()
    }

    fn judge(&self, store_dir: &StoreDir, heads: &StoreHeads, unsound: Vec<String>, at_rest: bool) -> Vec<Violation> {
        let (sessions, marks) = (snapshot::sessions(&self.auditor), Marks::read(store_dir));
        let mut found = of(FindingKind::Unsound, unsound);
        found.extend(of(FindingKind::Lost, self.acknowledged.lost(&sessions, heads)));
        found.extend(of(FindingKind::NotErased, self.acknowledged.find_erased_text(store_dir)));
        found.extend(of(FindingKind::Duplicated, find_duplicates(&sessions)));
        let unfenced = self.last_records.iter().filter_map(|(session, (seq, epoch))| {
            let later = self.auditor.epoch(*session, seq.next())?;
            fencing_violation(*session, *seq, *epoch, later)
        });
        found.extend(of(FindingKind::Unfenced, unfenced.collect()));
        found.extend(of(FindingKind::Repeated, marks.repeated()));
        found.extend(of(FindingKind::Unintended, marks.unintended(&sessions, heads)));
        if at_rest {
            found.extend(of(FindingKind::NotEndedOnce, runs_without_one_end(&sessions)));
            found.extend(of(FindingKind::Missing, undelivered_ends(&sessions)));
            let owed = self.auditor.rows().iter().map(|row| format!("an outbox row remains at rest: {row:?}"));
            found.extend(of(FindingKind::Missing, owed.collect()));
            found.extend(of(FindingKind::Dangling, open_calls(&sessions)));
        }
        found
    }
}

fn of(kind: FindingKind, what: Vec<String>) -> Vec<Violation> {
    what.into_iter().map(|what| Violation { kind, what }).collect()
}

/// Returns a message if a later process wrote a record without a later epoch: the dead one could have written it too.
fn fencing_violation(session: SessionId, last: Seq, epoch: Epoch, later: Epoch) -> Option<String> {
    let next = last.next();
    (later <= epoch).then(|| {
        format!(
            "record {next} of {session} was written by a later process in epoch {later}, but epoch {epoch} was already used"
        )
    })
}

/// Counts the notices that each owner took for each of its calls.
fn count_taken(sessions: &Sessions<'_>) -> BTreeMap<(SessionId, CallId), u32> {
    let mut taken: BTreeMap<(SessionId, CallId), u32> = BTreeMap::new();
    for (session, records) in sessions {
        for key in records.iter().flat_map(keys) {
            let count = taken.entry((*session, key)).or_default();
            *count = count.saturating_add(1);
        }
    }
    taken
}

fn keys(record: &Record) -> Vec<CallId> {
    let Record::NoticeTaken(taken) = record else { return Vec::new() };
    taken.items.iter().filter_map(|item| item.key).collect()
}

fn find_duplicates(sessions: &Sessions<'_>) -> Vec<String> {
    let twice = count_taken(sessions).into_iter().filter(|(_, count)| *count > 1);
    twice.map(|((owner, key), count)| format!("{owner} has {count} notices of its call {key}")).collect()
}

fn undelivered_ends(sessions: &Sessions<'_>) -> Vec<String> {
    let taken = count_taken(sessions);
    let mut found = Vec::new();
    for (session, records) in sessions {
        for record in *records {
            let Record::RunOpened(opened) = record else { continue };
            let Owner::Run { session: owner, call, .. } = &opened.owner else { continue };
            if !taken.contains_key(&(*owner, *call)) {
                found.push(format!(
                    "{owner} was never notified of run {} of {session}, which its call {call} opened",
                    opened.run
                ));
            }
        }
    }
    found
}

fn runs_without_one_end(sessions: &Sessions<'_>) -> Vec<String> {
    let ends = sessions.iter().flat_map(|(session, records)| snapshot::ends(*session, records));
    let wrong = ends.filter(|(_, count)| *count != 1);
    wrong.map(|(key, count)| format!("run {} of {} has {count} ends", key.run, key.session)).collect()
}

/// Returns calls without a result in sessions at rest.
fn open_calls(sessions: &Sessions<'_>) -> Vec<String> {
    let open = sessions.iter().flat_map(|(session, records)| snapshot::open(records).map(move |call| (session, call)));
    open.map(|(session, call)| format!("call {call} of {session} has no result")).collect()
}

#[cfg(test)]
mod tests;
