//! What the boot found and did: counted afterwards, by what is in the journal then.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use subtend_journal::ReadError;
use subtend_session::ids::{RunNo, SessionId};
use subtend_session::index::{Inflight, Row};
use subtend_session::state::{Phase, State};

use super::Recovery;

/// What the boot found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BootReport {
    /// Runs that were in flight and have ended.
    pub swept: usize,
    /// Runs that never started, and keep their place.
    pub waiting: usize,
    /// Runs that were in flight and go on (`on_restart: resume`).
    pub resumed: usize,
    /// Runs that were in flight, would go on, and are left as they are ([`crate::Options::recovery_scope`]).
    pub staying: usize,
    /// Inputs that wait behind runs that have ended, and stay in their queues until the next input of their session: whoever takes up
    /// what waits there is another host ([`crate::Options::recovery_scope`]), or their whole tree was being cancelled.
    pub inputs: usize,
    /// Notices, and other words of one session to another, that were owed and were delivered; those of what was swept too.
    pub notices: usize,
    /// What could not be done: it stays as it is. `verify` says what is wrong with what is damaged.
    pub undone: Vec<Undone>,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
}

/// Something that the boot could not do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Undone {
    /// The session that it is about, where that is known.
    pub session: Option<SessionId>,
    /// Why, in words.
    pub why: String,
}

/// What the boot set out to do.
#[derive(Debug, Default)]
pub(super) struct Aims {
    /// Runs that were to end, or to keep their place.
    pub(super) lost: BTreeMap<SessionId, RunNo>,
    /// Sessions whose runs go on.
    pub(super) going: Vec<SessionId>,
    /// Sessions whose runs would go on, and are left as they are.
    pub(super) staying: Vec<SessionId>,
    /// Whatever one session owed another, at any time of the boot.
    pub(super) owed: BTreeSet<Row>,
    /// Sessions that could not be brought to hear anything.
    pub(super) failed: BTreeSet<SessionId>,
}

impl Recovery {
    /// What became of it.
    pub(super) fn told(
        &self,
        aims: &Aims,
        damaged: Vec<(Option<SessionId>, ReadError)>,
    ) -> Result<BootReport, ReadError> {
        let mut report = BootReport::default();
        let mut left: BTreeMap<SessionId, String> = BTreeMap::new();
        for (session, error) in damaged {
            match session {
                Some(session) => _ = left.entry(session).or_insert_with(|| error.to_string()),
                None => report.undone.push(Undone { session, why: error.to_string() }),
            }
        }
        for session in &aims.failed {
            left.entry(*session).or_insert_with(|| self.why_not(*session));
        }
        let inflight = self.log.journal.inflight()?;
        let still: HashMap<SessionId, &Inflight> = inflight.iter().map(|(session, row)| (*session, row)).collect();
        for (session, run) in &aims.lost {
            match still.get(session).filter(|row| row.run == *run) {
                None => report.swept = report.swept.saturating_add(1),
                Some(row) if row.state == Phase::Queued => report.waiting = report.waiting.saturating_add(1),
                Some(_) => _ = left.entry(*session).or_insert_with(|| format!("its run {run} is still in flight")),
            }
        }
        report.resumed = aims.going.iter().filter(|session| !aims.failed.contains(session)).count();
        report.staying = aims.staying.len();
        report.inputs = self.takeover.kept_inputs();
        let owed: BTreeSet<Row> = self.log.journal.outbox()?.into_iter().map(|(row, _)| row).collect();
        report.notices = aims.owed.difference(&owed).count();
        report.undone.extend(left.into_iter().map(|(session, why)| Undone { session: Some(session), why }));
        Ok(report)
    }

    /// Why a session could not be brought to hear anything.
    fn why_not(&self, session: SessionId) -> String {
        let stored = match self.log.journal.records(session) {
            Ok(stored) => stored,
            Err(error) => return error.to_string(),
        };
        match State::fold(session, stored.iter().map(|stored| &stored.record)) {
            Ok(_) => "its actor ended each time it was started: the log says why".to_owned(),
            Err(error) => error.to_string(),
        }
    }
}
