//! Reads of durable data.

use subtend_session::ids::{Epoch, Lsn, Seq, SessionId};
use subtend_session::index::{Head, Inflight};

use crate::codec::{self, Decoded, FrameError};
use crate::engine::{Engine, Go, StoredFrame};
use crate::error::{EngineError, ReadError};
use crate::fence::Known;
use crate::frame::Stored;

pub(crate) const GO: Go = Go::Continue(());

/// Reports a damaged head as damage to its session, not as a failure of the engine: other sessions are unaffected.
pub(crate) fn head_of(engine: &dyn Engine, session: SessionId) -> Result<Option<Head>, ReadError> {
    let damaged = |why| ReadError::Damaged { session, seq: Seq(0), lsn: Lsn(0), why };
    engine.head(session).map_err(|error| unread(error, &damaged))
}

/// As [`head_of`], for the row of the boot scan.
pub(crate) fn inflight_of(engine: &dyn Engine, session: SessionId) -> Result<Option<Inflight>, ReadError> {
    let damaged = |why| ReadError::Damaged { session, seq: Seq(0), lsn: Lsn(0), why };
    engine.inflight(session).map_err(|error| unread(error, &damaged))
}

/// Returns session and first record of the frame at `lsn` from the index, for a damaged frame.
pub(crate) fn owner(engine: &dyn Engine, lsn: Lsn) -> Result<Option<(SessionId, Seq)>, ReadError> {
    let mut found = None;
    engine.all_places(&mut |session, seq, at| {
        if at != lsn {
            return GO;
        }
        found = Some((session, seq));
        Go::Break(())
    })?;
    Ok(found)
}

pub(crate) fn records(engine: &dyn Engine, session: SessionId) -> Result<Vec<Stored>, ReadError> {
    // The head first: after a concurrent commit there are more records than it says, never fewer.
    let head = head_of(engine, session)?;
    let (out, last) = walk(engine, session, Seq(1), engine.places(session)?, usize::MAX)?;
    let end = out.last().map_or(Seq(1), |stored| stored.seq.next());
    whole(session, head.as_ref(), end, last.unwrap_or_default())?;
    if out.is_empty() { Err(ReadError::NoSuchSession(session)) } else { Ok(out) }
}

/// Returns `most` records from `from` on, and the rest of the last frame.
pub(crate) fn page(engine: &dyn Engine, session: SessionId, from: Seq, most: usize) -> Result<Vec<Stored>, ReadError> {
    let head = head_of(engine, session)?;
    // A frame holds one record at least. The first one may start before the wanted record.
    let places = engine.places_from(session, from, most.saturating_add(1))?;
    let Some((first, _)) = places.first().copied() else { return Err(ReadError::NoSuchSession(session)) };
    let all = places.len() <= most;
    let wanted = most.saturating_add(usize::try_from(from.0.saturating_sub(first.0)).unwrap_or(0));
    let (mut out, last) = walk(engine, session, first, places, wanted)?;
    if let Some(last) = last.filter(|_| all) {
        let end = out.last().map_or(first, |stored| stored.seq.next());
        whole(session, head.as_ref(), end, last)?;
    }
    out.retain(|stored| stored.seq >= from);
    Ok(out)
}

/// Returns the records of the frames at `places`, the first of which starts with `from`: all, or frames that hold `wanted` records. If
/// all, also the last frame's LSN.
pub(crate) fn walk(
    engine: &dyn Engine,
    session: SessionId,
    from: Seq,
    places: Vec<(Seq, Lsn)>,
    wanted: usize,
) -> Result<(Vec<Stored>, Option<Lsn>), ReadError> {
    let mut out: Vec<Stored> = Vec::new();
    let (mut epoch, mut last) = (Epoch(0), Lsn(0));
    for (seq, lsn) in places {
        if out.len() >= wanted {
            return Ok((out, None));
        }
        let expected = out.last().map_or(from, |stored| stored.seq.next());
        let bad = |why: String| ReadError::Damaged { session, seq: expected, lsn, why };
        if seq != expected {
            return Err(bad(format!("the next frame starts at record {seq}")));
        }
        if lsn <= last {
            return Err(bad(format!("its frame precedes that of earlier records, {last}")));
        }
        let kept = engine.frame(lsn)?.ok_or_else(|| bad("its frame is not in the log".into()))?;
        let frame = open_frame(kept).map_err(|error| damaged(session, expected, lsn, error))?;
        if frame.session != session || frame.first_seq != seq {
            return Err(bad(format!("its frame is of session {}, record {}", frame.session, frame.first_seq)));
        }
        if frame.epoch < epoch {
            return Err(bad(format!("activation {} wrote it after activation {epoch}", frame.epoch)));
        }
        epoch = frame.epoch;
        last = lsn;
        keep(engine, frame, lsn, &mut out)?;
    }
    Ok((out, Some(last)))
}

/// Checks that the records, which end before `end`, reach the session's head.
fn whole(session: SessionId, head: Option<&Head>, end: Seq, last: Lsn) -> Result<(), ReadError> {
    match head {
        Some(head) if head.last_seq >= end => {
            let why = format!("the session's head says that it ends with record {}", head.last_seq);
            Err(ReadError::Damaged { session, seq: end, lsn: last, why })
        }
        Some(_) | None => Ok(()),
    }
}

/// Appends the records of a frame, with the bodies of a birth.
pub(crate) fn keep(engine: &dyn Engine, frame: Decoded, lsn: Lsn, out: &mut Vec<Stored>) -> Result<(), ReadError> {
    let Decoded { session, first_seq, epoch, at_ms, records } = frame;
    let mut seq = first_seq;
    for mut record in records {
        let bad = |why| ReadError::Damaged { session, seq, lsn, why };
        codec::fill(&mut record, &mut |hash| engine.def(hash).map_err(|error| unread(error, &bad)), &bad)?;
        out.push(Stored { seq, at_ms, epoch, record });
        seq = seq.next();
    }
    Ok(())
}

/// Reports a missing body as damage to the sessions born with it, not as a failure of the engine.
pub(crate) fn unread(error: EngineError, damaged: &dyn Fn(String) -> ReadError) -> ReadError {
    if matches!(error, EngineError::Corrupt { .. }) { damaged(error.to_string()) } else { error.into() }
}

/// Returns the durable state that the next activation starts from.
pub(crate) fn last_known(engine: &dyn Engine, session: SessionId) -> Result<Known, ReadError> {
    // Rows first, as in `records`. They may hold an epoch without records.
    let head = head_of(engine, session)?.map(|head| head.epoch);
    let inflight = inflight_of(engine, session)?.map(|row| row.epoch);
    let (seq, lsn) = engine.last_place(session)?.ok_or(ReadError::NoSuchSession(session))?;
    let missing = || ReadError::Damaged { session, seq, lsn, why: "its frame is not in the log".into() };
    let kept = engine.frame(lsn)?.ok_or_else(missing)?;
    let frame = open_frame(kept).map_err(|error| damaged(session, seq, lsn, error))?;
    let epoch = [head, inflight].into_iter().flatten().fold(frame.epoch, Epoch::max);
    let next_seq = Seq(frame.first_seq.0.saturating_add(frame.records.len() as u64));
    Ok(Known { epoch, next_seq })
}

pub(crate) fn open_frame(kept: StoredFrame) -> Result<Decoded, FrameError> {
    match kept {
        StoredFrame::Bytes(bytes) => codec::decode(&bytes),
        StoredFrame::Records(kept) => {
            let crate::engine::StoredRecords { session, first_seq, epoch, at_ms, records } = *kept;
            Ok(Decoded { session, first_seq, epoch, at_ms, records })
        }
        StoredFrame::Damaged(why) => Err(FrameError::Corrupt(why)),
    }
}

pub(crate) fn damaged(session: SessionId, seq: Seq, lsn: Lsn, error: FrameError) -> ReadError {
    match error {
        FrameError::Corrupt(why) => ReadError::Damaged { session, seq, lsn, why },
        FrameError::Newer(why) => ReadError::Newer { session, seq, why },
    }
}
