//! Reads of the records of a session page by page, so that the texts of a long session are not all in memory.

use subtend_journal::{Journal, ReadError, Stored};
use subtend_session::ids::{Seq, SessionId};
use subtend_session::state::{FoldError, State};

/// Bytes after which a page of a session's records ends.
pub(crate) const PAGE_BYTES: u64 = 1 << 20;
/// Maximum number of records read from the journal at a time.
const PAGE_SIZE: usize = 256;

/// Calls `take` with each record of a session up to `last`.
/// # Errors
/// The error of the first page that cannot be read, after `take` had the records of those before it.
pub(crate) fn each_to(
    journal: &Journal,
    session: SessionId,
    last: Seq,
    mut take: impl FnMut(&Stored),
) -> Result<(), ReadError> {
    let took = |stored: &Stored| {
        let is_behind = stored.seq > last;
        if !is_behind {
            take(stored);
        }
        is_behind.then_some(())
    };
    walk(journal, session, &mut Seq(1), took).map(drop)
}

/// A fold of records that arrive one by one.
#[derive(Default)]
pub(crate) struct RecordFold(Option<Result<State, FoldError>>);

impl RecordFold {
    pub(crate) fn add(&mut self, stored: &Stored, session: SessionId) {
        match &mut self.0 {
            None => self.0 = Some(State::fold(session, [&stored.record])),
            Some(Ok(state)) => {
                if let Err(error) = state.follow(&stored.record) {
                    self.0 = Some(Err(error));
                }
            }
            Some(Err(_)) => {}
        }
    }

    /// Returns the state of `session` after these records.
    /// # Errors
    /// If the records are not those of one session in order.
    pub(crate) fn state(self, session: SessionId) -> Result<State, FoldError> {
        self.0.unwrap_or(Err(FoldError::Empty { session }))
    }
}

/// Folds the records of a session up to `last`, page by page.
/// # Errors
/// As for [`each_to`]. The inner error is that of the fold.
pub(crate) fn fold_to(journal: &Journal, session: SessionId, last: Seq) -> Result<Result<State, FoldError>, ReadError> {
    let mut fold = RecordFold::default();
    each_to(journal, session, last, |stored| fold.add(stored, session))?;
    Ok(fold.state(session))
}

/// Calls `take` with the records from `next` on, page by page, until it returns a value or there are no more.
pub(crate) fn walk<T>(
    journal: &Journal,
    session: SessionId,
    next: &mut Seq,
    mut take: impl FnMut(&Stored) -> Option<T>,
) -> Result<Option<T>, ReadError> {
    loop {
        let (page, has_more) = journal.page_from(session, *next, PAGE_SIZE, PAGE_BYTES)?;
        for stored in &page {
            *next = stored.seq.next();
            if let Some(found) = take(stored) {
                return Ok(Some(found));
            }
        }
        if page.is_empty() || !has_more {
            return Ok(None);
        }
    }
}
