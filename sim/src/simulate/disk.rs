//! A store in memory that outlives every process. It reports durable records to the oracle, and can fail at a write.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use subtend_journal::compact::{self, Compacted};
use subtend_journal::engine::{Engine as _, Group, Payload, Result, ScanFlow};
use subtend_journal::error::EngineError;
use subtend_journal::memory::Memory;
use subtend_session::ids::{Seq, SessionId};
use subtend_session::index::{InflightChange, Row};
use tokio::sync::Notify;

use crate::simulate::oracle::Oracle;
use crate::simulate::seeded::{Seeded, StoreBug};
use crate::storage::Storage;

/// The store of a simulation. Clones share it.
#[derive(Clone)]
pub(crate) struct Disk {
    memory: Arc<Mutex<Memory>>,
    oracle: Arc<Oracle>,
    /// Notified when the process is killed at a write.
    pub(crate) death: Arc<Notify>,
    bug: Option<Seeded>,
}

impl Disk {
    pub(crate) fn new(oracle: Arc<Oracle>, bug: Option<Seeded>) -> Self {
        Self { memory: Arc::default(), oracle, death: Arc::default(), bug }
    }

    /// Compacts the store between two processes.
    pub(crate) fn compact(&self) -> Result<Compacted> {
        let (old, new) = (self.memory(), Memory::new());
        let done = compact::copy(&old, &old, &new, &mut |_| {})?;
        if !self.has_bug(StoreBug::ErasedStays) {
            *self.memory.lock().unwrap_or_else(PoisonError::into_inner) = new;
        }
        Ok(done)
    }

    pub(crate) fn rows(&self) -> Result<BTreeSet<Row>> {
        let (mut rows, mut failed) = (BTreeSet::new(), None);
        self.memory().outbox(None, &mut |row| {
            match row {
                Ok((row, _)) => _ = rows.insert(row),
                Err(error) => failed = Some(error),
            }
            ScanFlow::Continue(())
        })?;
        failed.map_or(Ok(rows), Err)
    }

    /// Returns all sessions below `root`, by the index of children.
    pub(crate) fn below(&self, root: SessionId) -> BTreeSet<SessionId> {
        let (mut below, mut next) = (BTreeSet::new(), vec![root]);
        while let Some(at) = next.pop() {
            let children = self.memory().children(at).unwrap_or_default();
            next.extend(children.into_iter().filter(|child| below.insert(*child)));
        }
        below
    }

    fn has_bug(&self, bug: StoreBug) -> bool {
        self.bug == Some(Seeded::Disk(bug))
    }

    /// Applies the seeded bug of the store.
    fn apply_bug(&self, group: &mut Group) {
        for frame in &mut group.frames {
            if self.has_bug(StoreBug::RowsLost) {
                frame.changes.put.clear();
            }
            if self.has_bug(StoreBug::RowsStay) {
                frame.changes.take.clear();
            }
            if self.has_bug(StoreBug::DeletionLost)
                && let Some(head) = &mut frame.changes.head
            {
                head.deleted = false;
            }
            if self.has_bug(StoreBug::InflightLost) {
                frame.changes.inflight = InflightChange::Delete;
            }
        }
        if self.has_bug(StoreBug::BatchTorn) && self.oracle.lock().writes.is_multiple_of(50) && group.frames.len() > 1 {
            group.frames.truncate(1);
        }
    }

    fn report_durable(&self, group: &Group) {
        let mut oracle = self.oracle.lock();
        for frame in &group.frames {
            let Payload::Records(records) = &frame.payload else { continue };
            let place = (frame.lsn.0, frame.session, frame.first_seq.0, frame.epoch.0, frame.at_ms);
            let line = serde_json::to_vec(&(place, records)).unwrap_or_default();
            oracle.hash.update(&line);
            if let Err(why) = oracle.archive.keep(frame) {
                oracle.wrong("J-4", why);
            }
            for (record, seq) in records.iter().zip(frame.first_seq.0..) {
                oracle.durable(frame.session, Seq(seq), record);
            }
        }
    }
}

const DEAD: EngineError = EngineError::Injected("the process is dead");

impl Storage for Disk {
    fn memory(&self) -> Memory {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn store(&self, mut group: Group) -> Result<()> {
        let dies = {
            let mut oracle = self.oracle.lock();
            if oracle.dead {
                return Err(DEAD);
            }
            oracle.writes = oracle.writes.saturating_add(1);
            oracle.dies_at.filter(|(at, _)| *at == oracle.writes)
        };
        if let Some((_, is_written)) = dies {
            if is_written {
                self.report_durable(&group);
                self.memory().write(group)?;
            }
            self.oracle.lock().dead = true;
            self.death.notify_one();
            return Err(DEAD);
        }
        if self.bug.is_some() {
            self.apply_bug(&mut group);
        }
        self.report_durable(&group);
        self.memory().write(group)
    }
}
