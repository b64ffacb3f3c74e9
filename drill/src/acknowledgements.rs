//! Acknowledgements of the killed processes. What was acknowledged must survive every kill.

use std::collections::BTreeSet;

use subtend_invariants::Acknowledged;
use subtend_session::ids::SessionId;

use super::line::Line;
use super::snapshot::{Sessions, StoreHeads};
use super::store_dir::StoreDir;
use super::workload;

/// The acknowledgements of all processes on one store.
#[derive(Clone, Debug, Default)]
pub(crate) struct Acknowledgements {
    facts: Acknowledged,
    deleting: BTreeSet<SessionId>,
    /// Sessions whose deletion was acknowledged, or found in the store after a kill.
    deleted: BTreeSet<SessionId>,
    /// Deleted sessions whose text must be erased, because the store was compacted since their deletion.
    erased: BTreeSet<SessionId>,
    compacted: bool,
    count: u64,
}

impl Acknowledgements {
    pub(crate) fn record(&mut self, line: Line) {
        match line {
            Line::Input(session, input) => drop(self.facts.inputs.insert((session, input))),
            Line::Ended(session, run) => drop(self.facts.ends.insert((session, run))),
            Line::Cancelled(session, run) => drop(self.facts.cancels.insert((session, run))),
            Line::Interrupted(session, run) => drop(self.facts.interrupts.insert((session, run))),
            Line::Branched(session) => drop(self.facts.branches.insert(session)),
            Line::Approved(session, call) => drop(self.facts.verdicts.insert((session, call))),
            Line::Seen(session, seq) => self.facts.shows(session, seq),
            Line::Deleting(session) => {
                self.deleting.insert(session);
                return;
            }
            Line::Compacted => {
                self.compacted = true;
                return;
            }
            Line::Deleted(session) => drop(self.deleted.insert(session)),
            Line::Opened | Line::Ready(_) | Line::KillPoint | Line::Quiet(_) => return,
        }
        self.count = self.count.saturating_add(1);
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn deletions(&self) -> u64 {
        self.deleted.len() as u64
    }

    pub(crate) fn add(&mut self, other: Self) {
        // The process compacted the store when it started, before its own deletions.
        if other.compacted {
            self.erased.clone_from(&self.deleted);
        }
        self.deleting.extend(other.deleting);
        self.deleted.extend(other.deleted);
        self.facts.add(other.facts);
        self.count = self.count.saturating_add(other.count);
    }

    /// Returns whether a deletion was requested but not acknowledged.
    pub(crate) fn has_pending_deletion(&self) -> bool {
        !self.deleting.is_subset(&self.deleted)
    }

    /// Adds deletions that a kill interrupted before their acknowledgement, but that are in the store. They must remain.
    pub(crate) fn add_found(&mut self, heads: &StoreHeads) {
        self.deleted.extend(heads.deleted().filter(|session| self.deleting.contains(session)));
    }

    /// Returns the acknowledgements that the store lacks.
    pub(crate) fn lost(&self, sessions: &Sessions<'_>, heads: &StoreHeads) -> Vec<String> {
        let mut lost = self.lost_deletions(heads);
        // The records of an erased session are gone, and so are the acknowledged facts about it.
        let mut facts = self.facts.clone();
        facts.retain(|session| !heads.is_erased(*session));
        lost.extend(facts.lost(sessions));
        lost
    }

    /// Returns deletions that are missing, incomplete, or were not requested.
    fn lost_deletions(&self, heads: &StoreHeads) -> Vec<String> {
        let found: BTreeSet<SessionId> = heads.deleted().collect();
        let undone = self.deleted.difference(&found);
        let mut lost: Vec<String> = undone.map(|session| format!("the deletion of {session} is missing")).collect();
        for session in &found {
            let mut targets = heads.ancestors(*session).filter(|ancestor| self.deleting.contains(ancestor)).peekable();
            if targets.peek().is_none() {
                lost.push(format!("{session} is deleted, but its deletion was not requested"));
            } else if !targets.any(|top| found.contains(&top)) {
                lost.push(format!("{session} is deleted, but the session whose deletion was requested is not"));
            }
        }
        lost
    }

    /// Returns a message for each place in the store that still contains text of an erased session.
    pub(crate) fn find_erased_text(&self, store_dir: &StoreDir) -> Vec<String> {
        if self.erased.is_empty() {
            return Vec::new();
        }
        let mut found = Vec::new();
        if let Some(values) = store_dir.values() {
            let values = values.unwrap_or_else(|error| {
                found.push(error.to_string());
                String::new()
            });
            let held = self.erased.iter().filter(|session| values.contains(&workload::secret(**session)));
            found.extend(held.map(|session| format!("a row contains text of the erased session {session}")));
        }
        let mut next = vec![store_dir.store()];
        while let Some(path) = next.pop() {
            if let Ok(entries) = std::fs::read_dir(&path) {
                next.extend(entries.flatten().map(|entry| entry.path()));
                continue;
            }
            let bytes = std::fs::read(&path).unwrap_or_default();
            let text = String::from_utf8_lossy(&bytes);
            let held = self.erased.iter().filter(|session| text.contains(&workload::secret(**session)));
            found.extend(
                held.map(|session| format!("{} contains text of the erased session {session}", path.display())),
            );
        }
        found
    }
}
