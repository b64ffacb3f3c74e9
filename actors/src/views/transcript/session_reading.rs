//! What a transcript takes from the records of a session, which pass one by one.

use subtend_journal::{Journal, ReadError, Stored};
use subtend_session::ids::{Epoch, Seq, SessionId, Text};
use subtend_session::index::{self, Head};
use subtend_session::record::{Record, SessionCreated};
use subtend_session::state::State;

use super::entry_builder::EntryBuilder;
use super::{TranscriptReading, each};
use crate::values::paging::RecordFold;
use crate::views::history::History;

/// A reading of one session. It keeps no text except those of its page, of queued inputs and of tasks.
#[derive(Default)]
pub(super) struct SessionReading {
    pub(super) history: History,
    pub(super) created: Option<Box<SessionCreated>>,
    pub(super) summary: Option<Text>,
    pub(super) builder: EntryBuilder,
    /// True if messages were compacted.
    pub(super) is_compacted: bool,
    pub(super) last_seq: Seq,
    epoch: Epoch,
    last_ms: i64,
}

impl SessionReading {
    /// Reads the records of a session up to `last`.
    /// # Errors
    /// Errors of the journal.
    pub(super) fn read(
        journal: &Journal,
        session: SessionId,
        last: Seq,
        how: TranscriptReading,
    ) -> Result<Self, ReadError> {
        let mut reading = Self { builder: EntryBuilder::new(how), ..Self::default() };
        each(journal, session, last, |stored| reading.add(stored))?;
        Ok(reading)
    }

    fn add(&mut self, stored: &Stored) {
        self.history.add(stored);
        self.builder.add(stored);
        (self.last_seq, self.epoch, self.last_ms) = (stored.seq, stored.epoch, stored.at_ms);
        if let Record::SessionCreated(created) = &stored.record {
            self.created.get_or_insert_with(|| created.clone());
        } else if let Record::SummarySet(set) = &stored.record {
            self.summary = Some(set.text.clone());
        } else if let Record::Compacted(_) = &stored.record {
            self.is_compacted = true;
        }
    }

    /// Returns the head at the last record that was read; `None` if the records cannot be folded.
    pub(super) fn head(&self, journal: &Journal, session: SessionId) -> Option<Head> {
        let state = fold(journal, session, self.last_seq)?;
        Some(index::head(&state, self.epoch, self.history.created_ms?, self.last_ms))
    }
}

/// Folds the records of a session up to `last`; `None` if they cannot be read or folded.
pub(super) fn fold(journal: &Journal, session: SessionId, last: Seq) -> Option<State> {
    let mut fold = RecordFold::default();
    each(journal, session, last, |stored| fold.add(stored, session)).ok()?;
    fold.state(session).ok()
}
