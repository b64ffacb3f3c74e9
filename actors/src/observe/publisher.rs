//! The publisher: gives durable records to subscribers in order, and passing progress as it comes.

use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use subtend_journal::{Appended, Journal};
use subtend_models::model::Delta;
use subtend_session::ids::{Lsn, Seq, SessionId};
use subtend_session::record::Record;
use tokio::sync::{broadcast, mpsc};

use crate::observe::event::subscription::{Listening, Scope, Subscription};
use crate::observe::event::{Event, What};
use crate::observe::nudges::{Nudge, Nudges};
use crate::observe::streams::{Ends, Streams};
use crate::values::address::Address;

/// Records of one session that were appended together.
pub(crate) struct Shown {
    pub(crate) session: SessionId,
    pub(crate) first: Seq,
    pub(crate) records: Vec<Record>,
}

/// A batch that is in the log.
pub(crate) struct Batch {
    pub(crate) root: SessionId,
    /// The session that wrote it.
    pub(crate) session: SessionId,
    pub(crate) at: Appended,
    pub(crate) ends: Ends,
    /// The sessions that it bears.
    pub(crate) born: Vec<SessionId>,
    /// Its records, if somebody listened when it was made.
    pub(crate) shown: Option<Vec<Shown>>,
}

/// Where subscribers attach. Costs next to nothing while there are none.
pub(crate) struct Publisher {
    shared: Arc<Shared>,
}

struct Shared {
    live: Mutex<Live>,
    /// Subscriptions.
    listeners: Arc<AtomicUsize>,
    /// Sessions that `Live::streams` keeps something of, and batches that wait, to be asked without the lock.
    streaming: AtomicUsize,
    nudges: Arc<Nudges>,
}

/// Under one lock: what is shown, and the text so far. Who attaches gets the one and then all of the other.
struct Live {
    /// None when the runtime is over.
    events: Option<broadcast::Sender<Arc<Event>>>,
    /// Batches that wait to be durable, in the order of each session. Unbounded, but never longer than what the writer has
    /// taken and not synced, which the journal bounds.
    batches: Option<mpsc::UnboundedSender<Batch>>,
    /// How many of them there are.
    waiting: usize,
    streams: Streams,
}

impl Publisher {
    /// Starts the task that waits for batches to be durable. It ends with the publisher, or when the journal is poisoned:
    /// nothing after a failed append is ever shown (J-9).
    pub(crate) fn start(journal: Journal, capacity: usize) -> Self {
        let (events, _) = broadcast::channel(capacity);
        let (batches, waiting) = mpsc::unbounded_channel();
        let live = Live { events: Some(events), batches: Some(batches), waiting: 0, streams: Streams::default() };
        let shared = Arc::new(Shared {
            live: Mutex::new(live),
            listeners: Arc::default(),
            streaming: AtomicUsize::new(0),
            nudges: Arc::default(),
        });
        tokio::spawn(Arc::clone(&shared).show_all(journal, waiting));
        Self { shared }
    }

    /// Events from here on, and before them the text so far of what streams.
    pub(crate) fn subscribe(&self, scope: Scope) -> Subscription {
        let listening = Listening::new(&self.shared.listeners);
        // Against the one of `appended`: either a batch sees the listener and is shown, or it is in the log by now.
        fence(Ordering::SeqCst);
        let live = self.shared.lock();
        let receiver = match &live.events {
            Some(events) => events.subscribe(),
            // Closed, and so is one whose sender is gone.
            None => broadcast::channel(1).1,
        };
        let so_far = live.streams.so_far(|root, session| scope.sees(root, session));
        drop(live);
        Subscription::new(receiver, scope, so_far, listening)
    }

    /// Whether anybody listens.
    pub(crate) fn any(&self) -> bool {
        self.shared.listeners.load(Ordering::Relaxed) > 0
    }

    /// Tells when `session` has more in its journal.
    pub(crate) fn nudge(&self, session: SessionId) -> Nudge {
        self.shared.nudges.attach(session)
    }

    /// A batch was appended: it is shown when it is durable.
    pub(crate) fn appended(&self, mut batch: Batch) {
        let shared = &*self.shared;
        // One who attached after `any` was asked for this batch and before it was appended finds it nowhere unless it is
        // asked again now: it is read back from the journal for that one.
        fence(Ordering::SeqCst);
        shared.nudges.appended(batch.session, batch.at.last);
        let listened = batch.shown.is_some() || self.any();
        let bears = !batch.born.is_empty();
        if !listened && !bears && !batch.ends.failed() && shared.streaming.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut live = shared.lock();
        live.streams.bears(&batch.born);
        // Behind those that wait, though nobody listens by now: what a batch says of a stream must not be overtaken.
        if (listened || bears || live.waiting > 0)
            && let Some(batches) = &live.batches
        {
            if !listened {
                batch.shown = Some(Vec::new());
            }
            // The task is gone only when the journal is poisoned: then nothing may be shown.
            drop(batches.send(batch));
            live.waiting = live.waiting.saturating_add(1);
        } else {
            let released = live.streams.shown(batch.session, batch.ends);
            released.into_iter().for_each(|event| live.send(event));
        }
        shared.count(&live);
    }

    /// Shows a piece of an answer, unless it is to wait. `watched` says whether its model call is still waited for: asked
    /// under the lock, since the answer, or the end of its attempt, is shown under it.
    pub(crate) fn delta(&self, at: &Address, delta: &Delta, watched: impl FnOnce() -> bool) {
        let mut live = self.shared.lock();
        if !watched() {
            return;
        }
        if let Some(what) = live.streams.push(at, delta).filter(|_| self.any()) {
            live.send(Event { root: at.root, session: at.session, what });
        }
        self.shared.count(&live);
    }

    /// The model call is over: no piece of it comes any more.
    pub(crate) fn streamed(&self, at: &Address) {
        let mut live = self.shared.lock();
        live.streams.done(at.session, (at.turn, at.attempt));
        self.shared.count(&live);
    }

    /// Shows passing progress at once; none of a session whose birth is not durable yet.
    pub(crate) fn passing(&self, root: SessionId, session: SessionId, what: What) {
        let live = self.shared.lock();
        if !live.streams.is_unborn(session) {
            live.send(Event { root, session, what });
        }
    }

    /// Shows what is still to be shown, then nothing more: every subscription ends.
    pub(crate) fn close(&self) {
        self.shared.lock().batches = None;
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.close();
    }
}

impl Live {
    fn send(&self, event: Event) {
        if let Some(events) = &self.events {
            // Without subscribers there is nobody to tell.
            drop(events.send(Arc::new(event)));
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, live: &Live) {
        self.streaming.store(live.streams.len().saturating_add(live.waiting), Ordering::Relaxed);
    }

    async fn show_all(self: Arc<Self>, journal: Journal, mut waiting: mpsc::UnboundedReceiver<Batch>) {
        let poison = journal.on_poison();
        tokio::pin!(poison);
        loop {
            let batch = tokio::select! {
                biased;
                batch = waiting.recv() => batch,
                _ = &mut poison => None,
            };
            let Some(mut batch) = batch else { break };
            if journal.wait(batch.at.last).await.is_err() {
                break;
            }
            let shown = batch.shown.take().unwrap_or_else(|| read_back(&journal, batch.at));
            self.show(&batch, shown);
        }
        let mut live = self.lock();
        live.events = None;
        live.batches = None;
    }

    /// In one step for all who listen: the records, then what was held back until they were shown.
    fn show(&self, batch: &Batch, shown: Vec<Shown>) {
        let root = batch.root;
        let mut live = self.lock();
        live.waiting = live.waiting.saturating_sub(1);
        for Shown { session, first, records } in shown {
            for (record, seq) in records.into_iter().zip(first.0..) {
                let what = What::Record { seq: Seq(seq), record: Arc::new(record) };
                live.send(Event { root, session, what });
            }
        }
        let mut released = live.streams.shown(batch.session, batch.ends);
        released.extend(live.streams.born(&batch.born));
        released.into_iter().for_each(|event| live.send(event));
        self.count(&live);
    }
}

/// The records of a batch that nobody listened to when it was made.
fn read_back(journal: &Journal, at: Appended) -> Vec<Shown> {
    let mut shown = Vec::new();
    for lsn in (at.first.0..=at.last.0).map(Lsn) {
        match journal.frame_at(lsn) {
            Ok(Some((session, stored))) => {
                let first = stored.first().map_or(Seq(1), |stored| stored.seq);
                shown.push(Shown { session, first, records: stored.into_iter().map(|stored| stored.record).collect() });
            }
            Ok(None) => {}
            Err(error) => tracing::warn!(%lsn, %error, "a batch could not be read back to be shown"),
        }
    }
    shown
}

#[cfg(test)]
mod tests;
