//! Commands of outbox rows, rebuilt from the records that created the rows.

use subtend_journal::{Journal, ReadError, Stored};
use subtend_session::command::{Command, Continue};
use subtend_session::ids::{CallId, Lsn, Seq, SessionId};
use subtend_session::index::{self, Row, RowKey, RowKind};
use subtend_session::record::{Notice, Record};

/// Maximum number of records read at a time: those of a long conversation may be large.
const PAGE: usize = 16;
/// Number of records with which a child begins: its creation, its input, and the opening of its first run.
const BEGINNING: usize = 3;

/// The rows for one session, in order.
#[derive(Default)]
pub(crate) struct DueRows {
    pub(crate) requests: Vec<Command>,
    /// Undelivered ends of owned runs, and of people's and detached runs of children.
    pub(crate) owed: Vec<Notice>,
}

pub(crate) fn rows_to(journal: &Journal, session: SessionId) -> Result<DueRows, ReadError> {
    let mut rows = DueRows::default();
    for (row, lsn) in journal.outbox_to(session)? {
        match row_at(journal, &row, lsn)? {
            Some(Command::OwnedEnded(notices)) => rows.owed.extend(notices),
            Some(command) => rows.requests.push(command),
            None => {}
        }
    }
    Ok(rows)
}

/// Returns the command that delivers `row` of the frame at `lsn`, or `None` if there is nothing to deliver.
pub(crate) fn row_at(journal: &Journal, row: &Row, lsn: Lsn) -> Result<Option<Command>, ReadError> {
    let RowKey::Call(key) = row.key else {
        // A notice is the end of a run that the receiver does not own: a person's or a detached one.
        let notice = if row.kind == RowKind::Notice { notice_at(journal, row, lsn)? } else { None };
        return Ok(notice.map(|notice| Command::OwnedEnded(vec![notice])));
    };
    match row.kind {
        RowKind::Notice => Ok(notice_at(journal, row, lsn)?.map(|notice| Command::OwnedEnded(vec![notice]))),
        RowKind::Continue => Ok(continue_at(journal, row, key, lsn)?.map(|ask| Command::Continue(Box::new(ask)))),
        RowKind::Cancel => cancel_at(journal, row, key, lsn),
        // The sender handles these itself; approvers find the ask by the row.
        RowKind::Ask | RowKind::Answer => Ok(None),
    }
}

fn frame(journal: &Journal, lsn: Lsn) -> Result<Vec<Stored>, ReadError> {
    Ok(journal.frame_at(lsn)?.map(|(_, stored)| stored).unwrap_or_default())
}

fn notice_at(journal: &Journal, row: &Row, lsn: Lsn) -> Result<Option<Notice>, ReadError> {
    let child = row.from;
    let frame = frame(journal, lsn)?;
    let refused = frame.iter().find_map(|stored| {
        let Record::ContinueRefused { owner, key, why } = &stored.record else { return None };
        (*owner == row.to && row.key == RowKey::Call(*key)).then_some((*key, *why))
    });
    if let Some((key, why)) = refused {
        return Ok(Some(index::refusal_from(child, key, why)));
    }
    // The child's records have its place and the owner of each run. A batch may hold two ends.
    let beginning = journal.records_from(child, Seq(1), BEGINNING)?;
    let Some(Record::SessionCreated(created)) = beginning.first().map(|stored| &stored.record) else { return Ok(None) };
    for stored in &frame {
        let Record::RunEnded(ended) = &stored.record else { continue };
        let fits = |record: &Record| matches!(record, Record::RunOpened(opened) if opened.run == ended.run);
        // A search for the first run would read all its answers.
        let opened = match beginning.iter().find(|stored| fits(&stored.record)) {
            Some(opened) => Some(opened.record.clone()),
            None => find(journal, child, stored.seq, fits)?,
        };
        let Some(Record::RunOpened(opened)) = opened else { continue };
        let Some((to, notice)) = index::notice_from(child, &created.place, &opened, ended) else { continue };
        if to == row.to && notice.row_key() == Some(row.key) {
            return Ok(Some(notice));
        }
    }
    Ok(None)
}

/// Returns the last record before `end` that `fits`. Reads a few records at a time, from the latest.
fn find(
    journal: &Journal,
    session: SessionId,
    end: Seq,
    fits: impl Fn(&Record) -> bool,
) -> Result<Option<Record>, ReadError> {
    let mut end = end;
    while end > Seq(1) {
        let from = Seq(end.0.saturating_sub(PAGE as u64).max(1));
        let page = journal.records_from(session, from, PAGE)?;
        let before = page.into_iter().filter(|stored| stored.seq < end);
        if let Some(found) = before.rev().find(|stored| fits(&stored.record)) {
            return Ok(Some(found.record));
        }
        end = from;
    }
    Ok(None)
}

fn continue_at(journal: &Journal, row: &Row, key: CallId, lsn: Lsn) -> Result<Option<Continue>, ReadError> {
    let owner = row.from;
    let frame = frame(journal, lsn)?;
    let request = frame.iter().find_map(|stored| {
        let Record::ContinueAsked(request) = &stored.record else { return None };
        (request.call == key && request.child == row.to).then_some((stored.seq, request))
    });
    let Some((seq, request)) = request else { return Ok(None) };
    match find(journal, owner, seq, |record| matches!(record, Record::RunOpened(_)))? {
        Some(Record::RunOpened(opened)) => Ok(Some(index::continue_from(owner, &opened, request))),
        Some(_) | None => Ok(None),
    }
}

fn cancel_at(journal: &Journal, row: &Row, key: CallId, lsn: Lsn) -> Result<Option<Command>, ReadError> {
    let frame = frame(journal, lsn)?;
    let by = frame.iter().find_map(|stored| {
        let Record::CancelAsked { call, key: asking_call, child } = &stored.record else { return None };
        (*asking_call == key && *child == row.to).then(|| index::cancel_by(*call))
    });
    Ok(by.map(|by| Command::OwnerCancels { owner: row.from, key, by }))
}
