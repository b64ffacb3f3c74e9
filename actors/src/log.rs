//! The log: appends to the journal and notifies subscribers.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use subtend_journal::{AppendError, Batch, Frame, Journal, ReadError};
use subtend_session::effect::NewSession;
use subtend_session::ids::{Epoch, Hash, Lsn, Seq, SessionId, Text};
use subtend_session::index::{self, Stamp};
use subtend_session::place::Place;
use subtend_session::record::Record;
use subtend_tools::memory_threads::spawn_with_memory;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Semaphore;

use crate::observe::counters::Counters;
use crate::observe::publisher::{self, Publisher, ShownRecords};
use crate::observe::streams::Ends;

const MAX_PATH: usize = 256;
/// Maximum number of sessions that handles and activations read at a time.
const CONCURRENT_READS: usize = 4;

pub(crate) struct Log {
    pub(crate) journal: Journal,
    pub(crate) events: Publisher,
    defs: Mutex<HashSet<Hash>>,
    counters: Mutex<Counters>,
    pub(crate) reads: Arc<Semaphore>,
}

impl Log {
    pub(crate) fn new(journal: Journal, events: usize) -> Self {
        Self {
            events: Publisher::start(journal.clone(), events),
            journal,
            defs: Mutex::default(),
            counters: Mutex::default(),
            reads: Arc::new(Semaphore::new(CONCURRENT_READS)),
        }
    }

    /// Runs a read of a whole session or of all heads. A few run at a time, off the threads of the runtime, so that they delay no other task.
    pub(crate) async fn read_whole<T: Send + 'static>(&self, read: impl FnOnce(&Journal) -> T + Send + 'static) -> T {
        // The semaphore is never closed. The read keeps its permit if the caller is dropped.
        let permit = Arc::clone(&self.reads).acquire_owned().await;
        let journal = self.journal.clone();
        let read = move || {
            let _permit = permit;
            read(&journal)
        };
        // A simulation has one thread, and virtual time that does not pass while another thread is busy.
        if Handle::current().runtime_flavor() != RuntimeFlavor::MultiThread {
            return read();
        }
        match spawn_with_memory(read).await {
            Ok(read) => read,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The tokio runtime was shut down, so the caller is about to be dropped too.
                Err(_) => std::future::pending().await,
            },
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
        // The store has a body that an import or an earlier version wrote in other JSON. Its text here would not match the hash.
        defs.retain(|(hash, text)| !known.contains(hash) && Hash::of(text.as_bytes()) == *hash && fresh.insert(*hash));
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
        let first = self.journal.without_bodies().first_record(session)?;
        let Record::SessionCreated(created) = first.record else { return Ok(None) };
        Ok(Some(created.place))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use subtend_journal::Options;
    use subtend_journal::memory::Memory;

    use super::*;

    /// Each read lasts until another task of the runtime's only thread ends it. The control: the last one waits for a permit.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn whole_reads_delay_no_other_task() {
        let journal = Journal::open(Box::new(Memory::new()), Options::default()).expect("a journal");
        let log = Arc::new(Log::new(journal, 8));
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let (begin, mut begun) = tokio::sync::mpsc::unbounded_channel();
        let ended = Arc::new(Mutex::new(ended));
        let reads: Vec<_> = (0..=CONCURRENT_READS)
            .map(|_| {
                let (log, ended, begin) = (Arc::clone(&log), Arc::clone(&ended), begin.clone());
                tokio::spawn(async move {
                    log.read_whole(move |_| {
                        begin.send(()).expect("the test waits");
                        ended.lock().expect("no panic").recv_timeout(Duration::from_secs(20))
                    })
                    .await
                })
            })
            .collect();
        // Without the bound, the wait for the last read would not end.
        drop(begin);
        let other = tokio::spawn(async move {
            for _ in 0..CONCURRENT_READS {
                begun.recv().await.expect("a read");
            }
            let waits = begun.try_recv().is_err();
            for _ in 0..=CONCURRENT_READS {
                end.send(()).expect("a read waits");
            }
            begun.recv().await.expect("the last read");
            waits
        });
        assert!(other.await.expect("it ran"));
        for read in reads {
            assert_eq!(read.await.expect("it ran"), Ok(()));
        }
    }
}
