//! Reads of durable data.

use subtend_session::ids::{Epoch, Lsn, Seq, SessionId};
use subtend_session::index::{Head, Inflight};

use crate::bodies::Bodies;
use crate::codec::{self, Decoded, FrameError};
use crate::engine::{Engine, IndexedFrame, ScanFlow, StoredFrame, bytes_of};
use crate::error::{EngineError, ReadError};
use crate::fence::Known;
use crate::frame::Stored;

pub(crate) const CONTINUE: ScanFlow = ScanFlow::Continue(());

pub(crate) fn head_of(engine: &dyn Engine, session: SessionId) -> Result<Option<Head>, ReadError> {
    row(session, engine.head(session))
}

pub(crate) fn inflight_of(engine: &dyn Engine, session: SessionId) -> Result<Option<Inflight>, ReadError> {
    row(session, engine.inflight(session))
}

/// Returns the session and the first record of the frame at `lsn` from the index. Used for damaged frames.
pub(crate) fn owner(engine: &dyn Engine, lsn: Lsn) -> Result<Option<(SessionId, Seq)>, ReadError> {
    let mut found = None;
    engine.all_positions(&mut |session, seq, at| {
        if at != lsn {
            return CONTINUE;
        }
        found = Some((session, seq));
        ScanFlow::Break(())
    })?;
    Ok(found)
}

/// A position after every record.
pub(crate) const END: Seq = Seq(u64::MAX);

/// Reports a damaged row as damage to its session, not as a failure of the engine, since other sessions are unaffected.
pub(crate) fn row<T>(session: SessionId, row: Result<T, EngineError>) -> Result<T, ReadError> {
    row.map_err(|error| as_damage(error, &|why| ReadError::Damaged { session, seq: Seq(0), lsn: Lsn(0), why }))
}

pub(crate) fn records(engine: &dyn Engine, bodies: &Bodies, session: SessionId) -> Result<Vec<Stored>, ReadError> {
    let range = engine.range(session, Seq(1), END, u64::MAX)?;
    read_all(engine, bodies, session, row(session, range.head)?.as_ref(), range.frames)
}

/// Returns the records of all frames of a session, and checks that they are complete.
pub(crate) fn read_all(
    engine: &dyn Engine,
    bodies: &Bodies,
    session: SessionId,
    head: Option<&Head>,
    frames: Vec<IndexedFrame>,
) -> Result<Vec<Stored>, ReadError> {
    let (out, last) = walk(engine, bodies, session, Seq(1), frames)?;
    check_complete(session, head, out.last().map_or(Seq(1), |stored| stored.seq.next()), last)?;
    if out.is_empty() { Err(ReadError::NoSuchSession(session)) } else { Ok(out) }
}

/// Returns up to `count` records from `from` on, plus the rest of the last frame, but of no further frame after
/// `max_bytes`. Also returns whether there may be more.
pub(crate) fn page(
    engine: &dyn Engine,
    bodies: &Bodies,
    session: SessionId,
    from: Seq,
    count: usize,
    max_bytes: u64,
) -> Result<(Vec<Stored>, bool), ReadError> {
    let until = Seq(from.0.saturating_add(count as u64));
    let (mut out, _, has_more) = frames(engine, bodies, session, (from, until), max_bytes)?;
    out.retain(|stored| stored.seq >= from);
    Ok((out, has_more))
}

/// Returns the records of the whole frames from the one with record `from` to the last one that starts before `until`,
/// the bytes of these frames, and whether there may be more.
pub(crate) fn frames(
    engine: &dyn Engine,
    bodies: &Bodies,
    session: SessionId,
    (from, until): (Seq, Seq),
    max_bytes: u64,
) -> Result<(Vec<Stored>, u64, bool), ReadError> {
    let range = engine.range(session, from, until, max_bytes)?;
    let bytes = bytes_of(&range.frames);
    let head = row(session, range.head)?;
    // The first frame may start before the wanted record.
    let Some((first, ..)) = range.frames.first() else { return Err(ReadError::NoSuchSession(session)) };
    let first = *first;
    let (out, last) = walk(engine, bodies, session, first, range.frames)?;
    let end = out.last().map_or(first, |stored| stored.seq.next());
    let is_full = bytes >= max_bytes && end > from;
    if end < until && !is_full {
        // The frame that ends there is the session's last one.
        check_complete(session, head.as_ref(), end, last)?;
    }
    Ok((out, bytes, is_full || end >= until))
}

/// Returns the records of the frames, which start with record `from`, and the LSN of the last frame.
pub(crate) fn walk(
    engine: &dyn Engine,
    bodies: &Bodies,
    session: SessionId,
    from: Seq,
    frames: Vec<IndexedFrame>,
) -> Result<(Vec<Stored>, Lsn), ReadError> {
    let mut out: Vec<Stored> = Vec::new();
    let (mut epoch, mut last) = (Epoch(0), Lsn(0));
    for (seq, lsn, kept) in frames {
        let expected = out.last().map_or(from, |stored| stored.seq.next());
        let bad = |why: String| ReadError::Damaged { session, seq: expected, lsn, why };
        if seq != expected {
            return Err(bad(format!("the next frame starts at record {seq}")));
        }
        if lsn <= last {
            return Err(bad(format!("its frame precedes frame {last}, which has earlier records")));
        }
        let kept = kept.ok_or_else(|| bad("its frame is not in the log".into()))?;
        let frame = open_frame(kept).map_err(|error| damage_error(session, expected, lsn, error))?;
        if frame.session != session || frame.first_seq != seq {
            return Err(bad(format!("its frame is of session {}, record {}", frame.session, frame.first_seq)));
        }
        if frame.epoch < epoch {
            return Err(bad(format!("activation {} wrote it after activation {epoch}", frame.epoch)));
        }
        epoch = frame.epoch;
        last = lsn;
        push_records(engine, bodies, frame, lsn, &mut out)?;
    }
    Ok((out, last))
}

/// Checks that the records, which end before `end`, reach the session's last record.
fn check_complete(session: SessionId, head: Option<&Head>, end: Seq, last: Lsn) -> Result<(), ReadError> {
    match head {
        Some(head) if head.last_seq >= end => {
            let why = format!("the session's head ends with record {}", head.last_seq);
            Err(ReadError::Damaged { session, seq: end, lsn: last, why })
        }
        Some(_) | None => Ok(()),
    }
}

/// Appends the records of a frame to `out`, with the bodies of new sessions (prompts, ceilings, limits).
pub(crate) fn push_records(
    engine: &dyn Engine,
    bodies: &Bodies,
    frame: Decoded,
    lsn: Lsn,
    out: &mut Vec<Stored>,
) -> Result<(), ReadError> {
    let Decoded { session, first_seq, epoch, at_ms, records } = frame;
    let mut seq = first_seq;
    for mut record in records {
        let bad = |why| ReadError::Damaged { session, seq, lsn, why };
        bodies.fill(&mut record, &mut |hash| engine.def(hash).map_err(|error| as_damage(error, &bad)), &bad)?;
        out.push(Stored { seq, at_ms, epoch, record });
        seq = seq.next();
    }
    Ok(())
}

/// Adds the bodies to records that were read without them, if those that are not in memory have fewer than `max_bytes`.
/// Returns whether that is so. `lsn` is that of the first frame of `session`.
pub(crate) fn fill_small(
    engine: &dyn Engine,
    bodies: &Bodies,
    (session, lsn): (SessionId, Lsn),
    records: &mut [Stored],
    max_bytes: u64,
) -> Result<bool, ReadError> {
    let Some(Stored { seq, record, .. }) = records.first_mut() else { return Ok(true) };
    let bad = |why| ReadError::Damaged { session, seq: *seq, lsn, why };
    let unread = bodies.unread_bytes(record, &mut |hash| engine.def_bytes(hash))?;
    if unread >= max_bytes {
        return Ok(false);
    }
    bodies.fill(record, &mut |hash| engine.def(hash).map_err(|error| as_damage(error, &bad)), &bad)?;
    Ok(true)
}

/// Reports corrupt data as damage to its session, not as a failure of the engine.
pub(crate) fn as_damage(error: EngineError, damaged: &dyn Fn(String) -> ReadError) -> ReadError {
    if matches!(error, EngineError::Corrupt { .. }) { damaged(error.to_string()) } else { error.into() }
}

/// Returns the epoch and the next record of a session, from its rows and its last frames.
pub(crate) fn read_last(
    session: SessionId,
    head: Option<&Head>,
    inflight: Option<&Inflight>,
    frames: &[IndexedFrame],
) -> Result<Known, ReadError> {
    let Some((seq, lsn, kept)) = frames.last() else { return Err(ReadError::NoSuchSession(session)) };
    let (seq, lsn) = (*seq, *lsn);
    let (wrote, next_seq) = match kept {
        None => return Err(ReadError::Damaged { session, seq, lsn, why: "its frame is not in the log".into() }),
        Some(StoredFrame::Bytes(bytes)) => codec::end_of(bytes),
        Some(StoredFrame::Records(frame)) => {
            Ok((frame.epoch, Seq(frame.first_seq.0.saturating_add(frame.records.len() as u64))))
        }
        Some(StoredFrame::Damaged(why)) => Err(FrameError::Corrupt(why.clone())),
    }
    .map_err(|error| damage_error(session, seq, lsn, error))?;
    // The rows may have the epoch of an activation without records.
    let rows = [head.map(|head| head.epoch), inflight.map(|row| row.epoch)];
    let epoch = rows.into_iter().flatten().fold(wrote, Epoch::max);
    Ok(Known { epoch, next_seq })
}

pub(crate) fn open_frame(kept: StoredFrame) -> Result<Decoded, FrameError> {
    match kept {
        StoredFrame::Bytes(bytes) => codec::decode(&bytes),
        StoredFrame::Records(kept) => Ok(*kept),
        StoredFrame::Damaged(why) => Err(FrameError::Corrupt(why)),
    }
}

pub(crate) fn damage_error(session: SessionId, seq: Seq, lsn: Lsn, error: FrameError) -> ReadError {
    match error {
        FrameError::Corrupt(why) => ReadError::Damaged { session, seq, lsn, why },
        FrameError::Newer(why) => ReadError::Newer { session, seq, why },
    }
}
