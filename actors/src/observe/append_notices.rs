//! Notifications of appended batches, for readers that wait for one session's journal.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foldhash::fast::FixedState;
use subtend_session::ids::{Lsn, SessionId};
use tokio::sync::watch;

/// Waiting readers by session. Without readers a batch costs one atomic load.
#[derive(Default)]
pub(crate) struct AppendNotices {
    waiting: AtomicUsize,
    by_session: Mutex<HashMap<SessionId, watch::Sender<Lsn>, FixedState>>,
}

pub(crate) struct AppendNotice {
    notices: Arc<AppendNotices>,
    session: SessionId,
    last: watch::Receiver<Lsn>,
}

impl AppendNotices {
    /// Registers for batches of `session`: later batches are reported, earlier ones can be read.
    pub(crate) fn attach(self: &Arc<Self>, session: SessionId) -> AppendNotice {
        let mut by_session = self.lock();
        let last = by_session.entry(session).or_insert_with(|| watch::Sender::new(Lsn(0))).subscribe();
        self.waiting.store(by_session.len(), Ordering::Relaxed);
        drop(by_session);
        // Pairs with the fence of `Publisher::appended`: either that code sees the count, or the caller's reads see the batch.
        std::sync::atomic::fence(Ordering::SeqCst);
        AppendNotice { notices: Arc::clone(self), session, last }
    }

    pub(crate) fn on_appended(&self, session: SessionId, lsn: Lsn) {
        if self.waiting.load(Ordering::Relaxed) == 0 {
            return;
        }
        if let Some(waiting) = self.lock().get(&session) {
            waiting.send_replace(lsn);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, watch::Sender<Lsn>, FixedState>> {
        self.by_session.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AppendNotice {
    /// Returns the last LSN of the batches since the last call. Cancel safe.
    pub(crate) async fn next(&mut self) -> Lsn {
        // The sender lives as long as a receiver.
        drop(self.last.changed().await);
        *self.last.borrow_and_update()
    }
}

impl Drop for AppendNotice {
    fn drop(&mut self) {
        let mut by_session = self.notices.lock();
        // This receiver is still counted.
        if by_session.get(&self.session).is_some_and(|waiting| waiting.receiver_count() <= 1) {
            by_session.remove(&self.session);
        }
        self.notices.waiting.store(by_session.len(), Ordering::Relaxed);
    }
}
