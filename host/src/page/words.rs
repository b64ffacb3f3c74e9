//! Formats numbers, times and states as text.

use std::time::{Duration, UNIX_EPOCH};

use subtend_session::outcome::{Outcome, OutcomeKind};
use subtend_session::state::Phase;
use subtend_session::usage::Usage;

/// Maximum characters of a text that is shortened to one line.
const LINE: usize = 140;

/// The label of a state, and its CSS class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StateLabel {
    pub(super) word: &'static str,
    pub(super) class: &'static str,
}

impl StateLabel {
    pub(super) fn of(phase: Phase, outcome: Option<OutcomeKind>) -> Self {
        let (word, class) = match phase {
            Phase::Queued => ("queued", "wait"),
            Phase::Working => ("working", "live"),
            Phase::WaitingMidTurn | Phase::WaitingAtRest => ("waiting", "wait"),
            Phase::HeldInterrupted => ("interrupted", "odd"),
            Phase::HeldOutOfTurns => ("out of turns", "odd"),
            Phase::Closing => ("ending", "odd"),
            Phase::Quiet => match outcome {
                None => ("new", "quiet"),
                Some(OutcomeKind::Completed) => ("completed", "good"),
                Some(kind @ (OutcomeKind::Cancelled | OutcomeKind::Interrupted)) => (kind.as_str(), "odd"),
                Some(kind) => (kind.as_str(), "bad"),
            },
        };
        Self { word, class }
    }

    pub(super) fn of_outcome(outcome: &Outcome) -> Self {
        Self::of(Phase::Quiet, Some(outcome.kind()))
    }
}

/// Returns a count with its unit: `1 turn`, `2 turns`.
pub(super) fn count(n: impl Into<u64>, unit: &str) -> String {
    let n = n.into();
    if n == 1 { format!("1 {unit}") } else { format!("{n} {unit}s") }
}

/// Returns a number of tokens, rounded: `950`, `12.3k`, `4.5M`.
pub(super) fn tokens(n: u64) -> String {
    let rounded = |unit: u64| {
        let tenths = n.saturating_mul(10).saturating_add(unit / 2) / unit;
        format!("{}.{}", tenths / 10, tenths % 10)
    };
    match n {
        0..1_000 => n.to_string(),
        1_000..1_000_000 => format!("{}k", rounded(1_000)),
        1_000_000.. => format!("{}M", rounded(1_000_000)),
    }
}

/// Returns the tokens of a usage, and its known cost: `12.3k tokens · $0.0120`. `at least` if a part is unknown.
pub(super) fn usage(usage: &Usage) -> String {
    let least = if usage.unreliable { "at least " } else { "" };
    let cost = usage.cost_micro.map(|micro| format!(" · {}", money(micro))).unwrap_or_default();
    format!("{least}{} tokens{cost}", tokens(usage.tokens()))
}

pub(super) fn money(micro: u64) -> String {
    format!("${}.{:04}", micro / 1_000_000, micro % 1_000_000 / 100)
}

pub(super) fn span(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..10_000 => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
        10_000..120_000 => format!("{} s", ms / 1_000),
        120_000..7_200_000 => format!("{} min", ms / 60_000),
        7_200_000.. => format!("{} h", ms / 3_600_000),
    }
}

/// Returns a moment in UTC: `24 Nov 2026 08:58:15`.
pub(super) fn utc_text(ms: i64) -> String {
    // A damaged record may contain any number, and the format has only four digits for the year.
    let at = UNIX_EPOCH + Duration::from_millis(u64::try_from(ms.min(253_402_300_799_999)).unwrap_or(0));
    httpdate::fmt_http_date(at).get(5..25).unwrap_or_default().to_owned()
}

/// Describes a run that is parked at a provider's limit.
pub(super) fn limited(until_ms: i64) -> String {
    format!("waiting for the provider's limit until {} UTC", utc_text(until_ms))
}

pub(super) fn line(text: &str) -> String {
    clip(text, LINE)
}

/// Returns at most `max` characters of a text, on one line and without control characters.
pub(super) fn clip(text: &str, max: usize) -> String {
    let mut clipped = String::new();
    for (at, c) in text.split_whitespace().flat_map(|word| word.chars().chain([' '])).enumerate() {
        if at == max {
            return format!("{}…", clipped.trim_end());
        }
        if !c.is_control() {
            clipped.push(c);
        }
    }
    clipped.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_rounded() {
        let rounded: Vec<_> = [0, 999, 1_000, 12_345, 4_499_999].map(tokens).into();
        assert_eq!(rounded, ["0", "999", "1.0k", "12.3k", "4.5M"]);
        assert_eq!([0, 1_250, 61_000, 600_000].map(span), ["0 ms", "1.2 s", "61 s", "10 min"]);
        assert_eq!(money(12_345), "$0.0123");
        assert_eq!(utc_text(1_795_510_695_000), "24 Nov 2026 08:58:15");
        assert_eq!(usage(&Usage { input: 1_200, unreliable: true, ..Usage::default() }), "at least 1.2k tokens");
    }

    #[test]
    fn clipped_text_is_one_line() {
        assert_eq!(clip("a\n  b\u{7}\tc", 9), "a b c");
        assert_eq!(clip("one two three", 7), "one two…");
    }
}
