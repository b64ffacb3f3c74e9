//! Commands of outbox rows, rebuilt from the records that created the rows.

use std::collections::BTreeMap;
use std::sync::Arc;

use subtend_journal::{Journal, ReadError, Stored};
use subtend_session::command::Command;
use subtend_session::ids::{Lsn, Seq, SessionId};
use subtend_session::index::{self, Row, RowKey, RowKind};
use subtend_session::place::Place;
use subtend_session::record::{Notice, Record, RunOpened};

/// Minimum number of records read at a time: those of a long conversation may be large.
const PAGE: u64 = 16;
/// Number of records with which a child begins: its creation, its input, and the opening of its first run.
const BEGINNING: usize = 3;
/// Maximum bytes of what is kept, apart from the rows of a single frame.
const MAX_KEPT: u64 = 32 << 20;
/// Estimated bytes of something kept without its texts.
const BYTES_PER_ENTRY: u64 = 512;

/// The rows for one session, in order.
#[derive(Default)]
pub(crate) struct DueRows {
    pub(crate) requests: Vec<Command>,
    /// Undelivered ends of owned runs, and of people's and detached runs of children.
    pub(crate) owed: Vec<Notice>,
}

/// Reads rows. Each frame is decoded once for all its rows: an import may bring large frames with thousands of rows.
#[derive(Default)]
pub(crate) struct RowReader {
    /// The commands of all rows of one kind that a frame created.
    frames: BTreeMap<(Lsn, RowKind), BTreeMap<Row, Command>>,
    beginnings: BTreeMap<SessionId, Option<Beginning>>,
    /// Runs by the record that opened each, with a record before which the session opened no later run.
    runs: BTreeMap<(SessionId, Seq), (Seq, Arc<RunOpened>)>,
    bytes: u64,
}

/// The place of a session, and its first run.
type Beginning = (Place, Option<Arc<RunOpened>>);

impl RowReader {
    /// Returns the commands of `rows`. `halted` is checked before each, since reading all of them may take long.
    /// # Errors
    /// Errors of reads; [`ReadError::Closed`] if `halted`.
    pub(crate) fn read(
        &mut self,
        journal: &Journal,
        rows: Vec<(Row, Lsn)>,
        halted: impl Fn() -> bool,
    ) -> Result<DueRows, ReadError> {
        let mut due = DueRows::default();
        for (row, lsn) in rows {
            if halted() {
                return Err(ReadError::Closed);
            }
            match self.command(journal, &row, lsn)? {
                Some(Command::OwnedEnded(notices)) => due.owed.extend(notices),
                Some(command) => due.requests.push(command),
                None => {}
            }
        }
        Ok(due)
    }

    /// Returns the command that delivers `row` of the frame at `lsn`, or `None` if there is nothing to deliver.
    pub(crate) fn command(&mut self, journal: &Journal, row: &Row, lsn: Lsn) -> Result<Option<Command>, ReadError> {
        match row.kind {
            RowKind::Notice | RowKind::Continue | RowKind::Cancel => {}
            // The sender handles these itself; approvers find the ask by the row.
            RowKind::Ask | RowKind::Answer => return Ok(None),
        }
        let (frame, journal) = ((lsn, row.kind), &journal.without_bodies());
        if !self.frames.contains_key(&frame) {
            let (commands, bytes) = self.read_frame(journal, lsn, row.kind)?;
            self.make_room(bytes);
            self.frames.insert(frame, commands);
        }
        Ok(self.frames.get(&frame).and_then(|commands| commands.get(row)).cloned())
    }

    /// Returns the commands of all rows of one kind that a frame created, and their bytes.
    fn read_frame(
        &mut self,
        journal: &Journal,
        lsn: Lsn,
        kind: RowKind,
    ) -> Result<(BTreeMap<Row, Command>, u64), ReadError> {
        let (mut commands, mut bytes) = (BTreeMap::new(), BYTES_PER_ENTRY);
        let Some((from, frame)) = journal.frame_at(lsn)? else { return Ok((commands, bytes)) };
        let (first, mut opened) = (frame.first().map_or(Seq(1), |first| first.seq), None);
        for Stored { record, .. } in &frame {
            opened = run_opened(record).or(opened);
            if let Some((to, key, command)) = self.delivered(journal, (from, first, kind), record, &mut opened)? {
                bytes = bytes.saturating_add(BYTES_PER_ENTRY).saturating_add(record.heap_bytes());
                commands.entry(Row { to, from, kind, key }).or_insert(command);
            }
        }
        Ok((commands, bytes))
    }

    /// Returns the command of the row of `kind` that a record created, with the row's receiver and key. The record's frame is
    /// of session `from` and starts with record `first`. `opened` is the run of its records, as far as known.
    #[expect(clippy::wildcard_enum_match_arm, reason = "the other records create no row of this kind")]
    fn delivered(
        &mut self,
        journal: &Journal,
        (from, first, kind): (SessionId, Seq, RowKind),
        record: &Record,
        opened: &mut Option<Arc<RunOpened>>,
    ) -> Result<Option<(SessionId, RowKey, Command)>, ReadError> {
        let notice = |notice: Notice| Command::OwnedEnded(vec![notice]);
        match record {
            Record::ContinueRefused { owner, key, why } if kind == RowKind::Notice => {
                let refusal = index::refusal_from(from, *key, *why);
                Ok(Some((*owner, RowKey::Call(*key), notice(refusal))))
            }
            Record::RunEnded(ended) if kind == RowKind::Notice => {
                let Some((place, first_run)) = self.beginning(journal, from)? else { return Ok(None) };
                if opened.is_none() {
                    // A search for the first run would read all its answers.
                    *opened = first_run.filter(|first| first.run == ended.run);
                }
                let opened = self.opened_before(journal, from, first, opened)?.filter(|opened| opened.run == ended.run);
                let end = opened.and_then(|opened| index::notice_from(from, &place, &opened, ended));
                Ok(end.and_then(|(to, end)| Some((to, end.row_key()?, notice(end)))))
            }
            Record::ContinueAsked(request) if kind == RowKind::Continue => {
                let opened = self.opened_before(journal, from, first, opened)?;
                let ask = opened.map(|opened| index::continue_from(from, &opened, request));
                Ok(ask.map(|ask| (request.child, RowKey::Call(request.call), Command::Continue(Box::new(ask)))))
            }
            Record::CancelAsked { call, key, child } if kind == RowKind::Cancel => {
                let by = index::cancel_by(*call);
                Ok(Some((*child, RowKey::Call(*key), Command::OwnerCancels { owner: from, key: *key, by })))
            }
            _ => Ok(None),
        }
    }

    /// Returns the place of a session, and its first run if its first records open it.
    fn beginning(&mut self, journal: &Journal, session: SessionId) -> Result<Option<Beginning>, ReadError> {
        if let Some(beginning) = self.beginnings.get(&session) {
            return Ok(beginning.clone());
        }
        let records = journal.records_from(session, Seq(1), BEGINNING)?;
        let first_run = records.iter().find_map(|stored| run_opened(&stored.record));
        let beginning = records.first().and_then(|stored| {
            let Record::SessionCreated(created) = &stored.record else { return None };
            Some((created.place.clone(), first_run))
        });
        self.make_room(BYTES_PER_ENTRY);
        self.beginnings.insert(session, beginning.clone());
        Ok(beginning)
    }

    /// Returns `known`, or else the last run that a session opened before its record `end`. Reads whole frames backwards,
    /// and none that an earlier search has read.
    fn opened_before(
        &mut self,
        journal: &Journal,
        session: SessionId,
        end: Seq,
        known: &mut Option<Arc<RunOpened>>,
    ) -> Result<Option<Arc<RunOpened>>, ReadError> {
        if known.is_some() {
            return Ok(known.clone());
        }
        let before = self.runs.range((session, Seq(0))..(session, end)).next_back();
        let mut found = before.map(|((_, at), (searched, opened))| (*at, *searched, Arc::clone(opened)));
        let searched = found.as_ref().map_or(Seq(1), |(_, searched, _)| *searched);
        let mut until = end;
        while until > searched {
            let count = PAGE.min(until.0.saturating_sub(searched.0));
            let page = journal.records_before(session, until, count)?;
            let last = page.iter().rev().find_map(|stored| Some((stored.seq, end, run_opened(&stored.record)?)));
            if last.is_some() {
                found = last;
                break;
            }
            let first = page.first().map_or(Seq(1), |first| first.seq);
            until = first.min(Seq(until.0.saturating_sub(1)));
        }
        if let Some((at, _, opened)) = &found {
            self.make_room(BYTES_PER_ENTRY);
            self.runs.insert((session, *at), (end.max(searched), Arc::clone(opened)));
        }
        *known = found.map(|(.., opened)| opened);
        Ok(known.clone())
    }

    fn make_room(&mut self, bytes: u64) {
        if self.bytes.saturating_add(bytes) > MAX_KEPT {
            *self = Self::default();
        }
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// Returns the opened run without its inputs, which no row needs.
fn run_opened(record: &Record) -> Option<Arc<RunOpened>> {
    let Record::RunOpened(opened) = record else { return None };
    Some(Arc::new(RunOpened { owner: opened.owner.clone(), inputs: Vec::new(), ..**opened }))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use subtend_journal::{Batch, Frame, Options, memory::Memory};
    use subtend_session::ids::{CallId, Epoch, TurnNo};
    use subtend_session::index::Changes;
    use uuid::Uuid;

    use super::*;

    /// A session may have thousands of rows, each with a large frame. The control: all rows are read if nothing halts.
    #[test]
    fn reading_of_rows_ends_at_a_halt() {
        let journal = Journal::open(Box::new(Memory::new()), Options::default()).expect("a journal");
        let [from, to] = [1, 2].map(|id| SessionId(Uuid::from_u128(id)));
        let key = |ix| CallId { turn: TurnNo(1), ix };
        let records = [0, 1].map(|ix| Record::CancelAsked { call: None, key: key(ix), child: to }).to_vec();
        let put = [0, 1].map(|ix| Row { to, from, kind: RowKind::Cancel, key: RowKey::Call(key(ix)) }).to_vec();
        let changes = Changes { put, ..Changes::default() };
        let frame = Frame { session: from, first_seq: Seq(1), epoch: Epoch(1), at_ms: 0, records, changes };
        journal.append(Batch { frames: vec![frame] }).expect("appended");
        let read = |rows_before_halt: usize| {
            let checked = Cell::new(0);
            let halted = || checked.replace(checked.get() + 1) == rows_before_halt;
            let due = RowReader::default().read(&journal, journal.outbox_to(to).expect("rows"), halted);
            due.map(|due| due.requests.len()).map_err(|error| error.to_string())
        };
        assert_eq!((read(1), read(2)), (Err(ReadError::Closed.to_string()), Ok(2)));
    }
}
