//! The queue of a session, read from a journal without a runtime.

use std::collections::BTreeMap;

use subtend_journal::{Journal, ReadError};
use subtend_session::ids::{Lsn, Seq, SessionId};
use subtend_session::index::RowKind;

use crate::recovery::rows::RowReader;
use crate::values::paging;
use crate::values::queue_entry::{QueueEntry, QueueKind};
use crate::views::tasks::damaged;

impl QueueEntry {
    /// Lists the queue as [`SessionHandle::queue`](crate::SessionHandle::queue) does, without changing it. `resumes` says whether the next start
    /// resumes the run in flight ([`boot::preview_recovery`](crate::boot::preview_recovery)); if not, the next run takes the entries.
    /// # Errors
    /// The error of reading the session or its pending completions.
    pub fn list(journal: &Journal, session: SessionId, resumes: bool) -> Result<Vec<Self>, ReadError> {
        let folded = paging::fold_to(journal, session, Seq(u64::MAX))?;
        let mut state = folded.map_err(|error| damaged(session, &error))?;
        let rows = journal.outbox_to(session)?;
        for notice in RowReader::default().read(journal, rows, || false)?.owed {
            state.arrived.push(notice);
        }
        let mut entries = Self::all(&state, resumes);
        set_completion_times(journal, session, &mut entries);
        Ok(entries)
    }
}

/// Sets the time of each completion to that of the frame with the undelivered end.
pub(crate) fn set_completion_times(journal: &Journal, session: SessionId, entries: &mut [QueueEntry]) {
    let mut ends = entries.iter_mut().filter(|entry| entry.kind == QueueKind::Completion).peekable();
    if ends.peek().is_none() {
        return;
    }
    let owed = journal.outbox_to(session).unwrap_or_default();
    // An import may bring a large frame with thousands of ends.
    let mut times: BTreeMap<Lsn, Option<i64>> = BTreeMap::new();
    for entry in ends {
        let row = owed.iter().find(|(row, _)| row.kind == RowKind::Notice && row.from.0 == entry.id.0);
        entry.time_ms = row.and_then(|(_, lsn)| {
            *times.entry(*lsn).or_insert_with(|| {
                let (_, stored) = journal.frame_at(*lsn).ok().flatten()?;
                stored.first().map(|stored| stored.at_ms)
            })
        });
    }
}
