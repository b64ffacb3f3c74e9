//! Nudges: who reads one session's journal and waits for more is told when there is.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use subtend_session::ids::{Lsn, SessionId};
use tokio::sync::watch;

/// Those who wait, by session. Costs one atomic load a batch while nobody does.
#[derive(Default)]
pub(crate) struct Nudges {
    waiting: AtomicUsize,
    by_session: Mutex<HashMap<SessionId, watch::Sender<Lsn>>>,
}

/// Tells of batches of one session.
pub(crate) struct Nudge {
    nudges: Arc<Nudges>,
    session: SessionId,
    last: watch::Receiver<Lsn>,
}

impl Nudges {
    /// Waits for batches of `session` from here on: one that is appended later is told, one before it is to be read.
    pub(crate) fn attach(self: &Arc<Self>, session: SessionId) -> Nudge {
        let mut by_session = self.lock();
        let last = by_session.entry(session).or_insert_with(|| watch::Sender::new(Lsn(0))).subscribe();
        self.waiting.store(by_session.len(), Ordering::Relaxed);
        drop(by_session);
        // Against the one of `Publisher::appended`: either that one sees the count, or this one's reads see the batch.
        std::sync::atomic::fence(Ordering::SeqCst);
        Nudge { nudges: Arc::clone(self), session, last }
    }

    /// A batch of `session` was appended, which ends with `lsn`.
    pub(crate) fn appended(&self, session: SessionId, lsn: Lsn) {
        if self.waiting.load(Ordering::Relaxed) == 0 {
            return;
        }
        if let Some(waiting) = self.lock().get(&session) {
            waiting.send_replace(lsn);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, watch::Sender<Lsn>>> {
        self.by_session.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Nudge {
    /// The last LSN of a batch that came since the last call.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub(crate) async fn next(&mut self) -> Lsn {
        // The sender lives as long as somebody waits.
        drop(self.last.changed().await);
        *self.last.borrow_and_update()
    }
}

impl Drop for Nudge {
    fn drop(&mut self) {
        let mut by_session = self.nudges.lock();
        // This receiver is still counted.
        if by_session.get(&self.session).is_some_and(|waiting| waiting.receiver_count() <= 1) {
            by_session.remove(&self.session);
        }
        self.nudges.waiting.store(by_session.len(), Ordering::Relaxed);
    }
}
