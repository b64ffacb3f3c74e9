//! The rate at which messages of a server are read.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// Messages that are read without a pause, and the pause after them: at most 8,000 a second.
pub(super) const BURST: usize = 16;
pub(super) const PAUSE: Duration = Duration::from_millis(2);

/// The rate at which messages are read. A server can write them without end, also answers to no request.
#[derive(Default)]
pub(super) struct MessagePace {
    /// Messages since the last pause.
    count: usize,
    /// The end of the pause. It stays if the wait is dropped.
    until: Option<Instant>,
}

impl MessagePace {
    /// Counts a message.
    pub(super) fn count(&mut self) {
        self.count = self.count.saturating_add(1);
        if self.count >= BURST {
            (self.count, self.until) = (0, Some(Instant::now() + PAUSE));
        }
    }

    pub(super) async fn wait(&mut self) {
        if let Some(until) = self.until {
            sleep_until(until).await;
            self.until = None;
        }
    }
}
