//! The publisher: delivers durable records to subscribers in order, and live progress immediately.

use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use subtend_journal::{Appended, Journal};
use subtend_models::model::Delta;
use subtend_session::ids::{Lsn, Seq, SessionId};
use subtend_session::record::Record;
use tokio::sync::{broadcast, mpsc};

use crate::observe::append_notices::{AppendNotice, AppendNotices};
use crate::observe::event::channel::EventSender;
use crate::observe::event::subscription::{ListenerCount, Subscription, SubscriptionScope};
use crate::observe::event::{Event, EventKind};
use crate::observe::streams::{Ends, Streams};
use crate::values::address::Address;

pub(crate) struct ShownRecords {
    pub(crate) session: SessionId,
    pub(crate) first: Seq,
    pub(crate) records: Vec<Record>,
}

pub(crate) struct PublishedBatch {
    pub(crate) root: SessionId,
    pub(crate) session: SessionId,
    pub(crate) at: Appended,
    pub(crate) ends: Ends,
    pub(crate) created: Vec<SessionId>,
    /// The records of the batch, if there was a subscriber when it was appended.
    pub(crate) shown: Option<Vec<ShownRecords>>,
}

/// The subscriptions. They cost almost nothing without subscribers.
pub(crate) struct Publisher {
    shared: Arc<PublisherState>,
}

struct PublisherState {
    live: Mutex<LiveText>,
    listeners: Arc<AtomicUsize>,
    /// Number of sessions in `LiveText::streams` and of waiting batches, readable without the lock.
    streaming: AtomicUsize,
    notices: Arc<AppendNotices>,
}

/// Events and the text so far, under one lock: a new subscriber gets the text, then every later event.
struct LiveText {
    /// `None` after the runtime has stopped.
    events: Option<EventSender>,
    /// Batches that are not durable yet, in the order of each session. The journal's unsynced writes bound their number.
    batches: Option<mpsc::UnboundedSender<PublishedBatch>>,
    waiting: usize,
    streams: Streams,
}

impl Publisher {
    /// Starts the task that waits for durability. It ends with the publisher, or when the journal is poisoned.
    pub(crate) fn start(journal: Journal, capacity: usize) -> Self {
        let events = Some(EventSender::new(capacity));
        let (batches, waiting) = mpsc::unbounded_channel();
        let live = LiveText { events, batches: Some(batches), waiting: 0, streams: Streams::default() };
        let shared = Arc::new(PublisherState {
            live: Mutex::new(live),
            listeners: Arc::default(),
            streaming: AtomicUsize::new(0),
            notices: Arc::default(),
        });
        tokio::spawn(Arc::clone(&shared).show_all(journal, waiting));
        Self { shared }
    }

    /// Subscribes to events: first the text so far of running streams, then all later events.
    pub(crate) fn subscribe(&self, scope: SubscriptionScope) -> Subscription {
        let listening = ListenerCount::new(&self.shared.listeners);
        // Pairs with the fence of `appended`: either a batch sees the subscriber, or it is already in the log.
        fence(Ordering::SeqCst);
        let live = self.shared.lock();
        let receiver = match &live.events {
            Some(events) => events.subscribe(),
            // A dropped sender closes the subscription.
            None => broadcast::channel(1).1,
        };
        let so_far = live.streams.open_text(|root, session| scope.sees(root, session));
        drop(live);
        Subscription::new(receiver, scope, so_far, listening)
    }

    pub(crate) fn any(&self) -> bool {
        self.shared.listeners.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn notice(&self, session: SessionId) -> AppendNotice {
        self.shared.notices.attach(session)
    }

    pub(crate) fn appended(&self, mut batch: PublishedBatch) {
        let shared = &*self.shared;
        // A subscriber that attached between `any` and the append finds no records in the batch: they are read back from the journal.
        fence(Ordering::SeqCst);
        shared.notices.on_appended(batch.session, batch.at.last);
        let listened = batch.shown.is_some() || self.any();
        let has_new = !batch.created.is_empty();
        if !listened && !has_new && !batch.ends.failed() && shared.streaming.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut live = shared.lock();
        live.streams.add_appended(&batch.created);
        // Queued behind waiting batches even without subscribers, because no batch may overtake one that ends a stream.
        if (listened || has_new || live.waiting > 0)
            && let Some(batches) = &live.batches
        {
            if !listened {
                batch.shown = Some(Vec::new());
            }
            // The task has ended only if the journal is poisoned: then nothing may be published.
            drop(batches.send(batch));
            live.waiting = live.waiting.saturating_add(1);
        } else {
            let released = live.streams.on_shown(batch.session, batch.ends);
            released.into_iter().for_each(|event| live.send(event));
        }
        shared.count(&live);
    }

    /// Publishes a piece of an answer, unless it must wait. `watched` is called under the lock, like the call's end.
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

    /// Ends a model call: no further piece of it arrives.
    pub(crate) fn end_call(&self, at: &Address) {
        let mut live = self.shared.lock();
        live.streams.done(at.session, (at.turn, at.attempt));
        self.shared.count(&live);
    }

    /// Publishes progress immediately, unless the session is not durable yet.
    pub(crate) fn publish_progress(&self, root: SessionId, session: SessionId, what: EventKind) {
        let mut live = self.shared.lock();
        if !live.streams.is_not_durable(session) {
            live.send(Event { root, session, what });
        }
    }

    /// Publishes the remaining events, then ends every subscription.
    pub(crate) fn close(&self) {
        self.shared.lock().batches = None;
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.close();
    }
}

impl LiveText {
    fn send(&mut self, event: Event) {
        if let Some(events) = &mut self.events {
            events.send(event);
        }
    }
}

impl PublisherState {
    fn lock(&self) -> MutexGuard<'_, LiveText> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, live: &LiveText) {
        self.streaming.store(live.streams.len().saturating_add(live.waiting), Ordering::Relaxed);
    }

    async fn show_all(self: Arc<Self>, journal: Journal, mut waiting: mpsc::UnboundedReceiver<PublishedBatch>) {
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
            let shown = batch.shown.take().unwrap_or_else(|| read_records(&journal, batch.at));
            self.show(&batch, shown);
        }
        let mut live = self.lock();
        live.events = None;
        live.batches = None;
    }

    /// Publishes the records of a batch in one step, then the pieces held back for them.
    fn show(&self, batch: &PublishedBatch, shown: Vec<ShownRecords>) {
        let root = batch.root;
        let mut live = self.lock();
        live.waiting = live.waiting.saturating_sub(1);
        for ShownRecords { session, first, records } in shown {
            for (record, seq) in records.into_iter().zip(first.0..) {
                let what = EventKind::Record { seq: Seq(seq), record: Arc::new(record) };
                live.send(Event { root, session, what });
            }
        }
        let mut released = live.streams.on_shown(batch.session, batch.ends);
        released.extend(live.streams.release_created(&batch.created));
        released.into_iter().for_each(|event| live.send(event));
        self.count(&live);
    }
}

/// Reads back the records of a batch that had no subscribers when it was appended.
fn read_records(journal: &Journal, at: Appended) -> Vec<ShownRecords> {
    let mut shown = Vec::new();
    for lsn in (at.first.0..=at.last.0).map(Lsn) {
        match journal.frame_at(lsn) {
            Ok(Some((session, stored))) => {
                let first = stored.first().map_or(Seq(1), |stored| stored.seq);
                shown.push(ShownRecords {
                    session,
                    first,
                    records: stored.into_iter().map(|stored| stored.record).collect(),
                });
            }
            Ok(None) => {}
            Err(error) => tracing::warn!(%lsn, %error, "cannot read back a batch for its subscribers"),
        }
    }
    shown
}

#[cfg(test)]
mod tests;
