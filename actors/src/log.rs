//! The log: appends to the journal and notifies subscribers.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use subtend_journal::{AppendError, Batch, Frame, Journal, ReadError};
use subtend_session::effect::NewSession;
use subtend_session::ids::{Epoch, Hash, Lsn, Seq, SessionId, Text};
use subtend_session::index::{self, Stamp};
use subtend_session::place::Place;
use subtend_session::record::Record;

use crate::observe::counters::Counters;
use crate::observe::publisher::{self, Publisher, ShownRecords};
use crate::observe::streams::Ends;

const MAX_PATH: usize = 256;

pub(crate) struct Log {
    pub(crate) journal: Journal,
    pub(crate) events: Publisher,
    defs: Mutex<HashSet<Hash>>,
    counters: Mutex<Counters>,
}

impl Log {
    pub(crate) fn new(journal: Journal, events: usize) -> Self {
        Self {
            events: Publisher::start(journal.clone(), events),
            journal,
            defs: Mutex::default(),
            counters: Mutex::default(),
        }
    }

    pub(crate) fn append_root(&self, creation: NewSession, now_ms: i64) -> Result<(), AppendError> {
        let session = creation.session;
        let mut fresh = HashSet::new();
        let frame = self.creation_frame(creation, now_ms, &mut fresh);
        let own = |records: &[Record]| vec![ShownRecords { session, first: Seq(1), records: records.to_vec() }];
        let shown = self.events.any().then(|| own(&frame.records));
        let appended = self.journal.append(Batch { frames: vec![frame] })?;
        self.has_defs(fresh);
        let ends = Ends::default();
        let created = vec![session];
        self.events.appended(publisher::PublishedBatch { root: session, session, at: appended, ends, created, shown });
        self.journal.deactivate(session, Epoch(1));
        Ok(())
    }

    /// Returns the frame of a new session; its first activation has epoch 1.
    pub(crate) fn creation_frame(&self, creation: NewSession, now_ms: i64, fresh: &mut HashSet<Hash>) -> Frame {
        let stamp = Stamp { epoch: Epoch(1), starts: 0, opened_lsn: Lsn(0), created_ms: now_ms, updated_ms: now_ms };
        let mut changes = index::creation(&creation, stamp);
        changes.defs = self.new_defs(&creation, fresh);
        Frame {
            session: creation.session,
            first_seq: Seq(1),
            epoch: stamp.epoch,
            at_ms: now_ms,
            records: creation.records,
            changes,
        }
    }

    /// Returns the bodies of a new session that are in neither the journal nor the same batch (`fresh`).
    fn new_defs(&self, creation: &NewSession, fresh: &mut HashSet<Hash>) -> Vec<(Hash, Text)> {
        let created = creation.records.iter().find_map(|record| {
            let Record::SessionCreated(created) = record else { return None };
            Some(created)
        });
        let Some(created) = created else { return Vec::new() };
        let hashes = [created.system.hash, created.ceiling.hash, created.limits.hash];
        let known = self.defs.lock().unwrap_or_else(PoisonError::into_inner);
        if hashes.iter().all(|hash| fresh.contains(hash) || known.contains(hash)) {
            return Vec::new();
        }
        // A body that cannot be written as JSON has no hash either, so this cannot fail.
        let mut defs = index::defs(created).unwrap_or_default();
        defs.retain(|(hash, _)| !known.contains(hash) && fresh.insert(*hash));
        defs
    }

    /// Records that the journal has these bodies.
    /// Call it only after the append: a session that omits a body must follow the frame that carries it. Two concurrent appends both carry it, which
    /// is harmless.
    pub(crate) fn has_defs(&self, fresh: HashSet<Hash>) {
        if !fresh.is_empty() {
            self.defs.lock().unwrap_or_else(PoisonError::into_inner).extend(fresh);
        }
    }

    pub(crate) fn count(&self, batch: &Counters) {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner).add(batch);
    }

    pub(crate) fn counters(&self) -> Counters {
        *self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the short names from the root down to `session`.
    pub(crate) fn path(&self, session: SessionId) -> Result<String, ReadError> {
        let mut names = Vec::new();
        let mut at = Some(session);
        while let Some(id) = at {
            let head = self.journal.head(id)?.ok_or(ReadError::NoSuchSession(id))?;
            names.push(head.short.0.to_string());
            // The number of names is bounded, because a damaged store may hold a cycle.
            at = head.parent.filter(|_| names.len() < MAX_PATH);
        }
        names.reverse();
        Ok(names.join("/"))
    }

    pub(crate) fn placed(&self, session: SessionId) -> Result<Option<Place>, ReadError> {
        let first = self.journal.records_from(session, Seq(1), 1)?;
        Ok(first.into_iter().find_map(|stored| {
            let Record::SessionCreated(created) = stored.record else { return None };
            Some(created.place)
        }))
    }
}
