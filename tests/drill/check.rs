//! What must hold after a kill: from the bytes first, then after recovery.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use subtend_journal::{Journal, audit};
use subtend_session::ids::{CallId, InputId, RunNo, Seq, SessionId};
use subtend_session::place::Owner;
use subtend_session::record::Record;

use crate::child;

/// What the killed process told of before it died.
#[derive(Default)]
pub struct Acknowledged {
    inputs: Vec<(SessionId, InputId)>,
    ends: Vec<(SessionId, RunNo)>,
    seen: BTreeMap<SessionId, Seq>,
}

impl Acknowledged {
    pub fn read(lines: impl Iterator<Item = String>) -> Self {
        let mut all = Self::default();
        for line in lines {
            let words: Vec<&str> = line.split(' ').collect();
            match words.as_slice() {
                ["INPUT", session, input] => all.inputs.extend(session.parse().ok().zip(input.parse().ok())),
                ["ENDED", session, run] => all.ends.extend(session.parse().ok().zip(run.parse().ok().map(RunNo))),
                ["SEEN", session, seq] => {
                    if let (Ok(session), Ok(seq)) = (session.parse(), seq.parse()) {
                        let last = all.seen.entry(session).or_default();
                        *last = (*last).max(Seq(seq));
                    }
                }
                _ => {}
            }
        }
        all
    }

    pub fn count(&self) -> usize {
        self.inputs.len() + self.ends.len() + self.seen.len()
    }
}

/// What was wrong; empty if nothing was.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Violations {
    /// The store did not open, or was not clean.
    pub store: Vec<String>,
    /// Acknowledged and gone.
    pub lost: Vec<String>,
    /// Runs without exactly one end after recovery.
    pub endless: Vec<String>,
    /// Owned runs without exactly one notice after recovery.
    pub notices: Vec<String>,
    /// Side effects that happened twice.
    pub repeated: Vec<String>,
}

/// Checks the store of `dir`; tells how many runs were in flight.
pub async fn after_kill(dir: &Path, acknowledged: &Acknowledged) -> (Violations, usize) {
    let mut violations = Violations::default();
    let in_flight = offline(dir, acknowledged, &mut violations).await;
    recovered(dir, &mut violations).await;
    (violations, in_flight)
}

async fn offline(dir: &Path, acknowledged: &Acknowledged, violations: &mut Violations) -> usize {
    let journal = match child::store(dir) {
        Ok(journal) => journal,
        Err(error) => {
            violations.store.push(error.to_string());
            return 0;
        }
    };
    verify(&journal, violations);
    // The predicates that the model checker uses, on what is really on the disk.
    if let Err(error) = audit(&journal, false) {
        violations.store.push(error.to_string());
    }
    for (session, input) in &acknowledged.inputs {
        let there = records(&journal, *session).iter().any(|record| match record {
            Record::InputAccepted(accepted) => accepted.id == *input,
            _ => false,
        });
        if !there {
            violations.lost.push(format!("input {input} of {session}"));
        }
    }
    for (session, run) in &acknowledged.ends {
        let there = records(&journal, *session).iter().any(|record| match record {
            Record::RunEnded(ended) => ended.run == *run,
            _ => false,
        });
        if !there {
            violations.lost.push(format!("the end of run {run} of {session}"));
        }
    }
    for (session, seq) in &acknowledged.seen {
        let last = journal.head(*session).ok().flatten().map_or(Seq(0), |head| head.last_seq);
        if last < *seq {
            violations.lost.push(format!("record {seq} of {session}, whose last is {last}"));
        }
    }
    let in_flight = journal.inflight().map_or(0, |rows| rows.len());
    if let Err(error) = journal.close().await {
        violations.store.push(error.to_string());
    }
    in_flight
}

async fn recovered(dir: &Path, violations: &mut Violations) {
    let Ok(journal) = child::store(dir) else { return };
    let boot = tokio::time::timeout(Duration::from_secs(20), child::runtime(dir, journal.clone(), 1)).await;
    let Ok(runtime) = boot else {
        violations.endless.push("recovery did not finish in 20 s".to_owned());
        return;
    };
    verify(&journal, violations);
    ends_and_notices(&journal, violations);
    if let Err(error) = audit(&journal, true) {
        violations.store.push(format!("after recovery: {error}"));
    }
    let marks = std::fs::read_to_string(dir.join("marks")).unwrap_or_default();
    let mut once = BTreeSet::new();
    for mark in marks.lines() {
        if !once.insert(mark) {
            violations.repeated.push(mark.to_owned());
        }
    }
    runtime.shutdown(Duration::from_secs(1)).await;
}

fn ends_and_notices(journal: &Journal, violations: &mut Violations) {
    let mut owned: BTreeMap<(SessionId, CallId), u32> = BTreeMap::new();
    let mut noticed: BTreeMap<(SessionId, CallId), u32> = BTreeMap::new();
    for (session, _) in journal.heads().expect("heads") {
        let mut ends: BTreeMap<RunNo, u32> = BTreeMap::new();
        for record in records(journal, session) {
            match record {
                Record::RunOpened(opened) => {
                    ends.entry(opened.run).or_default();
                    if let Owner::Run { session: owner, call, .. } = opened.owner {
                        *owned.entry((owner, call)).or_default() += 1;
                    }
                }
                Record::RunEnded(ended) => *ends.entry(ended.run).or_default() += 1,
                Record::NoticeTaken(taken) => {
                    for key in taken.items.iter().filter_map(|item| item.key) {
                        *noticed.entry((session, key)).or_default() += 1;
                    }
                }
                _ => {}
            }
        }
        for (run, count) in ends.into_iter().filter(|(_, count)| *count != 1) {
            violations.endless.push(format!("run {run} of {session} has {count} ends"));
        }
    }
    for key in owned.keys() {
        let count = noticed.get(key).copied().unwrap_or(0);
        if count != 1 {
            violations.notices.push(format!("the run owned by {} call {} has {count} notices", key.0, key.1));
        }
    }
    let owed = journal.outbox().expect("outbox");
    if !owed.is_empty() {
        violations.notices.push(format!("{} obligations are left: {:?}", owed.len(), owed.first()));
    }
}

fn verify(journal: &Journal, violations: &mut Violations) {
    match journal.verify(&mut |_| ()) {
        Ok(report) => violations.store.extend(report.problems.iter().map(|problem| format!("{problem:?}"))),
        Err(error) => violations.store.push(error.to_string()),
    }
}

fn records(journal: &Journal, session: SessionId) -> Vec<Record> {
    journal.records(session).map_or_else(|_| Vec::new(), |all| all.into_iter().map(|stored| stored.record).collect())
}
