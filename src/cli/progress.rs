//! How far a verb is, on stderr, once it takes longer than a second.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

/// Nothing is told before.
const FIRST: Duration = Duration::from_secs(1);
/// Between two lines, where nobody can have a line rewritten.
const LINES: Duration = Duration::from_secs(10);
/// Between two rewritings of the line of a terminal.
const REWRITES: Duration = Duration::from_millis(200);

/// Tells how far a verb is; the line of a terminal goes when it is dropped.
pub(crate) struct Teller {
    watched: bool,
    next: Instant,
    told: bool,
}

#[expect(clippy::disallowed_methods, reason = "how often a person is told; nothing is decided by it")]
fn now() -> Instant {
    Instant::now()
}

impl Teller {
    /// From now on.
    pub(crate) fn new() -> Self {
        let now = now();
        Self { watched: std::io::stderr().is_terminal(), next: now.checked_add(FIRST).unwrap_or(now), told: false }
    }

    /// Tells `words`, if it is time to.
    pub(crate) fn tell(&mut self, words: impl FnOnce() -> String) {
        let now = now();
        if now < self.next {
            return;
        }
        let (step, line) =
            if self.watched { (REWRITES, format!("\r\u{1b}[K{}", words())) } else { (LINES, words() + "\n") };
        self.next = now.checked_add(step).unwrap_or(now);
        self.told = true;
        // What cannot be told about progress is no reason to stop.
        drop(std::io::stderr().write_all(line.as_bytes()));
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        if self.told && self.watched {
            drop(write!(std::io::stderr(), "\r\u{1b}[K"));
        }
    }
}
