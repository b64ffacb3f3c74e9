//! The text of sessions that work for clients. It stays in memory until their runs end, so new inputs are refused above a bound.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use subtend_session::ids::SessionId;

use crate::delivery::sender::SenderKey;

/// Bytes of each session that do not count: a short conversation is never refused, and takes no lock.
const FREE: u64 = 16 << 10;

/// The counted bytes of a runtime, by sender.
#[derive(Default)]
struct WorkingText(Mutex<HashMap<SenderKey, u64>>);

impl WorkingText {
    fn lock(&self) -> MutexGuard<'_, HashMap<SenderKey, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The share of one activation, which leaves the sum when it is dropped.
pub(crate) struct WorkingShare {
    sum: Arc<WorkingText>,
    sender: SenderKey,
    bytes: u64,
}

impl WorkingShare {
    fn new(sum: Arc<WorkingText>) -> Self {
        Self { sum, sender: SenderKey::UNKNOWN, bytes: 0 }
    }

    /// Changes the share to `text` bytes. Their sender remains.
    pub(super) fn set(&mut self, text: u64) {
        let bytes = text.saturating_sub(FREE);
        if bytes != self.bytes {
            let sum = Arc::clone(&self.sum);
            self.replace(&mut sum.lock(), self.sender, bytes);
        }
    }

    /// Changes the share to `text` bytes of `sender`, unless its shares would be more than half of what others leave free of `most`. Runs that
    /// grow meanwhile may exceed that, but leave the shares of others. A sender may always have one share: a session never gets shorter, and
    /// would otherwise be refused forever.
    ///
    /// # Errors
    /// The bytes that the sender may have now.
    pub(super) fn claim(&mut self, sender: SenderKey, text: u64, most: u64) -> Result<(), u64> {
        let bytes = text.saturating_sub(FREE);
        if bytes == 0 && self.bytes == 0 {
            self.sender = sender;
            return Ok(());
        }
        let sum = Arc::clone(&self.sum);
        let mut held = sum.lock();
        let (mut own, mut others) = (bytes, 0_u64);
        for (of, held) in held.iter() {
            let held = held.saturating_sub(if *of == self.sender { self.bytes } else { 0 });
            if *of == sender {
                own = own.saturating_add(held);
            } else {
                others = others.saturating_add(held.min(most / 2));
            }
        }
        let room = most.saturating_sub(others) / 2;
        if bytes > 0 && own > bytes && own > room {
            return Err(room);
        }
        self.replace(&mut held, sender, bytes);
        Ok(())
    }

    fn replace(&mut self, held: &mut HashMap<SenderKey, u64>, sender: SenderKey, bytes: u64) {
        if let Some(before) = held.get_mut(&self.sender) {
            *before = before.saturating_sub(self.bytes);
            if *before == 0 {
                held.remove(&self.sender);
            }
        }
        if bytes > 0 {
            let now = held.entry(sender).or_default();
            *now = now.saturating_add(bytes);
        }
        (self.sender, self.bytes) = (sender, bytes);
    }
}

impl Drop for WorkingShare {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// The shares of all sessions.
#[derive(Default)]
pub(crate) struct WorkingShares {
    sum: Arc<WorkingText>,
    /// The shares of sessions that left memory while they wait, as for an approval. What they wait for may come for many of them at the same
    /// time, and then their text is in memory again.
    waiting: Mutex<HashMap<SessionId, WorkingShare>>,
}

impl WorkingShares {
    fn waiting(&self) -> MutexGuard<'_, HashMap<SessionId, WorkingShare>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the share of a session that is in memory now: its last one if it waited, or an empty one.
    pub(super) fn take(&self, session: SessionId) -> WorkingShare {
        self.waiting().remove(&session).unwrap_or_else(|| WorkingShare::new(Arc::clone(&self.sum)))
    }

    /// Keeps the share of a session if it leaves memory. Keeps it first, because the session may return at once.
    pub(super) fn keep_if(&self, session: SessionId, share: &mut WorkingShare, leaves: impl FnOnce() -> bool) -> bool {
        if share.bytes == 0 {
            return leaves();
        }
        let empty = WorkingShare::new(Arc::clone(&self.sum));
        self.waiting().insert(session, std::mem::replace(share, empty));
        let has_left = leaves();
        if !has_left {
            *share = self.take(session);
        }
        has_left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;

    #[test]
    fn sender_leaves_half_of_the_rest_to_others() {
        let sum = Arc::new(WorkingText::default());
        let share = || WorkingShare::new(Arc::clone(&sum));
        let [one, other, third] = [1, 2, 3].map(SenderKey);
        let most = 400 * KIB;
        let [mut first, mut second, mut short] = [share(), share(), share()];
        assert_eq!(first.claim(one, FREE + 900 * KIB, most), Ok(()), "expected that one session is never refused");
        assert_eq!(second.claim(one, FREE + 1, most), Err(200 * KIB));
        assert_eq!(first.claim(one, FREE + 200 * KIB, most), Ok(()));
        assert_eq!(second.claim(one, FREE + 1, most), Err(200 * KIB), "expected one sum for a sender");
        assert_eq!(short.claim(one, FREE, most), Ok(()), "expected a short conversation to be free");
        assert_eq!(second.claim(other, FREE + 100 * KIB, most), Ok(()));
        assert_eq!(short.claim(other, FREE + KIB, most), Err(100 * KIB));
        // What runs of one sender record meanwhile takes nothing from others.
        first.set(FREE + 9_000 * KIB);
        assert_eq!(short.claim(third, FREE + 50 * KIB, most), Ok(()));
        assert_eq!(second.claim(other, FREE + 75 * KIB, most), Ok(()));
        first.set(0);
        assert_eq!(second.claim(other, FREE + 175 * KIB, most), Ok(()));
        drop((second, short, first));
        assert_eq!(*sum.lock(), HashMap::new());
    }
}
