//! Erasure: rewrites a store without the records of its deleted sessions.
//!
//! Engines do not overwrite freed space, so the remaining rows are copied into a new store of the same engine, which replaces the old one.
//! LSNs, epochs and all rows of other sessions are unchanged. An erased session keeps its head without text, which marks it as deleted.

use std::collections::{BTreeMap, BTreeSet};

use subtend_session::ids::{Epoch, Hash, Interned, Lsn, Seq, SessionId};
use subtend_session::index::{Changes, Head, Inflight, InflightChange, Row};
use subtend_session::record::Record;

use crate::engine::{Engine, Group, GroupFrame, Payload, Result, ScanFlow, StoredFrame};
use crate::error::EngineError;
use crate::fault_points::FaultPoints;
use crate::queue::{GROUP_BYTES, GROUP_FRAMES, ROW_BYTES};
use crate::read;

const CONTINUE: ScanFlow = ScanFlow::Continue(());

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compacted {
    pub erased: u64,
    /// Frames that were erased with them.
    pub frames: u64,
    pub blobs: u64,
    /// Deleted sessions that could not be erased yet.
    pub deferred: Vec<DeferredErasure>,
}

/// Deleted session that is not erased yet, because other sessions still wait for its tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeferredErasure {
    /// The deleted session. Its descendants are not erased either.
    pub session: SessionId,
    pub why: String,
}

/// Step of a compaction. A crash at any step leaves the complete old store or the complete new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompactionStep {
    /// Number of copied frames.
    Copied(u64),
    /// The new store is complete and durable. From here on, opening the store opens the new one.
    Whole,
    /// An unreferenced blob was removed.
    Swept,
    Removed,
    /// The new store is in its final place.
    Done,
}

/// Maps each deleted session to its topmost deleted ancestor. Descendants count: a crash can interrupt a deletion.
pub(crate) fn deleted_roots(heads: &BTreeMap<SessionId, Head>) -> BTreeMap<SessionId, SessionId> {
    if !heads.values().any(|head| head.deleted) {
        return BTreeMap::new();
    }
    // Each session is visited once: branches of branches form chains of any length.
    let mut tops: BTreeMap<SessionId, Option<SessionId>> = BTreeMap::new();
    for session in heads.keys() {
        let (mut chain, mut next) = (Vec::new(), Some(*session));
        // A damaged store may contain a cycle: `None` marks the sessions of the chain until their top is known.
        while let Some((id, head)) = next.and_then(|id| Some((id, heads.get(&id)?)))
            && !tops.contains_key(&id)
        {
            tops.insert(id, None);
            chain.push((id, head.deleted));
            next = head.parent;
        }
        let mut above = next.and_then(|parent| tops.get(&parent).copied().flatten());
        for (id, is_deleted) in chain.into_iter().rev() {
            above = above.or(is_deleted.then_some(id));
            tops.insert(id, above);
        }
    }
    tops.into_iter().filter_map(|(session, top)| Some((session, top?))).collect()
}

/// Copies all sessions that are not deleted `from` one engine `to` an empty one. `whole` is `from` with its blobs.
/// # Errors
/// Errors of an engine, and [`EngineError::Corrupt`] for a damaged row or first frame, since a copy must be complete.
pub fn copy(
    from: &dyn Engine,
    whole: &dyn Engine,
    to: &dyn Engine,
    progress: &mut dyn FnMut(CompactionStep),
) -> Result<Compacted> {
    let plan = CompactionPlan::of(from)?;
    let defs = plan.defs(whole)?;
    let mut out = GroupWriter { to, last: from.last_lsn()?, frames: Vec::new(), bytes: 0 };
    let (copied, erased) = plan.frames(from, &mut out, progress)?;
    if copied != plan.positions.len() as u64 {
        let why = format!("`ev` names {} remaining frames, but {copied} were copied", plan.positions.len());
        return Err(corrupt(Lsn(copied), why));
    }
    plan.rows(from, &defs, &mut out)?;
    out.end()?;
    let (last, found) = (out.last, to.last_lsn()?);
    if found != last {
        return Err(corrupt(found, format!("the copy ends there, but the store ends at {last}")));
    }
    let erased_now =
        plan.erasable.iter().filter(|session| plan.heads.get(session).is_some_and(|head| !head.is_erased()));
    Ok(Compacted { erased: erased_now.count() as u64, frames: erased, blobs: 0, deferred: plan.deferred })
}

/// The rows to remove for an engine that erases in place.
#[cfg(feature = "postgres")]
#[derive(Debug, Default)]
pub(crate) struct Erasure {
    pub(crate) frames: Vec<(Lsn, SessionId, Seq)>,
    /// Parent and child.
    pub(crate) children: Vec<(SessionId, SessionId)>,
    pub(crate) owed: Vec<Row>,
    pub(crate) defs: Vec<Hash>,
    /// The remaining rows of the erased sessions.
    pub(crate) heads: Vec<(SessionId, Head)>,
    pub(crate) deferred: Vec<DeferredErasure>,
}

#[cfg(feature = "postgres")]
impl Erasure {
    /// Plans the removal of all rows that [`copy`] would omit.
    /// # Errors
    /// As [`copy`].
    pub(crate) fn of(engine: &dyn Engine) -> Result<Self> {
        let plan = CompactionPlan::of(engine)?;
        let kept = plan.defs(engine)?;
        let (mut children, mut owed, mut defs, mut failed) = (Vec::new(), Vec::new(), Vec::new(), None);
        engine.all_children(&mut |parent, child| {
            children.extend(plan.erasable.contains(&child).then_some((parent, child)));
            CONTINUE
        })?;
        engine.outbox(None, &mut |row| {
            take_or_stop(row, &mut failed, |(row, _)| {
                owed.extend((plan.erasable.contains(&row.from) || plan.erasable.contains(&row.to)).then_some(row));
            })
        })?;
        engine.defs(&mut |hash, text| {
            take_or_stop(text, &mut failed, |_| defs.extend((!kept.contains(&hash)).then_some(hash)))
        })?;
        if let Some(error) = failed {
            return Err(error);
        }
        let fresh = plan.heads.iter().filter(|(session, head)| plan.erasable.contains(session) && !head.is_erased());
        let heads = fresh.map(|(session, head)| (*session, head.erased())).collect();
        let frames = plan.to_erase.iter().map(|(lsn, (session, seq))| (*lsn, *session, *seq)).collect();
        Ok(Self { frames, children, owed, defs, heads, deferred: plan.deferred })
    }
}

fn corrupt(at: Lsn, why: String) -> EngineError {
    EngineError::Corrupt { table: "log", at: at.to_string(), why }
}

struct CompactionPlan {
    heads: BTreeMap<SessionId, Head>,
    inflight: Vec<(SessionId, Inflight)>,
    outbox: Vec<(Row, Lsn)>,
    erasable: BTreeSet<SessionId>,
    deferred: Vec<DeferredErasure>,
    positions: BTreeMap<Lsn, (SessionId, Seq)>,
    to_erase: BTreeMap<Lsn, (SessionId, Seq)>,
}

impl CompactionPlan {
    fn of(from: &dyn Engine) -> Result<Self> {
        let (mut heads, mut inflight, mut outbox) = (BTreeMap::new(), Vec::new(), Vec::new());
        let mut failed = None;
        from.heads(&mut |session, head| take_or_stop(head, &mut failed, |head| drop(heads.insert(session, head))))?;
        from.inflights(&mut |session, row| take_or_stop(row, &mut failed, |row| inflight.push((session, row))))?;
        from.outbox(None, &mut |row| take_or_stop(row, &mut failed, |row| outbox.push(row)))?;
        if let Some(error) = failed {
            return Err(error);
        }
        let mut tops = deleted_roots(&heads);
        if FaultPoints::read().no_erase {
            tops.clear();
        }
        let deferred = unerasable(&tops, &inflight, &outbox);
        tops.retain(|_, top| !deferred.contains_key(top));
        let erasable: BTreeSet<SessionId> = tops.into_keys().collect();
        outbox.retain(|(row, _)| !erasable.contains(&row.from) && !erasable.contains(&row.to));
        let (mut positions, mut to_erase) = (BTreeMap::new(), BTreeMap::new());
        from.all_positions(&mut |session, seq, lsn| {
            let of = if erasable.contains(&session) { &mut to_erase } else { &mut positions };
            of.insert(lsn, (session, seq));
            CONTINUE
        })?;
        let deferred = deferred.into_iter().map(|(session, why)| DeferredErasure { session, why }).collect();
        Ok(Self { heads, inflight, outbox, erasable, deferred, positions, to_erase })
    }

    /// Returns the bodies that the first frames of the remaining sessions name.
    fn defs(&self, whole: &dyn Engine) -> Result<BTreeSet<Hash>> {
        let mut defs = BTreeSet::new();
        for (lsn, (session, _)) in self.positions.iter().filter(|(_, (_, seq))| *seq == Seq(1)) {
            let kept = whole.frame(*lsn)?.ok_or_else(|| corrupt(*lsn, "the frame is missing".to_owned()))?;
            let frame = read::open_frame(kept).map_err(|error| {
                corrupt(
                    *lsn,
                    format!("the first frame of session {session} cannot be read, so its bodies are unknown: {error}"),
                )
            })?;
            for record in &frame.records {
                let Record::SessionCreated(created) = record else { continue };
                defs.extend([hash(&created.system), hash(&created.ceiling), hash(&created.limits)]);
            }
        }
        Ok(defs)
    }

    /// Copies frames. Returns the numbers of copied and of erased frames.
    fn frames(
        &self,
        from: &dyn Engine,
        out: &mut GroupWriter<'_>,
        progress: &mut dyn FnMut(CompactionStep),
    ) -> Result<(u64, u64)> {
        let (mut copied, mut erased, mut failed) = (0_u64, 0_u64, None);
        from.frames(Lsn(0), &mut |lsn, kept| {
            let Some((session, first_seq)) = self.positions.get(&lsn) else {
                if self.to_erase.contains_key(&lsn) {
                    erased = erased.saturating_add(1);
                    return CONTINUE;
                }
                failed = Some(corrupt(lsn, "no row of `ev` names the frame".to_owned()));
                return ScanFlow::Break(());
            };
            copied = copied.saturating_add(1);
            match group_frame(lsn, *session, *first_seq, kept).and_then(|frame| out.put(frame)) {
                Ok(true) => progress(CompactionStep::Copied(copied)),
                Ok(false) => {}
                Err(error) => failed = Some(error),
            }
            if failed.is_some() { ScanFlow::Break(()) } else { CONTINUE }
        })?;
        match failed {
            Some(error) => Err(error),
            None => {
                out.flush()?;
                progress(CompactionStep::Copied(copied));
                Ok((copied, erased))
            }
        }
    }

    fn rows(&self, from: &dyn Engine, defs: &BTreeSet<Hash>, out: &mut GroupWriter<'_>) -> Result<()> {
        // An obligation has the LSN of the frame that created it.
        for (row, lsn) in &self.outbox {
            out.rows(*lsn, row.from, Changes { put: vec![*row], ..Changes::default() })?;
        }
        let last = out.last;
        for (session, head) in &self.heads {
            let head = if self.erasable.contains(session) { head.erased() } else { head.clone() };
            out.rows(last, *session, Changes { head: Some(Box::new(head)), ..Changes::default() })?;
        }
        for (session, row) in &self.inflight {
            let inflight = InflightChange::Put(Box::new(row.clone()));
            out.rows(last, *session, Changes { inflight, ..Changes::default() })?;
        }
        let mut failed = Ok(());
        from.all_children(&mut |parent, child| {
            if !self.erasable.contains(&child) {
                failed = out.rows(last, child, Changes { child_of: Some(parent), ..Changes::default() });
            }
            if failed.is_err() { ScanFlow::Break(()) } else { CONTINUE }
        })?;
        failed?;
        let mut failed = None;
        from.defs(&mut |hash, text| {
            let none = SessionId(uuid::Uuid::nil());
            let put = text.and_then(|text| match defs.contains(&hash) {
                true => out.rows(last, none, Changes { defs: vec![(hash, text)], ..Changes::default() }),
                false => Ok(()),
            });
            take_or_stop(put, &mut failed, |()| {})
        })?;
        failed.map_or(Ok(()), Err)
    }
}

/// Passes an item to `take`, or keeps the first error and stops the scan.
fn take_or_stop<T>(read: Result<T>, failed: &mut Option<EngineError>, take: impl FnOnce(T)) -> ScanFlow {
    match read {
        Ok(read) => {
            take(read);
            CONTINUE
        }
        Err(error) => {
            failed.get_or_insert(error);
            ScanFlow::Break(())
        }
    }
}

/// Returns the topmost sessions of deleted trees with a run in flight, or an open obligation to or from others.
fn unerasable(
    tops: &BTreeMap<SessionId, SessionId>,
    inflight: &[(SessionId, Inflight)],
    outbox: &[(Row, Lsn)],
) -> BTreeMap<SessionId, String> {
    let mut deferred = BTreeMap::new();
    for (session, row) in inflight {
        if let Some(top) = tops.get(session) {
            deferred.insert(*top, format!("run {} of session {session} is in flight", row.run));
        }
    }
    for (row, _) in outbox {
        match (tops.get(&row.from), tops.get(&row.to)) {
            (Some(top), None) => {
                drop(deferred.insert(*top, format!("session {} has not received what it sent", row.to)))
            }
            (None, Some(top)) => {
                deferred.insert(*top, format!("it has not received what session {} sent", row.from));
            }
            (Some(_), Some(_)) | (None, None) => {}
        }
    }
    deferred
}

fn hash<T: ?Sized>(named: &Interned<T>) -> Hash {
    named.hash
}

fn group_frame(lsn: Lsn, session: SessionId, first_seq: Seq, kept: StoredFrame) -> Result<GroupFrame> {
    let (count, epoch, at_ms, payload) = match kept {
        // The bytes of an encoded frame contain these values.
        StoredFrame::Bytes(bytes) => (1, Epoch(0), 0, Payload::Bytes(bytes)),
        StoredFrame::Records(kept) => {
            let count = u32::try_from(kept.records.len()).unwrap_or(u32::MAX);
            (count, kept.epoch, kept.at_ms, Payload::Records(kept.records))
        }
        StoredFrame::Damaged(why) => return Err(corrupt(lsn, why)),
    };
    Ok(GroupFrame { lsn, session, first_seq, count, epoch, at_ms, payload, changes: Changes::default() })
}

struct GroupWriter<'a> {
    to: &'a dyn Engine,
    last: Lsn,
    frames: Vec<GroupFrame>,
    bytes: u64,
}

impl GroupWriter<'_> {
    /// Adds a frame. Returns whether a group was written.
    fn put(&mut self, frame: GroupFrame) -> Result<bool> {
        let full = self.add(frame);
        if full {
            self.flush()?;
        }
        Ok(full)
    }

    fn rows(&mut self, lsn: Lsn, session: SessionId, changes: Changes) -> Result<()> {
        if self.add(row(lsn, session, changes)) { self.end() } else { Ok(()) }
    }

    fn add(&mut self, frame: GroupFrame) -> bool {
        let bytes = if let Payload::Bytes(bytes) = &frame.payload { bytes.len() as u64 } else { ROW_BYTES };
        self.bytes = self.bytes.saturating_add(bytes);
        self.frames.push(frame);
        self.frames.len() >= GROUP_FRAMES || self.bytes >= GROUP_BYTES
    }

    fn flush(&mut self) -> Result<()> {
        self.bytes = 0;
        let frames = std::mem::take(&mut self.frames);
        if frames.is_empty() { Ok(()) } else { self.to.write(Group { frames }) }
    }

    /// Writes the group, ending with the last LSN of the store, since the last frames may be erased.
    fn end(&mut self) -> Result<()> {
        if self.last > Lsn(0) {
            self.frames.push(row(self.last, SessionId(uuid::Uuid::nil()), Changes::default()));
        }
        self.flush()
    }
}

fn row(lsn: Lsn, session: SessionId, changes: Changes) -> GroupFrame {
    let payload = Payload::Nothing;
    GroupFrame { lsn, session, first_seq: Seq(0), count: 0, epoch: Epoch(0), at_ms: 0, payload, changes }
}
