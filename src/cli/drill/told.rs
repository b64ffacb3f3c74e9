//! What was acknowledged: to be there for ever, whatever is killed.

use std::collections::{BTreeMap, BTreeSet};

use subtend_session::ids::{CallId, InputId, RunNo, Seq, SessionId};
use subtend_session::record::{Hold, Record};

use super::home::Home;
use super::line::Line;
use super::look::{Gone, Sessions};
use super::workload;

/// Acknowledgements of one store, of all the processes that worked on it.
#[derive(Clone, Debug, Default)]
pub(super) struct Told {
    inputs: BTreeSet<(SessionId, InputId)>,
    ends: BTreeSet<(SessionId, RunNo)>,
    cancels: BTreeSet<(SessionId, RunNo)>,
    interrupts: BTreeSet<(SessionId, RunNo)>,
    branches: BTreeSet<SessionId>,
    words: BTreeSet<(SessionId, CallId)>,
    shown: BTreeMap<SessionId, Seq>,
    deleting: BTreeSet<SessionId>,
    deleted: BTreeSet<SessionId>,
    /// Deleted sessions of which no byte may be left: the store was compacted since.
    erased: BTreeSet<SessionId>,
    compacted: bool,
    count: u64,
}

impl Told {
    /// Takes a line.
    pub(super) fn take(&mut self, line: Line) {
        match line {
            Line::Input(session, input) => drop(self.inputs.insert((session, input))),
            Line::Ended(session, run) => drop(self.ends.insert((session, run))),
            Line::Cancelled(session, run) => drop(self.cancels.insert((session, run))),
            Line::Interrupted(session, run) => drop(self.interrupts.insert((session, run))),
            Line::Branched(session) => drop(self.branches.insert(session)),
            Line::Word(session, call) => drop(self.words.insert((session, call))),
            Line::Seen(session, seq) => {
                let last = self.shown.entry(session).or_default();
                *last = (*last).max(seq);
            }
            Line::Deleting(session) => {
                self.deleting.insert(session);
                return;
            }
            Line::Compacted => {
                self.compacted = true;
                return;
            }
            Line::Deleted(session) => drop(self.deleted.insert(session)),
            Line::Opened | Line::Ready(_) | Line::Strike | Line::Quiet(_) => return,
        }
        self.count = self.count.saturating_add(1);
    }

    /// How many acknowledgements these are.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// How many deletions these are.
    pub(super) fn deletions(&self) -> u64 {
        self.deleted.len() as u64
    }

    /// Adds what a later process was told.
    pub(super) fn add(&mut self, other: Self) {
        // It compacted the store before it deleted anything itself.
        if other.compacted {
            self.erased.clone_from(&self.deleted);
        }
        self.deleting.extend(other.deleting);
        self.deleted.extend(other.deleted);
        self.inputs.extend(other.inputs);
        self.ends.extend(other.ends);
        self.cancels.extend(other.cancels);
        self.interrupts.extend(other.interrupts);
        self.branches.extend(other.branches);
        self.words.extend(other.words);
        for (session, seq) in other.shown {
            let last = self.shown.entry(session).or_default();
            *last = (*last).max(seq);
        }
        self.count = self.count.saturating_add(other.count);
    }

    /// What of it is not on the disk.
    pub(super) fn lost(&self, sessions: &Sessions<'_>, gone: &Gone) -> Vec<String> {
        let mut lost = self.deletions_lost(gone);
        // What was acknowledged of a session went with its records.
        let mut told = self.clone();
        told.leave_out(gone);
        lost.extend(told.facts_lost(sessions));
        lost
    }

    /// Deletions that were acknowledged and are gone, and deletions that nobody asked for.
    fn deletions_lost(&self, gone: &Gone) -> Vec<String> {
        let found: BTreeSet<SessionId> = gone.deleted().collect();
        let undone = self.deleted.difference(&found);
        let mut lost: Vec<String> = undone.map(|session| format!("the deletion of {session} is gone")).collect();
        let meant = |session: &SessionId| gone.above(*session).any(|above| self.deleting.contains(&above));
        let unmeant = found.iter().filter(|session| !meant(session));
        lost.extend(unmeant.map(|session| format!("{session} is deleted, and nothing asked for that")));
        lost
    }

    fn leave_out(&mut self, gone: &Gone) {
        let there = |session: &SessionId| !gone.is_erased(*session);
        self.inputs.retain(|(session, _)| there(session));
        self.ends.retain(|(session, _)| there(session));
        self.cancels.retain(|(session, _)| there(session));
        self.interrupts.retain(|(session, _)| there(session));
        self.branches.retain(there);
        self.words.retain(|(session, _)| there(session));
        self.shown.retain(|session, _| there(session));
    }

    /// Files of the store that hold text of a session which was erased.
    pub(super) fn kept(&self, home: &Home) -> Vec<String> {
        if self.erased.is_empty() {
            return Vec::new();
        }
        let mut found = Vec::new();
        let mut next = vec![home.store()];
        while let Some(path) = next.pop() {
            if let Ok(entries) = std::fs::read_dir(&path) {
                next.extend(entries.flatten().map(|entry| entry.path()));
                continue;
            }
            let bytes = std::fs::read(&path).unwrap_or_default();
            let text = String::from_utf8_lossy(&bytes);
            let held = self.erased.iter().filter(|session| text.contains(&workload::secret(**session)));
            found.extend(held.map(|session| format!("{} holds text of {session}, which was erased", path.display())));
        }
        found
    }

    fn facts_lost(&self, sessions: &Sessions<'_>) -> Vec<String> {
        let mut kept = Kept::default();
        for (session, records) in sessions {
            records.iter().for_each(|record| kept.take(*session, record));
        }
        let mut lost = Vec::new();
        let inputs = self.inputs.iter().filter(|input| !kept.inputs.contains(input));
        lost.extend(inputs.map(|(session, input)| format!("the accepted input {input} of {session} is gone")));
        let ends = self.ends.iter().filter(|end| !kept.ends.contains(end));
        lost.extend(ends.map(|(session, run)| format!("the end of run {run} of {session}, which was told, is gone")));
        let cancels = self.cancels.iter().filter(|run| !kept.ends.contains(run) && !kept.closing.contains(run));
        lost.extend(cancels.map(|(session, run)| format!("the cancel of run {run} of {session} is gone")));
        let interrupts =
            self.interrupts.iter().filter(|run| !kept.ends.contains(run) && !kept.interrupted.contains(run));
        lost.extend(interrupts.map(|(session, run)| format!("the interrupt of run {run} of {session} is gone")));
        let branches = self.branches.iter().filter(|branch| !sessions.contains_key(branch));
        lost.extend(branches.map(|branch| format!("the branch {branch} is gone")));
        let words = self.words.iter().filter(|word| !kept.words.contains(word));
        lost.extend(words.map(|(session, call)| format!("a person's word for call {call} of {session} is gone")));
        for (session, seq) in &self.shown {
            let last = Seq(sessions.get(session).map_or(0, |records| records.len() as u64));
            if last < *seq {
                lost.push(format!("record {seq} of {session}, which was shown, is gone: the last is {last}"));
            }
        }
        lost
    }
}

/// What the disk has of what is acknowledged.
#[derive(Default)]
struct Kept {
    inputs: BTreeSet<(SessionId, InputId)>,
    ends: BTreeSet<(SessionId, RunNo)>,
    closing: BTreeSet<(SessionId, RunNo)>,
    interrupted: BTreeSet<(SessionId, RunNo)>,
    words: BTreeSet<(SessionId, CallId)>,
}

impl Kept {
    fn take(&mut self, session: SessionId, record: &Record) {
        if let Record::InputAccepted(accepted) = record {
            self.inputs.insert((session, accepted.id));
        } else if let Record::RunEnded(ended) = record {
            self.ends.insert((session, ended.run));
        } else if let Record::AskAnswered { call, .. } = record {
            self.words.insert((session, *call));
        } else if let Record::RunHeld { run, why } = record {
            match **why {
                Hold::Closing { .. } => _ = self.closing.insert((session, *run)),
                Hold::Interrupted { .. } => _ = self.interrupted.insert((session, *run)),
                Hold::OutOfTurns => {}
            }
        }
    }
}
