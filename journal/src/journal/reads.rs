//! Reads of durable data; `Journal::settled` first makes everything appended visible.

use std::collections::{BTreeMap, BTreeSet};

use subtend_session::ids::{Hash, Lsn, Seq, SessionId, Text};
use subtend_session::index::{Head, Inflight, Row};
use subtend_session::record::Record;

use super::Journal;
use crate::compact;
use crate::engine::{self, Engine, StoredFrame};
use crate::error::ReadError;
use crate::frame::Stored;
use crate::read::{
    CONTINUE, END, damage_error, frames, head_of, inflight_of, open_frame, owner, page, push_records, records, walk,
};
use crate::verify::{self, Progress, Report};

/// The rows that a start reads.
#[derive(Debug, Default)]
pub struct StartRows {
    pub inflight: Vec<(SessionId, Inflight)>,
    /// True if a session is deleted. A crash may have interrupted the deletion of those below it.
    pub has_deleted: bool,
    /// Damaged rows, with their session where it is known.
    pub damaged: Vec<(Option<SessionId>, ReadError)>,
}

impl Journal {
    /// Returns all records of a session, without gaps, checked, with the bodies of its creation record.
    /// # Errors
    /// [`ReadError::NoSuchSession`]; [`ReadError::Damaged`] or [`ReadError::Newer`] at the first unreadable record.
    pub fn records(&self, session: SessionId) -> Result<Vec<Stored>, ReadError> {
        let engine = self.shared().engine()?;
        records(&*engine, self.bodies(), session)
    }

    /// Returns the records of a session with a damaged head, checked like [`Journal::records`], except for
    /// completeness. For display only: never resume from them.
    pub fn salvage(&self, session: SessionId) -> Result<Vec<Stored>, ReadError> {
        let engine = self.shared().engine()?;
        let (out, _) =
            walk(&*engine, self.bodies(), session, Seq(1), engine.range(session, Seq(1), END, u64::MAX)?.frames)?;
        if out.is_empty() { Err(ReadError::NoSuchSession(session)) } else { Ok(out) }
    }

    /// Returns records of a session from `from` on, checked like [`Journal::records`]; empty if `from` is beyond the
    /// last one.
    ///
    /// A page holds at least `count` records, if there are as many, and at most one frame more. The next page starts
    /// behind the last record.
    pub fn records_from(&self, session: SessionId, from: Seq, count: usize) -> Result<Vec<Stored>, ReadError> {
        let engine = self.shared().engine()?;
        Ok(page(&*engine, self.bodies(), session, from.max(Seq(1)), count.max(1), u64::MAX)?.0)
    }

    /// Returns the first record of a session, which is its creation. Decodes no other record of its frame.
    ///
    /// # Errors
    /// As for [`Journal::records`], by this record alone.
    pub fn first_record(&self, session: SessionId) -> Result<Stored, ReadError> {
        Ok(self.first_frame(session)?.1)
    }

    /// Returns the first record of a session as [`Journal::first_record`] does, with the LSN of its frame.
    ///
    /// # Errors
    /// As for [`Journal::first_record`].
    pub fn first_frame(&self, session: SessionId) -> Result<(Lsn, Stored), ReadError> {
        let engine = self.shared().engine()?;
        let frames = engine.range(session, Seq(1), Seq(2), u64::MAX)?.frames.into_iter().take(1);
        let first = frames.map(|(seq, lsn, frame)| (seq, lsn, frame.map(StoredFrame::first))).collect();
        let (records, lsn) = walk(&*engine, self.bodies(), session, Seq(1), first)?;
        Ok((lsn, records.into_iter().next().ok_or(ReadError::NoSuchSession(session))?))
    }

    /// Returns records as [`Journal::records_from`] does, but of no further frame after `max_bytes`, and whether there may
    /// be more. A page is empty only behind the last record.
    pub fn page_from(
        &self,
        session: SessionId,
        from: Seq,
        count: usize,
        max_bytes: u64,
    ) -> Result<(Vec<Stored>, bool), ReadError> {
        let engine = self.shared().engine()?;
        page(&*engine, self.bodies(), session, from.max(Seq(1)), count.max(1), max_bytes.max(1))
    }

    /// Returns records of a session that end before `until`, checked like [`Journal::records`]. They are whole frames with
    /// at least `count` records, if there are as many. The page before it ends before its first record.
    pub fn records_before(&self, session: SessionId, until: Seq, count: u64) -> Result<Vec<Stored>, ReadError> {
        self.page_before(session, until, count, u64::MAX).map(|(records, _)| records)
    }

    /// Returns records as [`Journal::records_before`] does, but of no further frame after `max_bytes`, and the bytes that
    /// their frames have. If these are fewer than `max_bytes`, the records end before `until`.
    pub fn page_before(
        &self,
        session: SessionId,
        until: Seq,
        count: u64,
        max_bytes: u64,
    ) -> Result<(Vec<Stored>, u64), ReadError> {
        let engine = self.shared().engine()?;
        let from = Seq(until.0.saturating_sub(count.max(1)).max(1));
        let found = frames(&*engine, self.bodies(), session, (from, until), max_bytes.max(1))?;
        Ok((found.0, found.1))
    }

    /// Returns the frame at `lsn`; `None` where only rows changed or no frame exists.
    pub fn frame_at(&self, lsn: Lsn) -> Result<Option<(SessionId, Vec<Stored>)>, ReadError> {
        self.open_at(lsn, |engine| engine.frame(lsn))
    }

    /// Returns the frame at `lsn` as [`Journal::frame_at`] does, or `None` if `is_wanted` excludes it by its session and the bytes
    /// that were read of it. Decodes no record of such a frame, and reads no large body.
    pub fn frame_of(
        &self,
        lsn: Lsn,
        mut is_wanted: impl FnMut(SessionId, u64) -> bool,
    ) -> Result<Option<(SessionId, Vec<Stored>)>, ReadError> {
        self.open_at(lsn, |engine| engine.frame_of(lsn, &mut is_wanted))
    }

    fn open_at(
        &self,
        lsn: Lsn,
        read: impl FnOnce(&dyn Engine) -> engine::Result<Option<StoredFrame>>,
    ) -> Result<Option<(SessionId, Vec<Stored>)>, ReadError> {
        let engine = self.shared().engine()?;
        let Some(kept) = read(&*engine)? else { return Ok(None) };
        let frame = match open_frame(kept) {
            Ok(frame) => frame,
            Err(error) => {
                // A damaged frame cannot name its session, so the index is used.
                let (session, seq) = owner(&*engine, lsn)?.unwrap_or((SessionId(uuid::Uuid::nil()), Seq(0)));
                return Err(damage_error(session, seq, lsn, error));
            }
        };
        let session = frame.session;
        let mut out = Vec::with_capacity(frame.records.len());
        push_records(&*engine, self.bodies(), frame, lsn, &mut out)?;
        Ok(Some((session, out)))
    }

    pub fn head(&self, session: SessionId) -> Result<Option<Head>, ReadError> {
        head_of(&*self.shared().engine()?, session)
    }

    /// Returns all heads by session, except damaged rows (see [`Journal::damaged_rows`]). A session below a deleted one is deleted.
    pub fn heads(&self) -> Result<Vec<(SessionId, Head)>, ReadError> {
        self.heads_with(|head| head)
    }

    /// Returns the heads as [`Journal::heads`] does, without their titles, which may be megabytes in all.
    pub fn heads_without_titles(&self) -> Result<Vec<(SessionId, Head)>, ReadError> {
        self.heads_with(|head| Head { title: Text::default(), ..head })
    }

    fn heads_with(&self, map: impl Fn(Head) -> Head) -> Result<Vec<(SessionId, Head)>, ReadError> {
        let mut heads = self.own_heads(map)?;
        for session in compact::deleted_roots(&heads).into_keys() {
            if let Some(head) = heads.get_mut(&session) {
                head.deleted = true;
            }
        }
        Ok(heads.into_iter().collect())
    }

    /// Returns the topmost deleted session of each tree whose deletion a crash has interrupted.
    pub fn unfinished_deletions(&self) -> Result<BTreeSet<SessionId>, ReadError> {
        let heads = self.own_heads(|head| head)?;
        let tops = compact::deleted_roots(&heads).into_iter();
        let open = tops.filter(|(session, _)| heads.get(session).is_some_and(|head| !head.deleted));
        Ok(open.map(|(_, top)| top).collect())
    }

    fn own_heads(&self, map: impl Fn(Head) -> Head) -> Result<BTreeMap<SessionId, Head>, ReadError> {
        let mut heads = BTreeMap::new();
        self.shared().engine()?.heads(&mut |session, head| {
            heads.extend(head.ok().map(|head| (session, map(head))));
            CONTINUE
        })?;
        Ok(heads)
    }

    /// Returns the encoded bytes of a session's frames.
    pub fn bytes_of(&self, session: SessionId) -> Result<u64, ReadError> {
        let engine = self.shared().engine()?;
        if engine.wants_bytes() {
            return Ok(engine.bytes(session, Seq(1), u64::MAX)?);
        }
        let mut bytes = 0_u64;
        // Of a host's store, which sends encoded frames.
        for (_, _, frame) in engine.range(session, Seq(1), END, u64::MAX)?.frames {
            if let Some(StoredFrame::Bytes(frame)) = frame {
                bytes = bytes.saturating_add(frame.len() as u64);
            }
        }
        Ok(bytes)
    }

    /// Returns the encoded bytes of a session's frames that begin with record `from`, up to the first frame with which
    /// they are at least `max_bytes`. Reads no large frame, since this is how readers find out that a session is large.
    pub fn bytes_from(&self, session: SessionId, from: Seq, max_bytes: u64) -> Result<u64, ReadError> {
        Ok(self.shared().engine()?.bytes(session, from, max_bytes)?)
    }

    /// Returns the bytes of the bodies that the first record of a session names, as JSON. Reads no large one, as
    /// [`Journal::bytes_from`], which does not count them: an import stores them apart from the frame.
    pub fn body_bytes(&self, session: SessionId) -> Result<u64, ReadError> {
        let Record::SessionCreated(created) = self.without_bodies().first_record(session)?.record else { return Ok(0) };
        let (engine, mut bytes) = (self.shared().engine()?, 0_u64);
        for hash in [created.system.hash, created.ceiling.hash, created.limits.hash] {
            bytes = bytes.saturating_add(engine.def_bytes(hash)?);
        }
        Ok(bytes)
    }

    /// Returns the session's row of the boot scan; `None` without a run in flight.
    pub fn inflight_of(&self, session: SessionId) -> Result<Option<Inflight>, ReadError> {
        inflight_of(&*self.shared().engine()?, session)
    }

    /// Returns the sessions with damaged heads, which [`Journal::heads`] omits.
    pub fn damaged_heads(&self) -> Result<Vec<(SessionId, ReadError)>, ReadError> {
        let mut found = Vec::new();
        self.shared().engine()?.heads(&mut |session, head| {
            found.extend(head.err().map(|error| (session, error.into())));
            CONTINUE
        })?;
        Ok(found)
    }

    pub fn children(&self, parent: SessionId) -> Result<Vec<SessionId>, ReadError> {
        Ok(self.shared().engine()?.children(parent)?)
    }

    /// Returns the sessions with a run in flight, except damaged rows (see [`Journal::damaged_rows`]).
    pub fn inflight(&self) -> Result<Vec<(SessionId, Inflight)>, ReadError> {
        let mut rows = Vec::new();
        self.shared().engine()?.inflights(&mut |session, row| {
            rows.extend(row.ok().map(|row| (session, row)));
            CONTINUE
        })?;
        Ok(rows)
    }

    /// Returns all obligations in LSN order, except damaged rows (see [`Journal::damaged_rows`]).
    pub fn outbox(&self) -> Result<Vec<(Row, Lsn)>, ReadError> {
        self.obligations(None)
    }

    /// Returns obligations to one session in LSN order, except damaged rows (see [`Journal::damaged_rows`]).
    pub fn outbox_to(&self, session: SessionId) -> Result<Vec<(Row, Lsn)>, ReadError> {
        self.obligations(Some(session))
    }

    fn obligations(&self, to: Option<SessionId>) -> Result<Vec<(Row, Lsn)>, ReadError> {
        let mut rows = Vec::new();
        self.shared().engine()?.outbox(to, &mut |row| {
            rows.extend(row.ok());
            CONTINUE
        })?;
        rows.sort_unstable_by_key(|(row, lsn)| (*lsn, *row));
        Ok(rows)
    }

    /// Returns the damaged rows that listings omit, with their session where it is known. Call it once at the start, and quarantine the
    /// sessions.
    pub fn damaged_rows(&self) -> Result<Vec<(Option<SessionId>, ReadError)>, ReadError> {
        Ok(self.start_rows()?.damaged)
    }

    /// Reads the rows that a start needs, each table once.
    pub fn start_rows(&self) -> Result<StartRows, ReadError> {
        let engine = self.shared().engine()?;
        let (mut rows, mut damaged) = (StartRows::default(), Vec::new());
        engine.heads(&mut |session, head| {
            match head {
                Ok(head) => rows.has_deleted |= head.deleted,
                Err(error) => damaged.push((Some(session), error.into())),
            }
            CONTINUE
        })?;
        engine.inflights(&mut |session, row| {
            match row {
                Ok(row) => rows.inflight.push((session, row)),
                Err(error) => damaged.push((Some(session), error.into())),
            }
            CONTINUE
        })?;
        engine.outbox(None, &mut |row| {
            damaged.extend(row.err().map(|error| (None, error.into())));
            CONTINUE
        })?;
        Ok(StartRows { damaged, ..rows })
    }

    /// Returns sessions that an unfinished import has left: they have frames and no rows. The same import continues with them. Reads no
    /// frame.
    pub fn unfinished_import(&self) -> Result<Vec<SessionId>, ReadError> {
        let engine = self.shared().engine()?;
        let mut named = BTreeSet::new();
        engine.heads(&mut |session, _| {
            named.insert(session);
            CONTINUE
        })?;
        engine.inflights(&mut |session, _| {
            named.insert(session);
            CONTINUE
        })?;
        engine.all_children(&mut |_, child| {
            named.insert(child);
            CONTINUE
        })?;
        let mut left = BTreeSet::new();
        engine.all_positions(&mut |session, _, _| {
            if !named.contains(&session) {
                left.insert(session);
            }
            CONTINUE
        })?;
        Ok(left.into_iter().collect())
    }

    /// Returns the body with this hash, as JSON.
    pub fn def(&self, hash: Hash) -> Result<Option<Text>, ReadError> {
        Ok(self.shared().engine()?.def(hash)?)
    }

    /// Reads everything and reports violations: checksums, gaps, log order, the fold of each session, and index rows against the records.
    /// A store that is written meanwhile is read up to five times, since its rows and records are of different moments.
    /// # Errors
    /// When the engine fails as a whole; damage to single sessions is in the report.
    pub fn verify(&self, progress: &mut dyn FnMut(Progress)) -> Result<Report, ReadError> {
        let engine = self.shared().engine()?;
        verify::verify(&*engine, progress)
    }
}
