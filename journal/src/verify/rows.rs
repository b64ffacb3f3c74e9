//! Verifies index rows against the records.

use std::collections::BTreeMap;

use subtend_session::ids::{Lsn, SessionId};
use subtend_session::index;
use subtend_session::index::{Changes, Row};
use subtend_session::place::Owner;
use subtend_session::record::Record;
use subtend_session::state::State;

use super::{CONTINUE, Check, UNFINISHED, frames};
use crate::error::ReadError;
use crate::frame::Stored;

impl Check<'_> {
    /// Checks the rows of one session with readable records. [`Check::rows`] checks rows that span sessions.
    pub(super) fn rows_of(&mut self, session: SessionId, records: &[Stored], state: &State) -> Result<(), ReadError> {
        // An unfinished import leaves records without rows.
        if let (Ok(None), Ok(None)) = (self.engine.head(session), self.engine.inflight(session)) {
            self.damaged.insert(session);
            self.sound.remove(&session);
            self.left.insert(session);
            return Ok(());
        }
        let opened_lsn = self.note_frames(session, records, state)?;
        self.children.extend(state.created.place.parent().map(|parent| (parent, session)));
        let head = self.engine.head(session);
        match self.row(session, head)? {
            None => self.report(Some(session), None, "it has no sound row in `head`".into()),
            Some(found) => {
                let wrote = records.last().map(|stored| stored.epoch).unwrap_or_default();
                // Epoch and clocks cannot be derived from the records, except that an epoch never decreases.
                let expected = index::head(state, found.epoch.max(wrote), found.created_ms, found.updated_ms);
                if found != expected {
                    self.report(Some(session), None, format!("`head` is {found:?}, expected {expected:?}"));
                }
            }
        }
        let inflight = self.engine.inflight(session);
        let found = self.row(session, inflight)?;
        let (epoch, starts) = found.as_ref().map(|row| (row.epoch, row.starts)).unwrap_or_default();
        let expected = index::inflight(state, opened_lsn, epoch, starts);
        if found != expected {
            self.report(Some(session), None, format!("`inflight` is {found:?}, expected {expected:?}"));
        }
        Ok(())
    }

    /// Collects the obligations of each frame. Returns the LSN of the last `RunOpened`.
    fn note_frames(&mut self, session: SessionId, records: &[Stored], state: &State) -> Result<Lsn, ReadError> {
        let positions = self.engine.positions(session)?;
        let mut opened_lsn = Lsn(0);
        let mut owner: Option<Owner> = None;
        for (lsn, frame) in frames(&positions, records) {
            let records: Vec<Record> = frame.into_iter().map(|stored| stored.record).collect();
            let mut out = Changes::default();
            index::rows(session, &state.created.place, owner.as_ref(), &records, &mut out);
            self.obligations.extend(out.put.into_iter().map(|row| (lsn, false, row)));
            self.obligations.extend(out.take.into_iter().map(|row| (lsn, true, row)));
            for record in &records {
                if let Record::RunOpened(opened) = record {
                    opened_lsn = lsn;
                    owner = Some(opened.owner.clone());
                }
            }
        }
        Ok(opened_lsn)
    }

    /// Checks children, obligations, and rows of sessions without records.
    pub(super) fn rows(&mut self) -> Result<(), ReadError> {
        self.check_orphans()?;
        self.check_child_rows()?;
        self.check_unfinished_import();
        self.outbox_rows()
    }

    /// Reports an unfinished import as one problem for all its sessions, because one action resolves it.
    fn check_unfinished_import(&mut self) {
        if let Some(first) = self.left.first() {
            let what = format!(
                "an import that did not finish has left {} of its sessions, such as {first}: {UNFINISHED}",
                self.left.len()
            );
            self.report(None, None, what);
        }
    }

    fn check_orphans(&mut self) -> Result<(), ReadError> {
        let engine = self.engine;
        let mut orphans = Vec::new();
        engine.heads(&mut |session, head| {
            if head.is_ok_and(|head| head.is_erased()) && !self.sound.contains(&session) {
                self.erased.insert(session);
            } else {
                orphans.push((session, "head"));
            }
            CONTINUE
        })?;
        engine.inflights(&mut |session, _| {
            orphans.push((session, "inflight"));
            CONTINUE
        })?;
        for (session, table) in orphans {
            if !self.sound.contains(&session) && !self.damaged.contains(&session) {
                self.report(Some(session), None, format!("it has a row in `{table}`, but no records"));
            }
        }
        Ok(())
    }

    fn check_child_rows(&mut self) -> Result<(), ReadError> {
        let engine = self.engine;
        let mut expected = std::mem::take(&mut self.children);
        engine.all_children(&mut |parent, child| {
            let known = expected.remove(&(parent, child));
            if self.left.remove(&child) {
                // An unfinished import has written no rows, so this session has lost its row in `head`.
                self.report(Some(child), None, format!("it has no row in `head`, and `kid` names it below {parent}"));
            } else if !known && !self.damaged.contains(&child) {
                self.report(Some(child), None, format!("`kid` names it below {parent}, its records do not"));
            }
            CONTINUE
        })?;
        for (parent, child) in expected {
            self.report(Some(child), None, format!("it is below {parent}, and `kid` does not name it"));
        }
        Ok(())
    }

    fn outbox_rows(&mut self) -> Result<(), ReadError> {
        let mut noted = std::mem::take(&mut self.obligations);
        // Applies them in log order, and creations first within a frame, as engines do.
        noted.sort_unstable();
        let mut expected: BTreeMap<Row, Lsn> = BTreeMap::new();
        for (lsn, taken, row) in noted {
            if taken {
                expected.remove(&row);
            } else {
                expected.insert(row, lsn);
            }
        }
        let engine = self.engine;
        engine.outbox(None, &mut |found| {
            match found {
                Err(error) => self.report(None, None, error.to_string()),
                Ok((row, lsn)) => {
                    let listed = expected.remove(&row);
                    if listed != Some(lsn) && !self.is_unknown(&row) {
                        let text = listed.map_or_else(|| "none".to_owned(), |lsn| lsn.to_string());
                        self.report(Some(row.from), Some(lsn), format!("`outbox` holds {row:?}, expected {text}"));
                    }
                }
            }
            CONTINUE
        })?;
        for (row, lsn) in expected {
            if !self.is_unknown(&row) {
                self.report(Some(row.from), Some(lsn), format!("`outbox` lacks {row:?}, which the records require"));
            }
        }
        Ok(())
    }

    /// Returns whether one end of the row is unreadable or erased, so that it may have been created or taken there.
    fn is_unknown(&self, row: &Row) -> bool {
        [row.to, row.from].iter().any(|end| self.damaged.contains(end) || self.erased.contains(end))
    }
}
