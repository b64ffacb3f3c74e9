//! Acknowledged facts, which the journal must keep.

use std::collections::{BTreeMap, BTreeSet};

use subtend_session::ids::{CallId, InputId, RunNo, Seq, SessionId};
use subtend_session::record::{Hold, Record};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acknowledged {
    pub inputs: BTreeSet<(SessionId, InputId)>,
    pub ends: BTreeSet<(SessionId, RunNo)>,
    pub cancels: BTreeSet<(SessionId, RunNo)>,
    pub interrupts: BTreeSet<(SessionId, RunNo)>,
    pub branches: BTreeSet<SessionId>,
    /// Verdicts of approvers.
    pub verdicts: BTreeSet<(SessionId, CallId)>,
    /// For each session, the last record that a subscriber received.
    pub shown: BTreeMap<SessionId, Seq>,
}

impl Acknowledged {
    pub fn add(&mut self, other: Self) {
        self.inputs.extend(other.inputs);
        self.ends.extend(other.ends);
        self.cancels.extend(other.cancels);
        self.interrupts.extend(other.interrupts);
        self.branches.extend(other.branches);
        self.verdicts.extend(other.verdicts);
        for (session, seq) in other.shown {
            self.shows(session, seq);
        }
    }

    pub fn shows(&mut self, session: SessionId, seq: Seq) {
        let last = self.shown.entry(session).or_default();
        *last = (*last).max(seq);
    }

    /// Keeps only the facts of sessions for which `holds` is true. An erased session has no facts to keep.
    pub fn retain(&mut self, holds: impl Fn(&SessionId) -> bool) {
        self.inputs.retain(|(session, _)| holds(session));
        self.ends.retain(|(session, _)| holds(session));
        self.cancels.retain(|(session, _)| holds(session));
        self.interrupts.retain(|(session, _)| holds(session));
        self.branches.retain(&holds);
        self.verdicts.retain(|(session, _)| holds(session));
        self.shown.retain(|session, _| holds(session));
    }

    /// Describes each acknowledged fact that is missing in the records of `sessions`.
    pub fn lost(&self, sessions: &BTreeMap<SessionId, &[Record]>) -> Vec<String> {
        let mut kept = AcknowledgedFacts::default();
        for (session, records) in sessions {
            records.iter().for_each(|record| kept.take(*session, record));
        }
        let mut lost = Vec::new();
        let inputs = self.inputs.iter().filter(|input| !kept.inputs.contains(input));
        lost.extend(inputs.map(|(session, input)| format!("the accepted input {input} of {session} is missing")));
        let ends = self.ends.iter().filter(|end| !kept.ends.contains(end));
        lost.extend(ends.map(|(session, run)| format!("the reported end of run {run} of {session} is missing")));
        let cancels = self.cancels.iter().filter(|run| !kept.ends.contains(run) && !kept.closing.contains(run));
        lost.extend(cancels.map(|(session, run)| format!("the cancel of run {run} of {session} is missing")));
        let interrupts =
            self.interrupts.iter().filter(|run| !kept.ends.contains(run) && !kept.interrupted.contains(run));
        lost.extend(interrupts.map(|(session, run)| format!("the interrupt of run {run} of {session} is missing")));
        let branches = self.branches.iter().filter(|branch| !sessions.contains_key(branch));
        lost.extend(branches.map(|branch| format!("the branch {branch} is missing")));
        let verdicts = self.verdicts.iter().filter(|verdict| !kept.verdicts.contains(verdict));
        lost.extend(verdicts.map(|(session, call)| format!("the verdict on call {call} of {session} is missing")));
        for (session, seq) in &self.shown {
            let last = Seq(sessions.get(session).map_or(0, |records| records.len() as u64));
            if last < *seq {
                lost.push(format!(
                    "record {seq} of {session}, which a subscriber received, is missing: the last is {last}"
                ));
            }
        }
        lost
    }
}

#[derive(Default)]
struct AcknowledgedFacts {
    inputs: BTreeSet<(SessionId, InputId)>,
    ends: BTreeSet<(SessionId, RunNo)>,
    closing: BTreeSet<(SessionId, RunNo)>,
    interrupted: BTreeSet<(SessionId, RunNo)>,
    verdicts: BTreeSet<(SessionId, CallId)>,
}

impl AcknowledgedFacts {
    fn take(&mut self, session: SessionId, record: &Record) {
        if let Record::InputAccepted(accepted) = record {
            self.inputs.insert((session, accepted.id));
        } else if let Record::RunEnded(ended) = record {
            self.ends.insert((session, ended.run));
        } else if let Record::AskAnswered { call, .. } = record {
            self.verdicts.insert((session, *call));
        } else if let Record::RunHeld { run, why } = record {
            match **why {
                Hold::Closing { .. } => _ = self.closing.insert((session, *run)),
                Hold::Interrupted { .. } => _ = self.interrupted.insert((session, *run)),
                Hold::OutOfTurns => {}
            }
        }
    }
}
