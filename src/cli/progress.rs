//! Progress of a command on stderr, if it takes longer than a second.

use std::io::{IsTerminal as _, Write};
use std::time::{Duration, Instant};

use super::notices::{has_log, notices};

#[derive(Clone, Copy, Debug)]
struct ReportInterval {
    first: Duration,
    /// Time between two lines, or two rewrites at a terminal.
    step: Duration,
}

const FIRST_DELAY: Duration = Duration::from_secs(1);
const LINE_INTERVAL: Duration = Duration::from_secs(10);
const REWRITE_INTERVAL: Duration = Duration::from_millis(200);

/// Progress line of a command. At a terminal, dropping it clears the line.
pub(crate) struct ProgressLine {
    out: Box<dyn Write + Send>,
    is_terminal: bool,
    step: Duration,
    next: Instant,
    shown: bool,
}

#[expect(clippy::disallowed_methods, reason = "only for the interval of progress reports; no decision depends on it")]
fn now() -> Instant {
    Instant::now()
}

impl ProgressLine {
    pub(crate) fn new() -> Self {
        let is_terminal = std::io::stderr().is_terminal() && !has_log();
        let step = if is_terminal { REWRITE_INTERVAL } else { LINE_INTERVAL };
        Self::with_interval(notices(), is_terminal, ReportInterval { first: FIRST_DELAY, step })
    }

    fn with_interval(out: Box<dyn Write + Send>, is_terminal: bool, pace: ReportInterval) -> Self {
        let now = now();
        Self { out, is_terminal, step: pace.step, next: now.checked_add(pace.first).unwrap_or(now), shown: false }
    }

    pub(crate) fn report(&mut self, describe: impl FnOnce() -> String) {
        let now = now();
        if now < self.next {
            return;
        }
        let line = if self.is_terminal { format!("\r\u{1b}[K{}", describe()) } else { describe() + "\n" };
        self.next = now.checked_add(self.step).unwrap_or(now);
        self.shown = true;
        // A failed write of progress does not stop the command.
        drop(self.out.write_all(line.as_bytes()));
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        if self.shown && self.is_terminal {
            drop(write!(self.out, "\r\u{1b}[K"));
        }
    }
}

#[cfg(test)]
pub(crate) use tests::CapturedProgress;

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    pub(crate) struct CapturedProgress(Arc<Mutex<Vec<u8>>>);

    impl CapturedProgress {
        pub(crate) fn text(&self) -> String {
            String::from_utf8(self.0.lock().expect("not poisoned").clone()).expect("a text")
        }
    }

    impl Write for CapturedProgress {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("not poisoned").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl ProgressLine {
        pub(crate) fn of(out: CapturedProgress, is_terminal: bool, first: Duration) -> Self {
            Self::with_interval(Box::new(out), is_terminal, ReportInterval { first, step: Duration::ZERO })
        }
    }
}
