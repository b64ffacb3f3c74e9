//! Checks all sessions of a store with the predicates of the model checker.

use std::collections::{BTreeMap, BTreeSet};

pub use subtend_invariants::Violation;
use subtend_invariants::{Frame, InvariantId, Observed, View, World, always, quiescent};
use subtend_session::ids::{Epoch, Seq, SessionId};
use subtend_session::index::Row;
use subtend_session::record::Record;
use subtend_session::state::State;

use crate::error::ReadError;
use crate::journal::Journal;

#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    #[error(transparent)]
    Violated(#[from] Violation),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("the records of {session} do not fold: {why}")]
    Fold { session: SessionId, why: String },
}

/// Checks the invariants of all sessions, and with `at_rest` also those of a store without runs in flight. Call `Journal::settled` first.
///
/// Reads every session into memory, so it is meant for drills, tests and operators.
/// # Errors
/// The first violation, or the read error.
pub fn audit(journal: &Journal, at_rest: bool) -> Result<(), AuditError> {
    let mut auditor = Auditor::default();
    auditor.read(journal)?;
    auditor.check(at_rest)
}

/// Repeated audits of one store. Unchanged sessions are not read again.
#[derive(Debug, Default)]
pub struct Auditor {
    sessions: BTreeMap<SessionId, AuditedSession>,
    /// Erased sessions, which only have a head.
    erased: BTreeSet<SessionId>,
    rows: BTreeSet<Row>,
}

#[derive(Debug)]
struct AuditedSession {
    /// Identifies a state of the session.
    head: (Seq, Epoch),
    records: Vec<Record>,
    frames: Vec<Frame>,
    state: Result<Box<State>, String>,
}

impl Auditor {
    /// Reads the sessions that have changed.
    /// # Errors
    /// When the store cannot be read.
    pub fn read(&mut self, journal: &Journal) -> Result<(), ReadError> {
        let heads = journal.heads()?;
        self.rows = journal.outbox()?.into_iter().map(|(row, _)| row).collect();
        let mut before = std::mem::take(&mut self.sessions);
        self.erased = heads.iter().filter(|(_, head)| head.is_erased()).map(|(session, _)| *session).collect();
        for (session, head) in heads {
            // An erased session has no records; the predicates check only its remaining rows.
            if head.is_erased() && matches!(journal.records(session), Err(ReadError::NoSuchSession(_))) {
                continue;
            }
            // Compares the epoch too: a session that lost its end and grew again was written by a later activation.
            let head = (head.last_seq, head.epoch);
            let audited = match before.remove(&session).filter(|audited| audited.head == head) {
                Some(audited) => audited,
                None => read(journal, session, head)?,
            };
            self.sessions.insert(session, audited);
        }
        Ok(())
    }

    /// Checks the state that was read last.
    /// # Errors
    /// The first violation.
    pub fn check(&self, at_rest: bool) -> Result<(), AuditError> {
        check_world(&self.world()?, at_rest)
    }

    /// Checks the state that was read last, together with outside observations.
    /// # Errors
    /// The first violation.
    pub fn check_observed(&self, observed: &Observed, at_rest: bool) -> Result<(), AuditError> {
        check_world(&self.world()?.with_observations(observed), at_rest)
    }

    /// Checks one invariant, together with outside observations.
    /// # Errors
    /// The first violation.
    pub fn check_invariant(&self, id: InvariantId, observed: &Observed) -> Result<(), AuditError> {
        Ok(id.check(&self.world()?.with_observations(observed), false)?)
    }

    fn world(&self) -> Result<World<'_>, AuditError> {
        let mut views = Vec::with_capacity(self.sessions.len());
        for (session, audited) in &self.sessions {
            let state =
                audited.state.as_ref().map_err(|why| AuditError::Fold { session: *session, why: why.clone() })?;
            let view = View {
                records: &audited.records,
                frames: &audited.frames,
                state: Some(&**state),
                folded: None,
                activation: None,
            };
            views.push((*session, view));
        }
        Ok(World::new(views, &self.rows, None, true).without(self.erased.iter().copied()))
    }

    pub fn sessions(&self) -> impl Iterator<Item = (SessionId, &[Record])> {
        self.sessions.iter().map(|(session, audited)| (*session, audited.records.as_slice()))
    }

    pub fn erased_sessions(&self) -> &BTreeSet<SessionId> {
        &self.erased
    }

    /// Returns the activation that wrote record `seq` of `session`.
    pub fn epoch(&self, session: SessionId, seq: Seq) -> Option<Epoch> {
        let frames = &self.sessions.get(&session)?.frames;
        let until = |frame: &Frame| frame.first_seq.0.saturating_add(u64::from(frame.count));
        frames.iter().find(|frame| frame.first_seq <= seq && seq.0 < until(frame)).map(|frame| frame.epoch)
    }

    pub fn rows(&self) -> &BTreeSet<Row> {
        &self.rows
    }
}

fn check_world(world: &World<'_>, at_rest: bool) -> Result<(), AuditError> {
    always(world)?;
    if at_rest {
        quiescent(world)?;
    }
    Ok(())
}

fn read(journal: &Journal, session: SessionId, head: (Seq, Epoch)) -> Result<AuditedSession, ReadError> {
    let stored = journal.records(session)?;
    let state = State::fold(session, stored.iter().map(|stored| &stored.record));
    // A frame here is a sequence of records of one epoch.
    let mut frames: Vec<Frame> = Vec::new();
    for stored in &stored {
        match frames.last_mut() {
            Some(frame) if frame.epoch == stored.epoch => frame.count = frame.count.saturating_add(1),
            _ => frames.push(Frame { first_seq: stored.seq, count: 1, epoch: stored.epoch }),
        }
    }
    Ok(AuditedSession {
        head,
        records: stored.into_iter().map(|stored| stored.record).collect(),
        frames,
        state: state.map(Box::new).map_err(|error| error.to_string()),
    })
}
