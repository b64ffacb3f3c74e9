//! Styles, status marks, formatted numbers, and text without control characters.

use std::fmt::{self, Write as _};
use std::time::{Duration, UNIX_EPOCH};

use anstyle::{AnsiColor, Style};
use subtend_actors::worked::Worked;
use subtend_session::outcome::OutcomeKind;
use subtend_session::state::Phase;
pub(crate) use subtend_tools::escape::{exact, exact_pieces, harmless, harmless_pieces, on_one_line};
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

pub(crate) const DIM: Style = Style::new().dimmed();
pub(crate) const BOLD: Style = Style::new().bold();
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
pub(crate) const BAD: Style = AnsiColor::Red.on_default();
/// The style of warnings and stopped runs.
pub(crate) const CAUTION: Style = AnsiColor::Yellow.on_default();
/// The style of running work.
pub(crate) const LIVE: Style = AnsiColor::Cyan.on_default();

pub(crate) struct Styled<T>(pub(crate) Style, pub(crate) T);

impl<T: fmt::Display> fmt::Display for Styled<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}{}", self.0, self.1, self.0.render_reset())
    }
}

pub(crate) fn mark(outcome: OutcomeKind) -> (&'static str, Style) {
    match outcome {
        OutcomeKind::Completed => ("✓", GOOD),
        OutcomeKind::Failed | OutcomeKind::RestartsExhausted => ("✗", BAD),
        OutcomeKind::Cancelled | OutcomeKind::Interrupted => ("■", CAUTION),
        OutcomeKind::TimedOut | OutcomeKind::OutOfTurns | OutcomeKind::OutOfBudget => ("◷", CAUTION),
        OutcomeKind::Lost => ("?", BAD),
    }
}

pub(crate) const APPROVAL_MARK: (&str, Style) = ("◆", CAUTION);

pub(crate) const APPROVAL_TEXT: &str = "waits for approval";

/// The legend of the marks, for help texts.
pub(crate) const MARKS: &str = "\
Marks: ○ no run yet or queued   ◐ works   ◌ waits for subagents or a limit   ◆ waits for approval
       ✓ completed   ✗ failed   ■ cancelled, interrupted or held   ◷ out of time, turns or budget
       ? lost with its process   ◦ closed   ! unreadable";

fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Queued => "queued",
        Phase::Working => "working",
        Phase::WaitingMidTurn | Phase::WaitingAtRest => "waiting",
        Phase::HeldInterrupted => "held (interrupted)",
        Phase::HeldOutOfTurns => "held (out of turns)",
        Phase::Closing => "closing",
        Phase::Quiet => "quiet",
    }
}

/// Returns the mark and the style of a run in flight, as in the live tree.
pub(crate) fn phase_mark(phase: Phase) -> (&'static str, Style) {
    match phase {
        Phase::Queued | Phase::Quiet => ("○", DIM),
        Phase::Working | Phase::Closing => ("◐", LIVE),
        Phase::WaitingMidTurn | Phase::WaitingAtRest => ("◌", DIM),
        Phase::HeldInterrupted | Phase::HeldOutOfTurns => ("■", CAUTION),
    }
}

/// Describes the activity of a run in flight, including until when it waits for a provider's limit.
pub(crate) fn activity(phase: Phase, limited_until: Option<i64>) -> String {
    limited_until.map_or_else(|| phase_name(phase).to_owned(), limited)
}

pub(crate) fn limited(until_ms: i64) -> String {
    format!("waits for the provider's limit until {}", utc_time(until_ms))
}

/// Formats a Unix time in ms in UTC: `24 Nov 2026 08:58:15 UTC`.
fn utc_time(ms: i64) -> String {
    // A damaged record may contain any number; the year is limited to four digits.
    let at = UNIX_EPOCH + Duration::from_millis(u64::try_from(ms.min(253_402_300_799_999)).unwrap_or(0));
    format!("{} UTC", httpdate::fmt_http_date(at).get(5..25).unwrap_or_default())
}

pub(crate) fn in_flight(phase: Phase) -> bool {
    phase != Phase::Quiet
}

/// Returns a path as one harmless line.
pub(crate) fn path_line(path: &std::path::Path) -> String {
    on_one_line(&path.display().to_string())
}

/// The part of a text that a line shows some of: screen lines are shorter, so the rest of a huge text need not be read.
const MAX_SCANNED: usize = 4096;

/// Returns what `shown` displays as [`clip`] does. The rest of a huge text is not formatted.
pub(crate) fn clip_shown(shown: impl fmt::Display, width: usize) -> String {
    let mut start = StartOf(String::new());
    // An error only means that the text was truncated.
    let _ = write!(start, "{shown}");
    clip(&start.0, width)
}

/// The start of a text, a character longer than [`clip`] reads: writing more fails.
struct StartOf(String);

impl fmt::Write for StartOf {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        let left = MAX_SCANNED.saturating_add(4).saturating_sub(self.0.len());
        self.0.push_str(piece.get(..piece.floor_char_boundary(left)).unwrap_or_default());
        if piece.len() > left { Err(fmt::Error) } else { Ok(()) }
    }
}

/// Returns a text as one harmless line of at most `width` columns. A mark ends it if a part is left out.
pub(crate) fn clip(text: &str, width: usize) -> String {
    let line = one_line(text);
    if line.width() <= width && text.len() <= MAX_SCANNED {
        return line;
    }
    let mut out = String::new();
    let mut left = width.saturating_sub(1);
    for c in line.chars() {
        let columns = c.width().unwrap_or(0);
        if columns > left {
            break;
        }
        left = left.saturating_sub(columns);
        out.push(c);
    }
    out.push('…');
    out
}

fn one_line(text: &str) -> String {
    let start = text.get(..text.floor_char_boundary(MAX_SCANNED)).unwrap_or_default();
    harmless(start).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the first line of `text`, at most `width` columns wide, with the number of lines that follow.
pub(crate) fn first_line(text: &str, width: usize) -> String {
    let (first, rest) = text.split_once('\n').map_or((text, None), |(first, rest)| (first, Some(rest)));
    let more =
        rest.map_or_else(String::new, |rest| format!(" (and {})", count(rest.split('\n').count() as u64, "more line")));
    format!("{}{more}", clip(first, width))
}

/// Returns the spaces that pad `text` to `width` columns.
pub(crate) fn fill(text: &str, width: usize) -> String {
    " ".repeat(width.saturating_sub(text.width()))
}

/// Returns a count with its noun: `1 turn`, `2 turns`.
pub(crate) fn count(n: impl Into<u64>, noun: &str) -> String {
    match n.into() {
        1 => format!("1 {noun}"),
        n => format!("{n} {noun}s"),
    }
}

/// Formats a count of tokens: `950 tokens`, `12.3k tokens`, `4.5M tokens`.
pub(crate) fn tokens(n: u64) -> String {
    let tenths = |unit: u64| {
        let tenths = n / (unit / 10);
        format!("{}.{}", tenths / 10, tenths % 10)
    };
    match n {
        0..1_000 => count(n, "token"),
        1_000..1_000_000 => format!("{}k tokens", tenths(1_000)),
        _ => format!("{}M tokens", tenths(1_000_000)),
    }
}

/// Formats a size: `950 B`, `12.3 kB`, `4.5 MB`.
pub(crate) fn size(bytes: u64) -> String {
    let tenths = |unit: u64| format!("{}.{}", bytes / unit, bytes % unit / (unit / 10));
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{} kB", tenths(1_000)),
        _ => format!("{} MB", tenths(1_000_000)),
    }
}

/// Formats a duration: `0.4s`, `12s`, `3m 05s`, `2h 10m`.
pub(crate) fn format_duration(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..10 => format!("{seconds}.{}s", time.subsec_millis() / 100),
        10..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m {:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h {:02}m", seconds / 3_600, seconds / 60 % 60),
    }
}

/// Formats a working time: `1.2s`, or `at least 1.2s` if a process ended meanwhile; `None` up to 0.1 s.
pub(crate) fn work_span(worked: Worked) -> Option<String> {
    let known = format_duration(Duration::from_millis(worked.ms));
    match worked {
        Worked { at_least: false, .. } => Some(known),
        Worked { at_least: true, ms: 0..100 } => None,
        Worked { at_least: true, .. } => Some(format!("at least {known}")),
    }
}

pub(crate) const UNKNOWN_WORK: &str = "working time unknown";

/// Formats the age of a Unix time in ms: `just now`, `5 minutes ago`, `3 days ago`.
pub(crate) fn ago(now_ms: i64, then_ms: i64) -> String {
    let seconds = u64::try_from(now_ms.saturating_sub(then_ms) / 1_000).unwrap_or(0);
    match seconds {
        0..60 => "just now".to_owned(),
        60..3_600 => format!("{} ago", count(seconds / 60, "minute")),
        3_600..86_400 => format!("{} ago", count(seconds / 3_600, "hour")),
        _ => format!("{} ago", count(seconds / 86_400, "day")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parked_run_shows_the_end_of_its_wait() {
        let expected = "waits for the provider's limit until 24 Nov 2026 08:58:15 UTC";
        assert_eq!(activity(Phase::WaitingMidTurn, Some(1_795_510_695_000)), expected);
        assert_eq!(activity(Phase::WaitingMidTurn, None), "waiting");
        let far = "waits for the provider's limit until 31 Dec 9999 23:59:59 UTC";
        assert_eq!([i64::MAX, 253_402_300_800_000].map(|ms| activity(Phase::WaitingMidTurn, Some(ms))), [far; 2]);
    }

    #[test]
    fn u3_marks_of_runs_in_flight_are_in_the_legend() {
        let phases = [
            (Phase::Queued, "○", "queued"),
            (Phase::Working, "◐", "works"),
            (Phase::WaitingMidTurn, "◌", "waits for subagents"),
            (Phase::WaitingAtRest, "◌", "waits for subagents"),
            (Phase::HeldInterrupted, "■", "held"),
            (Phase::HeldOutOfTurns, "■", "held"),
            (Phase::Closing, "◐", "works"),
        ];
        for (phase, sign, meaning) in phases {
            assert_eq!(phase_mark(phase).0, sign, "{phase:?}");
            let explained = MARKS.split("   ").filter(|part| part.contains(sign));
            assert!(
                explained.clone().any(|part| part.contains(meaning)),
                "{phase:?}: {:?}",
                explained.collect::<Vec<_>>()
            );
        }
    }

    #[test]
    fn clipped_text_is_one_harmless_line_of_the_width() {
        assert_eq!(clip("two\nlines \u{1b}[2Jof it", 40), "two lines <U+001B>[2Jof it");
        assert_eq!(clip("abcdef", 6), "abcdef");
        assert_eq!(clip("abcdefg", 6), "abcde…");
        // Each of these takes two columns.
        assert_eq!(clip("漢字漢字", 6), "漢字…");
        assert_eq!(clip("漢字漢字", 0), "…");
        assert_eq!(clip(&format!("a{}b", " ".repeat(5_000)), 6), "a…");
    }

    /// A text that counts its written pieces, as a huge value has many.
    struct Pieces(std::cell::Cell<usize>);

    impl fmt::Display for Pieces {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            (0..1_000_000).try_for_each(|_| {
                self.0.set(self.0.get() + 1);
                f.write_str("é")
            })
        }
    }

    #[test]
    fn rest_of_a_huge_value_is_not_formatted() {
        let pieces = Pieces(0.into());
        assert_eq!((clip_shown(&pieces, 3), pieces.0.get()), ("éé…".to_owned(), 2_051));
        // The control: a short value is formatted whole.
        assert_eq!(clip_shown(format_args!("{} = {}", "a", 1), 10), "a = 1");
    }

    #[test]
    fn u4_first_line_counts_the_omitted_lines() {
        assert_eq!(first_line("make", 10), "make");
        assert_eq!(first_line("git status # scan\ntouch x\n", 40), "git status # scan (and 2 more lines)");
    }

    #[test]
    fn numbers_are_formatted_briefly() {
        let token_counts = [tokens(1), tokens(999), tokens(1_000), tokens(12_345), tokens(4_500_000)];
        assert_eq!(token_counts, ["1 token", "999 tokens", "1.0k tokens", "12.3k tokens", "4.5M tokens"]);
        let spans = [430, 9_990, 12_000, 185_000, 7_800_000].map(|ms| format_duration(Duration::from_millis(ms)));
        assert_eq!(spans, ["0.4s", "9.9s", "12s", "3m 05s", "2h 10m"]);
        let worked = [(0, false), (99, true), (1_200, true)].map(|(ms, at_least)| work_span(Worked { ms, at_least }));
        assert_eq!(worked, [Some("0.0s".to_owned()), None, Some("at least 1.2s".to_owned())]);
        let ages = [0, 59_000, 60_000, 7_200_000, 259_200_000].map(|ms| ago(ms, 0));
        assert_eq!(ages, ["just now", "just now", "1 minute ago", "2 hours ago", "3 days ago"]);
        assert_eq!(ago(0, 5_000), "just now", "a clock that was set back");
    }
}
