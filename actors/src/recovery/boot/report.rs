//! The report of a boot, counted from the journal afterwards.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::Serialize;
use subtend_journal::ReadError;
use subtend_session::ids::{RunNo, SessionId};
use subtend_session::index::{Inflight, Row};
use subtend_session::state::{Phase, State};
use subtend_tools::worktree::Merged;

use super::StartRecovery;
use crate::views::checkpoints::UnrecordedWrite;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BootReport {
    /// Number of runs that were in flight and have ended.
    pub swept: usize,
    /// Number of runs that never started and remain queued.
    pub waiting: usize,
    /// Number of runs that were in flight and resumed (`on_restart: resume`).
    pub resumed: usize,
    /// Number of resumable runs that remain dormant ([`crate::Options::resumes`]).
    pub dormant: usize,
    /// Number of inputs that remain queued behind ended runs until the next input of their session. Either another host recovers them
    /// ([`crate::Options::resumes`]), or their whole tree was being cancelled.
    pub inputs: usize,
    /// Number of delivered notices and rows between sessions, including those to swept sessions.
    pub notices: usize,
    /// Number of files of interrupted restores that the start completed.
    pub restored: usize,
    /// Interrupted merges of worktrees that the start completed, by session.
    pub merged: Vec<(SessionId, Merged)>,
    /// File writes of runs that were in flight, if their results are missing in the journal.
    pub unrecorded: Vec<UnrecordedWrite>,
    /// Failures; their sessions remain as they are. `verify` explains damage.
    pub failures: Vec<BootFailure>,
    pub took_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct BootFailure {
    pub session: Option<SessionId>,
    pub why: String,
}

#[derive(Debug, Default)]
pub(super) struct RecoveryTargets {
    pub(super) lost: BTreeMap<SessionId, RunNo>,
    pub(super) resuming_runs: Vec<SessionId>,
    pub(super) dormant: Vec<SessionId>,
    /// All rows between sessions that existed at any time during the boot.
    pub(super) owed: BTreeSet<Row>,
    /// Sessions that could not be activated.
    pub(super) failed: BTreeSet<SessionId>,
}

impl StartRecovery {
    pub(super) fn build_report(
        &self,
        targets: &RecoveryTargets,
        damaged: Vec<(Option<SessionId>, ReadError)>,
    ) -> Result<BootReport, ReadError> {
        let mut report = BootReport::default();
        let mut undone: BTreeMap<SessionId, String> = BTreeMap::new();
        for (session, error) in damaged {
            match session {
                Some(session) => _ = undone.entry(session).or_insert_with(|| error.to_string()),
                None => report.failures.push(BootFailure { session, why: error.to_string() }),
            }
        }
        for session in &targets.failed {
            undone.entry(*session).or_insert_with(|| self.activation_failure(*session));
        }
        let inflight = self.log.journal.inflight()?;
        let in_flight: HashMap<SessionId, &Inflight> = inflight.iter().map(|(session, row)| (*session, row)).collect();
        for (session, run) in &targets.lost {
            match in_flight.get(session).filter(|row| row.run == *run) {
                None => report.swept = report.swept.saturating_add(1),
                Some(row) if row.state == Phase::Queued => report.waiting = report.waiting.saturating_add(1),
                Some(_) => _ = undone.entry(*session).or_insert_with(|| format!("its run {run} is still in flight")),
            }
        }
        report.resumed = targets.resuming_runs.iter().filter(|session| !targets.failed.contains(session)).count();
        report.dormant = targets.dormant.len();
        report.inputs = self.takeover.kept_inputs();
        let owed: BTreeSet<Row> = self.log.journal.outbox()?.into_iter().map(|(row, _)| row).collect();
        report.notices = targets.owed.difference(&owed).count();
        report.failures.extend(undone.into_iter().map(|(session, why)| BootFailure { session: Some(session), why }));
        Ok(report)
    }

    /// Returns the reason why a session could not be activated.
    fn activation_failure(&self, session: SessionId) -> String {
        let stored = match self.log.journal.records(session) {
            Ok(stored) => stored,
            Err(error) => return error.to_string(),
        };
        match State::fold(session, stored.iter().map(|stored| &stored.record)) {
            Ok(_) => "its actor crashed at each start; see the log".to_owned(),
            Err(error) => error.to_string(),
        }
    }
}
