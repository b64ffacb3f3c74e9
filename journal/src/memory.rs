//! Engine in memory, with one mutex and without a thread. Records are stored as values.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use subtend_session::ids::{Hash, Lsn, Seq, SessionId, Text};
use subtend_session::index::{Changes, Head, Inflight, InflightChange, Row, RowKey, RowKind};

use crate::codec::Decoded;
use crate::engine::{Engine, Group, GroupFrame, Payload, Range, Result, ScanFlow, StoredFrame, bytes_of_records};
use crate::error::EngineError;
use crate::fence::IdMap;

/// Store in memory. Clones share it, so that a journal can be reopened as after a restart.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    tables: Arc<Mutex<Tables>>,
}

#[derive(Clone, Debug, Default)]
struct Tables {
    last: Lsn,
    log: Vec<(Lsn, Decoded)>,
    sessions: IdMap<SessionId, SessionRows>,
    defs: BTreeMap<Hash, Text>,
}

/// All rows of one session, so that a frame costs one lookup.
#[derive(Clone, Debug, Default)]
struct SessionRows {
    frames: Vec<usize>,
    head: Option<Box<Head>>,
    inflight: Option<Box<Inflight>>,
    more: Option<Box<RareRows>>,
}

/// Rows that most sessions do not have.
#[derive(Clone, Debug, Default)]
struct RareRows {
    children: Vec<SessionId>,
    outbox: IdMap<(SessionId, RowKind, RowKey), Lsn>,
}

impl Memory {
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns an independent copy, like a disk image.
    #[must_use]
    pub fn copy(&self) -> Self {
        Self { tables: Arc::new(Mutex::new(self.lock().clone())) }
    }

    fn lock(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tables {
    fn rare_rows(&mut self, session: SessionId) -> &mut RareRows {
        self.sessions.entry(session).or_default().more.get_or_insert_default()
    }

    fn write(&mut self, group: Group) -> Result<()> {
        // Checked before any change, so that a refused group has no effect.
        for frame in &group.frames {
            let is_new = frame.first_seq == Seq(1) && frame.count > 0;
            if is_new && self.sessions.get(&frame.session).is_some_and(|slot| !slot.frames.is_empty()) {
                return Err(EngineError::Overwrite { session: frame.session, seq: frame.first_seq });
            }
        }
        self.last = group.last().unwrap_or(self.last);
        group.frames.into_iter().for_each(|frame| self.keep(frame));
        Ok(())
    }

    fn keep(&mut self, frame: GroupFrame) {
        let GroupFrame { lsn, session, first_seq, epoch, at_ms, payload, changes, count: _ } = frame;
        let Changes { head, inflight, child_of, put, take, defs } = changes;
        let slot = self.sessions.entry(session).or_default();
        match payload {
            Payload::Records(records) => {
                slot.frames.push(self.log.len());
                self.log.push((lsn, Decoded { session, first_seq, epoch, at_ms, records }));
            }
            // This engine receives records, not bytes.
            Payload::Nothing | Payload::Bytes(_) => {}
        }
        if head.is_some() {
            slot.head = head;
        }
        match inflight {
            InflightChange::Keep => {}
            InflightChange::Put(row) => slot.inflight = Some(row),
            InflightChange::Delete => slot.inflight = None,
        }
        if let Some(parent) = child_of {
            self.rare_rows(parent).children.push(session);
        }
        for row in put {
            self.rare_rows(row.to).outbox.insert((row.from, row.kind, row.key), lsn);
        }
        for row in take {
            self.rare_rows(row.to).outbox.remove(&(row.from, row.kind, row.key));
        }
        self.defs.extend(defs);
    }

    fn position(&self, ix: usize) -> Option<(Seq, Lsn)> {
        self.log.get(ix).map(|(lsn, frame)| (frame.first_seq, *lsn))
    }

    /// Returns the session's frames from the one with record `from` on.
    fn frames_from<'a>(&'a self, slot: &'a SessionRows, from: Seq) -> impl Iterator<Item = &'a (Lsn, Decoded)> {
        let starts = slot.frames.partition_point(|ix| self.position(*ix).is_some_and(|(seq, _)| seq <= from));
        slot.frames.iter().skip(starts.saturating_sub(1)).filter_map(|ix| self.log.get(*ix))
    }

    fn obligations(&self, to: Option<SessionId>) -> Vec<(Row, Lsn)> {
        let of = |to: SessionId, slot: &SessionRows| {
            let rows = slot.more.iter().flat_map(|more| &more.outbox);
            rows.map(|(&(from, kind, key), lsn)| (Row { to, from, kind, key }, *lsn)).collect::<Vec<_>>()
        };
        match to {
            Some(to) => self.sessions.get(&to).map(|slot| of(to, slot)).unwrap_or_default(),
            None => self.sessions.iter().flat_map(|(to, slot)| of(*to, slot)).collect(),
        }
    }
}

/// Visits copied items, so that the visitor may call the store.
fn visit_all<T>(items: impl IntoIterator<Item = T>, mut visit: impl FnMut(T) -> ScanFlow) -> Result<()> {
    let _ = items.into_iter().try_for_each(&mut visit);
    Ok(())
}

fn collect_sorted<T: Ord>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut items: Vec<_> = items.into_iter().collect();
    items.sort_unstable();
    items
}

impl Engine for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn durability(&self) -> Cow<'static, str> {
        "none: acknowledged data is lost with the process".into()
    }

    fn write(&self, group: Group) -> Result<()> {
        self.lock().write(group)
    }

    fn wants_bytes(&self) -> bool {
        false
    }

    fn max_body(&self) -> u64 {
        u64::MAX
    }

    fn syncs(&self) -> u64 {
        0
    }

    fn last_lsn(&self) -> Result<Lsn> {
        Ok(self.lock().last)
    }

    fn frame(&self, lsn: Lsn) -> Result<Option<StoredFrame>> {
        let tables = self.lock();
        let found = tables.log.binary_search_by_key(&lsn, |(at, _)| *at).ok();
        Ok(found.and_then(|ix| tables.log.get(ix)).map(|(_, frame)| StoredFrame::Records(Box::new(frame.clone()))))
    }

    fn frames(&self, from: Lsn, visit: &mut dyn FnMut(Lsn, StoredFrame) -> ScanFlow) -> Result<()> {
        let start = self.lock().log.partition_point(|(lsn, _)| *lsn < from);
        for ix in start.. {
            // Clones one frame at a time, since the log may be large and the visitor may call the store.
            let Some((lsn, frame)) = self.lock().log.get(ix).cloned() else { break };
            if visit(lsn, StoredFrame::Records(Box::new(frame))).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn positions(&self, session: SessionId) -> Result<Vec<(Seq, Lsn)>> {
        let tables = self.lock();
        let frames = tables.sessions.get(&session).map(|slot| slot.frames.as_slice()).unwrap_or_default();
        Ok(frames.iter().filter_map(|ix| tables.position(*ix)).collect())
    }

    fn range(&self, session: SessionId, from: Seq, until: Seq, max_bytes: u64) -> Result<Range> {
        let tables = self.lock();
        let Some(slot) = tables.sessions.get(&session) else {
            return Ok(Range { head: Ok(None), inflight: Ok(None), frames: Vec::new() });
        };
        let frames = tables.frames_from(slot, from);
        let mut frames = frames.take_while(|(_, frame)| frame.first_seq <= from || frame.first_seq < until);
        let (mut found, mut bytes) = (Vec::new(), 0_u64);
        while let Some((lsn, frame)) = frames.next().filter(|_| bytes < max_bytes) {
            let records = StoredFrame::Records(Box::new(frame.clone()));
            bytes = bytes.saturating_add(records.bytes());
            found.push((frame.first_seq, *lsn, Some(records)));
        }
        let (head, inflight) = (slot.head.as_deref().cloned(), slot.inflight.as_deref().cloned());
        Ok(Range { head: Ok(head), inflight: Ok(inflight), frames: found })
    }

    fn bytes(&self, session: SessionId, from: Seq, max_bytes: u64) -> Result<u64> {
        let tables = self.lock();
        let Some(slot) = tables.sessions.get(&session) else { return Ok(0) };
        let mut sizes = tables.frames_from(slot, from).map(|(_, frame)| bytes_of_records(&frame.records));
        let mut bytes = 0_u64;
        while let Some(more) = sizes.next().filter(|_| bytes < max_bytes) {
            bytes = bytes.saturating_add(more);
        }
        Ok(bytes)
    }

    fn all_positions(&self, visit: &mut dyn FnMut(SessionId, Seq, Lsn) -> ScanFlow) -> Result<()> {
        let positions = {
            let tables = self.lock();
            collect_sorted(tables.log.iter().map(|(lsn, frame)| (frame.session, frame.first_seq, *lsn)))
        };
        visit_all(positions, |(session, seq, lsn)| visit(session, seq, lsn))
    }

    fn head(&self, session: SessionId) -> Result<Option<Head>> {
        Ok(self.lock().sessions.get(&session).and_then(|slot| slot.head.as_deref().cloned()))
    }

    fn heads(&self, visit: &mut dyn FnMut(SessionId, Result<Head>) -> ScanFlow) -> Result<()> {
        let rows: BTreeMap<_, _> = {
            let tables = self.lock();
            tables.sessions.iter().filter_map(|(id, slot)| Some((*id, slot.head.as_deref()?.clone()))).collect()
        };
        visit_all(rows, |(session, head)| visit(session, Ok(head)))
    }

    fn inflight(&self, session: SessionId) -> Result<Option<Inflight>> {
        Ok(self.lock().sessions.get(&session).and_then(|slot| slot.inflight.as_deref().cloned()))
    }

    fn inflights(&self, visit: &mut dyn FnMut(SessionId, Result<Inflight>) -> ScanFlow) -> Result<()> {
        let rows: BTreeMap<_, _> = {
            let tables = self.lock();
            tables.sessions.iter().filter_map(|(id, slot)| Some((*id, slot.inflight.as_deref()?.clone()))).collect()
        };
        visit_all(rows, |(session, row)| visit(session, Ok(row)))
    }

    fn children(&self, parent: SessionId) -> Result<Vec<SessionId>> {
        let tables = self.lock();
        let more = tables.sessions.get(&parent).and_then(|slot| slot.more.as_deref());
        Ok(collect_sorted(more.map(|more| more.children.clone()).unwrap_or_default()))
    }

    fn all_children(&self, visit: &mut dyn FnMut(SessionId, SessionId) -> ScanFlow) -> Result<()> {
        let rows = {
            let tables = self.lock();
            let of = |(parent, slot): (&SessionId, &SessionRows)| {
                let children = slot.more.iter().flat_map(|more| &more.children);
                children.map(|child| (*parent, *child)).collect::<Vec<_>>()
            };
            collect_sorted(tables.sessions.iter().flat_map(of))
        };
        visit_all(rows, |(parent, child)| visit(parent, child))
    }

    fn outbox(&self, to: Option<SessionId>, visit: &mut dyn FnMut(Result<(Row, Lsn)>) -> ScanFlow) -> Result<()> {
        let rows = self.lock().obligations(to);
        visit_all(rows, |row| visit(Ok(row)))
    }

    fn def(&self, hash: Hash) -> Result<Option<Text>> {
        Ok(self.lock().defs.get(&hash).cloned())
    }

    fn defs(&self, visit: &mut dyn FnMut(Hash, Result<Text>) -> ScanFlow) -> Result<()> {
        let defs = self.lock().defs.clone();
        visit_all(defs, |(hash, text)| visit(hash, Ok(text)))
    }
}
