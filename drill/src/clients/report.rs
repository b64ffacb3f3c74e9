//! The report of a drill of clients.

use std::time::Duration;

use serde::Serialize;
use subtend_invariants::observed::Observed;

use super::reader::ReaderResult;
use super::sender::SenderResult;
use crate::report::DrillVerdict;
use crate::sabotage::Sabotage;

/// The share of kills, in percent, that must hit a target.
const LEAST: u64 = 30;

/// Kills, counted by what they interrupted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClientHits {
    /// Kills with a command between its request and its reply.
    pub unanswered: u64,
    /// Kills of open event streams.
    pub reading: u64,
    /// Kills within the start of the host, while clients try to attach.
    pub starting: u64,
}

/// The result of a drill of clients.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ClientReport {
    pub engine: String,
    pub seed: u64,
    pub sabotage: Option<Sabotage>,
    pub clients: u64,
    pub kills: u64,
    pub hits: ClientHits,
    /// Sessions and durable events in the store.
    pub sessions: u64,
    pub events: u64,
    /// Events that all readers received together, over so many connections.
    pub received: u64,
    pub connections: u64,
    pub commands: u64,
    /// Requests that a kill left without an answer; they were sent again.
    pub unanswered: u64,
    /// Answered commands that were sent again.
    pub repeated: u64,
    /// Cancels that were answered as done.
    pub cancels: u64,
    pub violations: Vec<String>,
    /// The store with a violation.
    pub kept: Option<String>,
    #[serde(skip)]
    pub took: Duration,
    pub stopped: bool,
}

impl ClientReport {
    /// Takes what a sender did.
    pub(super) fn sent(&mut self, sent: SenderResult, observed: &mut Observed) {
        let add = |to: &mut u64, more: u64| *to = to.saturating_add(more);
        add(&mut self.commands, sent.commands.len() as u64);
        add(&mut self.unanswered, sent.unanswered);
        add(&mut self.repeated, sent.repeated);
        add(&mut self.cancels, sent.cancels.len() as u64);
        self.violations.extend(sent.refused.into_iter().map(|what| format!("refused: {what}")));
        observed.keyed.extend(sent.commands);
        observed.answers.extend(sent.cancels);
    }

    /// Takes what a reader received.
    pub(super) fn read(&mut self, read: ReaderResult, observed: &mut Observed) {
        self.received = self.received.saturating_add(read.log.received.len() as u64);
        self.connections = self.connections.saturating_add(read.connections);
        self.violations.extend(read.refused.map(|why| format!("{}: {why}", read.log.name)));
        observed.clients.push(read.log);
    }

    /// Returns the targets with too few hits.
    pub fn vacuous(&self) -> Vec<String> {
        let hits = [
            ("a command without its reply", self.hits.unanswered, LEAST),
            ("an open event stream", self.hits.reading, LEAST),
            ("the start of the host", self.hits.starting, 5),
        ];
        let seldom = hits.into_iter().filter(|(_, hit, least)| hit * 100 < least * self.kills);
        seldom.map(|(what, hit, least)| format!("{hit} of {} kills hit {what}; {least} % must", self.kills)).collect()
    }

    pub fn verdict(&self) -> DrillVerdict {
        match (self.sabotage, self.violations.is_empty()) {
            (Some(sabotage), _) if self.violations.iter().any(|what| sabotage.is_shown_by(what)) => {
                DrillVerdict::Caught
            }
            (None, false) => DrillVerdict::Violated,
            _ if self.stopped => DrillVerdict::Stopped,
            (Some(_), _) => DrillVerdict::Uncaught,
            (None, true) if !self.vacuous().is_empty() => DrillVerdict::Vacuous,
            (None, true) => DrillVerdict::Sound,
        }
    }
}
