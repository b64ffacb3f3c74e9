//! Progress of a drill on stderr: at a terminal one line that is rewritten, otherwise a new line every ten seconds.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use subtend_drill::Report;
use tokio::time::Instant;

use crate::cli::paint::count;

/// Time between two lines if stderr is not a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct DrillProgress {
    is_terminal: bool,
    last: Instant,
    drawn: bool,
}

impl DrillProgress {
    pub(crate) fn new() -> Self {
        Self { is_terminal: std::io::stderr().is_terminal(), last: Instant::now(), drawn: false }
    }

    pub(crate) fn report(&mut self, report: &Report, kills: u64) {
        let line = line(report, kills);
        let mut err = std::io::stderr();
        // A failed write of progress does not stop the drill.
        if self.is_terminal {
            self.drawn = true;
            drop(write!(err, "\r\u{1b}[K{line}").and_then(|()| err.flush()));
        } else if self.last.elapsed() >= LINE_INTERVAL {
            self.last = Instant::now();
            drop(writeln!(err, "{line}"));
        }
    }

    pub(crate) fn clear(&self) {
        if self.drawn {
            drop(write!(std::io::stderr(), "\r\u{1b}[K"));
        }
    }
}

fn line(report: &Report, kills: u64) -> String {
    format!(
        "{} of {} · hit open calls {}, undelivered rows {}, recovery {}, deletions {} · {} acknowledged · {}",
        report.kills,
        count(kills, "kill"),
        report.hits.open_call,
        report.hits.outbox,
        report.hits.recovery,
        report.hits.deletion,
        report.acknowledged,
        count(report.violations(), "violation")
    )
}

#[cfg(test)]
mod tests {
    use subtend_drill::Hits;

    use super::*;

    #[test]
    fn progress_line_counts_kills_and_hits() {
        let hits = Hits { open_call: 3, outbox: 2, recovery: 1, ..Hits::default() };
        let report = Report { kills: 4, acknowledged: 210, hits, ..Report::default() };
        let expected = "4 of 50 kills · hit open calls 3, undelivered rows 2, recovery 1, deletions 0 · 210 acknowledged · 0 violations";
        assert_eq!(line(&report, 50), expected);
    }
}
