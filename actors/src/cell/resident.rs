//! The bytes of text of all sessions in memory, which determine how long sessions that wait stay there.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Number of bytes of text for which a short stay lasts one millisecond. A fold reads more bytes in that time.
const BYTES_PER_MS: u64 = 64 << 10;

/// The sum over the activations of a runtime.
#[derive(Default)]
pub(crate) struct ResidentText(AtomicU64);

/// The share of one activation, which leaves the sum when it is dropped.
pub(crate) struct ResidentShare {
    sum: Arc<ResidentText>,
    bytes: u64,
}

impl ResidentShare {
    pub(crate) const fn new(sum: Arc<ResidentText>) -> Self {
        Self { sum, bytes: 0 }
    }

    /// Changes the share to `bytes`. If the sum exceeds `limit`, returns how long the session stays while it waits: at least the time of
    /// another fold. A session with much text and many children would otherwise be folded again for each of their ends.
    pub(crate) fn short_stay(&mut self, bytes: u64, limit: u64) -> Option<Duration> {
        self.exceeds(bytes, limit).then(|| Duration::from_millis(bytes / BYTES_PER_MS))
    }

    fn exceeds(&mut self, bytes: u64, limit: u64) -> bool {
        let sum = &self.sum.0;
        // Relaxed: the order of two activations does not matter, and the sum guards no other memory.
        sum.fetch_add(bytes, Ordering::Relaxed);
        let before = sum.fetch_sub(self.bytes, Ordering::Relaxed);
        let now = before.saturating_sub(self.bytes);
        self.bytes = bytes;
        now > limit
    }
}

impl Drop for ResidentShare {
    fn drop(&mut self) {
        self.sum.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_counts_until_it_is_dropped() {
        let sum = Arc::new(ResidentText::default());
        let mut first = ResidentShare::new(Arc::clone(&sum));
        let mut second = ResidentShare::new(Arc::clone(&sum));
        assert!(!first.exceeds(60, 100));
        assert!(second.exceeds(41, 100));
        assert!(!second.exceeds(40, 100), "expected the share to be replaced rather than added");
        drop(first);
        assert!(!second.exceeds(100, 100));
        drop(second);
        assert_eq!(sum.0.load(Ordering::Relaxed), 0);
    }
}
