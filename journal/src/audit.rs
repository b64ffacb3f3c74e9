//! The audit: judges all sessions of a store by the invariants that the model checker uses too.

use std::collections::{BTreeMap, BTreeSet};

use subtend_session::ids::SessionId;
use subtend_session::index::Row;
use subtend_session::invariant::{self, Frame, View, Violation, World};
use subtend_session::record::Record;
use subtend_session::state::State;

use crate::error::ReadError;
use crate::journal::Journal;

/// What an audit found.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// An invariant does not hold.
    #[error(transparent)]
    Violated(#[from] Violation),
    /// The store cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The records of a session do not fold.
    #[error("the records of {session} do not fold: {why}")]
    Fold {
        /// The session.
        session: SessionId,
        /// Why.
        why: String,
    },
}

struct Held {
    records: Vec<Record>,
    frames: Vec<Frame>,
    state: State,
}

/// Judges what must hold in every state, and with `at_rest` what must hold when nothing is in flight any more.
///
/// Reads every session into memory: for drills, tests and operators. Callers wait for `settled` first.
///
/// # Errors
/// The first violation, or what keeps the store from being read.
pub fn audit(journal: &Journal, at_rest: bool) -> Result<(), AuditError> {
    let mut held = BTreeMap::new();
    for (session, _) in journal.heads()? {
        held.insert(session, read(journal, session)?);
    }
    let rows: BTreeSet<Row> = journal.outbox()?.into_iter().map(|(row, _)| row).collect();
    let views = held.iter().map(|(session, held)| {
        let view = View {
            records: &held.records,
            frames: &held.frames,
            state: Some(&held.state),
            folded: None,
            activation: None,
        };
        (*session, view)
    });
    let world = World::new(views, &rows, None, true);
    invariant::always(&world)?;
    if at_rest {
        invariant::quiescent(&world)?;
    }
    Ok(())
}

fn read(journal: &Journal, session: SessionId) -> Result<Held, AuditError> {
    let stored = journal.records(session)?;
    let state = State::fold(session, stored.iter().map(|stored| &stored.record))
        .map_err(|error| AuditError::Fold { session, why: error.to_string() })?;
    // What one activation wrote stands together: a frame here is a run of records of one epoch.
    let mut frames: Vec<Frame> = Vec::new();
    for stored in &stored {
        match frames.last_mut() {
            Some(frame) if frame.epoch == stored.epoch => frame.count = frame.count.saturating_add(1),
            _ => frames.push(Frame { first_seq: stored.seq, count: 1, epoch: stored.epoch }),
        }
    }
    Ok(Held { records: stored.into_iter().map(|stored| stored.record).collect(), frames, state })
}
