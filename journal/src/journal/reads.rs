//! Reads. They see what is durable: `Journal::settled` before them makes that everything appended so far.

use std::collections::{BTreeMap, BTreeSet};

use subtend_session::ids::{Hash, Lsn, Seq, SessionId, Text};
use subtend_session::index::{Head, Inflight, Row};

use super::Journal;
use crate::compact;
use crate::engine::Kept;
use crate::error::ReadError;
use crate::frame::Stored;
use crate::read::{GO, damaged, head_of, inflight_of, keep, open_frame, owner, page, records, walk};
use crate::verify::{self, Progress, Report};

impl Journal {
    /// All records of a session, in order: without a gap (J-2), checksums checked, bodies of the birth filled in.
    ///
    /// # Errors
    /// [`ReadError::NoSuchSession`]; [`ReadError::Damaged`] or [`ReadError::Newer`] at the first record that cannot be had (J-8).
    pub fn records(&self, session: SessionId) -> Result<Vec<Stored>, ReadError> {
        let engine = self.shared().engine()?;
        records(&*engine, session)
    }

    /// What there is of a session whose head is damaged: its records, checked as by [`Journal::records`], but for what only the
    /// head tells, whether they are all. To be shown to people; nothing may go on from it.
    ///
    /// # Errors
    /// As for [`Journal::records`].
    pub fn salvage(&self, session: SessionId) -> Result<Vec<Stored>, ReadError> {
        let engine = self.shared().engine()?;
        let (out, _) = walk(&*engine, session, Seq(1), engine.places(session)?, usize::MAX)?;
        if out.is_empty() { Err(ReadError::NoSuchSession(session)) } else { Ok(out) }
    }

    /// Records of a session from `from` on, in order, without a gap and checked as by [`Journal::records`]; none if `from` is
    /// beyond the last one.
    ///
    /// A page, to read a long session with bounded memory: at least `most` records where there are as many, and at most a
    /// frame more. The next page begins behind the last record of this one.
    ///
    /// # Errors
    /// As for [`Journal::records`].
    pub fn records_from(&self, session: SessionId, from: Seq, most: usize) -> Result<Vec<Stored>, ReadError> {
        let engine = self.shared().engine()?;
        page(&*engine, session, from.max(Seq(1)), most.max(1))
    }

    /// The frame at `lsn`; `None` where only rows changed, or nothing is.
    ///
    /// # Errors
    /// As for [`Journal::records`].
    pub fn frame_at(&self, lsn: Lsn) -> Result<Option<(SessionId, Vec<Stored>)>, ReadError> {
        let engine = self.shared().engine()?;
        let Some(kept) = engine.frame(lsn)? else { return Ok(None) };
        let frame = match open_frame(kept) {
            Ok(frame) => frame,
            Err(error) => {
                // The frame itself would say whose it is.
                let (session, seq) = owner(&*engine, lsn)?.unwrap_or((SessionId(uuid::Uuid::nil()), Seq(0)));
                return Err(damaged(session, seq, lsn, error));
            }
        };
        let session = frame.session;
        let mut out = Vec::with_capacity(frame.records.len());
        keep(&*engine, frame, lsn, &mut out)?;
        Ok(Some((session, out)))
    }

    /// The session's head.
    ///
    /// # Errors
    /// When the row is damaged or the engine fails.
    pub fn head(&self, session: SessionId) -> Result<Option<Head>, ReadError> {
        head_of(&*self.shared().engine()?, session)
    }

    /// All heads, by session. Damaged rows are left out and named by [`Journal::damaged`]. A session below a deleted one is deleted.
    ///
    /// # Errors
    /// When the engine fails.
    pub fn heads(&self) -> Result<Vec<(SessionId, Head)>, ReadError> {
        let mut heads = self.own_heads()?;
        for session in compact::deleted(&heads).into_keys() {
            if let Some(head) = heads.get_mut(&session) {
                head.deleted = true;
            }
        }
        Ok(heads.into_iter().collect())
    }

    /// The uppermost deleted session of each tree whose deletion is not complete: a process died before it had noted it in every
    /// session below.
    ///
    /// # Errors
    /// When the engine fails.
    pub fn half_deleted(&self) -> Result<BTreeSet<SessionId>, ReadError> {
        let heads = self.own_heads()?;
        let tops = compact::deleted(&heads).into_iter();
        let open = tops.filter(|(session, _)| heads.get(session).is_some_and(|head| !head.deleted));
        Ok(open.map(|(_, top)| top).collect())
    }

    /// Each head as it is written.
    fn own_heads(&self) -> Result<BTreeMap<SessionId, Head>, ReadError> {
        let mut heads = BTreeMap::new();
        self.shared().engine()?.heads(&mut |session, head| {
            heads.extend(head.ok().map(|head| (session, head)));
            GO
        })?;
        Ok(heads)
    }

    /// Bytes of the frames of a session, where they are encoded.
    ///
    /// # Errors
    /// When the engine fails.
    pub fn bytes_of(&self, session: SessionId) -> Result<u64, ReadError> {
        let engine = self.shared().engine()?;
        let mut bytes = 0_u64;
        for (_, lsn) in engine.places(session)? {
            if let Some(Kept::Bytes(frame)) = engine.frame(lsn)? {
                bytes = bytes.saturating_add(frame.len() as u64);
            }
        }
        Ok(bytes)
    }

    /// The session's row of the boot scan; `None` where no run of it is in flight.
    ///
    /// # Errors
    /// When the row is damaged or the engine fails.
    pub fn inflight_of(&self, session: SessionId) -> Result<Option<Inflight>, ReadError> {
        inflight_of(&*self.shared().engine()?, session)
    }

    /// The sessions whose heads are damaged: those that [`Journal::heads`] leaves out.
    ///
    /// # Errors
    /// When the engine fails.
    pub fn damaged_heads(&self) -> Result<Vec<(SessionId, ReadError)>, ReadError> {
        let mut found = Vec::new();
        self.shared().engine()?.heads(&mut |session, head| {
            found.extend(head.err().map(|error| (session, error.into())));
            GO
        })?;
        Ok(found)
    }

    /// The session's children.
    ///
    /// # Errors
    /// When the engine fails.
    pub fn kids(&self, parent: SessionId) -> Result<Vec<SessionId>, ReadError> {
        Ok(self.shared().engine()?.kids(parent)?)
    }

    /// The boot scan: sessions with a run in flight. Damaged rows are left out and named by [`Journal::damaged`].
    ///
    /// # Errors
    /// When the engine fails.
    pub fn inflight(&self) -> Result<Vec<(SessionId, Inflight)>, ReadError> {
        let mut rows = Vec::new();
        self.shared().engine()?.inflights(&mut |session, row| {
            rows.extend(row.ok().map(|row| (session, row)));
            GO
        })?;
        Ok(rows)
    }

    /// All obligations with the LSN of their frame, in that order. Damaged rows are left out and named by [`Journal::damaged`].
    ///
    /// # Errors
    /// When the engine fails.
    pub fn outbox(&self) -> Result<Vec<(Row, Lsn)>, ReadError> {
        self.obligations(None)
    }

    /// Obligations to one session, in LSN order. Damaged rows are left out and named by [`Journal::damaged`].
    ///
    /// # Errors
    /// When the engine fails.
    pub fn outbox_to(&self, session: SessionId) -> Result<Vec<(Row, Lsn)>, ReadError> {
        self.obligations(Some(session))
    }

    fn obligations(&self, to: Option<SessionId>) -> Result<Vec<(Row, Lsn)>, ReadError> {
        let mut rows = Vec::new();
        self.shared().engine()?.outbox(to, &mut |row| {
            rows.extend(row.ok());
            GO
        })?;
        rows.sort_unstable_by_key(|(row, lsn)| (*lsn, *row));
        Ok(rows)
    }

    /// Rows that the listings leave out because they are not what was written, with their session where it is known.
    ///
    /// To be asked once at the start: each named session is to be quarantined (J-8). Records are checked when they are read.
    ///
    /// # Errors
    /// When the engine fails.
    pub fn damaged(&self) -> Result<Vec<(Option<SessionId>, ReadError)>, ReadError> {
        let engine = self.shared().engine()?;
        let mut found: Vec<_> =
            self.damaged_heads()?.into_iter().map(|(session, error)| (Some(session), error)).collect();
        engine.inflights(&mut |session, row| {
            found.extend(row.err().map(|error| (Some(session), error.into())));
            GO
        })?;
        engine.outbox(None, &mut |row| {
            found.extend(row.err().map(|error| (None, error.into())));
            GO
        })?;
        Ok(found)
    }

    /// Sessions that an import has left which did not finish: they have frames, and no row names them. Nothing but
    /// [`Journal::verify`] sees them; the same import takes them up when it is repeated.
    ///
    /// Reads no frame, but the place of each.
    ///
    /// # Errors
    /// When the engine fails.
    pub fn unfinished_import(&self) -> Result<Vec<SessionId>, ReadError> {
        let engine = self.shared().engine()?;
        let mut named = BTreeSet::new();
        engine.heads(&mut |session, _| {
            named.insert(session);
            GO
        })?;
        engine.inflights(&mut |session, _| {
            named.insert(session);
            GO
        })?;
        engine.all_kids(&mut |_, kid| {
            named.insert(kid);
            GO
        })?;
        let mut left = BTreeSet::new();
        engine.all_places(&mut |session, _, _| {
            if !named.contains(&session) {
                left.insert(session);
            }
            GO
        })?;
        Ok(left.into_iter().collect())
    }

    /// The body that a hash names, as JSON.
    ///
    /// # Errors
    /// When the engine fails.
    pub fn def(&self, hash: Hash) -> Result<Option<Text>, ReadError> {
        Ok(self.shared().engine()?.def(hash)?)
    }

    /// Reads everything and tells all that does not hold: checksums, gaps, the order of the log, the fold of each session, and
    /// index rows against what the records say. To be run while nothing is appended.
    ///
    /// # Errors
    /// When the engine fails as a whole; damage to single sessions is in the report.
    pub fn verify(&self, progress: &mut dyn FnMut(Progress)) -> Result<Report, ReadError> {
        let engine = self.shared().engine()?;
        verify::verify(&*engine, progress)
    }
}
