use std::time::Duration;

use serde::Serialize;
use subtend_invariants::observed::Observed;

use super::reader::ReaderResult;
use super::sender::SenderResult;
use crate::report::DrillVerdict;
use crate::sabotage::Sabotage;

/// Minimum percentage of kills that must hit a target.
const MIN_PERCENT: u64 = 30;

/// The number of kills that hit each target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClientHits {
    /// Kills while a command had no reply yet.
    pub unanswered: u64,
    /// Kills while an event stream was open.
    pub reading: u64,
    /// Kills during the start of the host, while clients try to connect.
    pub starting: u64,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct ClientReport {
    pub engine: String,
    pub seed: u64,
    pub sabotage: Option<Sabotage>,
    pub clients: u64,
    pub kills: u64,
    pub hits: ClientHits,
    pub sessions: u64,
    /// Number of durable events in the store.
    pub events: u64,
    pub received: u64,
    /// Total number of connections of the readers.
    pub connections: u64,
    pub commands: u64,
    /// Number of requests that a kill left without an answer, and that were sent again.
    pub unanswered: u64,
    /// Number of answered commands that were sent again.
    pub repeated: u64,
    /// Number of cancels that were answered as done.
    pub cancels: u64,
    pub violations: Vec<String>,
    /// The path of the store with a violation.
    pub kept: Option<String>,
    #[serde(skip)]
    pub took: Duration,
    pub stopped: bool,
}

impl ClientReport {
    pub(super) fn add_sender(&mut self, sent: SenderResult, observed: &mut Observed) {
        let add = |to: &mut u64, more: u64| *to = to.saturating_add(more);
        add(&mut self.commands, sent.commands.len() as u64);
        add(&mut self.unanswered, sent.unanswered);
        add(&mut self.repeated, sent.repeated);
        add(&mut self.cancels, sent.cancels.len() as u64);
        self.violations.extend(sent.refused.into_iter().map(|what| format!("refused: {what}")));
        observed.keyed.extend(sent.commands);
        observed.answers.extend(sent.cancels);
    }

    pub(super) fn add_reader(&mut self, read: ReaderResult, observed: &mut Observed) {
        self.received = self.received.saturating_add(read.log.received.len() as u64);
        self.connections = self.connections.saturating_add(read.connections);
        self.violations.extend(read.failure.map(|why| format!("{}: {why}", read.log.name)));
        observed.clients.push(read.log);
    }

    /// Returns the targets with too few hits.
    pub fn vacuous(&self) -> Vec<String> {
        let hits = [
            ("a command without its reply", self.hits.unanswered, MIN_PERCENT),
            ("an open event stream", self.hits.reading, MIN_PERCENT),
            ("the start of the host", self.hits.starting, 5),
        ];
        let seldom = hits.into_iter().filter(|(_, hit, least)| hit * 100 < least * self.kills);
        seldom
            .map(|(what, hit, least)| format!("{hit} of {} kills hit {what}; the minimum is {least} %", self.kills))
            .collect()
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
